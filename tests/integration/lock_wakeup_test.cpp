// SPDX-License-Identifier: Apache-2.0

// Nobody sleeps on when the lock is free. The safety poll is a minute here, so that only real
// wake-ups pass.

#include "integration/lock_harness.hpp"

#include <set>
#include <string>

namespace rlock::test {
namespace {

class LockWakeup : public FaceTest {
 protected:
  /// A waiter on a thread of its own; "true" when it got the lock (and gave it back).
  std::future<std::string> waitFor(Client& client,
                                   std::string name,
                                   Duration wait = Duration(30s)) {
    return inThread([this, &client, name = std::move(name), wait] {
      FaceLock lock = lockOf(client, name);
      const std::string got = answerOf(lock.tryLock(currentOwner(), wait));
      return got == "true" ? got + "," + outcomeOf(lock.unlock()) : got;
    });
  }
  /// Until the server has been asked for the lock that often in this test.
  void awaitLooks(std::int64_t count) {
    // The script is sent in full the first time.
    EXPECT_EVENTUALLY(kLong, raw().commandCalls("eval") + raw().commandCalls("evalsha") >= count);
  }
};

class LockHerd : public LockTest {};
class LockHerdSlow : public LockTest {};

INSTANTIATE_TEST_SUITE_P(Faces, LockWakeup, ::testing::ValuesIn(kFaces), faceName);

TEST_P(LockWakeup, ReleaseWakesAWaiter) {
  Client holder = connect();
  Client other = connect();
  const OwnerId owner = newOwner();
  FaceLock lock = lockOf(holder, "wake");
  lock.lock(owner).value();
  auto local = waitFor(holder, "wake");
  auto remote = waitFor(other, "wake");
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("wake")) == 2);
  const Stopwatch watch;
  lock.unlock(owner).value();
  EXPECT_EQ(local.get(), "true,ok");
  EXPECT_EQ(remote.get(), "true,ok");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
}

TEST_P(LockWakeup, XSUB1_AReleaseWhileTheSubscriberConnectionIsGone) {
  RLOCK_ONE_SERVER_ONLY("closes the subscribers of its server, of which Sentinels are some");
  Client client = connect();
  rawHold("sub1", "foreign:1", 30s);
  auto waiter = waitFor(client, "sub1");
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("sub1")) == 1);
  std::this_thread::sleep_for(50ms);
  const Stopwatch watch;
  // In one write, so that the server does it all before anybody can connect again.
  const std::string channel = channelOf("sub1");
  raw().sendRaw("CLIENT KILL TYPE pubsub\r\nDEL sub1\r\nPUBLISH " + channel + " 0\r\n");
  EXPECT_EQ(raw().receive().integer(), 1);
  EXPECT_EQ(raw().receive().integer(), 1);
  EXPECT_EQ(raw().receive().integer(), 0) << "nobody must hear this";
  EXPECT_EQ(waiter.get(), "true,ok");
  EXPECT_LT(watch.elapsedMs(), scaled(3s));
}

TEST_P(LockWakeup, XSUB3_AReleaseBeforeTheSubscriptionIsConfirmed) {
  const auto late =
      proxy().addRule(TcpProxy::command("SUBSCRIBE"), TcpProxy::Action::delayReply(400ms));
  Client client = Client::connect(proxied());
  rawHold("sub3", "foreign:1", 30s);
  auto waiter = waitFor(client, "sub3");
  ASSERT_TRUE(late.waitForHits(1, kLong));
  rawRelease("sub3");
  EXPECT_EQ(waiter.get(), "true,ok");
}

TEST_P(LockWakeup, XSUB3_AReleaseBeforeTheSubscriptionArrives) {
  const auto late =
      proxy().addRule(TcpProxy::command("SUBSCRIBE"), TcpProxy::Action::delayRequest(400ms));
  Client client = Client::connect(proxied());
  rawHold("sub3", "foreign:1", 30s);
  auto waiter = waitFor(client, "sub3");
  ASSERT_TRUE(late.waitForHits(1, kLong));
  rawRelease("sub3");
  const Stopwatch watch;
  EXPECT_EQ(waiter.get(), "true,ok");
  EXPECT_LT(watch.elapsedMs(), scaled(4s));
}

TEST_P(LockWakeup, XSUB5_AWokenWaiterThatFailsPassesItsTurnOn) {
  Client client = Client::connect(proxied());
  rawHold("sub5", "foreign:1", 30s);
  auto first = waitFor(client, "sub5");
  // The first one looks once more when it has its subscription, the second one has it already. The
  // rule is for the one that is woken: mostly the first, unless its thread has not come back to its
  // place yet.
  awaitLooks(2);
  auto second = waitFor(client, "sub5");
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2);
  awaitLooks(3);
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto broken = proxy().addRule(
      TcpProxy::script("sub5"), TcpProxy::Action::replyWithError("ERR broken"), once);
  const Stopwatch watch;
  rawRelease("sub5");
  const std::set<std::string> answers{first.get(), second.get()};
  EXPECT_EQ(answers, (std::set<std::string>{"serverError", "true,ok"}));
  EXPECT_EQ(broken.hits(), 1U);
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
}

TEST_P(LockWakeup, XSUB5_AWokenWaiterThatIsStoppedPassesItsTurnOn) {
  Client client = Client::connect(proxied());
  rawHold("sub5", "foreign:1", 30s);
  std::stop_source stop;
  auto first = inThread([&] {
    AcquireOptions options;
    options.wait = Duration::max();
    options.stop = stop.get_token();
    return answerOf(
        runBy(GetParam(), client.getLock("sub5").tryLockAsync(std::move(options), newOwner())));
  });
  // The first one looks once more when it has its subscription, the second one has it already. The
  // rule is for who is woken.
  awaitLooks(2);
  auto second = waitFor(client, "sub5");
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2);
  awaitLooks(3);
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto slow = proxy().addRule(TcpProxy::script("sub5"), TcpProxy::Action::stallReply(), once);
  const Stopwatch watch;
  rawRelease("sub5");
  ASSERT_TRUE(slow.waitForHits(1, kLong));
  stop.request_stop();
  EXPECT_EQ(first.get(), "cancelled");
  proxy().releaseStalled();
  EXPECT_EQ(second.get(), "true,ok");
  EXPECT_LT(watch.elapsedMs(), scaled(3s));
  EXPECT_EVENTUALLY(kLong, !raw().exists("sub5"));
}

TEST_P(LockWakeup, XSUB8_StoppedInEveryPhase) {
  Options settings = proxied();
  settings.subscriptionLinger = 20ms;
  Client client = Client::connect(settings);
  // The reply that a rule has held back comes; what is sent from here on is not held back.
  const auto release = [&] {
    proxy().clearRules();
    proxy().releaseStalled();
  };
  const auto stopped = [&](const std::function<void()>& untilThen) {
    std::stop_source stop;
    auto call = inThread([&] {
      AcquireOptions options;
      options.wait = Duration::max();
      options.stop = stop.get_token();
      return answerOf(
          runBy(GetParam(), client.getLock("sub8").tryLockAsync(std::move(options), newOwner())));
    });
    untilThen();
    stop.request_stop();
    stop.request_stop();
    EXPECT_TRUE(ready(call, 3s));
    return call.get();
  };
  // Before anything is sent.
  {
    std::stop_source stop;
    stop.request_stop();
    AcquireOptions options;
    options.stop = stop.get_token();
    EXPECT_EQ(answerOf(runBy(GetParam(), client.getLock("sub8").tryLockAsync(options, newOwner()))),
              "cancelled");
    expectNoKeys();
  }
  // While the first attempt is in flight.
  {
    // The stalled reply is not that the server lacks the script, so that nothing of the request is
    // still to come when the key is gone.
    TcpProxy::RuleOptions known;
    known.ignoreErrorReplies = true;
    const auto slow =
        proxy().addRule(TcpProxy::script("sub8"), TcpProxy::Action::stallReply(), known);
    EXPECT_EQ(stopped([&] { EXPECT_TRUE(slow.waitForHits(1, kLong)); }), "cancelled");
    release();
    EXPECT_EVENTUALLY(kLong, !raw().exists("sub8"));
  }
  rawHold("sub8", "foreign:1", 60s);
  // While the subscription is under way.
  {
    const auto slow =
        proxy().addRule(TcpProxy::command("SUBSCRIBE"), TcpProxy::Action::stallReply());
    EXPECT_EQ(stopped([&] { EXPECT_TRUE(slow.waitForHits(1, kLong)); }), "cancelled");
    release();
  }
  // While asleep.
  EXPECT_EQ(stopped([&] {
              EXPECT_EVENTUALLY(kLong, raw().numsub(channelOf("sub8")) == 1);
              std::this_thread::sleep_for(50ms);
            }),
            "cancelled");
  // While the attempt after the wake-up is in flight.
  EXPECT_EQ(stopped([&] {
              EXPECT_EVENTUALLY(kLong, raw().numsub(channelOf("sub8")) == 1);
              std::this_thread::sleep_for(100ms);
              const auto slow =
                  proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::stallReply());
              rawRelease("sub8");
              EXPECT_TRUE(slow.waitForHits(1, kLong));
            }),
            "cancelled");
  release();
  EXPECT_EVENTUALLY(kLong, !raw().exists("sub8"));
  EXPECT_EVENTUALLY(kLong, raw().pubsubChannels("redisson*").empty());
  EXPECT_EVENTUALLY(kLong, client.stats().channels == 0);
  EXPECT_EQ(client.stats().waiters, 0U);
  EXPECT_EQ(client.stats().holds, 0U);
}

TEST_P(LockWakeup, XSUB9_AStopAfterTheAcquisitionChangesNothing) {
  Client client = connect();
  std::stop_source stop;
  const OwnerId owner = newOwner();
  AcquireOptions options;
  options.stop = stop.get_token();
  EXPECT_EQ(answerOf(runBy(GetParam(), client.getLock("sub9").tryLockAsync(options, owner))),
            "true");
  stop.request_stop();
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(client.getLock("sub9").isHeldBy(owner));
}

TEST_P(LockWakeup, XSUB10_ForeignMessagesAreHints) {
  Client client = connect();
  rawHold("sub10", "foreign:1", 30s);
  auto waiter = waitFor(client, "sub10");
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("sub10")) == 1);
  for (const std::string& payload : {std::string("hello"),
                                     std::string(),
                                     std::string("-5"),
                                     std::string("99999999999999999999"),
                                     std::string(3'000'000, 'x'),
                                     std::string("\r\n$3\r\n"),
                                     std::string("0\0x", 3)}) {
    raw().publish(channelOf("sub10"), payload);
  }
  EXPECT_FALSE(ready(waiter, 200ms));
  EXPECT_EQ(raw().hgetall("sub10"), (std::map<std::string, std::string>{{"foreign:1", "1"}}));
  rawRelease("sub10");
  EXPECT_EQ(waiter.get(), "true,ok");
}

TEST_P(LockWakeup, XSUB12_ASubscriberDroppedForItsOutputBuffer) {
  raw().configSet("client-output-buffer-limit", "pubsub 65536 65536 1");
  Client client = connect();
  rawHold("sub12", "foreign:1", 30s);
  auto waiter = waitFor(client, "sub12");
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("sub12")) == 1);
  raw().publish(channelOf("sub12"), std::string(1'000'000, 'x'));
  rawRelease("sub12");
  const Stopwatch watch;
  EXPECT_EQ(waiter.get(), "true,ok");
  EXPECT_LT(watch.elapsedMs(), scaled(3s));
}

TEST_P(LockWakeup, AnUnusedTurnGoesToTheNextWhenTheFirstTimesOut) {
  Client client = connect();
  rawHold("turns", "foreign:1", 30s);
  auto first = waitFor(client, "turns", 1500ms);
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  auto second = waitFor(client, "turns");
  EXPECT_EQ(first.get(), "false");
  rawRelease("turns");
  const Stopwatch watch;
  EXPECT_EQ(second.get(), "true,ok");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
}

TEST_F(LockHerd, XSUB7_WaitersOn300LocksNeedNoMoreThanOneConnection) {
  constexpr int kLocks = 300;
  Options settings = options();
  settings.subscriptionLinger = 50ms;
  Client client = Client::connect(settings);
  std::vector<std::future<bool>> waiters;
  for (int i = 0; i < kLocks; ++i) {
    const std::string name = "sub7-" + std::to_string(i);
    rawHold(name, "foreign:1", 60s);
    waiters.push_back(
        client.getLock(name).tryLockAsync({.wait = Duration(60s)}, newOwner()).toFuture());
  }
  EXPECT_EVENTUALLY(kLong,
                    raw().pubsubChannels("redisson*").size() == static_cast<std::size_t>(kLocks));
  // Others are not affected.
  EXPECT_TRUE(client.getLock("free").tryLock());
  for (int i = 0; i < kLocks; ++i) {
    rawRelease("sub7-" + std::to_string(i));
  }
  for (auto& waiter : waiters) {
    EXPECT_TRUE(waiter.get());
  }
  EXPECT_EVENTUALLY(kLong, raw().pubsubChannels("redisson*").empty());
  EXPECT_EVENTUALLY(kLong, client.stats().channels == 0);
}

TEST_F(LockHerdSlow, XSUB6_XSCL1_ManyWaitersOfOneClientCostLittle) {
  constexpr int kWaiters = 10'000;
  Resource resource;
  std::atomic<int> served{0};
  std::atomic<int> failed{0};
  Client client = connect();
  RLock lock = client.getLock("sub6");
  rawHold("sub6", "foreign:1", 120s);
  for (int i = 0; i < kWaiters; ++i) {
    const OwnerId owner = newOwner();
    lock.lockAsync({}, owner).start([&, lock, owner](const Result<void>& result) mutable {
      if (!result.has_value()) {
        failed.fetch_add(1);
        return;
      }
      resource.use();
      lock.unlockAsync(owner).start([&](const Result<void>& released) {
        (released.has_value() ? served : failed).fetch_add(1);
      });
    });
  }
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == kWaiters);
  raw().resetStats();
  rawRelease("sub6");
  EXPECT_EVENTUALLY(60s, served.load() + failed.load() == kWaiters);
  EXPECT_EQ(failed.load(), 0);
  EXPECT_EQ(resource.value(), kWaiters);
  EXPECT_EQ(resource.overlaps(), 0);
  // An acquisition and a release each, and now and then a try too early.
  EXPECT_LE(raw().commandCalls("evalsha"), 5 * kWaiters);
  EXPECT_EQ(client.stats().waiters, 0U);
}

TEST_F(LockHerdSlow, XSUB6_ManyClientsWithManyWaiters) {
  constexpr int kClients = 20;
  constexpr int kWaiters = 10;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(connect()));
  }
  rawHold("sub6", "foreign:1", 120s);
  Resource resource;
  std::vector<std::future<std::string>> waiters;
  for (auto& client : clients) {
    for (int i = 0; i < kWaiters; ++i) {
      waiters.push_back(inThread([&resource, &client] {
        RLock lock = client->getLock("sub6");
        return outcomeOf([&] {
          lock.lock();
          resource.use();
          lock.unlock();
        });
      }));
    }
  }
  const auto waiting = [&] {
    std::uint64_t sum = 0;
    for (auto& client : clients) {
      sum += client->stats().waiters;
    }
    return sum;
  };
  ASSERT_EVENTUALLY(kLong, waiting() == kClients * kWaiters);
  raw().resetStats();
  rawRelease("sub6");
  for (auto& waiter : waiters) {
    EXPECT_EQ(waiter.get(), "ok");
  }
  EXPECT_EQ(resource.value(), kClients * kWaiters);
  EXPECT_EQ(resource.overlaps(), 0);
  // At most one try for each client and hand-over.
  EXPECT_LE(raw().commandCalls("evalsha"), (kClients + 3) * kClients * kWaiters);
  expectNoKeys();
}

TEST_F(LockHerdSlow, XSUB11_ABurstOfMessagesLeavesNoTriesBehind) {
  RLOCK_ONE_MASTER_ONLY("sends messages by the one connection that it has");
  constexpr int kMessages = 50'000;
  Client client = connect();
  rawHold("sub11", "foreign:1", 120s);
  auto waiter = inThread([&] { return client.getLock("sub11").tryLock(60s); });
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("sub11")) == 1);
  for (int i = 0; i < kMessages; i += 1000) {
    for (int j = 0; j < 1000; ++j) {
      raw().send({raw().publishing(), channelOf("sub11"), "0"});
    }
    for (int j = 0; j < 1000; ++j) {
      static_cast<void>(raw().receive());
    }
  }
  EXPECT_EVENTUALLY(kLong, client.stats().messages >= kMessages);
  std::this_thread::sleep_for(200ms);
  raw().resetStats();
  std::this_thread::sleep_for(500ms);
  EXPECT_LE(raw().commandCalls("evalsha"), 2);
  EXPECT_EQ(client.stats().messages, static_cast<std::uint64_t>(kMessages));
  rawRelease("sub11");
  EXPECT_TRUE(waiter.get());
}

TEST_F(LockHerd, TheEndOfAWaitersLeaseIsNoticedByTheNextOneOfItsClient) {
  Client client = connect();
  RLock lock = client.getLock("ends");
  rawHold("ends", "foreign:1", 60s);
  const auto take = [&] { return answerOf([&] { return lock.tryLock(20s, 300ms); }); };
  auto first = inThread(take);
  auto second = inThread(take);
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2);
  rawRelease("ends");
  // Nobody unlocks, and the safety poll is a minute.
  const Stopwatch watch;
  EXPECT_EQ(first.get(), "true");
  EXPECT_EQ(second.get(), "true");
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(2s));
}

TEST_F(LockHerd, WaitersOfOneClientAreServedInOrder) {
  constexpr int kWaiters = 20;
  std::mutex mutex;
  std::vector<int> order;
  std::atomic<int> done{0};
  Client client = connect();
  RLock lock = client.getLock("order");
  rawHold("order", "foreign:1", 60s);
  for (int i = 0; i < kWaiters; ++i) {
    const OwnerId owner = newOwner();
    lock.lockAsync({}, owner).start([&, lock, i, owner](const Result<void>& result) mutable {
      EXPECT_TRUE(result.has_value());
      {
        const std::lock_guard guard(mutex);
        order.push_back(i);
      }
      lock.unlockAsync(owner).start([&](const Result<void>&) { done.fetch_add(1); });
    });
    ASSERT_EVENTUALLY(kLong, client.stats().waiters == static_cast<std::uint64_t>(i + 1));
  }
  rawRelease("order");
  EXPECT_EVENTUALLY(kLong, done.load() == kWaiters);
  std::vector<int> expected;
  for (int i = 0; i < kWaiters; ++i) {
    expected.push_back(i);
  }
  EXPECT_EQ(order, expected);
}

}  // namespace
}  // namespace rlock::test
