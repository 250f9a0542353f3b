// SPDX-License-Identifier: Apache-2.0

// The fair lock in company that plays by the older rules.

#include "integration/fair_harness.hpp"

#include <algorithm>

namespace rlock::test {
namespace {

TEST_F(FairLock, Interop_AForeignWaiterIsServedInItsTurn) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "interop");
  RLock lock = client.getFairLock("interop");
  lock.lock();
  Visitors visitors;
  visitors.send(client.getFairLock("interop"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("interop", 1));
  ASSERT_FALSE(foreign.acquire("foreign:7", 20s));
  visitors.send(client.getFairLock("interop"), 1);
  ASSERT_EVENTUALLY(kLong, waiting("interop", 3));
  EXPECT_EQ(queue("interop")[1], "foreign:7");
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(channelOf("interop") + ":foreign:7");
  lock.unlock();
  // The first of ours had it, and told the foreign one when it came and when it went.
  ASSERT_TRUE(subscriber.waitFor(2, kLong));
  EXPECT_EQ(subscriber.messages()[1].payload, "0");
  ASSERT_EVENTUALLY(kLong, visitors.order() == std::vector<int>{0});
  std::this_thread::sleep_for(kPlace / 2);
  EXPECT_EQ(visitors.order(), std::vector<int>{0}) << "somebody passed the foreign one";
  EXPECT_TRUE(foreign.acquire("foreign:7", 20s));
  EXPECT_FALSE(client.getFairLock("interop").tryLock());
  foreign.release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), (std::vector<int>{0, 1}));
  expectNoKeys();
}

TEST_F(FairLock, Interop_PlacesOutliveWhatForeignWaitersTakeOffThem) {
  Client client = connectFair();
  Client other = connectFair();
  ForeignClient foreign(raw(), "mixed");
  rawHold("mixed", "foreign:0", 60s);
  Visitors visitors;
  std::size_t waiters = 0;
  for (int i = 0; i < 6; ++i) {
    ASSERT_FALSE(foreign.acquire("foreign:" + std::to_string(i + 1), 20s));
    visitors.send((i % 2 == 0 ? client : other).getFairLock("mixed"), i);
    waiters += 2;
    ASSERT_EVENTUALLY(kLong, waiting("mixed", waiters));
  }
  const Names arrived = queue("mixed");
  // Refreshing changes nothing of that.
  std::this_thread::sleep_for(kPlace);
  EXPECT_EQ(queue("mixed"), arrived);
  foreign.release();
  for (int i = 0; i < 6; ++i) {
    // Nobody has the time to refresh between these.
    ASSERT_EVENTUALLY(kLong, foreign.acquire("foreign:" + std::to_string(i + 1), 20s));
    const Names left = queue("mixed");
    EXPECT_EQ(left, Names(arrived.end() - static_cast<std::ptrdiff_t>(left.size()), arrived.end()));
    EXPECT_EQ(visitors.order(), upTo(i));
    if (!left.empty()) {
      // The next in the queue costs the others no more, if it dies, than the lease of its place.
      const std::string score = raw().run({"ZSCORE", deadlinesKey("mixed"), left[0]}).string();
      const std::int64_t now = raw().serverTimeUs() / 1000;
      EXPECT_GT(std::stoll(score), now);
      EXPECT_LE(std::stoll(score), now + kPlace / 1ms + 60);
    }
    foreign.release();
  }
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), upTo(6));
  expectNoKeys();
}

TEST_F(FairLock, Interop_PlacesOutliveForeignWaitersThatGiveUp) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "gives-up");
  rawHold("gives-up", "foreign:0", 60s);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  Visitors visitors;
  visitors.send(client.getFairLock("gives-up"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("gives-up", 3));
  const std::string mine = queue("gives-up")[2];
  // With its subscription it asks once more; the next time is a third of its lease away.
  const auto lease = [&] { return raw().run({"ZSCORE", leasesKey("gives-up"), mine}).string(); };
  const std::string before = lease();
  ASSERT_EVENTUALLY(kLong, lease() != before);
  foreign.leave("foreign:1");
  foreign.leave("foreign:2");
  // The next request removes the dead from the head.
  ASSERT_FALSE(foreign.acquire("foreign:3", 20s));
  EXPECT_EQ(queue("gives-up"), (Names{mine, "foreign:3"}));
  foreign.release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_TRUE(foreign.acquire("foreign:3", 20s));
}

TEST_F(FairLock, Interop_PlacesOutliveForeignWaitersOfAnyPatience) {
  for (const std::chrono::milliseconds wait : {8'000ms, 40'000ms, 100'000ms, 900'000ms}) {
    const std::string name = "patience" + std::to_string(wait.count());
    SCOPED_TRACE(name);
    Client client = connectFair();
    ForeignClient foreign(raw(), name, wait);
    rawHold(name, "foreign:0", 60s);
    Visitors visitors;
    visitors.send(client.getFairLock(name), 0);
    ASSERT_EVENTUALLY(kLong, waiting(name, 1));
    ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
    // The first moves its time on, the foreign one does not.
    std::this_thread::sleep_for(kPlace * 3 / 2);
    visitors.send(client.getFairLock(name), 1);
    ASSERT_EVENTUALLY(kLong, waiting(name, 3));
    ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
    foreign.release();
    ASSERT_EVENTUALLY(kLong, foreign.acquire("foreign:1", 20s));
    EXPECT_GT(placesLeft(name)[0], 0);
    foreign.release();
    EXPECT_EQ(visitors.troubles(), Names());
    EXPECT_EQ(queue(name), Names{"foreign:2"});
    EXPECT_TRUE(foreign.acquire("foreign:2", 20s));
    raw().flushAll();
  }
}

TEST_F(FairLock, Interop_PlacesOutliveAForeignWaiterThatCameLongBefore) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "aged");
  rawHold("aged", "foreign:0", 60s);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  raw().run({"ZINCRBY", deadlinesKey("aged"), "-220000", "foreign:1"});
  Visitors visitors;
  visitors.send(client.getFairLock("aged"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("aged", 2));
  const std::string mine = queue("aged")[1];
  foreign.release();
  ASSERT_TRUE(foreign.acquire("foreign:1", 20s));
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  EXPECT_EQ(queue("aged"), (Names{mine, "foreign:2"}));
  foreign.release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_TRUE(foreign.acquire("foreign:2", 20s));
}

TEST_F(FairLock, Interop_PlacesOutliveForeignWaitersBehindOneThatLeft) {
  Steps ours(raw(), "gone", kLong);
  ForeignClient foreign(raw(), "gone");
  rawHold("gone", "foreign:0", 30s);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  ours.acquire("ours:1", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  EXPECT_EQ(ours.withdraw("ours:1"), 1);
  // The waiters left keep their places as long as they would without rlock.
  EXPECT_EQ(raw().pttl(queueKey("gone")), -1);
  EXPECT_EQ(raw().pttl(deadlinesKey("gone")), -1);
  ours.acquire("ours:2", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:3", 20s));
  foreign.release();
  for (const char* const owner : {"foreign:1", "foreign:2"}) {
    ASSERT_TRUE(foreign.acquire(owner, 20s));
    foreign.release();
  }
  EXPECT_EQ(queue("gone"), (Names{"ours:2", "foreign:3"}));
  EXPECT_FALSE(foreign.acquire("foreign:3", 20s));
}

TEST_F(FairLock, Interop_PlacesOutliveForeignWaitersBehindOneThatGotIn) {
  Steps ours(raw(), "in", kLong);
  ForeignClient foreign(raw(), "in", 600s);
  rawHold("in", "foreign:0", 30s);
  ours.acquire("ours:1", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  foreign.release();
  EXPECT_EQ(ours.acquire("ours:1", 20s, Steps::Wait::on), std::nullopt);
  // The key that remembers how long foreign clients wait ends by itself.
  EXPECT_GT(raw().pttl(foreignWaitsKey("in")), 0);
  // Much later.
  raw().run({"ZINCRBY", deadlinesKey("in"), "-90000", "foreign:1"});
  ours.acquire("ours:2", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  ours.release("ours:1");
  ASSERT_TRUE(foreign.acquire("foreign:1", 20s));
  foreign.release();
  EXPECT_EQ(queue("in"), (Names{"ours:2", "foreign:2"}));
}

/// It knows only when the hold before would have ended.
TEST_F(FairLock, Interop_AForeignWaiterIsToldOfAShorterLease) {
  Steps ours(raw(), "shorter", kPlace);
  ForeignClient foreign(raw(), "shorter");
  rawHold("shorter", "foreign:0", 60s);
  ours.acquire("ours:1", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(channelOf("shorter") + ":foreign:1");
  foreign.release();
  EXPECT_EQ(ours.acquire("ours:1", 20s, Steps::Wait::on), std::nullopt);
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages()[0].payload, "0");
}

TEST_F(FairLock, Interop_QueuesOfForeignWaitersDoNotExpireWhereTheLastOfOursDied) {
  Steps ours(raw(), "died", 50ms);
  ForeignClient foreign(raw(), "died");
  rawHold("died", "foreign:0", 60s);
  ours.acquire("ours:1", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  EXPECT_GT(raw().pttl(queueKey("died")), 0);
  // Somebody looks, and removes the place that has lapsed.
  ASSERT_EVENTUALLY(kLong,
                    ours.acquire("ours:2", 20s, Steps::Wait::none).has_value() &&
                        queue("died") == Names{"foreign:1"});
  EXPECT_EQ(raw().pttl(queueKey("died")), -1);
  EXPECT_EQ(raw().pttl(deadlinesKey("died")), -1);
}

/// They refresh nothing, however long they wait, and nobody else may come that does.
TEST_F(FairLock, Interop_QueuesWithForeignWaitersLastForADay) {
  Steps ours(raw(), "patient", kLong);
  ForeignClient foreign(raw(), "patient");
  rawHold("patient", "foreign:0", 60s);
  ours.acquire("ours:1", 20s, Steps::Wait::begin);
  EXPECT_LT(raw().pttl(queueKey("patient")), 3'600'000) << "nobody but ours waits";
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  ours.acquire("ours:1", 20s, Steps::Wait::on);
  EXPECT_GT(raw().pttl(queueKey("patient")), 80'000'000);
  EXPECT_GT(raw().pttl(deadlinesKey("patient")), 80'000'000);
}

TEST_F(FairLock, Interop_AForeignWaiterKnownFromBeforeDoesNotHideANewOne) {
  Steps ours(raw(), "known", kLong);
  ForeignClient foreign(raw(), "known");
  rawHold("known", "foreign:0", 60s);
  ours.acquire("ours:1", 20s, Steps::Wait::begin);
  raw().run({"ZADD", foreignWaitsKey("known"), "300000", "foreign:2"});
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  ours.acquire("ours:1", 20s, Steps::Wait::on);
  // The first refreshes its place for a while, which moves it on from those behind.
  for (const char* const owner : {"foreign:1", "foreign:2"}) {
    raw().run({"ZINCRBY", deadlinesKey("known"), "-20000", owner});
  }
  ours.acquire("ours:1", 20s, Steps::Wait::on);
  ours.acquire("ours:2", 20s, Steps::Wait::begin);
  ASSERT_FALSE(foreign.acquire("foreign:3", 20s));
  foreign.release();
  EXPECT_EQ(ours.acquire("ours:1", 20s, Steps::Wait::on), std::nullopt);
  ours.release("ours:1");
  for (const char* const owner : {"foreign:1", "foreign:2"}) {
    ASSERT_TRUE(foreign.acquire(owner, 20s));
    foreign.release();
  }
  EXPECT_EQ(queue("known"), (Names{"ours:2", "foreign:3"}));
}

TEST_F(FairLock, Interop_WaitingTimesOfThoseWhoLeftAreForgotten) {
  Steps ours(raw(), "forgotten", kLong);
  ForeignClient patient(raw(), "forgotten", 3600s);
  ForeignClient usual(raw(), "forgotten");
  rawHold("forgotten", "foreign:0", 60s);
  ASSERT_FALSE(patient.acquire("foreign:1", 20s));
  ours.acquire("ours:1", 20s, Steps::Wait::begin);
  patient.leave("foreign:1");
  ours.acquire("ours:1", 20s, Steps::Wait::on);
  ASSERT_FALSE(usual.acquire("foreign:1", 20s));
  ours.acquire("ours:2", 20s, Steps::Wait::begin);
  const auto places = placesLeft("forgotten");
  EXPECT_LE(*std::max_element(places.begin(), places.end()), 300'000 + 2 * (kLong / 1ms));
}

TEST_F(FairLock, Interop_ADeadWaiterIsSkippedThoughItsTimeIsLong) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "dead");
  rawHold("dead", "foreign:0", 60s);
  ASSERT_FALSE(foreign.acquire("foreign:1", 20s));
  std::unique_ptr<Worker> worker = fairWorker();
  worker->tell("lock dead");
  ASSERT_EVENTUALLY(kLong, waiting("dead", 2));
  const std::string first = queue("dead")[1];
  // With its subscription it asks once more; the next time is a third of its lease away.
  const auto lease = [&] { return raw().run({"ZSCORE", leasesKey("dead"), first}).string(); };
  const std::string before = lease();
  ASSERT_EVENTUALLY(kLong, lease() != before);
  Visitors visitors;
  visitors.send(client.getFairLock("dead"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("dead", 3));
  // A waiter at the head refreshes its place without the time allowed for others, so it is stopped.
  worker->process().stop();
  // The time that was allowed for the foreign waiter is not taken off when that one dies.
  raw().run({"LREM", queueKey("dead"), "0", "foreign:1"});
  raw().run({"ZREM", deadlinesKey("dead"), "foreign:1"});
  EXPECT_GT(placesLeft("dead")[0], 100'000);
  worker->process().kill();
  const Stopwatch watch;
  foreign.release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_LT(watch.elapsedMs(), 1000ms + kPlace);
  expectNoEternalKeys();
}

TEST_F(FairLock, Interop_EvictedWaitersComeBackBeforeThoseWhoCameLater) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "evicted");
  Client other = connectFair();
  ASSERT_TRUE(foreign.acquire("foreign:1", 20s));
  Visitors visitors;
  for (int i = 0; i < 3; ++i) {
    visitors.send((i == 1 ? other : client).getFairLock("evicted"), i);
    ASSERT_EVENTUALLY(kLong, waiting("evicted", static_cast<std::size_t>(i) + 1));
  }
  const Names ours = queue("evicted");
  // An acquisition and an enrolment by the older rules take so much off, before ours can refresh.
  for (const std::string& owner : ours) {
    raw().run({"ZINCRBY", deadlinesKey("evicted"), "-300000", owner});
  }
  ASSERT_FALSE(foreign.acquire("foreign:2", 20s));
  Names expected = ours;
  expected.emplace_back("foreign:2");
  EXPECT_EVENTUALLY(kPlace, queue("evicted") == expected);
  foreign.release();
  EXPECT_EVENTUALLY(kLong, visitors.order().size() == 3);
  EXPECT_EQ(visitors.order(), upTo(3));
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_TRUE(foreign.acquire("foreign:2", 20s));
}

TEST_F(FairLock, Interop_TurnsWithAForeignClientThatComesAgainAndAgain) {
  Client client = connectFair();
  ForeignClient foreign(raw(), "turns");
  std::atomic<bool> end{false};
  ASSERT_TRUE(foreign.acquire("foreign:1", 20s));
  auto ours = inThread([&] {
    RLock lock = client.getFairLock("turns");
    return outcomeOf([&] {
      for (int i = 0; i < 5; ++i) {
        lock.lock();
        lock.unlock();
      }
      end = true;
    });
  });
  ASSERT_EVENTUALLY(kLong, waiting("turns", 1));
  // Two foreign threads pass it on and queue again at once.
  std::string holder = "foreign:1";
  std::string next = "foreign:2";
  const Deadline stop(kLong);
  bool held = true;
  while (!end.load() && !stop.expired()) {
    if (!held) {
      held = foreign.acquire(holder, 20s);
      std::this_thread::sleep_for(5ms);
      continue;
    }
    EXPECT_FALSE(foreign.acquire(next, 20s));
    std::this_thread::sleep_for(20ms);
    foreign.release();
    std::swap(holder, next);
    held = foreign.acquire(holder, 20s);
  }
  EXPECT_TRUE(end.load()) << "starved";
  raw().flushAll();
  EXPECT_EQ(ours.get(), "ok");
}

}  // namespace
}  // namespace rlock::test
