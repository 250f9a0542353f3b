// SPDX-License-Identifier: Apache-2.0

// The events that an Observer is told, on which thread, and that it does no harm.

#include "integration/observer_harness.hpp"

#include <atomic>
#include <latch>
#include <stdexcept>

namespace rlock::test {
namespace {

using Events = ObserverTest;

TEST_F(Events, AHoldFromItsGrantToItsRelease) {
  const auto recorder = std::make_shared<Recorder>();
  Client client = Client::connect(observed(recorder));
  RLock lock = client.getLock("one");
  const std::string owner = ownerField(client, currentOwner());
  lock.lock();
  lock.lock();
  std::this_thread::sleep_for(5ms);
  lock.unlock();
  lock.unlock();
  const std::vector<Told> told = recorder->all();
  ASSERT_EQ(told.size(), 4U);
  const char* const events[] = {"acquired", "acquired", "released", "released"};
  const int counts[] = {1, 2, 1, 0};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(told[i].event, events[i]);
    EXPECT_EQ(told[i].count, counts[i]);
    EXPECT_EQ(told[i].name, "one");
    EXPECT_EQ(told[i].owner, owner);
    EXPECT_EQ(told[i].kind, "lock");
    EXPECT_EQ(told[i].thread, std::this_thread::get_id());
    EXPECT_FALSE(told[i].contended);
    EXPECT_GT(told[i].time, 0ns);
  }
  EXPECT_LT(told[0].at, told[3].at);
  // A hold lasts from the first grant to the last release, as far as its owner could use it.
  EXPECT_GE(told[3].time, 5ms);
  EXPECT_EQ(told[3].time, told[3].at - told[0].at);
  const Stats stats = client.stats();
  EXPECT_EQ(stats.waits.count(), 2U);
  EXPECT_EQ(stats.holdTimes.count(), 1U);
  EXPECT_EQ(stats.holdTimes.sum, told[3].time);
  EXPECT_GE(stats.roundTrips.count(), 4U);
  EXPECT_EQ(stats.waits.sum, told[0].time + told[1].time);
}

TEST_F(Events, EachFaceTellsBeforeItsCallEnds) {
  for (const Face face : kFaces) {
    const auto recorder = std::make_shared<Recorder>();
    Client client = Client::connect(observed(recorder));
    const OwnerId owner = newOwner();
    FaceLock lock(face, client.getLock("faces"));
    EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
    EXPECT_EQ(recorder->count("acquired"), 1U);
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    EXPECT_EQ(recorder->count("released"), 1U);
    EXPECT_EQ(recorder->all().at(0).owner, ownerField(client, owner));
  }
}

TEST_F(Events, KindsLabelsAndTokens) {
  const auto recorder = std::make_shared<Recorder>();
  Client client = Client::connect(observed(recorder));
  static_cast<void>(client.getFairLock("k").acquire());
  static_cast<void>(client.getSpinLock("k2").acquire());
  static_cast<void>(client.getSimpleLock("k3").acquire());
  static_cast<void>(client.getReadWriteLock("k4").readLock().acquire());
  static_cast<void>(client.getReadWriteLock("k5").writeLock().acquire({.label = "night run"}));
  static_cast<void>(client.getFencedLock("k6").acquire());
  Semaphore semaphore = client.getSemaphore("k7");
  semaphore.trySetPermits(1);
  semaphore.acquire();
  CountDownLatch latch = client.getCountDownLatch("k8");
  latch.await();
  PermitExpirableSemaphore permits = client.getPermitExpirableSemaphore("k9");
  permits.trySetPermits(1);
  static_cast<void>(permits.hold());
  std::vector<std::string> kinds;
  for (const Told& told : recorder->all("acquired")) {
    kinds.push_back(told.kind);
  }
  EXPECT_EQ(kinds,
            (std::vector<std::string>{"fairLock",
                                      "spinLock",
                                      "simpleLock",
                                      "readLock",
                                      "writeLock",
                                      "fencedLock",
                                      "semaphore",
                                      "latch",
                                      "permitSemaphore"}));
  const std::vector<Told> acquired = recorder->all("acquired");
  EXPECT_EQ(acquired.at(4).label, "night run");
  EXPECT_EQ(acquired.at(5).token, 1U);
  EXPECT_EQ(acquired.at(6).owner, "");
  EXPECT_EQ(acquired.at(8).name, "k9");
  // Leases release in the background, each once.
  EXPECT_EVENTUALLY(kLong, recorder->count("released") == 7U);
}

TEST_F(Events, TheApplicationsNameAndNotTheServers) {
  const auto recorder = std::make_shared<Recorder>();
  Options settings = observed(recorder);
  settings.namePrefix = "app:";
  Client client = Client::connect(settings);
  client.getLock("mapped").lock();
  EXPECT_EQ(recorder->all("acquired").at(0).name, "mapped");
}

TEST_F(Events, WaitsAndTheirOutcomes) {
  const auto recorder = std::make_shared<Recorder>();
  Client holder = Client::connect(options());
  Options settings = observed(recorder);
  settings.topNames = 10;
  Client client = Client::connect(settings);
  RLock held = holder.getLock("busy");
  held.lock();
  RLock lock = client.getLock("busy");
  EXPECT_FALSE(lock.tryLock());
  EXPECT_FALSE(lock.tryLock(1s));
  std::stop_source stop;
  auto stopped = inThread([&] {
    return outcomeOf([&] { client.getLock("busy").lockInterruptibly(stop.get_token()); });
  });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  stop.request_stop();
  EXPECT_EQ(stopped.get(), "cancelled");
  auto waiter = inThread([&] {
    RLock mine = client.getLock("busy");
    mine.lock();
    mine.unlock();
    return 0;
  });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  std::this_thread::sleep_for(20ms);
  held.unlock();
  waiter.get();
  std::vector<std::string> outcomes;
  for (const Told& told : recorder->all("waited")) {
    outcomes.push_back(told.detail);
  }
  EXPECT_EQ(outcomes, (std::vector<std::string>{"refused", "refused", "failed", "acquired"}));
  EXPECT_GE(recorder->all("waited").at(1).time, 1s);
  ASSERT_EQ(recorder->count("acquired"), 1U);
  EXPECT_TRUE(recorder->all("acquired").at(0).contended);
  EXPECT_GE(recorder->all("acquired").at(0).time, 20ms);
  const Stats stats = client.stats();
  EXPECT_EQ(stats.waits.count(), 1U) << "only calls that succeed";
  EXPECT_GE(stats.waits.sum, 20ms);
  // The names that stand out.
  const std::vector<TopName> waited = client.topNames(TopBy::waited);
  ASSERT_EQ(waited.size(), 1U);
  EXPECT_EQ(waited.at(0).name, "busy");
  EXPECT_EQ(waited.at(0).count, 4U);
  EXPECT_GE(waited.at(0).time, 1020ms);
  EXPECT_EQ(client.topNames(TopBy::contended).at(0).count, 4U);
  EXPECT_EQ(client.topNames(TopBy::held).at(0).name, "busy");
  EXPECT_TRUE(client.topNames(TopBy::held, 0).empty());
  EXPECT_TRUE(holder.topNames(TopBy::held).empty()) << "without the option";
}

TEST_F(Events, LossesAndTheirReasons) {
  const auto recorder = std::make_shared<Recorder>();
  Client other = Client::connect(options());
  std::optional<Client> client(Client::connect(observed(recorder)));
  Lease expired = client->getLock("expired").acquire({.lease = 1s, .label = "a job"});
  ASSERT_EVENTUALLY(kLong, recorder->count("lost") == 1U);
  Lease forced = client->getLock("forced").acquire();
  // It only hears of the force when it listens already.
  ASSERT_EVENTUALLY(kLong, raw().numsub("rlock_client:" + client->id()) == 1);
  EXPECT_TRUE(other.getLock("forced").forceUnlock());
  ASSERT_EVENTUALLY(kLong, recorder->count("lost") == 2U);
  Lease left = client->getLock("left").acquire();
  client->close(5s);
  ASSERT_EVENTUALLY(kLong, recorder->count("lost") == 3U);
  const std::vector<Told> lost = recorder->all("lost");
  EXPECT_EQ(lost.at(0).detail, "expired");
  EXPECT_EQ(lost.at(0).label, "a job");
  EXPECT_GT(lost.at(0).time, 100ms);
  EXPECT_EQ(lost.at(1).detail, "forced");
  EXPECT_EQ(lost.at(2).detail, "clientClosed");
  EXPECT_EQ(recorder->count("released"), 0U) << "a hold that is lost is not released";
  EXPECT_EQ(client->stats().holdTimes.count(), 3U);
}

/// The server keeps what a thread has left until its lease ends, and lets its owner release it.
TEST_F(Events, AHoldThatWasToldLostIsNotToldReleased) {
  const auto recorder = std::make_shared<Recorder>();
  Client client = Client::connect(observed(recorder));
  RLock lock = client.getLock("left");
  OwnerId owner;
  std::thread([&] {
    owner = currentOwner();
    lock.lock();
  }).join();
  ASSERT_EVENTUALLY(kLong, recorder->count("lost") == 1U);
  lock.unlockAsync(owner).get();
  EXPECT_FALSE(lock.isLocked());
  EXPECT_EQ(recorder->count("released"), 0U);
  EXPECT_EQ(client.stats().released, 0U);
  EXPECT_EQ(client.stats().holdTimes.count(), 1U);
}

TEST_F(Events, ARenewalThatComesLate) {
  const auto recorder = std::make_shared<Recorder>();
  Client client = Client::connect(observedThroughProxy(recorder, 6s));
  Lease lease = client.getLock("late").acquire();
  // In time.
  ASSERT_EVENTUALLY(kLong, client.stats().renewals >= 1);
  EXPECT_EQ(recorder->count("renewedLate"), 0U);
  EXPECT_EQ(client.stats().renewalLags.count(), 1U);
  EXPECT_LT(client.stats().renewalLags.sum, 1s);
  proxy().addRule(running(lua::lock_renew), TcpProxy::Action::replyWithError("ERR not now"));
  ASSERT_EVENTUALLY(kLong, client.stats().renewalFailures >= 1);
  std::this_thread::sleep_for(1200ms);
  proxy().clearRules();
  ASSERT_EVENTUALLY(kLong, recorder->count("renewedLate") >= 1U);
  const Told told = recorder->all("renewedLate").at(0);
  EXPECT_EQ(told.name, "late");
  EXPECT_GE(told.time, 1s) << "a sixth of the lease after it was due";
  EXPECT_LT(told.time, 4s);
  EXPECT_GT(told.left, 0ns);
  EXPECT_LT(told.left, 3s);
  EXPECT_GE(client.stats().renewalLags.sum, 1s);
  EXPECT_TRUE(lease.held());
}

TEST_F(Events, AConnectionThatIsMadeAgain) {
  const auto recorder = std::make_shared<Recorder>();
  Options settings = observed(recorder);
  settings.reconnectDelayMax = 50ms;
  Client client = Client::connect(settings);
  EXPECT_EQ(recorder->count("reconnected"), 0U) << "the first is not made again";
  raw().run({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
  ASSERT_EVENTUALLY(kLong, recorder->count("reconnected") == 1U);
  EXPECT_EQ(recorder->all("reconnected").at(0).count, 0);
  EXPECT_NE(recorder->all("reconnected").at(0).detail, "");
  server().stop();
  server().start();
  reconnectRaw();
  ASSERT_EVENTUALLY(kLong, recorder->count("reconnected") == 2U);
  EXPECT_EQ(recorder->all("reconnected").at(1).count, 1) << "another process";
}

TEST_F(Events, LostRepliesAndWhatBecameOfThem) {
  const auto recorder = std::make_shared<Recorder>();
  Options settings = observedThroughProxy(recorder);
  settings.commandTimeout = 1500ms;
  settings.callTimeout = scaled(15s);
  settings.reconnectDelayMin = 5ms;
  Client client = Client::connect(settings);
  RLock lock = client.getLock("doubt");
  lock.lock();
  lock.unlock();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::swallowReplyAndCut(), once);
  lock.lock();
  ASSERT_EQ(recorder->count("settled"), 1U);
  EXPECT_EQ(recorder->all("settled").at(0).detail, "acquire executed");
  EXPECT_EQ(recorder->all("settled").at(0).name, "doubt");
  proxy().addRule(running(lua::lock_release), TcpProxy::Action::swallowReplyAndCut(), once);
  lock.unlock();
  ASSERT_EQ(recorder->count("settled"), 2U);
  EXPECT_EQ(recorder->all("settled").at(1).detail, "release executed");
  EXPECT_EQ(recorder->count("acquired"), 2U);
  EXPECT_EQ(recorder->count("released"), 2U);
  // The caller has left when it turns out that it had been granted.
  const auto stalled =
      proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::stallReply(), once);
  // A slow machine may not even send it in that time, which is a plain no.
  const Deadline end(kLong);
  do {
    EXPECT_NE(answerOf([&] { return lock.tryLock(60ms); }), "true");
  } while (!stalled.waitForHits(1, 1s) && !end.expired());
  ASSERT_EQ(stalled.hits(), 1U);
  ASSERT_EVENTUALLY(kLong, recorder->count("settled") == 3U);
  EXPECT_EQ(recorder->all("settled").at(2).detail, "acquire undone");
  EXPECT_EQ(recorder->count("acquired"), 2U);
}

// An observer that does harm.

class Harm : public ObserverTest {
 protected:
  /// Runs `harm` at the first event of a sort, and notes what comes of it.
  [[nodiscard]] static std::shared_ptr<Recorder> doing(std::string event,
                                                       std::function<void()> harm) {
    auto done = std::make_shared<std::atomic<bool>>(false);
    return std::make_shared<Recorder>(
        [event = std::move(event), harm = std::move(harm), done](const Told& told) {
          if (told.event == event && !done->exchange(true)) {
            harm();
          }
        });
  }
};

TEST_F(Harm, Throws) {
  const auto recorder = std::make_shared<Recorder>([](const Told& told) {
    if (told.event == "released") {
      throw 42;  // NOLINT(hicpp-exception-baseclass): something else than an exception
    }
    throw std::runtime_error("cannot count");
  });
  Client client = Client::connect(observed(recorder));
  RLock lock = client.getLock("throws");
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
  EXPECT_EQ(client.stats().handlerFailures, 1U);
  EXPECT_TRUE(log().contains("an observer threw: cannot count"));
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EQ(client.stats().handlerFailures, 2U);
  const OwnerId owner = newOwner();
  lock.lockAsync({}, owner).toFuture().get();
  lock.unlockAsync(owner).toFuture().get();
  EXPECT_EQ(client.stats().handlerFailures, 4U);
  EXPECT_EQ(recorder->count("acquired"), 2U);
}

TEST_F(Harm, BlocksItsCallerAndNobodyElse) {
  std::latch block(1);
  std::atomic<bool> blocked{false};
  const auto recorder = doing("acquired", [&] {
    blocked = true;
    block.wait();
  });
  Client client = Client::connect(observed(recorder, 3s));
  auto slow = inThread([&] {
    RLock lock = client.getLock("slow");
    lock.lock();
    lock.unlock();
    return 0;
  });
  ASSERT_EVENTUALLY(kLong, blocked.load());
  // The others go on, the hold of the blocked thread is renewed, and the client can be asked.
  Lease lease = client.getLock("quick").acquire();
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= 4);
  EXPECT_TRUE(lease.held());
  EXPECT_TRUE(raw().exists("slow"));
  EXPECT_FALSE(ready(slow, 0ms));
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  block.count_down();
  slow.get();
  EXPECT_EQ(recorder->count("lost"), 0U);
}

TEST_F(Harm, BlocksTheLoopThreadAndHoldsAreStillToldTheTruth) {
  std::latch block(1);
  std::atomic<bool> blocked{false};
  const auto recorder = doing("acquired", [&] {
    blocked = true;
    block.wait();
  });
  Client client = Client::connect(observed(recorder, 1s));
  auto lease = client.getLock("async").acquireAsync({}, newOwner()).toFuture();
  ASSERT_EVENTUALLY(kLong, blocked.load());
  // Nothing is renewed any more, and the server lets the lock go in time.
  ASSERT_EVENTUALLY(kLong, !raw().exists("async"));
  block.count_down();
  Lease late = lease.get();
  EXPECT_FALSE(late.held());
  ASSERT_EVENTUALLY(kLong, recorder->count("lost") == 1U);
}

TEST_F(Harm, CallsTheLibraryAndDoesNotMeetItself) {
  std::optional<Client> client;
  std::string inner;
  const auto recorder = std::make_shared<Recorder>([&](const Told& told) {
    if (told.thread == std::this_thread::get_id() && told.event == "acquired") {
      RLock another = client->getLock("inside");
      inner += outcomeOf([&] { another.lock(); }) + " ";
      inner += outcomeOf([&] { another.unlock(); }) + ";";
    }
  });
  client.emplace(Client::connect(observed(recorder)));
  RLock lock = client->getLock("outside");
  lock.lock();
  EXPECT_EQ(inner, "ok ok;");
  lock.unlock();
  EXPECT_EQ(recorder->all().size(), 2U) << "its own calls are not told";
  EXPECT_EQ(client->stats().acquired, 2U);
  // On the loop thread a blocking call is refused.
  const OwnerId owner = newOwner();
  lock.lockAsync({}, owner).toFuture().get();
  EXPECT_EQ(inner, "ok ok;wouldDeadlock wouldDeadlock;");
  lock.unlockAsync(owner).toFuture().get();
  EXPECT_FALSE(raw().exists("outside"));
}

TEST_F(Harm, ReleasesTheLockInTheMidstOfItsAcquisition) {
  std::optional<RLock> lock;
  std::string inner;
  const auto recorder = doing("acquired", [&] { inner = outcomeOf([&] { lock->unlock(); }); });
  Client client = Client::connect(observed(recorder));
  lock.emplace(client.getLock("gone"));
  lock->lock();
  EXPECT_EQ(inner, "ok");
  EXPECT_FALSE(raw().exists("gone"));
  EXPECT_EQ(outcomeOf([&] { lock->unlock(); }), "notOwner");
}

TEST_F(Harm, ClosesOrDestroysTheClientInEveryEvent) {
  for (const bool destroys : {false, true}) {
    for (const bool async : {false, true}) {
      for (const char* const event : {"acquired", "released", "lost"}) {
        SCOPED_TRACE(std::string(event) + (destroys ? " destroys" : " closes") +
                     (async ? " on the loop" : ""));
        std::atomic<bool> harmed{false};
        std::unique_ptr<Client> client;
        const auto recorder = doing(event, [&] {
          if (destroys) {
            client.reset();
          } else {
            client->close(5s);
          }
          harmed = true;
        });
        Options settings = observed(recorder);
        // Longer than the limit below, as the one of close().
        settings.closeTimeout = 5s;
        client = std::make_unique<Client>(Client::connect(settings));
        RLock lock = client->getLock("closing");
        const OwnerId owner = newOwner();
        const bool loses = std::string_view(event) == "lost";
        const Duration lease = loses ? 600ms : 60s;
        const Stopwatch watch;
        const std::string locked =
            async ? outcomeOf([&] { lock.lockAsync({.lease = lease}, owner).toFuture().get(); })
                  : outcomeOf([&] { lock.lock(lease); });
        EXPECT_EQ(locked, "ok");
        if (!loses) {
          const std::string unlocked =
              async ? outcomeOf([&] { lock.unlockAsync(owner).toFuture().get(); })
                    : outcomeOf([&] { lock.unlock(); });
          EXPECT_EQ(unlocked, std::string_view(event) == "acquired" ? "closed" : "ok");
        }
        ASSERT_EVENTUALLY(kLong, harmed.load());
        EXPECT_EQ(recorder->count(event), 1U);
        EXPECT_EVENTUALLY(kLong, !raw().exists("closing"));
        EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "closed");
        EXPECT_LT(watch.elapsedMs(), scaled(2500ms)) << "nothing waits for a time limit";
      }
    }
  }
}

}  // namespace
}  // namespace rlock::test
