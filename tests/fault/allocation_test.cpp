// SPDX-License-Identifier: Apache-2.0

// One allocation fails, whichever: each answer is right or an error, the next operation works, and
// nothing is left on the server beyond its lease.

#include "fault/faults.hpp"
#include "integration/lock_harness.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <filesystem>
#include <future>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace rlock::test {
namespace {

using Of = FailedAllocation::Of;

class Allocation : public LockTest, public ::testing::WithParamInterface<Of> {
 protected:
  static constexpr std::chrono::milliseconds kLease{1000};

  void SetUp() override {
    LockTest::SetUp();
    // Not reached by an error that is returned; says where it came from otherwise.
    std::set_terminate([] {
      FailedAllocation::print();
      std::abort();
    });
  }

  [[nodiscard]] Options tight() {
    Options settings = throughProxy_ ? proxied() : options();
    settings.watchdogTimeout = kLease;
    settings.commandTimeout = scaled(1s);
    settings.closeTimeout = 200ms;
    settings.reconnectDelayMax = 50ms;
    settings.username = user_;
    settings.password = user_.empty() ? "" : "pw";
    settings.log = [](LogLevel, std::string_view) {};
    settings.onLost = [this](const LostHold& hold) {
      if (hold.name == "mine") {
        ++lost_;
      }
    };
    return settings;
  }

  bool throughProxy_ = false;
  std::string user_;          // empty: the default one
  std::atomic<int> lost_{0};  // how often "mine" was

  /// Runs `act` with each allocation failing in turn, each time with a new client, and then checks
  /// what it left.
  /// @param prepare  what is done before
  /// @param act      throws nothing but exceptions that are an answer
  void each(const std::function<void(Client&)>& prepare, const std::function<void(Client&)>& act) {
    for (long k = 1;; ++k) {
      SCOPED_TRACE("allocation " + std::to_string(k));
      ASSERT_LT(k, 2000);
      bool happened = false;
      {
        raw().command({"FLUSHALL"});
        rawHold("foreign", "other:1", 60s);
        Client client = Client::connect(tight());
        // Scripts are known, pools are filled.
        RLock warm = client.getLock("warm");
        warm.lock();
        warm.unlock();
        prepare(client);
        const Stopwatch watch;
        {
          const FailedAllocation failure(k, GetParam());
          try {
            act(client);
          } catch (const std::exception&) {
            // An answer.
          }
          happened = FailedAllocation::happened();
        }
        if (HasFatalFailure()) {
          FailedAllocation::print();
          return;
        }
        EXPECT_LT(watch.elapsedMs(), scaled(4s));
        // The others are not disturbed, and nobody gets what is another's.
        RLock next = client.getLock("next");
        EXPECT_EQ(answerOf([&] { return next.tryLock(); }), "true");
        EXPECT_EQ(outcomeOf([&] { next.unlock(); }), "ok");
        RLock foreign = client.getLock("foreign");
        EXPECT_EQ(answerOf([&] { return foreign.tryLock(); }), "false");
        auto later = client.getLock("later").tryLockAsync({}, newOwner()).toFuture();
        EXPECT_TRUE(ready(later, kLong)) << "the loop still runs";
        EXPECT_EQ(raw().hgetall("foreign"), (std::map<std::string, std::string>{{"other:1", "1"}}));
      }
      raw().command({"DEL", "foreign"});
      EXPECT_EVENTUALLY(kLease + 1s, raw().command({"DBSIZE"}).integer() == 0)
          << "left: " << ::testing::PrintToString(raw().keys());
      if (HasFailure()) {
        FailedAllocation::print();
        return;
      }
      if (!happened) {
        break;
      }
    }
  }

  /// Runs `act` with each allocation failing in turn, each time with a new client and an empty
  /// server, and then `check` with what it has counted.
  /// @param act  throws nothing but exceptions that are an answer
  void eachAlone(const std::function<void()>& prepare,
                 const std::function<void(Client&, int&)>& act,
                 const std::function<void(Client&, int)>& check) {
    for (long k = 1;; ++k) {
      SCOPED_TRACE("allocation " + std::to_string(k));
      ASSERT_LT(k, 2000);
      raw().command({"FLUSHALL"});
      Client client = Client::connect(tight());
      prepare();
      int count = 0;
      bool happened = false;
      {
        const FailedAllocation failure(k, GetParam());
        try {
          act(client, count);
        } catch (const std::exception&) {
          // An answer.
        }
        happened = FailedAllocation::happened();
      }
      check(client, count);
      if (HasFailure()) {
        FailedAllocation::print();
        return;
      }
      if (!happened) {
        break;
      }
    }
  }

  /// The permits that a test has taken from a semaphore.
  struct Permits {
    std::string id;
    PermitExpirableSemaphore::Ids ids;
    Permit held;
  };
  /// Takes permits with each allocation failing in turn, each time with a new client, and then
  /// looks whether all of them are free again.
  /// @param take  throws nothing but exceptions that are an answer
  void eachOfPermits(const std::function<void(PermitExpirableSemaphore&, Permits&)>& take) {
    for (long k = 1;; ++k) {
      SCOPED_TRACE("allocation " + std::to_string(k));
      ASSERT_LT(k, 2000);
      raw().command({"FLUSHALL"});
      raw().set("gates", "3");
      Client client = Client::connect(tight());
      PermitExpirableSemaphore semaphore = client.getPermitExpirableSemaphore("gates");
      // Scripts are known, pools are filled.
      semaphore.release(semaphore.acquireMany(2));
      static_cast<void>(semaphore.hold().release());
      bool happened = false;
      Permits mine;
      {
        const FailedAllocation failure(k, GetParam());
        try {
          take(semaphore, mine);
        } catch (const std::future_error&) {
          ADD_FAILURE() << "a handler was not called";
        } catch (const std::exception&) {
          // An answer.
        }
        happened = FailedAllocation::happened();
      }
      if (!mine.id.empty()) {
        semaphore.release(mine.id);
      }
      if (!mine.ids.empty()) {
        semaphore.release(mine.ids);
      }
      static_cast<void>(mine.held.release());
      EXPECT_EVENTUALLY(kLong, semaphore.availablePermits() == 3);
      EXPECT_EVENTUALLY(kLong, client.stats().holds == 0);
      if (HasFailure()) {
        FailedAllocation::print();
        return;
      }
      if (!happened) {
        break;
      }
    }
  }
};

/// Each kind has scripts, keys and a way to wait of its own.
TEST_P(Allocation, ToUseEachKindOfLock) {
  using Get = std::function<RLock(Client&)>;
  const std::vector<Get> kinds{
      [](Client& client) { return client.getFairLock("mine"); },
      [](Client& client) { return client.getNonReentrantLock("mine"); },
      [](Client& client) { return client.getNonReentrantFairLock("mine"); },
      [](Client& client) { return client.getReadWriteLock("mine").readLock(); },
      [](Client& client) { return client.getReadWriteLock("mine").writeLock(); },
      [](Client& client) { return client.getSpinLock("mine"); },
      [](Client& client) { return client.getSimpleLock("mine"); }};
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    SCOPED_TRACE("kind " + std::to_string(i));
    each([](Client&) {},
         [&](Client& client) {
           RLock lock = kinds[i](client);
           if (lock.tryLock(1s)) {
             lock.unlock();
           }
         });
    if (HasFailure()) {
      return;
    }
  }
}

/// A hold without its token would be nobody's.
TEST_P(Allocation, ToTakeAToken) {
  each([](Client&) {},
       [this](Client& client) {
         FencedLock lock = client.getFencedLock("mine");
         bool held = false;
         try {
           held = lock.tryLockAndGetToken().has_value();
           if (held) {
             lock.unlock();
             held = false;
           }
           auto token = lock.lockAndGetTokenAsync({}, newOwner()).toFuture();
           ASSERT_TRUE(ready(token, kLong));
           static_cast<void>(token.get());
           held = true;
         } catch (const std::exception&) {
           // An answer.
         }
         FailedAllocation::disarm();
         if (!held) {
           EXPECT_EVENTUALLY(kLong, client.stats().holds == 0);
         }
         static_cast<void>(lock.forceUnlock());
         for (const std::string& key : raw().keys()) {
           // The counter stays, and so does an idempotency key for a while.
           if (key != "foreign") {
             raw().command({"DEL", key});
           }
         }
       });
}

/// The caller that comes second has its turn when the first is done, and is told.
TEST_P(Allocation, ToPassAGateOn) {
  each([](Client&) {},
       [](Client& client) {
         RLock lock = client.getLock("mine");
         const OwnerId owner = newOwner();
         std::vector<std::future<void>> locked;
         int held = 0;
         try {
           for (int i = 0; i < 3; ++i) {
             locked.push_back(lock.lockAsync(AcquireOptions{}, owner).toFuture());
           }
         } catch (const std::exception&) {
           // The others have their answers all the same.
         }
         for (std::future<void>& each : locked) {
           ASSERT_TRUE(ready(each, kLong));
           try {
             each.get();
             ++held;
           } catch (const std::exception&) {
             // An answer.
           }
         }
         FailedAllocation::disarm();
         for (; held > 0; --held) {
           EXPECT_EQ(outcomeOf([&] { lock.unlockAsync(owner).get(); }), "ok");
         }
       });
}

TEST_P(Allocation, ToAsk) {
  each([](Client&) {},
       [](Client& client) {
         RLock lock = client.getLock("foreign");
         static_cast<void>(lock.isLocked());
         static_cast<void>(lock.getHoldCount());
         static_cast<void>(lock.remainTimeToLive());
         static_cast<void>(client.inspect("foreign"));
         static_cast<void>(client.list("fore*"));
         static_cast<void>(client.stats());
       });
}

/// Also of a waiter that sleeps.
TEST_P(Allocation, ToStopAWaiter) {
  std::stop_source stop;
  std::shared_ptr<std::atomic<int>> answers;
  each(
      [&](Client& client) {
        stop = std::stop_source();
        answers = std::make_shared<std::atomic<int>>(0);
        client.getLock("foreign")
            .acquireAsync({.wait = 2s, .stop = stop.get_token()}, newOwner())
            .start([count = answers](const Result<Lease>& /*lease*/) { ++*count; });
        ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
      },
      [&](Client&) {
        stop.request_stop();
        // Without memory to be stopped it stays until its time is over.
        EXPECT_EVENTUALLY(kLong, *answers == 1);
      });
  EXPECT_EQ(*answers, 1);
}

TEST_P(Allocation, ToChangeTheLeaseOfAPermit) {
  eachOfPermits([](PermitExpirableSemaphore& semaphore, Permits& mine) {
    mine.held = semaphore.hold({.lease = 60s});
    static_cast<void>(semaphore.updateLeaseTime(mine.held.id(), 50s));
    static_cast<void>(semaphore.getLeaseTime(mine.held.id()));
  });
}

/// A permit that nobody has would be missing for ever.
TEST_P(Allocation, ToTakePermitsOfASemaphore) {
  eachAlone([this] { raw().set("counted", "3"); },
            [](Client& client, int& taken) {
              Semaphore semaphore = client.getSemaphore("counted");
              taken += semaphore.tryAcquire(2) ? 2 : 0;
              auto one = semaphore.tryAcquireAsync().toFuture();
              ASSERT_TRUE(ready(one, kLong));
              taken += one.get() ? 1 : 0;
            },
            [](Client& client, int taken) {
              Semaphore semaphore = client.getSemaphore("counted");
              if (taken > 0) {
                semaphore.release(taken);
              }
              EXPECT_EVENTUALLY(kLong, semaphore.availablePermits() == 3);
            });
}

TEST_P(Allocation, ToCountALatchDown) {
  eachAlone([] {},
            [](Client& client, int& counted) {
              CountDownLatch latch = client.getCountDownLatch("latch");
              counted += latch.trySetCount(2) ? 1 : 0;
              latch.countDown();
              ++counted;
            },
            [](Client& client, int counted) {
              CountDownLatch latch = client.getCountDownLatch("latch");
              if (counted == 2) {
                EXPECT_EQ(latch.getCount(), 1);
              } else {
                // Nothing, or what goes on in the background.
                EXPECT_LE(latch.getCount(), 2);
              }
            });
}

TEST_P(Allocation, ToForceARelease) {
  eachAlone(
      [this] { rawHold("forced", "other:1", 60s); },
      [](Client& client, int& forced) { forced += client.getLock("forced").forceUnlock() ? 1 : 0; },
      [this](Client& client, int forced) {
        if (forced == 0) {
          static_cast<void>(client.getLock("forced").forceUnlock());
        }
        EXPECT_FALSE(raw().exists("forced"));
      });
}

TEST_P(Allocation, XCPP14_ToAcquireAndRelease) {
  each([](Client&) {},
       [](Client& client) {
         RLock lock = client.getLock("mine");
         if (lock.tryLock()) {
           lock.unlock();
         }
       });
}

/// A label takes memory after the grant was booked: what the caller has no lock of is not kept.
TEST_P(Allocation, ToAcquireWithALabel) {
  each([this](Client&) { EXPECT_EQ(lost_, 0); },
       [](Client& client) {
         try {
           Lease lease =
               client.getLock("mine").acquire({.label = "a label that takes memory of its own"});
           static_cast<void>(lease.release());
         } catch (const std::bad_alloc&) {
           EXPECT_EVENTUALLY(kLong, client.stats().holds == 0);
         }
       });
  EXPECT_EQ(lost_, 0);
}

/// They have no lease: those that nobody knows of would be taken for ever.
TEST_P(Allocation, ToAcquirePermits) {
  eachOfPermits([](PermitExpirableSemaphore& semaphore, Permits& mine) {
    mine.id = semaphore.acquire();
    mine.ids = semaphore.acquireMany(2);
  });
  eachOfPermits([](PermitExpirableSemaphore& semaphore, Permits& mine) {
    auto one = semaphore.acquireAsync().toFuture();
    ASSERT_TRUE(ready(one, kLong));
    mine.id = one.get();
    auto two = semaphore.acquireManyAsync(2).toFuture();
    ASSERT_TRUE(ready(two, kLong));
    mine.ids = two.get();
  });
}

/// One that is nobody's would be renewed for as long as the client lives.
TEST_P(Allocation, ToHoldAPermit) {
  eachOfPermits(
      [](PermitExpirableSemaphore& semaphore, Permits& mine) { mine.held = semaphore.hold(); });
  eachOfPermits([](PermitExpirableSemaphore& semaphore, Permits& mine) {
    auto permit = semaphore.holdAsync().toFuture();
    ASSERT_TRUE(ready(permit, kLong));
    mine.held = permit.get();
  });
}

/// The first of a server's queue fails when its turn comes: the next is not kept waiting by what it
/// leaves in the queue, and closing does not wait for that, either.
TEST_P(Allocation, ToTakeATurnInAQueueOfTheServer) {
  for (long k = 1;; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    ASSERT_LT(k, 2000);
    raw().command({"FLUSHALL"});
    Options settings = tight();
    settings.fairWaiterLease = 30s;
    Client holder = Client::connect(settings);
    Client first = Client::connect(settings);
    Client second = Client::connect(settings);
    RLock held = holder.getFairLock("fair");
    held.lock();
    auto turn = inThread([&] {
      return outcomeOf([&] {
        RLock lock = first.getFairLock("fair");
        lock.lock();
        lock.unlock();
      });
    });
    ASSERT_EVENTUALLY(kLong, first.stats().waiters == 1);
    auto next = second.getFairLock("fair").lockAsync({}, newOwner()).toFuture();
    ASSERT_EVENTUALLY(kLong, second.stats().waiters == 1);
    bool happened = false;
    {
      const FailedAllocation failure(k, GetParam());
      for (int attempt = 0; attempt < 2 && outcomeOf([&] { held.unlock(); }) != "ok"; ++attempt) {
      }
      ASSERT_TRUE(ready(turn, kLong));
      happened = FailedAllocation::happened();
    }
    const std::string outcome = turn.get();
    EXPECT_TRUE(ready(next, scaled(5s))) << outcome;
    static_cast<void>(outcomeOf([&] { next.get(); }));
    const Stopwatch watch;
    first.close(10s);
    EXPECT_LT(watch.elapsedMs(), scaled(5s)) << outcome;
    if (HasFailure()) {
      FailedAllocation::print();
      return;
    }
    if (!happened) {
      break;
    }
  }
}

TEST_P(Allocation, ToBeRefused) {
  each([](Client&) {}, [](Client& client) { EXPECT_FALSE(client.getLock("foreign").tryLock()); });
}

/// The handler of a call in the background is called with an error, and nothing is obtained.
TEST_P(Allocation, ToSayInTheBackgroundThatItWasInVain) {
  const auto refused = [](auto operation) {
    auto told = std::move(operation).toFuture();
    ASSERT_TRUE(ready(told, kLong));
    try {
      static_cast<void>(told.get());
      ADD_FAILURE() << "there was nothing to obtain";
    } catch (const std::future_error&) {
      ADD_FAILURE() << "the handler was not called";
    } catch (const std::exception&) {
      // An answer.
    }
  };
  each([](Client&) {},
       [&](Client& client) {
         refused(client.getLock("foreign").acquireAsync({.wait = 20ms}, newOwner()));
         refused(client.getFencedLock("none").getTokenAsync(newOwner()));
       });
}

TEST_P(Allocation, ToWait) {
  each(
      [](Client& client) {
        client.getLock("awaited").lockAsync({.lease = 40ms}, newOwner()).get();
      },
      [](Client& client) {
        RLock lock = client.getLock("awaited");
        if (lock.tryLock(1s)) {
          lock.unlock();
        }
      });
}

/// The thread that releases drives for the next owner, too, and each of them is answered.
TEST_P(Allocation, ToHandOver) {
  for (const char* const label : {"", "a label that takes memory of its own"}) {
    std::optional<RLock> lock;
    std::vector<std::future<Lease>> next;
    each(
        [&](Client& client) {
          lock = client.getLock("over");
          lock->lock();
          next.clear();
          for (std::size_t i = 0; i < 2; ++i) {
            next.push_back(lock->acquireAsync({.label = label}, newOwner()).toFuture());
            ASSERT_EVENTUALLY(kLong, client.stats().waiters == i + 1);
          }
        },
        [&](Client&) {
          const std::string released = outcomeOf([&] { lock->unlock(); });
          if (released != "ok") {
            // Nothing has happened, or it goes on in the background.
            static_cast<void>(outcomeOf([&] { lock->unlock(); }));
          }
          lock.reset();
          for (std::future<Lease>& each : next) {
            ASSERT_TRUE(ready(each, kLong)) << released;
            try {
              static_cast<void>(each.get().release());
            } catch (const std::exception&) {
              // An answer.
            }
          }
        });
  }
}

/// The caller leaves while the reply is on its way: it is answered once, and what was granted is
/// given back.
TEST_P(Allocation, ToLeaveARequestUnderWay) {
  throughProxy_ = true;
  const auto delayed =
      proxy().addRule(TcpProxy::script("slow"), TcpProxy::Action::delayReply(120ms));
  for (const bool stopped : {false, true}) {
    SCOPED_TRACE(stopped ? "stopped" : "late");
    std::vector<std::shared_ptr<std::atomic<int>>> answers;
    each([](Client&) {},
         [&](Client& client) {
           const auto before = delayed.hits();
           std::stop_source stop;
           AcquireOptions terms{.stop = stop.get_token()};
           if (!stopped) {
             terms.wait = Duration(40ms);
           }
           answers.push_back(std::make_shared<std::atomic<int>>(0));
           client.getLock("slow")
               .acquireAsync(terms, newOwner())
               .start([count = answers.back()](const Result<Lease>& /*lease*/) { ++*count; });
           if (stopped) {
             // It may have failed before.
             EXPECT_EVENTUALLY(kLong, delayed.hits() > before || *answers.back() == 1);
             stop.request_stop();
           }
           EXPECT_EVENTUALLY(kLong, *answers.back() == 1);
           // The reply comes, and what was granted goes, or ends with its lease.
           EXPECT_EVENTUALLY(kLong, !raw().exists("slow"));
         });
    for (const auto& count : answers) {
      EXPECT_LE(*count, 1);
    }
  }
}

/// The same of a thread: its request is not sent a second time while it is under way, which would
/// cut off what stands behind it on the connection.
TEST_P(Allocation, ToLeaveARequestUnderWayAsAThread) {
  throughProxy_ = true;
  const auto delayed =
      proxy().addRule(TcpProxy::script("slow"), TcpProxy::Action::delayReply(120ms));
  std::vector<std::future<bool>> behind;
  each([&](Client&) { behind.clear(); },
       [&](Client& client) {
         const auto before = delayed.hits();
         const OwnerId other = newOwner();
         auto questions = inThread([&] {
           // They stand behind the request, if it was sent.
           static_cast<void>(eventually(1s, [&] { return delayed.hits() > before; }));
           for (int i = 0; i < 3; ++i) {
             behind.push_back(client.getLock("slow").isHeldByAsync(other).toFuture());
           }
         });
         const std::string answer = answerOf([&] { return client.getLock("slow").tryLock(40ms); });
         questions.get();
         for (std::future<bool>& question : behind) {
           ASSERT_TRUE(ready(question, kLong)) << answer;
           static_cast<void>(outcomeOf([&] { question.get(); }));
         }
         EXPECT_EVENTUALLY(kLong, !raw().exists("slow")) << answer;
         if (GetParam() == Of::thisThread) {
           EXPECT_EQ(client.stats().reconnects, 0U) << answer << ": the connection was out of step";
         }
       });
}

/// The other members would be renewed for ever if they were not given back.
TEST_P(Allocation, ToLoseAMemberOfAGroup) {
  std::optional<Lease> lease;
  each(
      [&](Client& client) {
        lease = multiLock({client.getLock("one"), client.getLock("two")}).acquire();
      },
      [&](Client&) {
        const std::optional<Lease> mine = std::exchange(lease, std::nullopt);
        // The next renewal finds it.
        raw().command({"DEL", "one"});
        EXPECT_EVENTUALLY(kLong, mine->lossReason() != LossReason::none);
        EXPECT_EVENTUALLY(kLong, !raw().exists("two"));
      });
}

RLock groupOfThree(Client& client, bool majority) {
  const std::vector<RLock> members{
      client.getLock("one"), client.getLock("two"), client.getLock("three")};
  return majority ? redLock(members) : multiLock(members);
}

/// The members would be renewed for as long as the client lives.
TEST_P(Allocation, ToReleaseAGroup) {
  for (const bool majority : {false, true}) {
    SCOPED_TRACE(majority ? "RedLock" : "MultiLock");
    std::optional<Lease> lease;
    each([&](Client& client) { lease = groupOfThree(client, majority).acquire(); },
         [&](Client&) {
           static_cast<void>(std::exchange(lease, std::nullopt)->release());
           EXPECT_EVENTUALLY(
               kLong, !raw().exists("one") && !raw().exists("two") && !raw().exists("three"));
         });
  }
}

/// A member that comes later is a part of the hold, or is given back.
TEST_P(Allocation, ToRepairAMember) {
  if (GetParam() == Of::thisThread) {
    return;  // A repair is made by the loop thread.
  }
  std::optional<Lease> lease;
  each(
      [&](Client& client) {
        rawHold("one", "other:1", 60s);
        lease = groupOfThree(client, true).acquire();
        raw().run({"DEL", "one"});
      },
      [&](Client&) {
        // Asked for at the next look, or the one after that.
        EXPECT_EVENTUALLY(kLong, raw().exists("one"));
        static_cast<void>(std::exchange(lease, std::nullopt)->release());
        EXPECT_EVENTUALLY(kLong,
                          !raw().exists("one") && !raw().exists("two") && !raw().exists("three"));
      });
}

TEST_P(Allocation, ToAcquireAGroup) {
  for (const bool majority : {false, true}) {
    SCOPED_TRACE(majority ? "RedLock" : "MultiLock");
    each([](Client&) {},
         [&](Client& client) {
           RLock group = groupOfThree(client, majority);
           static_cast<void>(group.acquire());
           auto next = group.acquireAsync({}, newOwner()).toFuture();
           ASSERT_TRUE(ready(next, kLong));
           static_cast<void>(next.get().release());
         });
  }
}

TEST_P(Allocation, ToAcquireAGroupByAnOwnerThatTriesAgain) {
  for (const bool majority : {false, true}) {
    SCOPED_TRACE(majority ? "RedLock" : "MultiLock");
    each([](Client&) {},
         [&](Client& client) {
           RLock group = groupOfThree(client, majority);
           const OwnerId owner = newOwner();
           int held = 0;
           for (int attempt = 0; attempt < 2; ++attempt) {
             auto locked = group.tryLockAsync({}, owner).toFuture();
             ASSERT_TRUE(ready(locked, kLong));
             try {
               held += locked.get() ? 1 : 0;
             } catch (const Error&) {
               // There was no memory for this one.
             }
           }
           for (; held > 0; --held) {
             auto unlocked = group.unlockAsync(owner).toFuture();
             ASSERT_TRUE(ready(unlocked, kLong));
             unlocked.get();
           }
         });
  }
}

TEST_P(Allocation, ToStopTheAcquisitionOfAGroup) {
  for (const bool majority : {false, true}) {
    SCOPED_TRACE(majority ? "RedLock" : "MultiLock");
    each(
        [](Client&) {},
        [&](Client& client) {
          const std::vector<RLock> members{client.getLock("a free one"), client.getLock("foreign")};
          RLock group = majority ? redLock(members) : multiLock(members);
          std::stop_source stop;
          const auto answered = std::make_shared<std::atomic<int>>(0);
          group.acquireAsync({.stop = stop.get_token()}, newOwner())
              .start([answered](const Result<Lease>& /*lease*/) { ++*answered; });
          stop.request_stop();
          EXPECT_EVENTUALLY(kLong, *answered == 1);
        });
  }
}

/// Of two holds one is released, once, whatever there is no memory to say.
TEST_P(Allocation, ToReleaseAGroupThatIsHeldTwice) {
  user_ = "weak";
  raw().command({"ACL", "SETUSER", user_, "on", ">pw", "~*", "&*", "+@all"});
  std::optional<RLock> group;
  const auto counts = [&] {
    std::string text;
    for (const char* name : {"one", "two"}) {
      const auto fields = raw().hgetall(name);
      text += fields.empty() ? "0" : fields.begin()->second;
    }
    return text;
  };
  each(
      [&](Client& client) {
        group = multiLock({client.getLock("one"), client.getLock("two")});
        group->lock();
        group->lock();
      },
      [&](Client&) {
        raw().command({"ACL", "SETUSER", user_, "-hincrby"});
        std::string outcome = "std::bad_alloc";
        try {
          outcome = outcomeOf([&] { group->unlock(); });
        } catch (const std::bad_alloc&) {
          // It was the text of the outcome that there was no memory for.
        }
        FailedAllocation::disarm();
        raw().command({"ACL", "SETUSER", user_, "+hincrby"});
        // Nothing has changed, or one goes now or with the last.
        std::this_thread::sleep_for(30ms);
        EXPECT_THAT(counts(), ::testing::MatchesRegex("[12][12]")) << outcome;
        while (outcomeOf([&] { group->unlock(); }) == "ok") {
        }
      });
}

/// It is told by an exception or by its handler, never by both.
TEST_P(Allocation, ToListInTheBackground) {
  each([](Client&) {},
       [](Client& client) {
         const auto told = std::make_shared<std::atomic<int>>(0);
         int expected = 1;
         try {
           client.listAsync("*").start([told](const auto& /*found*/) { ++*told; });
         } catch (const std::bad_alloc&) {
           expected = 0;
         }
         EXPECT_EVENTUALLY(kLong, *told >= expected);
         FailedAllocation::disarm();
         // Everything that was queued before this call has run when it is answered.
         auto after = client.getLock("foreign").isLockedAsync().toFuture();
         EXPECT_TRUE(ready(after, kLong));
         EXPECT_EQ(*told, expected);
       });
}

TEST_P(Allocation, ToAcquireAndReleaseInTheBackground) {
  each([](Client&) {},
       [](Client& client) {
         RLock lock = client.getLock("mine");
         const OwnerId owner = newOwner();
         auto locked = lock.tryLockAsync({}, owner).toFuture();
         ASSERT_TRUE(ready(locked, kLong));
         if (locked.get()) {
           auto unlocked = lock.unlockAsync(owner).toFuture();
           ASSERT_TRUE(ready(unlocked, kLong));
           unlocked.get();
         }
       });
}

TEST_P(Allocation, ToKeepALease) {
  each([](Client&) {},
       [](Client& client) {
         Lease lease = client.getLock("kept").acquire();
         const auto end = Clock::now() + kLease / 2;
         while (Clock::now() < end) {
           std::this_thread::sleep_for(5ms);
         }
         static_cast<void>(lease.release());
       });
}

TEST_P(Allocation, ToReconnect) {
  each([](Client&) {},
       [this](Client& client) {
         RLock lock = client.getLock("mine");
         raw().command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
         if (lock.tryLock()) {
           lock.unlock();
         }
       });
}

TEST_P(Allocation, ToClose) {
  each([](Client& client) { client.getLock("held").lock(); },
       [this](Client& client) {
         client.close(500ms);
         // One more than the allocation that fails.
         for (int attempt = 0; attempt < 2; ++attempt) {
           try {
             client = Client::connect(tight());
             return;
           } catch (const std::exception&) {
             continue;
           }
         }
       });
}

/// Every waiter hears of it: a thread, and a handler.
TEST_P(Allocation, ToCloseWithWaiters) {
  for (long k = 1;; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    ASSERT_LT(k, 2000);
    raw().command({"FLUSHALL"});
    rawHold("foreign", "other:1", 60s);
    Client client = Client::connect(tight());
    client.getLock("held").lock();
    auto thread = inThread([&] { return outcomeOf([&] { client.getLock("foreign").lock(); }); });
    ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
    auto handler = client.getLock("foreign").lockAsync({}, newOwner()).toFuture();
    ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2);
    bool happened = false;
    const Stopwatch watch;
    {
      const FailedAllocation failure(k, GetParam());
      client.close(500ms);
      happened = FailedAllocation::happened();
    }
    EXPECT_LT(watch.elapsedMs(), scaled(2s));
    ASSERT_TRUE(ready(thread, kLong)) << "it sleeps for ever";
    ASSERT_TRUE(ready(handler, kLong));
    // The allocation that failed may have been for one of the waiters.
    const std::string outcome = thread.get() + ' ' + outcomeOf([&] { handler.get(); });
    if (!happened || GetParam() == Of::thisThread) {
      EXPECT_EQ(outcome, "closed closed");
    }
    if (HasFailure()) {
      FailedAllocation::print();
      return;
    }
    if (!happened) {
      break;
    }
  }
}

/// The loop thread cannot wait for its own end, so that nobody ends the loop for it.
TEST_P(Allocation, ToCloseInAHandler) {
  // A folder has one link for itself, one for its name, and one for each thread in it. Reading the
  // folder would use a descriptor of which the thread sanitizer knows no beginning.
  const auto threads = [] { return std::filesystem::hard_link_count("/proc/self/task"); };
  const auto before = threads();
  for (long k = 1;; ++k) {
    SCOPED_TRACE("allocation " + std::to_string(k));
    ASSERT_LT(k, 2000);
    auto client = std::make_unique<Client>(Client::connect(tight()));
    client->getLock("held").lock();
    auto question = client->getLock("held").isLockedAsync();
    auto handler = std::make_shared<int>(0);
    const std::weak_ptr<int> waited = handler;
    auto close = [client = std::move(client),
                  handler = std::move(handler)](const Result<bool>& /*held*/) mutable {
      client->close(500ms);
      client.reset();
    };
    bool happened = false;
    {
      const FailedAllocation failure(k, GetParam());
      try {
        std::move(question).start(std::move(close));
      } catch (const std::bad_alloc&) {
        // The handler, and its client with it, is destroyed here.
      }
      if (GetParam() == Of::thisThread) {
        FailedAllocation::disarm();
      }
      EXPECT_EVENTUALLY(kLong, waited.expired()) << "it has no answer";
      EXPECT_EVENTUALLY(kLong, threads() <= before) << "the loop goes on";
      happened = FailedAllocation::happened();
    }
    if (HasFailure()) {
      FailedAllocation::print();
      return;
    }
    if (!happened) {
      break;
    }
  }
}

/// More calls than the loop has a reserve for are answered while there is no memory at all: each is
/// told once, then or when there is memory again.
TEST_P(Allocation, ToAnswerManyCalls) {
  constexpr std::size_t kCalls = 200;
  std::vector<std::atomic<int>> answers(kCalls);
  const auto all = [&answers] {
    return std::all_of(answers.begin(), answers.end(), [](const auto& count) { return count > 0; });
  };
  Options settings = tight();
  settings.commandTimeout = 5s;
  // A lease that is granted after the pause is still valid.
  constexpr std::chrono::milliseconds kOwnLease{3000};
  settings.watchdogTimeout = kOwnLease;
  Client client = Client::connect(settings);
  RLock warm = client.getLock("warm");
  warm.lock();
  warm.unlock();
  raw().command({"CLIENT", "PAUSE", "1000", "ALL"});
  for (std::size_t i = 0; i < kCalls; ++i) {
    client.getLock("many:" + std::to_string(i))
        .acquireAsync({}, newOwner())
        .start([&count = answers[i]](const Result<Lease>& /*lease*/) { ++count; });
  }
  // The replies that this thread reads while it waits for its own may be for the others.
  {
    const FailedAllocation failure(1, GetParam(), std::numeric_limits<int>::max());
    try {
      static_cast<void>(warm.tryLock());
    } catch (const std::exception&) {
      // An answer.
    }
    static_cast<void>(eventually(2s, all));
    EXPECT_TRUE(FailedAllocation::happened());
  }
  EXPECT_EVENTUALLY(kLong, all());
  auto later = client.getLock("later").tryLockAsync({}, newOwner()).toFuture();
  EXPECT_TRUE(ready(later, kLong)) << "the loop still runs";
  client.close(1s);
  for (const auto& count : answers) {
    EXPECT_EQ(count, 1);
  }
  EXPECT_EVENTUALLY(kOwnLease + 1s, raw().command({"DBSIZE"}).integer() == 0);
}

INSTANTIATE_TEST_SUITE_P(OfTheCaller, Allocation, ::testing::Values(Of::thisThread));
INSTANTIATE_TEST_SUITE_P(OfTheLoop, Allocation, ::testing::Values(Of::otherThreads));

}  // namespace
}  // namespace rlock::test
