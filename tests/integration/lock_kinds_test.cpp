// SPDX-License-Identifier: Apache-2.0

// Behaviour that all kinds of RLock share, by the ids of the catalogue. A kind is one line in
// kKinds.

#include "integration/lock_harness.hpp"

#include <algorithm>
#include <future>
#include <iterator>
#include <ostream>
#include <tuple>
#include <vector>

namespace rlock::test {
namespace {

struct KindUnderTest {
  const char* name;
  RLock (*make)(Client& client, std::string_view lockName);
  bool reentrant = true;
};

std::ostream& operator<<(std::ostream& out, const KindUnderTest& kind) {
  return out << kind.name;
}

constexpr KindUnderTest kKinds[] = {
    {"plain", [](Client& client, std::string_view name) { return client.getLock(name); }},
    {"fair", [](Client& client, std::string_view name) { return client.getFairLock(name); }},
    {"nonReentrant",
     [](Client& client, std::string_view name) { return client.getNonReentrantLock(name); },
     false},
    {"nonReentrantFair",
     [](Client& client, std::string_view name) { return client.getNonReentrantFairLock(name); },
     false},
    {"fenced",
     [](Client& client, std::string_view name) -> RLock { return client.getFencedLock(name); }},
    {"spin", [](Client& client, std::string_view name) { return client.getSpinLock(name); }},
    {"simple",
     [](Client& client, std::string_view name) { return client.getSimpleLock(name); },
     false},
};

std::vector<KindUnderTest> reentrantKinds() {
  std::vector<KindUnderTest> kinds;
  std::copy_if(std::begin(kKinds),
               std::end(kKinds),
               std::back_inserter(kinds),
               [](const KindUnderTest& kind) { return kind.reentrant; });
  return kinds;
}

using Params = std::tuple<KindUnderTest, Face>;

std::string paramName(const ::testing::TestParamInfo<Params>& test) {
  return std::string(std::get<0>(test.param).name) + "_" + toString(std::get<1>(test.param));
}

class LockKinds : public LockTest, public ::testing::WithParamInterface<Params> {
 protected:
  [[nodiscard]] FaceLock lockOf(Client& client, std::string_view name) {
    return {std::get<1>(GetParam()), std::get<0>(GetParam()).make(client, name)};
  }
};
class ReentrantLockKinds : public LockKinds {};
class LockKindsOnce : public LockTest, public ::testing::WithParamInterface<KindUnderTest> {
 protected:
  [[nodiscard]] RLock make(Client& client, std::string_view name) {
    return GetParam().make(client, name);
  }
};
class LockKindsSlow : public LockKindsOnce {};

INSTANTIATE_TEST_SUITE_P(Kinds,
                         LockKinds,
                         ::testing::Combine(::testing::ValuesIn(kKinds),
                                            ::testing::ValuesIn(kFaces)),
                         paramName);
INSTANTIATE_TEST_SUITE_P(Kinds,
                         ReentrantLockKinds,
                         ::testing::Combine(::testing::ValuesIn(reentrantKinds()),
                                            ::testing::ValuesIn(kFaces)),
                         paramName);
INSTANTIATE_TEST_SUITE_P(Kinds,
                         LockKindsOnce,
                         ::testing::ValuesIn(kKinds),
                         [](const ::testing::TestParamInfo<KindUnderTest>& test) {
                           return test.param.name;
                         });
INSTANTIATE_TEST_SUITE_P(Kinds,
                         LockKindsSlow,
                         ::testing::ValuesIn(kKinds),
                         [](const ::testing::TestParamInfo<KindUnderTest>& test) {
                           return test.param.name;
                         });

TEST_P(LockKinds, LK01_FL16_LockUnlock) {
  Client client = connect();
  FaceLock lock = lockOf(client, "LK01");
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(outcomeOf(lock.lock()), "ok");
    EXPECT_TRUE(raw().exists("LK01"));
    EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
    EXPECT_FALSE(raw().exists("LK01"));
  }
}

TEST_P(LockKinds, LK02_FL13_IsLocked) {
  Client client = connect();
  FaceLock lock = lockOf(client, "LK02");
  EXPECT_FALSE(lock.isLocked());
  lock.lock().value();
  EXPECT_TRUE(lock.isLocked());
  lock.unlock().value();
  EXPECT_FALSE(lock.isLocked());
}

TEST_P(LockKinds, LK03_FL14_IsLockedByAnotherThread) {
  Client client = connect();
  FaceLock lock = lockOf(client, "LK03");
  const auto elsewhere = [&] {
    return inThread([&] { return lockOf(client, "LK03").isLocked(); }).get();
  };
  lock.lock().value();
  EXPECT_TRUE(elsewhere());
  lock.unlock().value();
  EXPECT_FALSE(elsewhere());
}

TEST_P(LockKinds, LK04_FL11_IsHeldByCurrentThread) {
  Client client = connect();
  FaceLock lock = lockOf(client, "LK04");
  EXPECT_FALSE(lock.isHeldByCurrentThread());
  lock.lock().value();
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  lock.unlock().value();
  EXPECT_FALSE(lock.isHeldByCurrentThread());
}

TEST_P(LockKinds, LK05_FL12_IsHeldByCurrentThreadInAnotherThread) {
  Client client = connect();
  FaceLock lock = lockOf(client, "LK05");
  const auto elsewhere = [&] {
    return inThread([&] { return lockOf(client, "LK05").isHeldByCurrentThread(); }).get();
  };
  lock.lock().value();
  EXPECT_FALSE(elsewhere());
  lock.unlock().value();
  EXPECT_FALSE(elsewhere());
}

TEST_P(ReentrantLockKinds, LK06_FL09_HoldCount) {
  Client client = connect();
  FaceLock lock = lockOf(client, "LK06");
  std::vector<int> counts{lock.holdCount()};
  const auto step = [&](Result<void> result) {
    result.value();
    counts.push_back(lock.holdCount());
  };
  step(lock.lock());
  step(lock.unlock());
  step(lock.lock());
  step(lock.lock());
  step(lock.unlock());
  step(lock.unlock());
  EXPECT_EQ(counts, (std::vector<int>{0, 1, 0, 1, 2, 1, 0}));
}

TEST_P(ReentrantLockKinds, LK07_FL10_Reentrancy) {
  Client client = connect();
  FaceLock lock = lockOf(client, "LK07");
  EXPECT_EQ(answerOf(lock.tryLock()), "true");
  EXPECT_EQ(answerOf(lock.tryLock()), "true");
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_EQ(inThread([&] { return answerOf(lockOf(client, "LK07").tryLock()); }).get(), "false");
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  expectNoKeys();
}

TEST_P(LockKinds, LK08_FL15_UnlockByAnotherThread) {
  Client client = connect();
  std::promise<void> locked;
  std::promise<void> tried;
  auto holder = inThread([&] {
    FaceLock lock = lockOf(client, "LK08");
    const std::string first = outcomeOf(lock.lock());
    locked.set_value();
    tried.get_future().wait();
    return first + "," + outcomeOf(lock.unlock());
  });
  locked.get_future().wait();
  const Result<void> stranger = lockOf(client, "LK08").unlock();
  EXPECT_EQ(outcomeOf(stranger), "notOwner");
  EXPECT_NE(std::string(stranger.error().what()).find("LK08"), std::string::npos);
  tried.set_value();
  EXPECT_EQ(holder.get(), "ok,ok");
}

TEST_P(LockKinds, LK09_FL08_OLD03_ForceUnlock) {
  Client client = connect();
  FaceLock lock = lockOf(client, "LK09");
  lock.lock().value();
  EXPECT_EQ(answerOf(lock.forceUnlock()), "true");
  EXPECT_FALSE(lock.isLocked());
  EXPECT_FALSE(lockOf(client, "LK09").isLocked());
  EXPECT_EQ(answerOf(lock.forceUnlock()), "false");
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
}

TEST_P(LockKinds, OLD01_TheSecondEntersWhenTheFirstLeaves) {
  Client client = connect();
  FaceLock lock = lockOf(client, "OLD01");
  lock.lock().value();
  const Stopwatch watch;
  auto second = inThread([&] {
    FaceLock other = lockOf(client, "OLD01");
    const std::string got = outcomeOf(other.lock());
    const auto entered = watch.elapsedMs();
    return std::pair(got + "," + outcomeOf(other.unlock()), entered);
  });
  EXPECT_FALSE(ready(second, 200ms));
  const auto left = watch.elapsedMs();
  lock.unlock().value();
  const auto [outcome, entered] = second.get();
  EXPECT_EQ(outcome, "ok,ok");
  EXPECT_GE(entered, left);
  EXPECT_LT(entered, left + scaled(500ms));
}

TEST_P(LockKinds, LK10_FL06_Expire) {
  Client client = connect();
  FaceLock lock = lockOf(client, "LK10");
  const Stopwatch watch;
  lock.lock(currentOwner(), 600ms).value();
  // The server has counted since before this moment.
  const auto obtained = watch.elapsedMs();
  auto waiter = inThread([&] {
    FaceLock other = lockOf(client, "LK10");
    const std::string got = outcomeOf(other.lock());
    const auto entered = watch.elapsedMs();
    return std::pair(got + "," + outcomeOf(other.unlock()), entered);
  });
  const auto [outcome, entered] = waiter.get();
  EXPECT_EQ(outcome, "ok,ok");
  EXPECT_GE(entered, 600ms);
  EXPECT_LT(entered, obtained + 600ms + scaled(250ms));
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
}

TEST_P(LockKinds, LK11_RemainTimeToLive) {
  constexpr std::chrono::milliseconds kTimeout{30'000};
  Client client = connect(kTimeout);
  FaceLock lock = lockOf(client, "LK11");
  const auto remaining = [&] { return lock.raw().remainTimeToLive(); };
  lock.lock(currentOwner(), 1h).value();
  ASSERT_TRUE(remaining());
  EXPECT_LE(*remaining(), 1h);
  EXPECT_GT(*remaining(), 1h - scaled(1000ms));
  lock.unlock().value();
  EXPECT_FALSE(remaining());
  lock.lock().value();
  ASSERT_TRUE(remaining());
  EXPECT_LE(*remaining(), kTimeout);
  EXPECT_GT(*remaining(), kTimeout / 3);
  lock.unlock().value();
}

TEST_P(LockKindsOnce, AThreadThatKeepsTheLockDoesNotWaitForItself) {
  Client client = connect();
  RLock lock = make(client, "self");
  RLock group = multiLock({make(client, "other"), lock});
  lock.lock();
  const Stopwatch watch;
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.acquire()); }), "wouldDeadlock");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.acquire({.wait = Duration::max()})); }),
            "wouldDeadlock");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(group.acquire()); }), "wouldDeadlock");
  EXPECT_EQ(outcomeOf([&] { Mutex(lock).lock(); }), "wouldDeadlock");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  EXPECT_FALSE(raw().exists("other"));
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.acquire({.wait = 10ms})); }), "timedOut");
  if (GetParam().reentrant) {
    EXPECT_EQ(outcomeOf([&] { lock.acquire({}, currentOwner()).release(); }), "ok");
  }
  lock.unlock();
  EXPECT_EQ(outcomeOf([&] { lock.acquire().release(); }), "ok");
  // A hold that ends by itself is worth waiting for.
  lock.lock(scaled(100ms));
  EXPECT_EQ(outcomeOf([&] { lock.acquire().release(); }), "ok");
}

// Kinds that are meant for different things, at one name.
TEST_P(LockKindsOnce, XOWN9_AnotherKindAtTheSameNameDoesNotGetIn) {
  noteSafetyCheck();
  Client client = connect();
  const auto tries = [&](RLock lock) {
    return answerOf(lock.tryLockAsync(Duration::zero(), {}, newOwner()).wait());
  };
  RLock held = make(client, "XOWN9");
  const OwnerId holder = newOwner();
  held.lockAsync({}, holder).get();
  std::vector<RLock> others{client.getReadWriteLock("XOWN9").readLock(),
                            client.getReadWriteLock("XOWN9").writeLock()};
  for (const KindUnderTest& kind : kKinds) {
    others.push_back(kind.make(client, "XOWN9"));
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    const std::string answer = tries(others[i]);
    EXPECT_TRUE(answer == "false" || answer == "wrongType") << i << ": " << answer;
  }
  EXPECT_NE(outcomeOf(client.getSemaphore("XOWN9").tryAcquireAsync().wait()), "ok");
  EXPECT_NE(outcomeOf(client.getCountDownLatch("XOWN9").countDownAsync().wait()), "ok");
  EXPECT_EQ(outcomeOf(held.unlockAsync(holder).wait()), "ok");
  expectNoKeys();
}

TEST_P(LockKindsOnce, TimeThatIsUpBeforeARequestIsSentIsNoFailure) {
  Client client = connect();
  make(client, "late").lockAsync({}, newOwner()).wait().value();
  AcquireOptions options;
  options.wait = 1ms;
  std::promise<std::string> answer;
  // The loop, which has to send the request, is kept busy by a handler of the application's.
  std::move(client.getLock("other").isLockedAsync()).start([&](const Result<bool>&) {
    make(client, "late").tryLockAsync(options, newOwner()).start([&](const Result<bool>& result) {
      answer.set_value(answerOf(result));
    });
    std::this_thread::sleep_for(5ms);
  });
  EXPECT_EQ(answer.get_future().get(), "false");
  EXPECT_EVENTUALLY(kLong, client.stats().waiters == 0);
  EXPECT_EQ(raw().keys().size(), 1U + (std::string_view(GetParam().name) == "fenced" ? 1U : 0U));
}

TEST_P(LockKindsOnce, AGrantThatCameTooLateIsNotBelievedForAnotherLease) {
  const std::chrono::milliseconds lease = scaled(1s);
  Options settings = proxied();
  settings.reconnectDelayMin = 5ms;
  settings.commandTimeout = 10s;
  Client client = Client::connect(settings);
  RLock warm = make(client, "warm");
  warm.lock();
  warm.unlock();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto late = proxy().addRule(
      TcpProxy::script("slow"), TcpProxy::Action::delayRequest(scaled(600ms)), once);
  const auto cut =
      proxy().addRule(TcpProxy::script("slow"), TcpProxy::Action::cutBeforeForward(), once);
  proxy().setDelay(TcpProxy::Direction::toClient, scaled(500ms));
  auto holder = inThread([&] {
    AcquireOptions options;
    options.lease = lease;
    return make(client, "slow").acquire(options, newOwner());
  });
  // The server grants it; the answer comes when the lease is over as far as the client knows. The
  // next request is lost, and what reconciles it finds the first one's hold.
  ASSERT_TRUE(cut.waitForHits(1, kLong));
  EXPECT_EQ(late.hits(), 1U);
  proxy().setDelay(TcpProxy::Direction::toClient, 0ms);
  Lease held = holder.get();
  // In this order: what passes in between shortens only what the client believes.
  const std::chrono::milliseconds onServer(raw().pttl("slow"));
  const auto left = held.validUntil() - std::chrono::steady_clock::now();
  EXPECT_LE(left, onServer + 20ms);
}

TEST_P(LockKindsOnce, WithoutExpiriesNothingIsHeld) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-pexpire"});
  Options settings = options();
  settings.username = "weak";
  settings.password = "pw";
  Client client = Client::connect(settings);
  RLock lock = make(client, "weak");
  // One command makes the key of a simple lock together with its expiry.
  const bool simple = std::string_view(GetParam().name) == "simple";
  EXPECT_EQ(answerOf([&] { return lock.tryLock(); }), simple ? "true" : "denied");
  if (simple) {
    lock.unlock();
  }
  expectNoKeys();
}

TEST_P(ReentrantLockKinds, ARefusedExpiryTakesOneHoldBack) {
  raw().run({"ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"});
  Options settings = options();
  settings.username = "app";
  settings.password = "pw";
  Client client = Client::connect(settings);
  const OwnerId owner = newOwner();
  FaceLock lock = lockOf(client, "app");
  lock.lock(owner, 60s).value();
  raw().run({"ACL", "SETUSER", "app", "-pexpire"});
  // Only a longer lease needs another expiry.
  EXPECT_EQ(outcomeOf(lock.lock(owner, 120s)), "denied");
  EXPECT_EQ(onlyEntry("app"), std::pair(ownerField(client, owner), std::string("1")));
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  expectNoKeys();
}

TEST_P(LockKinds, LK20_FL17_ConcurrencyInOneClient) {
  Client client = connect();
  Resource resource;
  std::vector<std::future<std::string>> jobs;
  for (int job = 0; job < 15; ++job) {
    jobs.push_back(inThread([&] {
      FaceLock lock = lockOf(client, "LK20");
      const Result<void> got = lock.lock();
      if (!got) {
        return outcomeOf(got);
      }
      resource.use(200us);
      return outcomeOf(lock.unlock());
    }));
  }
  for (auto& job : jobs) {
    EXPECT_EQ(job.get(), "ok");
  }
  EXPECT_EQ(resource.value(), 15);
  EXPECT_EQ(resource.overlaps(), 0);
}

TEST_P(LockKindsSlow, LK21_FL18_ConcurrencyOfManyClients) {
  constexpr int kClients = 60;
  Resource resource;
  std::atomic<int> next{0};
  std::vector<std::unique_ptr<Client>> clients(kClients);
  {
    std::vector<std::future<void>> dialers;
    for (int thread = 0; thread < 4; ++thread) {
      dialers.push_back(inThread([&] {
        for (int i = next++; i < kClients; i = next++) {
          clients[static_cast<std::size_t>(i)] = std::make_unique<Client>(connect());
        }
      }));
    }
    for (auto& dialer : dialers) {
      dialer.get();
    }
  }
  std::vector<std::future<std::string>> jobs;
  for (auto& client : clients) {
    jobs.push_back(inThread([this, &resource, &client] {
      RLock lock = make(*client, "LK21");
      return outcomeOf([&] {
        lock.lock();
        resource.use(100us);
        lock.unlock();
      });
    }));
  }
  for (auto& job : jobs) {
    EXPECT_EQ(job.get(), "ok");
  }
  EXPECT_EQ(resource.value(), kClients);
  EXPECT_EQ(resource.overlaps(), 0);
  expectNoKeys();
}

TEST_P(LockKindsSlow, LK22_FL19_SustainedHandOverBetween16Clients) {
  constexpr int kClients = 16;
  constexpr int kRounds = 20;
  Resource resource;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(connect()));
  }
  std::vector<std::future<std::string>> jobs;
  for (auto& client : clients) {
    jobs.push_back(inThread([this, &resource, &client] {
      RLock lock = make(*client, "LK22");
      return outcomeOf([&] {
        for (int round = 0; round < kRounds; ++round) {
          lock.lock();
          resource.use(1ms);
          lock.unlock();
        }
      });
    }));
  }
  for (auto& job : jobs) {
    EXPECT_EQ(job.get(), "ok");
  }
  EXPECT_EQ(resource.value(), kClients * kRounds);
  EXPECT_EQ(resource.overlaps(), 0);
}

TEST_P(LockKinds, ConcurrencyBetweenTwoClientsWithTimedCalls) {
  Client one = connect();
  Client two = connect();
  Resource resource;
  std::atomic<long> entered{0};
  std::vector<std::future<std::string>> jobs;
  for (int job = 0; job < 8; ++job) {
    jobs.push_back(inThread([&, job] {
      FaceLock lock = lockOf(job % 2 == 0 ? one : two, "timed");
      for (int round = 0; round < 5; ++round) {
        const std::string got = answerOf(lock.tryLock(currentOwner(), kLong));
        if (got != "true") {
          return got;
        }
        resource.use(100us);
        entered.fetch_add(1);
        const Result<void> gone = lock.unlock();
        if (!gone) {
          return outcomeOf(gone);
        }
      }
      return std::string("ok");
    }));
  }
  for (auto& job : jobs) {
    EXPECT_EQ(job.get(), "ok");
  }
  EXPECT_EQ(resource.value(), entered.load());
  EXPECT_EQ(resource.overlaps(), 0);
  expectNoKeys();
}

}  // namespace
}  // namespace rlock::test
