// SPDX-License-Identifier: Apache-2.0

// The fair lock: order of arrival, waiters that leave or die, and the hand-over. The tests that it
// shares with all other locks are in lock_kinds_test.cpp.

#include "integration/fair_harness.hpp"

#include <algorithm>

namespace rlock::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Faces, FairLockFaces, ::testing::ValuesIn(kFaces), faceName);

// Order.

TEST_F(FairLock, FL01_FirstComeFirstServedAmongThreads) {
  Client client = connectFair();
  RLock lock = client.getFairLock("FL01");
  lock.lock();
  Visitors visitors;
  for (int i = 0; i < 8; ++i) {
    visitors.send(client.getFairLock("FL01"), i);
    ASSERT_EVENTUALLY(kLong, waiting("FL01", static_cast<std::size_t>(i) + 1));
  }
  lock.unlock();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), upTo(8));
  expectNoKeys();
}

TEST_F(FairLock, XFAIR3_FirstComeFirstServedAmong16Clients) {
  constexpr int kClients = 16;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(connectFair()));
  }
  rawHold("XFAIR3", "foreign:1", 60s);
  Visitors visitors;
  for (int i = 0; i < kClients; ++i) {
    visitors.send(clients[static_cast<std::size_t>(i)]->getFairLock("XFAIR3"), i);
  }
  ASSERT_EVENTUALLY(kLong, waiting("XFAIR3", kClients));
  // The server has noted them in the order of their arrival there.
  std::vector<int> arrived;
  for (const std::string& owner : queue("XFAIR3")) {
    for (int i = 0; i < kClients; ++i) {
      if (owner.starts_with(clients[static_cast<std::size_t>(i)]->id())) {
        arrived.push_back(i);
      }
    }
  }
  // They stay in order while they refresh their places.
  std::this_thread::sleep_for(kPlace * 3 / 2);
  ForeignClient(raw(), "XFAIR3").release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), arrived);
  expectNoKeys();
}

TEST_F(FairLockSlow, FL03_ManyThreadsWithALeaseEach) {
  Client client = connectFair();
  Resource resource;
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < 120; ++i) {
    threads.push_back(inThread([&] {
      RLock lock = client.getFairLock("FL03");
      return outcomeOf([&] {
        lock.lock(60s);
        resource.use(5ms);
        lock.unlock();
      });
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(resource.value(), 120);
  EXPECT_EQ(resource.overlaps(), 0);
  expectNoKeys();
}

TEST_P(FairLockFaces, XFAIR4_OneAttemptNeitherJumpsNorJoinsTheQueue) {
  Client client = connectFair();
  FaceLock lock = lockOf(client, "XFAIR4");
  rawEnrol("XFAIR4", "foreign:7");
  EXPECT_EQ(answerOf(lock.tryLock()), "false") << "it is another's turn";
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), Duration::zero())), "false");
  EXPECT_EQ(queue("XFAIR4"), Names{"foreign:7"});
  raw().del(queueKey("XFAIR4"));
  raw().del(deadlinesKey("XFAIR4"));
  EXPECT_EQ(answerOf(lock.tryLock()), "true");
  EXPECT_EQ(answerOf(lockOf(client, "XFAIR4").tryLock(newOwner())), "false");
  expectNoQueue("XFAIR4");
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
}

TEST_P(FairLockFaces, XFAIR4_AReentrantOwnerIsNotQueued) {
  Client client = connectFair();
  const OwnerId owner = newOwner();
  FaceLock lock = lockOf(client, "again");
  lock.lock(owner).value();
  Visitors visitors;
  visitors.send(client.getFairLock("again"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("again", 1));
  const Names before = queue("again");
  EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
  EXPECT_EQ(answerOf(lock.tryLock(owner)), "true");
  EXPECT_EQ(answerOf(lock.tryLock(owner, kLong)), "true");
  EXPECT_EQ(queue("again"), before);
  EXPECT_EQ(lock.holdCount(owner), 4);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  }
  EXPECT_EQ(visitors.troubles(), Names());
  expectNoKeys();
}

TEST_P(FairLockFaces, TwoCallsOfOneOwnerShareItsPlace) {
  Client client = connectFair();
  rawHold("shared", "foreign:1", 60s);
  const OwnerId owner = newOwner();
  const auto call = [&] {
    return inThread([&] { return outcomeOf(lockOf(client, "shared").lock(owner)); });
  };
  auto one = call();
  auto two = call();
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2 && !queue("shared").empty());
  EXPECT_EQ(queue("shared"), Names{ownerField(client, owner)});
  ForeignClient(raw(), "shared").release();
  // The one that got in takes the other along.
  EXPECT_TRUE(ready(one, kPlace) && ready(two, kPlace));
  EXPECT_EQ(one.get(), "ok");
  EXPECT_EQ(two.get(), "ok");
  EXPECT_EQ(raw().hgetall("shared"), (Fields{{ownerField(client, owner), "2"}}));
  expectNoQueue("shared");
}

TEST_P(FairLockFaces, ACallThatGivesUpLeavesThePlaceToAnotherOfItsOwner) {
  Client client = connectFair();
  rawHold("sharing", "foreign:1", 60s);
  const OwnerId owner = newOwner();
  auto stays = inThread([&] { return outcomeOf(lockOf(client, "sharing").lock(owner)); });
  ASSERT_EVENTUALLY(kLong, waiting("sharing", 1));
  auto behind = inThread([&] {
    const OwnerId other = newOwner();
    FaceLock lock = lockOf(client, "sharing");
    const std::string outcome = outcomeOf(lock.lock(other));
    return outcome == "ok" ? outcomeOf(lock.unlock(other)) : outcome;
  });
  ASSERT_EVENTUALLY(kLong, waiting("sharing", 2));
  const Names arrived = queue("sharing");
  EXPECT_EQ(answerOf(lockOf(client, "sharing").tryLock(owner, 500ms)), "false");
  const auto lease = [&] {
    return raw().run({"ZSCORE", leasesKey("sharing"), arrived[0]}).string();
  };
  EXPECT_EQ(queue("sharing"), arrived);
  const std::string before = lease();
  EXPECT_EVENTUALLY(kLong, lease() != before);
  EXPECT_EQ(queue("sharing"), arrived);
  ForeignClient(raw(), "sharing").release();
  EXPECT_EQ(stays.get(), "ok");
  EXPECT_FALSE(ready(behind, 0ms));
  EXPECT_EQ(outcomeOf(lockOf(client, "sharing").unlock(owner)), "ok");
  EXPECT_EQ(behind.get(), "ok");
  expectNoKeys();
}

// Leaving.

TEST_P(FairLockFaces, FL04_ATimedOutWaiterLeavesTheQueue) {
  Client client = connectFair();
  FaceLock holder = lockOf(client, "FL04");
  holder.lock().value();
  const std::string got = inThread([&] {
                            return answerOf(lockOf(client, "FL04").tryLock(currentOwner(), 500ms));
                          }).get();
  EXPECT_EQ(got, "false");
  EXPECT_EVENTUALLY(kPlace / 2, queue("FL04").empty());
  EXPECT_EQ(outcomeOf(holder.unlock()), "ok");
  EXPECT_EQ(inThread([&] { return answerOf(lockOf(client, "FL04").tryLock()); }).get(), "true");
  expectNoQueue("FL04");
}

TEST_P(FairLockFaces, FL05_TryLockWaitsForADeadOwner) {
  rawHold("FL05", "dead-client:1", 10s);
  Client client = connectFair();
  FaceLock lock = lockOf(client, "FL05");
  const Stopwatch watch;
  const std::string answer = answerOf(lock.tryLock(currentOwner(), 300ms));
  expectNotObtained(answer);
  EXPECT_EQ(answer, "false");
  EXPECT_GE(watch.elapsedMs(), 300ms);
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(100ms));
  EXPECT_EVENTUALLY(kPlace / 2, queue("FL05").empty());
  expectNoQueue("FL05");
}

TEST_P(FairLockFaces, AStoppedWaiterLeavesTheQueue) {
  Client client = connectFair();
  rawHold("stopped", "foreign:1", 60s);
  std::stop_source stop;
  auto call = inThread([&] {
    AcquireOptions options;
    options.stop = stop.get_token();
    return outcomeOf(
        runBy(GetParam(), client.getFairLock("stopped").lockAsync(std::move(options), newOwner())));
  });
  ASSERT_EVENTUALLY(kLong, waiting("stopped", 1));
  stop.request_stop();
  EXPECT_EQ(call.get(), "cancelled");
  EXPECT_EVENTUALLY(kPlace / 2, queue("stopped").empty());
  expectNoQueue("stopped");
}

TEST_P(FairLockFaces, AFailedWaiterLeavesTheQueue) {
  Client client = connectFair();
  rawHold("failed", "foreign:1", 60s);
  auto call = inThread([&] { return outcomeOf(lockOf(client, "failed").lock()); });
  ASSERT_EVENTUALLY(kLong, waiting("failed", 1));
  raw().set("failed", "not a lock", 60s);
  EXPECT_EQ(call.get(), "wrongType");
  EXPECT_EVENTUALLY(kPlace / 2, queue("failed").empty());
  expectNoQueue("failed");
}

TEST_P(FairLockFaces, AClosedClientLeavesTheQueue) {
  rawHold("closed", "foreign:1", 60s);
  auto client = std::make_unique<Client>(connectFair());
  std::vector<std::future<std::string>> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(
        inThread([lock = lockOf(*client, "closed")]() mutable { return outcomeOf(lock.lock()); }));
  }
  ASSERT_EVENTUALLY(kLong, waiting("closed", 3));
  const Stopwatch watch;
  client->close(scaled(2s));
  EXPECT_LT(watch.elapsedMs(), scaled(1s));
  for (auto& call : calls) {
    EXPECT_EQ(call.get(), "closed");
  }
  EXPECT_EQ(queue("closed"), Names());
  expectNoQueue("closed");
}

TEST_F(FairLock, ClosingDoesNotWaitForLongWhenNobodyAnswers) {
  Client client = Client::connect(fair(proxied()));
  rawHold("cut", "foreign:1", 60s);
  auto call = inThread([&] { return outcomeOf([&] { client.getFairLock("cut").lock(); }); });
  ASSERT_EVENTUALLY(kLong, waiting("cut", 1));
  proxy().blackHole();
  const Stopwatch watch;
  client.close(300ms);
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(200ms));
  EXPECT_EQ(call.get(), "closed");
}

TEST_F(FairLock, XFAIR2_AWaiterInTheMiddleLeavesAndNobodyIsDelayed) {
  Client client = connectFair(kRarePlace);
  Client other = connectFair(kRarePlace);
  rawHold("middle", "foreign:1", 60s);
  Visitors visitors;
  std::stop_source stop;
  for (int i = 0; i < 5; ++i) {
    AcquireOptions options;
    if (i == 2 || i == 0) {
      options.stop = stop.get_token();
    }
    visitors.send((i % 2 == 0 ? client : other).getFairLock("middle"), i, options);
    ASSERT_EVENTUALLY(kLong, waiting("middle", static_cast<std::size_t>(i) + 1));
  }
  stop.request_stop();
  ASSERT_EVENTUALLY(kPlace / 2, waiting("middle", 3));
  const Stopwatch watch;
  ForeignClient(raw(), "middle").release();
  EXPECT_EQ(visitors.troubles(), (Names{"cancelled", "cancelled"}));
  // Three have had it, one after the other.
  EXPECT_LT(watch.elapsedMs(), scaled(1500ms)) << "somebody waited for a poll";
  EXPECT_EQ(visitors.order(), (std::vector<int>{1, 3, 4}));
  expectNoKeys();
}

TEST_F(FairLock, ALeavingHeadWakesTheNextIfTheLockIsFree) {
  Client client = connectFair(kRarePlace);
  Steps steps(raw(), "handed", kRarePlace);
  rawHold("handed", "foreign:1", 60s);
  // A head that does not react: it has a place and no client.
  ASSERT_TRUE(steps.acquire("lazy:1", 1s, Steps::Wait::begin));
  Visitors visitors;
  visitors.send(client.getFairLock("handed"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("handed", 2));
  ForeignClient(raw(), "handed").release();
  EXPECT_EQ(steps.acquire(ownerField(client, newOwner()), 1s, Steps::Wait::none).value_or(0) > 0,
            true);
  EXPECT_EQ(visitors.order(), std::vector<int>());
  const Stopwatch watch;
  EXPECT_EQ(steps.withdraw("lazy:1"), 1);
  EXPECT_EQ(steps.withdraw("lazy:1"), 0);
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_LT(watch.elapsedMs(), scaled(1000ms)) << "it was not told";
  expectNoKeys();
}

// Dead waiters.

TEST_F(FairLock, WhoRemovesADeadHeadWakesTheNext) {
  Client client = connectFair();
  rawEnrol("buried", "dead:1");
  rawEnrol("buried", "foreign:7");
  raw().run({"ZADD", deadlinesKey("buried"), "1", "dead:1"});
  RawSubscriber subscriber(rawOptions());
  subscriber.psubscribe("*");
  EXPECT_FALSE(client.getFairLock("buried").tryLock());
  EXPECT_EQ(queue("buried"), Names{"foreign:7"});
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages()[0],
            (RawSubscriber::Message{"*", channelOf("buried") + ":foreign:7", "0"}));
  EXPECT_FALSE(client.getFairLock("buried").tryLock());
  EXPECT_EQ(subscriber.count(), 1U);
}

TEST_F(FairLock, DeadWaitersFromBeforeTheClockWasSetBackCostOneLeaseTogether) {
  // As they stand there when the server's clock is set back by a minute.
  const std::string stale = std::to_string(raw().serverTimeUs() / 1000 + 60'000);
  for (const char* const dead : {"dead:1", "dead:2", "dead:3"}) {
    raw().run({"RPUSH", queueKey("back"), dead});
    raw().run({"ZADD", deadlinesKey("back"), stale, dead});
    raw().run({"ZADD", leasesKey("back"), stale, dead});
  }
  Client client = connectFair();
  const Stopwatch watch;
  EXPECT_TRUE(client.getFairLock("back").tryLock(30s));
  EXPECT_LT(watch.elapsedMs(), kPlace + scaled(500ms));
  expectNoQueue("back");
}

TEST_F(FairLock, PlacesThatOthersGiveForLongerAreLeftAlone) {
  Client client = connectFair();
  const std::int64_t now = raw().serverTimeUs() / 1000;
  raw().run({"RPUSH", queueKey("longer"), "other:1"});
  raw().run({"ZADD", deadlinesKey("longer"), std::to_string(now + 4500), "other:1"});
  raw().run({"ZADD", leasesKey("longer"), std::to_string(now + 4500), "other:1"});
  EXPECT_FALSE(client.getFairLock("longer").tryLock());
  EXPECT_EQ(raw().run({"ZSCORE", leasesKey("longer"), "other:1"}).string(),
            std::to_string(now + 4500));
  // Redisson's own are what Redisson says.
  rawEnrol("theirs", "foreign:7");
  const auto theirs = raw().run({"ZSCORE", deadlinesKey("theirs"), "foreign:7"}).string();
  EXPECT_FALSE(client.getFairLock("theirs").tryLock());
  EXPECT_EQ(raw().run({"ZSCORE", deadlinesKey("theirs"), "foreign:7"}).string(), theirs);
}

TEST_F(FairLock, TheNextIsThereWhenAShortLeaseOfTheOneBeforeItEnds) {
  // Nobody looks again by itself before that lease is over.
  Options settings = options();
  settings.fairWaiterLease = 60s;
  Client client = Client::connect(settings);
  RLock lock = client.getFairLock("short");
  rawHold("short", "foreign:1", 60s);
  auto first = lock.lockAsync({.lease = 500ms}, newOwner()).toFuture();
  ASSERT_EVENTUALLY(kLong, waiting("short", 1));
  auto second = lock.lockAsync({.lease = 10s}, newOwner()).toFuture();
  ASSERT_EVENTUALLY(kLong, waiting("short", 2));
  std::this_thread::sleep_for(50ms);
  ForeignClient(raw(), "short").release();
  ASSERT_TRUE(ready(first, kLong));
  const Stopwatch watch;
  ASSERT_TRUE(ready(second, kLong));
  EXPECT_LT(watch.elapsedMs(), 500ms + scaled(500ms));
}

TEST_F(FairLockSlow, XFAIR2_SeveralDeadWaitersCostOneLeaseTogether) {
  Client client = connectFair();
  Client other = connectFair();
  rawHold("dead", "foreign:1", 60s);
  Visitors visitors;
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < 10; ++i) {
    if (i == 0 || i == 1 || i == 4 || i == 7) {
      workers.push_back(fairWorker());
      workers.back()->tell("lock dead");
    } else {
      visitors.send((i % 2 == 0 ? client : other).getFairLock("dead"), i);
    }
    ASSERT_EVENTUALLY(kLong, waiting("dead", static_cast<std::size_t>(i) + 1));
  }
  for (auto& worker : workers) {
    worker->process().kill();
  }
  const Stopwatch watch;
  ForeignClient(raw(), "dead").release();
  EXPECT_EQ(visitors.troubles(), Names());
  // Six have had it, one after the other; three leases would be far more.
  EXPECT_LT(watch.elapsedMs(), kPlace + scaled(kPlace / 2));
  EXPECT_EQ(visitors.order(), (std::vector<int>{2, 3, 5, 6, 8, 9}));
  EXPECT_FALSE(raw().exists("dead"));
  EXPECT_EQ(queue("dead"), Names());
  expectNoEternalKeys();
}

// The settings are those of a client for which nobody has set anything.
TEST_F(FairLockSlow, C5_ADeadWaiterCostsItsPlaceAndNoMore) {
  const std::chrono::milliseconds place = Options().fairWaiterLease;
  ASSERT_EQ(place, 4s) << "docs/fair-lock.md names another time";
  Client client = Client::connect(Options::fromUri(uri()));
  rawHold("place", "foreign:1", 60s);
  Worker worker(uri());
  EXPECT_EQ(worker.ask("kind fair"), "ok");
  worker.tell("lock place");
  ASSERT_EVENTUALLY(kLong, waiting("place", 1));
  Visitors visitors;
  visitors.send(client.getFairLock("place"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("place", 2));
  // It dies right after it has refreshed its place, and the lock is free from then on.
  const auto refreshed = [&] {
    return raw().run({"ZSCORE", leasesKey("place"), queue("place")[0]}).string();
  };
  const std::string first = refreshed();
  ASSERT_EVENTUALLY(kLong, refreshed() != first);
  worker.process().kill();
  const Stopwatch watch;
  ForeignClient(raw(), "place").release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_LT(watch.elapsedMs(), place + scaled(1s));
  EXPECT_EQ(visitors.order(), std::vector<int>{0});
  EXPECT_EQ(queue("place"), Names());
}

TEST_F(FairLockSlow, AFrozenWaiterLosesItsTurnAndComesBack) {
  Client client = connectFair();
  rawHold("frozen", "foreign:1", 60s);
  auto worker = fairWorker();
  worker->tell("lock frozen");
  ASSERT_EVENTUALLY(kLong, waiting("frozen", 1));
  const OwnerId next = newOwner();
  RLock lock = client.getFairLock("frozen");
  auto passed = lock.lockAsync({}, next).toFuture();
  ASSERT_EVENTUALLY(kLong, waiting("frozen", 2));
  worker->process().stop();
  ForeignClient(raw(), "frozen").release();
  ASSERT_TRUE(ready(passed, kLong));
  passed.get();
  Visitors later;
  later.send(client.getFairLock("frozen"), 1);
  ASSERT_EVENTUALLY(kLong, waiting("frozen", 1));
  worker->process().cont();
  // It came before the one that waits now.
  EXPECT_EVENTUALLY(kLong,
                    waiting("frozen", 2) && queue("frozen")[0].starts_with(worker->clientId()));
  lock.unlockAsync(next).get();
  EXPECT_EQ(worker->answer(), "ok");
  EXPECT_EQ(later.order(), std::vector<int>());
  EXPECT_EQ(worker->ask("unlock frozen"), "ok");
  EXPECT_EQ(later.troubles(), Names());
  expectNoKeys();
}

TEST_F(FairLockSlow, FL07_AutoExpireAfterTheOwnerWasKilled) {
  // A renewal may come a moment late.
  constexpr std::chrono::milliseconds kLease = 2 * kWatchdog;
  Client other = connectFair();
  auto worker = fairWorker(kLease);
  EXPECT_EQ(worker->ask("lock FL07"), "ok");
  std::this_thread::sleep_for(kLease * 3 / 2);
  EXPECT_FALSE(other.getFairLock("FL07").tryLock());
  worker->process().kill();
  const Stopwatch watch;
  EXPECT_TRUE(other.getFairLock("FL07").tryLock(scaled(5s)));
  EXPECT_LT(watch.elapsedMs(), kLease + scaled(300ms));
}

TEST_F(FairLockSlow, OLD04_HundredsOfStoppedWaitersBlockNobody) {
  auto crowd = std::make_unique<Client>(connectFair());
  rawHold("OLD04", "foreign:1", 60s);
  std::stop_source stop;
  Visitors visitors;
  for (int i = 0; i < 200; ++i) {
    AcquireOptions options;
    options.stop = stop.get_token();
    visitors.send(crowd->getFairLock("OLD04"), i, options);
  }
  ASSERT_EVENTUALLY(kLong, waiting("OLD04", 200));
  stop.request_stop();
  crowd.reset();
  EXPECT_EQ(visitors.troubles().size(), 200U);
  EXPECT_EVENTUALLY(kPlace, queue("OLD04").empty());
  ForeignClient(raw(), "OLD04").release();
  Client fresh = connectFair();
  const Stopwatch watch;
  EXPECT_TRUE(fresh.getFairLock("OLD04").tryLock(scaled(5s)));
  EXPECT_LT(watch.elapsedMs(), kPlace + scaled(1s));
}

// Hand-over.

TEST_P(FairLockFaces, XFAIR6_TheHeadTakesAnExpiredLockWithoutAMessage) {
  constexpr int kRounds = 25;
  Client client = connectFair(kRarePlace);
  FaceLock lock = lockOf(client, "XFAIR6");
  int late = 0;
  for (int round = 0; round < kRounds; ++round) {
    rawHold("XFAIR6", "foreign:1", 60ms);
    const Stopwatch watch;
    const std::string got =
        round % 2 == 0 ? outcomeOf(lock.lock()) : answerOf(lock.tryLock(currentOwner(), kLong));
    const std::chrono::milliseconds took = watch.elapsedMs();
    EXPECT_LT(took, 60ms + scaled(500ms)) << "it waited for more than the end of the lease";
    late += took > 60ms + kLate ? 1 : 0;
    ASSERT_EQ(got, round % 2 == 0 ? "ok" : "true");
    ASSERT_EQ(outcomeOf(lock.unlock()), "ok");
  }
  // The machine may stop for a moment.
  EXPECT_LE(late, scaled(1ms).count() * kRounds / 10);
  expectNoKeys();
}

TEST_P(FairLockFaces, D01_XFAIR7_OnlyAnOwnerCanUnlockEvenIfNobodyHoldsIt) {
  Client client = connectFair();
  FaceLock lock = lockOf(client, "D01");
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  lock.lock(currentOwner(), 600ms).value();
  ASSERT_EVENTUALLY(kLong, !raw().exists("D01"));
  rawEnrol("D01", "foreign:7");
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(channelOf("D01") + ":foreign:7");
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  rawHold("D01", "foreign:1", 60s);
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  EXPECT_EQ(raw().hgetall("D01"), (Fields{{"foreign:1", "1"}}));
  EXPECT_EQ(queue("D01"), Names{"foreign:7"});
  // A message that was published before has come by then.
  raw().publish(channelOf("D01") + ":foreign:7", "the last");
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages().front().payload, "the last");
}

TEST_F(FairLock, ASlowHeadDoesNotMakeTheOthersSpin) {
  constexpr int kWaiters = 5;
  Client client = connectFair();
  rawEnrol("slow", "foreign:7");
  Visitors visitors;
  for (int i = 0; i < kWaiters; ++i) {
    visitors.send(client.getFairLock("slow"), i);
    ASSERT_EVENTUALLY(kLong, waiting("slow", static_cast<std::size_t>(i) + 2));
  }
  // Each asks once more when it has its subscription.
  const auto leases = [&] {
    Fields found;
    const Names all = raw().run({"ZRANGE", leasesKey("slow"), "0", "-1", "WITHSCORES"}).strings();
    for (std::size_t i = 0; i + 1 < all.size(); i += 2) {
      found[all[i]] = all[i + 1];
    }
    return found;
  };
  const Fields before = leases();
  const auto allAskedAgain = [&] {
    const Fields after = leases();
    return std::all_of(before.begin(), before.end(), [&](const auto& each) {
      const auto found = after.find(each.first);
      return found != after.end() && found->second != each.second;
    });
  };
  ASSERT_EVENTUALLY(kLong, allAskedAgain());
  const Stopwatch watch;
  raw().resetStats();
  std::this_thread::sleep_for(kPlace);
  const std::int64_t calls = raw().commandCalls("evalsha");
  // Each refreshes its place three times in a lease. The pause may have been longer than one.
  EXPECT_GE(calls, 2 * kWaiters);
  EXPECT_LE(calls, kWaiters * (watch.elapsedMs() / (kPlace / 3) + 1));
  ForeignClient(raw(), "slow").leave("foreign:7");
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), upTo(kWaiters));
}

TEST_F(FairLock, AReleaseByForceWakesTheHead) {
  Client client = connectFair(kRarePlace);
  Client other = connectFair();
  rawHold("forced", "foreign:1", 60s);
  Visitors visitors;
  visitors.send(client.getFairLock("forced"), 0);
  const std::string channel = channelOf("forced") + ":";
  ASSERT_EVENTUALLY(kLong, waiting("forced", 1) && raw().numsub(channel + queue("forced")[0]) == 1);
  std::this_thread::sleep_for(50ms);
  const Stopwatch watch;
  EXPECT_TRUE(other.getFairLock("forced").forceUnlock());
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_LT(watch.elapsedMs(), scaled(1000ms)) << "it was not told";
}

// The next waiter while the lock is held.

class FairNext : public LockTest {};

// The safety poll is a minute here, so only the knowledge of the lease's end lets the next one in.
TEST_F(FairNext, AWaiterWhoseHeadGivesUpEntersWhenTheHoldersLeaseEnds) {
  Options rare = options();
  // A waiter that refreshes its place also looks, so these do it rarely.
  rare.fairWaiterLease = 40s;
  Client holder = connect();
  Client head = Client::connect(rare);
  Client next = Client::connect(rare);
  constexpr std::chrono::milliseconds kLease{3000};
  const Stopwatch watch;
  holder.getFairLock("next").lockAsync({.lease = Duration(kLease)}, newOwner()).get();
  // It gives up when the other waits behind it.
  std::stop_source stop;
  auto gaveUp = inThread([&] {
    AcquireOptions options;
    options.stop = stop.get_token();
    return outcomeOf([&] { head.getFairLock("next").lockAsync(options, newOwner()).get(); });
  });
  ASSERT_EVENTUALLY(kLong, raw().run({"LLEN", "redisson_lock_queue:{next}"}).integer() == 1);
  auto entered = inThread([&] {
    next.getFairLock("next").lock();
    return watch.elapsedMs();
  });
  ASSERT_EVENTUALLY(kLong, raw().run({"LLEN", "redisson_lock_queue:{next}"}).integer() == 2);
  stop.request_stop();
  EXPECT_EQ(gaveUp.get(), "cancelled");
  ASSERT_TRUE(ready(entered, kLease + 1000ms));
  EXPECT_GE(entered.get(), kLease);
}

TEST_F(FairNext, NoChannelIsLeftByWaitersThatComeOnce) {
  Client client = connect();
  const Lease hold = client.getFairLock("once").acquire();
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(answerOf([&] { return client.getFairLock("once").tryLock(5ms, 30s); }), "true");
  }
  EXPECT_EVENTUALLY(kLong, client.stats().channels == 0);
  const auto channels = [&] {
    return raw().run({"PUBSUB", "CHANNELS", "redisson_lock__channel:{once}*"}).array().size();
  };
  EXPECT_EVENTUALLY(kLong, channels() == 0);
}

}  // namespace
}  // namespace rlock::test
