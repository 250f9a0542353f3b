// SPDX-License-Identifier: Apache-2.0

// The keys that the fair lock has on the server, to the byte, and how it heals when they were
// damaged.

#include "integration/fair_harness.hpp"

#include <array>

namespace rlock::test {
namespace {

TEST_F(FairLock, V23_AcquireEnqueueReleaseStep) {
  Options settings = options();
  settings.watchdogTimeout = 30s;
  Client client = Client::connect(settings);
  const OwnerId a = newOwner();
  const OwnerId b = newOwner();
  const OwnerId d = newOwner();
  const std::string fieldA = ownerField(client, a);
  const std::string fieldB = ownerField(client, b);
  const std::string fieldD = ownerField(client, d);
  RLock lock = client.getFairLock("V23");
  RawSubscriber subscriber(rawOptions());
  subscriber.psubscribe("*");

  lock.lockAsync({}, a).wait().value();
  EXPECT_EQ(raw().hgetall("V23"), (Fields{{fieldA, "1"}}));
  EXPECT_EQ(raw().keys(), std::set<std::string>{"V23"});

  auto second = lock.lockAsync({}, b).toFuture();
  ASSERT_EVENTUALLY(kLong, waiting("V23", 1));
  auto third = lock.lockAsync({}, d).toFuture();
  ASSERT_EVENTUALLY(kLong, waiting("V23", 2));
  EXPECT_EQ(queue("V23"), (Names{fieldB, fieldD}));
  EXPECT_EQ(raw().type(queueKey("V23")), "list");
  EXPECT_EQ(raw().type(deadlinesKey("V23")), "zset");
  for (const std::string& field : {fieldB, fieldD}) {
    const std::string score = raw().run({"ZSCORE", deadlinesKey("V23"), field}).string();
    EXPECT_EQ(score.find_first_not_of("0123456789"), std::string::npos) << score;
    EXPECT_LE(std::stoll(score), raw().serverTimeUs() / 1000 + 4000);
    EXPECT_GT(std::stoll(score), raw().serverTimeUs() / 1000);
  }
  // Longer than any place, and not for ever.
  EXPECT_GT(raw().pttl(queueKey("V23")), 5'000);
  EXPECT_GT(raw().pttl(deadlinesKey("V23")), 5'000);
  EXPECT_EQ(raw().hgetall("V23"), (Fields{{fieldA, "1"}}));

  subscriber.clear();
  lock.unlockAsync(a).wait().value();
  second.get();
  EXPECT_EQ(raw().hgetall("V23"), (Fields{{fieldB, "1"}}));
  EXPECT_EQ(queue("V23"), Names{fieldD});
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages()[0],
            (RawSubscriber::Message{"*", channelOf("V23") + ":" + fieldB, "0"}));
  EXPECT_EQ(subscriber.count(), 1U);

  lock.unlockAsync(b).wait().value();
  third.get();
  EXPECT_EQ(raw().keys(), std::set<std::string>{"V23"});
  lock.unlockAsync(d).wait().value();
  expectNoKeys();
  ASSERT_TRUE(subscriber.waitFor(2, kLong));
  // A message of the last release would be ahead of this one.
  raw().publish(channelOf("V23") + ":" + fieldD, "last");
  ASSERT_TRUE(subscriber.waitFor(3, kLong));
  EXPECT_EQ(subscriber.messages()[2].payload, "last") << "nobody waits, nobody is told";
  EXPECT_EQ(subscriber.messages()[1].channel, channelOf("V23") + ":" + fieldD);
}

TEST_F(FairLock, C6_NothingIsLeftBehind) {
  Options settings = fair(options());
  settings.subscriptionLinger = 50ms;
  Client client = Client::connect(settings);
  rawHold("residue", "foreign:1", 60s);
  std::vector<std::future<std::string>> calls;
  for (int i = 0; i < 5; ++i) {
    calls.push_back(inThread(
        [&] { return answerOf([&] { return client.getFairLock("residue").tryLock(100ms); }); }));
  }
  for (auto& call : calls) {
    EXPECT_NE(call.get(), "true");
  }
  EXPECT_EVENTUALLY(kLong, raw().pubsubChannels("redisson*").empty());
  ForeignClient(raw(), "residue").release();
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
  EXPECT_EVENTUALLY(kLong, client.stats().channels == 0 && client.stats().waiters == 0);
}

// Damage and restarts.

enum class Damage { queueLost, deadlinesLost, leasesLost, everythingLost, orderLost, scoresLost };

class FairLockDamage : public FairLockTest, public ::testing::WithParamInterface<Damage> {};

std::string damageName(const ::testing::TestParamInfo<Damage>& test) {
  constexpr std::array kNames{
      "queueLost", "deadlinesLost", "leasesLost", "everythingLost", "orderLost", "scoresLost"};
  return kNames[static_cast<std::size_t>(test.param)];
}

INSTANTIATE_TEST_SUITE_P(Kinds,
                         FairLockDamage,
                         ::testing::Values(Damage::queueLost,
                                           Damage::deadlinesLost,
                                           Damage::leasesLost,
                                           Damage::everythingLost,
                                           Damage::orderLost,
                                           Damage::scoresLost),
                         damageName);

TEST_P(FairLockDamage, XFAIR5_TheQueueHealsItself) {
  constexpr int kWaiters = 6;
  Client client = connectFair();
  Client other = connectFair();
  rawHold("XFAIR5", "foreign:1", 60s);
  Visitors visitors;
  for (int i = 0; i < kWaiters; ++i) {
    visitors.send((i % 2 == 0 ? client : other).getFairLock("XFAIR5"), i);
    ASSERT_EVENTUALLY(kLong, waiting("XFAIR5", static_cast<std::size_t>(i) + 1));
  }
  const Names before = queue("XFAIR5");
  switch (GetParam()) {
    case Damage::queueLost:
      raw().del(queueKey("XFAIR5"));
      break;
    case Damage::deadlinesLost:
      raw().del(deadlinesKey("XFAIR5"));
      break;
    case Damage::everythingLost:
      raw().run({"DEL",
                 queueKey("XFAIR5"),
                 deadlinesKey("XFAIR5"),
                 leasesKey("XFAIR5"),
                 orderKey("XFAIR5")});
      break;
    case Damage::leasesLost:
      raw().del(leasesKey("XFAIR5"));
      break;
    case Damage::orderLost:
      raw().del(orderKey("XFAIR5"));
      break;
    case Damage::scoresLost:
      raw().run({"ZREM", deadlinesKey("XFAIR5"), before[0], before[3]});
      break;
  }
  ASSERT_EVENTUALLY(kPlace, waiting("XFAIR5", kWaiters));
  std::this_thread::sleep_for(kPlace / 2);
  const bool ordered = GetParam() != Damage::everythingLost;
  if (ordered) {
    EXPECT_EQ(queue("XFAIR5"), before);
  }
  EXPECT_EVENTUALLY(kPlace, raw().run({"ZCARD", deadlinesKey("XFAIR5")}).integer() == kWaiters);
  ForeignClient(raw(), "XFAIR5").release();
  EXPECT_EQ(visitors.troubles(), Names());
  if (ordered) {
    EXPECT_EQ(visitors.order(), upTo(kWaiters));
  }
  expectNoKeys();
}

TEST_F(FairLockSlow, XFAIR5_AnEmptyRestartWithAFullQueue) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Client client = connectFair();
  rawHold("restart", "foreign:1", 60s);
  Visitors visitors;
  for (int i = 0; i < 6; ++i) {
    visitors.send(client.getFairLock("restart"), i);
  }
  ASSERT_EVENTUALLY(kLong, waiting("restart", 6));
  server().restart();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order().size(), 6U);
  reconnectRaw();
  expectNoKeys();
}

TEST_F(FairLock, W79_WhatTheDeadLeaveBehindIsBounded) {
  for (int i = 0; i < 150; ++i) {
    raw().run({"ZADD", orderKey("W79"), std::to_string(i + 1), "dead:" + std::to_string(i)});
    raw().run({"ZADD", deadlinesKey("W79"), std::to_string(i + 1), "dead:" + std::to_string(i)});
    raw().run({"ZADD", leasesKey("W79"), std::to_string(i + 1), "dead:" + std::to_string(i)});
  }
  rawHold("W79", "foreign:1", 60s);
  Client client = connectFair();
  Visitors visitors;
  for (int i = 0; i < 3; ++i) {
    visitors.send(client.getFairLock("W79"), i);
    ASSERT_EVENTUALLY(kLong, waiting("W79", static_cast<std::size_t>(i) + 1));
  }
  EXPECT_EQ(raw().run({"ZCARD", orderKey("W79")}).integer(), 3);
  EXPECT_EQ(raw().run({"ZCARD", deadlinesKey("W79")}).integer(), 3);
  EXPECT_EQ(raw().run({"ZCARD", leasesKey("W79")}).integer(), 3);
  expectNoEternalKeys();
  ForeignClient(raw(), "W79").release();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_EQ(visitors.order(), upTo(3));
  expectNoKeys();
}

TEST_F(FairLock, W80_NobodyChangesAnothersTime) {
  Client client = connectFair();
  RLock lock = client.getFairLock("W80");
  lock.lock();
  Visitors visitors;
  visitors.send(client.getFairLock("W80"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("W80", 1));
  rawEnrol("W80", "foreign:7");
  const auto score = [&] {
    return raw().run({"ZSCORE", deadlinesKey("W80"), "foreign:7"}).string();
  };
  const std::string before = score();
  EXPECT_NE(answerOf([&] { return connectFair().getFairLock("W80").tryLock(100ms); }), "true");
  lock.unlock();
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_FALSE(lock.tryLock());
  EXPECT_EQ(score(), before);
  EXPECT_EQ(queue("W80"), Names{"foreign:7"});
}

TEST_F(FairLock, W78_AnEntryWithoutATimeIsDead) {
  raw().run({"RPUSH", queueKey("W78"), "old:1", "old:2"});
  Client client = connectFair();
  EXPECT_TRUE(client.getFairLock("W78").tryLock());
  expectNoQueue("W78");
}

TEST_F(FairLock, OddTimesDoNoHarm) {
  Client client = connectFair();
  raw().run({"RPUSH", queueKey("odd"), "old:1"});
  raw().run({"ZADD", deadlinesKey("odd"), "inf", "old:1"});
  std::stop_source stop;
  AcquireOptions options;
  options.stop = stop.get_token();
  Visitors visitors;
  visitors.send(client.getFairLock("odd"), 0, options);
  ASSERT_EVENTUALLY(kLong, waiting("odd", 2));
  EXPECT_GT(raw().pttl(queueKey("odd")), 0);
  stop.request_stop();
  EXPECT_EQ(visitors.troubles(), Names{"cancelled"});
  EXPECT_EVENTUALLY(kPlace / 2, queue("odd") == Names{"old:1"});
  raw().run({"ZADD", deadlinesKey("odd"), "1.5", "old:1"});
  EXPECT_EQ(answerOf([&] { return client.getFairLock("odd").tryLock(kLong); }), "true");
}

TEST_F(FairLock, ADamagedQueueDoesNotKeepAHolderFromReleasing) {
  Client client = connectFair();
  RLock lock = client.getFairLock("damaged");
  lock.lock();
  raw().set(queueKey("damaged"), "not a list", 60s);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_FALSE(raw().exists("damaged"));
  EXPECT_TRUE(log().waitFor("could not be told", kLong));
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "wrongType");
  EXPECT_FALSE(raw().exists("damaged"));
}

TEST_F(FairLock, DamagedTimesDoNotGetInTheWayOfAHolder) {
  Client client = connectFair();
  RLock lock = client.getFairLock("damaged");
  for (const std::string& key : {deadlinesKey("damaged"),
                                 leasesKey("damaged"),
                                 orderKey("damaged"),
                                 foreignWaitsKey("damaged")}) {
    SCOPED_TRACE(key);
    raw().set(key, "not a zset", 60s);
    EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
    EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_FALSE(raw().exists("damaged"));
    raw().flushAll();
  }
}

TEST_F(FairLock, ANewCallDoesNotInheritALapsedPlace) {
  Steps steps(raw(), "lapsed", 4s);
  Steps brief(raw(), "lapsed", 20ms);
  rawHold("lapsed", "foreign:1", 60s);
  steps.acquire("first", 20s, Steps::Wait::begin);
  brief.acquire("gone", 20s, Steps::Wait::begin);
  steps.acquire("third", 20s, Steps::Wait::begin);
  ASSERT_EVENTUALLY(kLong, placesLeft("lapsed")[0] < 0);
  steps.acquire("gone", 20s, Steps::Wait::begin);
  EXPECT_EQ(queue("lapsed"), (Names{"first", "third", "gone"}));
  // A waiter that asks on has only been late, and keeps its lapsed place.
  brief.acquire("third", 20s, Steps::Wait::on);
  ASSERT_EVENTUALLY(kLong, placesLeft("lapsed")[0] < 0);
  steps.acquire("third", 20s, Steps::Wait::on);
  EXPECT_EQ(queue("lapsed"), (Names{"first", "third", "gone"}));
}

}  // namespace
}  // namespace rlock::test
