// SPDX-License-Identifier: Apache-2.0

// The latch: Redisson's own tests, what stands on the server, and that whoever waits when it opens
// is let through.

#include "integration/counter_harness.hpp"
#include "integration/lost_reply_harness.hpp"

#include <limits>

namespace rlock::test {
namespace {

class LatchTest : public CounterTest {
 protected:
  /// Waits in the background; `timeout` ends a test that would hang.
  [[nodiscard]] static std::future<std::string> waiter(CountDownLatch latch,
                                                       Duration timeout = Duration(kLong)) {
    return inThread([latch, timeout, face = GetParam()]() mutable {
      return answerOf(runBy(face, latch.awaitAsync(timeout)));
    });
  }
};
class LatchBlocking : public LockTest {};

INSTANTIATE_TEST_SUITE_P(Faces, LatchTest, ::testing::ValuesIn(kFaces), faceName);

// ---- Redisson's tests

TEST_P(LatchTest, CD01_TheCountIsSetOnce) {
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("cd01");
  EXPECT_EQ(latch.getName(), "cd01");
  EXPECT_EQ(answer(latch.trySetCountAsync(1)), "true");
  EXPECT_EQ(answer(latch.trySetCountAsync(2)), "false");
  EXPECT_EQ(run(latch.getCountAsync()).value(), 1);
}

TEST_P(LatchTest, CD02_WithoutACountItIsZero) {
  Client client = connect();
  EXPECT_EQ(run(client.getCountDownLatch("cd02").getCountAsync()).value(), 0);
}

TEST_P(LatchTest, CD03_Remove) {
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("cd03");
  EXPECT_EQ(answer(latch.removeAsync()), "false");
  ASSERT_EQ(answer(latch.trySetCountAsync(1)), "true");
  EXPECT_EQ(answer(latch.removeAsync()), "true");
  EXPECT_FALSE(raw().exists("cd03"));
  EXPECT_EQ(run(latch.getCountAsync()).value(), 0);
}

TEST_P(LatchTest, CD04_CountDown) {
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("cd04");
  ASSERT_EQ(answer(latch.trySetCountAsync(2)), "true");
  for (const std::int64_t count : {2, 1, 0, 0, 0}) {
    EXPECT_EQ(run(latch.getCountAsync()).value(), count);
    EXPECT_EQ(answer(latch.awaitAsync(Duration::zero())), count == 0 ? "true" : "false");
    EXPECT_EQ(outcome(latch.countDownAsync()), "ok");
  }
  EXPECT_EQ(outcome(latch.awaitAsync()), "ok");
  CountDownLatch unset = client.getCountDownLatch("cd04-unset");
  EXPECT_EQ(outcome(unset.awaitAsync()), "ok");
  EXPECT_EQ(outcome(unset.countDownAsync()), "ok");
  EXPECT_EQ(run(unset.getCountAsync()).value(), 0);
  EXPECT_EQ(outcome(unset.awaitAsync()), "ok");
  EXPECT_FALSE(raw().exists("cd04-unset"));
}

TEST_P(LatchTest, CD05_AwaitInTime) {
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("cd05");
  ASSERT_EQ(answer(latch.trySetCountAsync(1)), "true");
  auto waiting = waiter(latch);
  awaitSubscribed(latchChannelOf("cd05"));
  EXPECT_FALSE(ready(waiting, 100ms));
  EXPECT_EQ(run(latch.getCountAsync()).value(), 1);
  const Stopwatch watch;
  EXPECT_EQ(outcome(latch.countDownAsync()), "ok");
  EXPECT_EQ(waiting.get(), "true");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
}

TEST_P(LatchTest, CD06_AwaitOutOfTime) {
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("cd06");
  ASSERT_EQ(answer(latch.trySetCountAsync(1)), "true");
  const Stopwatch watch;
  EXPECT_EQ(answer(latch.awaitAsync(150ms)), "false");
  EXPECT_GE(watch.elapsedMs(), 150ms);
  EXPECT_LT(watch.elapsedMs(), 150ms + scaled(2 * kLate));
  EXPECT_EQ(client.stats().waiters, 0U);
  EXPECT_EQ(outcome(latch.countDownAsync()), "ok");
  EXPECT_EQ(answer(latch.awaitAsync(Duration(kLong))), "true");
}

TEST_F(LatchBlocking, CD08_ManyCountAndManyWait) {
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("cd08");
  constexpr int kEach = 24;
  ASSERT_TRUE(latch.trySetCount(kEach));
  std::vector<std::future<std::int64_t>> waiters;
  std::vector<std::future<void>> counters;
  for (int i = 0; i < kEach; ++i) {
    waiters.push_back(inThread([&] {
      latch.await();
      return latch.getCount();
    }));
  }
  for (int i = 0; i < kEach; ++i) {
    counters.push_back(inThread([&] { latch.countDown(); }));
  }
  for (auto& waiter : waiters) {
    ASSERT_TRUE(ready(waiter, kLong));
    EXPECT_EQ(waiter.get(), 0);
  }
  for (auto& counter : counters) {
    counter.get();
  }
  EXPECT_FALSE(raw().exists("cd08"));
}

TEST_P(LatchTest, OLD02_AnotherThreadCountsDown) {
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("old02");
  ASSERT_EQ(answer(latch.trySetCountAsync(1)), "true");
  const Stopwatch watch;
  auto waiting = inThread([&] {
    std::this_thread::sleep_for(100ms);
    return outcomeOf(runBy(GetParam(), latch.awaitAsync()));
  });
  std::this_thread::sleep_for(200ms);
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  EXPECT_EQ(outcome(latch.countDownAsync()), "ok");
  EXPECT_EQ(waiting.get(), "ok");
  EXPECT_GE(watch.elapsedMs(), 200ms);
  EXPECT_LT(watch.elapsedMs(), scaled(3s));
}

// ---- The state on the server

TEST_P(LatchTest, V23_StatesAndMessages) {
  Client client = connect();
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(latchChannelOf("C"));
  CountDownLatch latch = client.getCountDownLatch("C");
  EXPECT_EQ(outcome(latch.countDownAsync()), "ok");
  EXPECT_FALSE(raw().exists("C"));
  EXPECT_EQ(answer(latch.trySetCountAsync(2)), "true");
  EXPECT_EQ(raw().type("C"), "string");
  EXPECT_EQ(raw().get("C"), "2");
  EXPECT_EQ(raw().pttl("C"), -1);
  EXPECT_EQ(answer(latch.trySetCountAsync(5)), "false");
  EXPECT_EQ(outcome(latch.countDownAsync()), "ok");
  EXPECT_EQ(raw().get("C"), "1");
  EXPECT_EQ(outcome(latch.countDownAsync()), "ok");
  EXPECT_FALSE(raw().exists("C"));
  ASSERT_TRUE(subscriber.waitFor(2, kLong));
  // New count, zero; nothing for what changed nothing.
  EXPECT_EQ(payloads(subscriber), (std::vector<std::string>{"1", "0"}));
  for (const std::string& key : raw().keys()) {
    EXPECT_TRUE(key.starts_with("rlock_request:{C}:")) << key;
  }
  expectNoEternalKeys();
}

TEST_P(LatchTest, V17_TheChannelIsAlwaysInBraces) {
  RLOCK_ONE_MASTER_ONLY("has braces that a cluster cannot have");
  Client client = connect();
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe("redisson_countdownlatch__channel__{a{t}b}");
  EXPECT_EQ(answer(client.getCountDownLatch("a{t}b").trySetCountAsync(1)), "true");
  EXPECT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(raw().get("a{t}b"), "1");
}

TEST_P(LatchTest, V17_AForeignCountDownWakesUs) {
  Client client = connect();
  raw().set("foreign", "1");
  auto waiting = waiter(client.getCountDownLatch("foreign"));
  awaitSubscribed(latchChannelOf("foreign"));
  const Stopwatch watch;
  raw().del("foreign");
  raw().publish(latchChannelOf("foreign"), "0");
  EXPECT_EQ(waiting.get(), "true");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
}

TEST_P(LatchTest, XLAT2_CountsOutsideTheirRange) {
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("xlat2");
  EXPECT_EQ(outcome(latch.trySetCountAsync(-1)), "invalidArgument");
  EXPECT_EQ(outcome(latch.trySetCountAsync(std::numeric_limits<std::int64_t>::min())),
            "invalidArgument");
  EXPECT_EQ(outcome(latch.awaitAsync(
                std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN()))),
            "invalidArgument");
  expectNoKeys();
  // Zero is what a latch without a count has.
  EXPECT_EQ(answer(latch.trySetCountAsync(0)), "true");
  expectNoKeys();
  EXPECT_EQ(answer(latch.trySetCountAsync(3)), "true");
  EXPECT_EQ(answer(latch.trySetCountAsync(0)), "false");
  EXPECT_EQ(raw().get("xlat2"), "3");
  constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
  CountDownLatch large = client.getCountDownLatch("large");
  EXPECT_EQ(answer(large.trySetCountAsync(kLargest)), "true");
  EXPECT_EQ(run(large.getCountAsync()).value(), kLargest);
  EXPECT_EQ(outcome(large.countDownAsync()), "ok");
  EXPECT_EQ(raw().get("large"), "9223372036854775806");
}

TEST_P(LatchTest, XLAT2_AZeroThatRedissonStored) {
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("zero");
  raw().set("zero", "0");
  EXPECT_EQ(outcome(latch.awaitAsync()), "ok");
  EXPECT_EQ(run(latch.getCountAsync()).value(), 0);
  EXPECT_EQ(answer(latch.trySetCountAsync(2)), "false");
  EXPECT_EQ(outcome(latch.countDownAsync()), "ok");
  EXPECT_FALSE(raw().exists("zero"));
  EXPECT_EQ(answer(latch.trySetCountAsync(2)), "true");
}

TEST_P(LatchTest, XLAT2_AnotherTypeIsLeftAlone) {
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("other");
  raw().run({"HSET", "other", "field", "1"});
  EXPECT_EQ(outcome(latch.countDownAsync()), "wrongType");
  EXPECT_EQ(outcome(latch.awaitAsync()), "wrongType");
  EXPECT_EQ(outcome(latch.awaitAsync(1h)), "wrongType");
  EXPECT_EQ(outcome(latch.getCountAsync()), "wrongType");
  EXPECT_EQ(outcome(latch.trySetCountAsync(1)), "wrongType");
  EXPECT_EQ(outcome(latch.removeAsync()), "wrongType");
  EXPECT_EQ(raw().hget("other", "field"), "1");
  raw().del("other");
  raw().set("other", "words");
  EXPECT_EQ(outcome(latch.countDownAsync()), "wrongType");
  EXPECT_EQ(outcome(latch.awaitAsync(1h)), "wrongType");
  EXPECT_EQ(raw().get("other"), "words");
}

TEST_P(LatchTest, ErrorsNameTheLatch) {
  Client client = connect();
  const auto result = run(client.getCountDownLatch("named").trySetCountAsync(-3));
  ASSERT_FALSE(result.has_value());
  EXPECT_NE(std::string(result.error().what()).find("latch \"named\""), std::string::npos)
      << result.error().what();
}

// ---- Waiting

TEST_P(LatchTest, W41_XSUB14_ARemovedLatchLetsItsWaitersThrough) {
  Client client = connect();
  Client other = connect();
  RawSubscriber redisson(rawOptions());
  redisson.subscribe(latchChannelOf("removed"));
  CountDownLatch latch = client.getCountDownLatch("removed");
  ASSERT_EQ(answer(latch.trySetCountAsync(5)), "true");
  auto one = waiter(latch);
  auto two = waiter(latch);
  auto three = waiter(other.getCountDownLatch("removed"));
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2 && other.stats().waiters == 1);
  awaitSubscribed(latchChannelOf("removed"));
  EXPECT_EQ(answer(latch.removeAsync()), "true");
  EXPECT_EQ(one.get(), "true");
  EXPECT_EQ(two.get(), "true");
  EXPECT_EQ(three.get(), "true");
  // `0` is what opens the gate of Redisson's waiters; its own `1` leaves them asleep.
  ASSERT_TRUE(redisson.waitFor(2, kLong));
  EXPECT_EQ(payloads(redisson), (std::vector<std::string>{"1", "0"}));
}

TEST_P(LatchTest, W41_ARedissonPeerRemovesTheLatch) {
  Client client = connect();
  raw().set("peer", "3");
  auto one = waiter(client.getCountDownLatch("peer"));
  auto two = waiter(client.getCountDownLatch("peer"));
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2);
  awaitSubscribed(latchChannelOf("peer"));
  raw().del("peer");
  raw().publish(latchChannelOf("peer"), "1");
  EXPECT_EQ(one.get(), "true");
  EXPECT_EQ(two.get(), "true");
}

TEST_P(LatchTest, W41_XSUB14_ALatchThatIsSetAgainAtOnceLetsItsWaitersThrough) {
  Client client = connect();
  raw().set("again", "1");
  std::vector<std::future<std::string>> waiters;
  for (std::size_t i = 0; i < 4; ++i) {
    waiters.push_back(waiter(client.getCountDownLatch("again")));
  }
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 4);
  awaitSubscribed(latchChannelOf("again"));
  // Zero and a new count in one step: nobody can see the zero by asking.
  raw().eval(
      "redis.call('set', KEYS[1], 7) redis.call(ARGV[2], ARGV[1], '0')"
      "redis.call(ARGV[2], ARGV[1], '1')",
      {"again"},
      {latchChannelOf("again"), raw().publishing()});
  for (auto& waiting : waiters) {
    EXPECT_TRUE(ready(waiting, kLong));
    EXPECT_EQ(waiting.get(), "true");
  }
  // A waiter that comes now waits for the new count.
  EXPECT_EQ(answer(client.getCountDownLatch("again").awaitAsync(1s)), "false");
  EXPECT_EQ(raw().get("again"), "7");
}

TEST_P(LatchTest, W41_AZeroWhileAWaiterIsJustLooking) {
  Client client = Client::connect(proxied());
  CountDownLatch latch = client.getCountDownLatch("looking");
  ASSERT_EQ(answer(latch.trySetCountAsync(1)), "true");
  EXPECT_EQ(answer(latch.awaitAsync(1s)), "false");
  // The channel is subscribed from here on.
  std::int64_t subscribed = raw().commandCalls("subscribe");
  auto first = waiter(latch);
  ASSERT_EVENTUALLY(kLong, raw().commandCalls("subscribe") > subscribed);
  awaitSubscribed(latchChannelOf("looking"));
  const auto slow = proxy().addRule(running(lua::latch_await), TcpProxy::Action::stallReply());
  subscribed = raw().commandCalls("subscribe");
  auto second = waiter(latch);
  ASSERT_TRUE(slow.waitForHits(1, kLong));
  // A message that the server has before the subscription reaches nobody.
  ASSERT_EVENTUALLY(kLong, raw().commandCalls("subscribe") > subscribed);
  raw().publish(latchChannelOf("looking"), "0");
  // The message has come when this one is through; the reply comes after it.
  static_cast<void>(ready(first, 1s));
  proxy().heal();
  EXPECT_EQ(first.get(), "true");
  EXPECT_EQ(second.get(), "true");
  EXPECT_EQ(raw().get("looking"), "1");
}

TEST_P(LatchTest, W85_XSUB2_ALostMessageIsFoundByThePoll) {
  Options settings = options();
  settings.safetyPoll = 200ms;
  Client client = Client::connect(settings);
  raw().set("w85", "1");
  auto one = waiter(client.getCountDownLatch("w85"));
  auto two = waiter(client.getCountDownLatch("w85"));
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2);
  awaitSubscribed(latchChannelOf("w85"));
  raw().del("w85");
  EXPECT_EQ(one.get(), "true");
  EXPECT_EQ(two.get(), "true");
}

TEST_P(LatchTest, W41_AnExpiringLatchOpensWhenItIsGone) {
  Client client = connect();
  raw().set("expiring", "2", 300ms);
  auto one = waiter(client.getCountDownLatch("expiring"));
  auto two = waiter(client.getCountDownLatch("expiring"));
  const Stopwatch watch;
  EXPECT_EQ(one.get(), "true");
  EXPECT_EQ(two.get(), "true");
  EXPECT_LT(watch.elapsedMs(), scaled(3s));
}

TEST_P(LatchTest, XSUB2_AReconnectedSubscriberLooksAgain) {
  Client client = Client::connect(proxied());
  raw().set("reconnect", "1");
  auto waiting = waiter(client.getCountDownLatch("reconnect"));
  awaitSubscribed(latchChannelOf("reconnect"));
  proxy().refuseConnections(true);
  proxy().cutAll(TcpProxy::CutKind::reset, TcpProxy::subscribersOnly());
  ASSERT_EVENTUALLY(kLong, raw().numsub(latchChannelOf("reconnect")) == 0);
  raw().del("reconnect");
  raw().publish(latchChannelOf("reconnect"), "0");
  proxy().refuseConnections(false);
  EXPECT_EQ(waiting.get(), "true");
}

TEST_P(LatchTest, XERR4_AtTheMemoryLimitCountingDownGoesOn) {
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("oom");
  ASSERT_EQ(answer(latch.trySetCountAsync(2)), "true");
  raw().configSet("maxmemory-policy", "noeviction");
  raw().configSet("maxmemory", "1");
  EXPECT_EQ(outcome(latch.countDownAsync()), "ok");
  EXPECT_EQ(outcome(latch.countDownAsync()), "ok");
  EXPECT_EQ(outcome(latch.awaitAsync(Duration(kLong))), "ok");
  raw().configSet("maxmemory", "0");
}

TEST_P(LatchTest, AStopEndsTheWait) {
  Client client = connect();
  raw().set("stopped", "1");
  CountDownLatch latch = client.getCountDownLatch("stopped");
  std::stop_source stop;
  auto waiting = later(
      [latch, &stop]() mutable { return latch.awaitAsync(stop.get_token(), Duration::max()); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  stop.request_stop();
  EXPECT_EQ(waiting.get(), "cancelled");
  EXPECT_EQ(outcome(latch.awaitAsync(stop.get_token(), 1s)), "cancelled");
  EXPECT_EQ(raw().get("stopped"), "1");
}

TEST_P(LatchTest, AClosedClientEndsTheWait) {
  Client client = connect();
  raw().set("closed", "1");
  CountDownLatch latch = client.getCountDownLatch("closed");
  auto waiting = later([latch]() mutable { return latch.awaitAsync(); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  client.close(1s);
  EXPECT_EQ(waiting.get(), "closed");
  EXPECT_EQ(outcome(latch.awaitAsync()), "closed");
  EXPECT_EQ(outcome(latch.countDownAsync()), "closed");
}

TEST_F(LatchBlocking, XLAT1_WaitersOfManyProcesses) {
  constexpr int kProcesses = 10;
  constexpr int kThreads = 10;
  raw().set("xlat1", "2");
  // Some of them have looked and are not subscribed yet when it opens.
  const auto late =
      proxy().addRule(TcpProxy::command("SUBSCRIBE"), TcpProxy::Action::stallRequest());
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < kProcesses; ++i) {
    const std::string uri = i < 2 ? proxyUri() : this->uri();
    workers.push_back(std::make_unique<Worker>(uri + "?safety-poll=60s"));
  }
  for (int i = 2; i < kProcesses; ++i) {
    workers[static_cast<std::size_t>(i)]->ask("await xlat1 " + std::to_string(kThreads));
  }
  ASSERT_EVENTUALLY(kLong, raw().numsub(latchChannelOf("xlat1")) == kProcesses - 2);
  std::this_thread::sleep_for(100ms);
  workers[0]->ask("await xlat1 " + std::to_string(kThreads));
  workers[1]->ask("await xlat1 " + std::to_string(kThreads));
  ASSERT_TRUE(late.waitForHits(2, kLong));
  Client client = connect();
  CountDownLatch latch = client.getCountDownLatch("xlat1");
  latch.countDown();
  const Stopwatch watch;
  latch.countDown();
  proxy().heal();
  for (auto& worker : workers) {
    worker->tell("opened");
  }
  for (auto& worker : workers) {
    EXPECT_EQ(worker->answer(), "opened " + std::to_string(kThreads));
  }
  EXPECT_LT(watch.elapsedMs(), scaled(1s) + 300ms);
}

TEST_F(LatchBlocking, AZeroFromBeforeTheWaitDoesNotEndIt) {
  Client client = Client::connect(proxied());
  Client other = connect();
  CountDownLatch latch = client.getCountDownLatch("rounds");
  CountDownLatch theirs = other.getCountDownLatch("rounds");
  ASSERT_TRUE(theirs.trySetCount(1));
  EXPECT_FALSE(latch.await(1s));
  ASSERT_EVENTUALLY(kLong, raw().numsub(latchChannelOf("rounds")) == 1);
  proxy().setDelay(TcpProxy::Direction::toClient, 150ms, 0ms, TcpProxy::subscribersOnly());
  theirs.countDown();
  ASSERT_TRUE(theirs.trySetCount(1));
  // The message is on its way.
  EXPECT_FALSE(latch.await(scaled(500ms)));
  EXPECT_EQ(latch.getCount(), 1);

  // One that comes during the wait ends it, although the latch is closed again by then.
  const std::int64_t subscribed = raw().commandCalls("subscribe");
  auto waiting = inThread([&] { return answerOf([&] { return latch.await(kLong); }); });
  ASSERT_EVENTUALLY(kLong, raw().commandCalls("subscribe") > subscribed);
  theirs.countDown();
  ASSERT_TRUE(theirs.trySetCount(1));
  EXPECT_EQ(waiting.get(), "true");
  EXPECT_EQ(latch.getCount(), 1);
}

// ---- Lost replies

class LatchLostReply : public LostReplyTest {
 protected:
  void SetUp() override {
    LostReplyTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    CountDownLatch warm = client().getCountDownLatch("warm");
    warm.trySetCount(1);
    warm.countDown();
    warm.await();
    warm.remove();
    raw().flushAll();
  }
};

INSTANTIATE_TEST_SUITE_P(Faults,
                         LatchLostReply,
                         ::testing::Combine(kLostReplyPolicies, kAllFaults),
                         lostReplyName);

TEST_P(LatchLostReply, C7_XAMB9_EveryChangeCountsOnce) {
  for (const Face face : kFaces) {
    const std::string name = std::string("latch-") + rlock::test::toString(face);
    CountDownLatch latch = client().getCountDownLatch(name);
    auto fault = breakOnce(lua::counter_try_set);
    EXPECT_EQ(answerOf(runBy(face, latch.trySetCountAsync(3))), "true");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(raw().get(name), "3");
    fault = breakOnce(lua::latch_count_down);
    EXPECT_EQ(outcomeOf(runBy(face, latch.countDownAsync())), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(raw().get(name), "2");
    fault = breakOnce(lua::counter_remove);
    EXPECT_EQ(answerOf(runBy(face, latch.removeAsync())), "true");
    EXPECT_EQ(fault.hits(), 1U);
    raw().set(name, "1");
    deliverLate();
    EXPECT_EQ(raw().get(name), "1");
    fault = breakOnce(lua::latch_count_down);
    EXPECT_EQ(outcomeOf(runBy(face, latch.countDownAsync())), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    raw().set(name, "9");
    deliverLate();
    EXPECT_EQ(raw().get(name), "9");
  }
  for (const std::string& key : raw().keys("rlock_request:*")) {
    EXPECT_GT(raw().pttl(key), 0) << key;
  }
}

TEST_P(LatchLostReply, C7_ALostCountDownStillOpens) {
  CountDownLatch latch = client().getCountDownLatch("opens");
  latch.trySetCount(1);
  Client other = connect();
  auto waiting = inThread([&] {
    CountDownLatch theirs = other.getCountDownLatch("opens");
    return answerOf([&] { return theirs.await(kLong); });
  });
  ASSERT_EVENTUALLY(kLong, other.stats().waiters == 1);
  const auto fault = breakOnce(lua::latch_count_down);
  EXPECT_EQ(outcomeOf([&] { latch.countDown(); }), "ok");
  EXPECT_EQ(fault.hits(), 1U);
  EXPECT_EQ(waiting.get(), "true");
}

TEST_P(LatchLostReply, AwaitAsksAgain) {
  for (const Face face : kFaces) {
    CountDownLatch latch = client().getCountDownLatch("asks");
    const auto fault = breakOnce(lua::latch_await);
    EXPECT_EQ(answerOf(runBy(face, latch.awaitAsync(20s))), "true");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
  }
}

}  // namespace
}  // namespace rlock::test
