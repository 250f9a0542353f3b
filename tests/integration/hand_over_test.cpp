// SPDX-License-Identifier: Apache-2.0

// A lock that goes straight from one owner to the next of the same client.

#include "integration/lost_reply_harness.hpp"

#include <algorithm>
#include <deque>

namespace rlock::test {
namespace {

/// Owners of one client that wait for a lock in this order, each in the background.
class Waiters {
 public:
  Waiters(Client& client, const std::string& name, std::size_t count, AcquireOptions terms = {}) {
    const std::size_t others = client.stats().waiters;
    for (std::size_t i = 0; i < count; ++i) {
      owners_.push_back(newOwner());
      RLock lock = client.getLock(name);
      lock.acquireAsync(terms, owners_.back()).start([state = state_, i](Result<Lease> lease) {
        const std::lock_guard guard(state->mutex);
        state->outcomes.push_back(outcomeOf(lease));
        state->leases.push_back(lease.has_value() ? std::optional(std::move(*lease))
                                                  : std::nullopt);
        state->granted.push_back(i);
      });
      EXPECT_EVENTUALLY(kLong, client.stats().waiters == others + i + 1);
    }
  }
  [[nodiscard]] OwnerId owner(std::size_t i) const { return owners_[i]; }
  [[nodiscard]] std::vector<std::size_t> granted() const {
    const std::lock_guard guard(state_->mutex);
    return state_->granted;
  }
  [[nodiscard]] std::vector<std::string> outcomes() const {
    const std::lock_guard guard(state_->mutex);
    return state_->outcomes;
  }
  [[nodiscard]] bool answered(std::size_t count) const { return granted().size() >= count; }
  [[nodiscard]] Clock::time_point validUntil(std::size_t n) const {
    const std::lock_guard guard(state_->mutex);
    return state_->leases[n]->validUntil();
  }
  /// Gives back what the n-th to be served got.
  void release(std::size_t n) {
    std::optional<Lease> lease;
    {
      const std::lock_guard guard(state_->mutex);
      lease = std::move(state_->leases[n]);
    }
    EXPECT_EQ(lease->release(), ReleaseResult::released);
  }

 private:
  /// The state of the handlers, which may run when a test that has failed is over.
  struct State {
    std::mutex mutex;
    std::vector<std::size_t> granted;
    std::deque<std::optional<Lease>> leases;
    std::vector<std::string> outcomes;
  };

  const std::shared_ptr<State> state_ = std::make_shared<State>();
  std::vector<OwnerId> owners_;
};

/// The script is known to the server, the channel is subscribed, and all messages have come: who is
/// counted as a waiter from here on has been refused, and sleeps.
void prepare(Client& client, const std::string& name, const std::string& channel, RawRedis& raw) {
  raw.run({"SCRIPT", "LOAD", std::string(lua::lock_hand_over.body)});
  const std::uint64_t before = client.stats().messages;
  raw.run({"HSET", name, "foreign:1", "1"});
  Waiters waiters(client, name, 1);
  EXPECT_EVENTUALLY(kLong, raw.numsub(channel) == 1);
  raw.run({"DEL", name});
  raw.publish(channel, "0");
  EXPECT_EVENTUALLY(kLong, waiters.answered(1));
  waiters.release(0);
  EXPECT_EVENTUALLY(kLong, client.stats().messages == before + 2);
  EXPECT_FALSE(raw.exists(name));
}

class HandOverTest : public LockTest {
 protected:
  [[nodiscard]] Client connect(std::chrono::milliseconds watchdog = kLongWatchdog) {
    Options settings = options(watchdog);
    settings.handOverLimit = 16;
    return Client::connect(settings);
  }
  [[nodiscard]] Options proxied() {
    Options settings = LockTest::proxied();
    settings.handOverLimit = 16;
    return settings;
  }
  [[nodiscard]] Options endless() {
    Options options = LockTest::options();
    options.handOverLimit = 10'000;
    options.handOverTime = 1h;
    return options;
  }
  void warm(Client& client, const std::string& name) {
    prepare(client, name, channelOf(name), raw());
  }
  /// The owner that holds the lock, on a warm channel.
  OwnerId taken(Client& client, const std::string& name) {
    warm(client, name);
    const OwnerId owner = newOwner();
    client.getLock(name).lockAsync({}, owner).get();
    return owner;
  }
};

TEST_F(HandOverTest, OneCommandForEachAndNoMessage) {
  Client client = Client::connect(endless());
  RLock lock = client.getLock("one");
  const OwnerId first = taken(client, "one");
  constexpr std::size_t kWaiters = 20;
  Waiters waiters(client, "one", kWaiters);
  RawSubscriber listener(rawOptions());
  listener.subscribe(channelOf("one"));
  const Stats before = client.stats();
  lock.unlockAsync(first).get();
  for (std::size_t i = 0; i < kWaiters; ++i) {
    ASSERT_EVENTUALLY(kLong, waiters.answered(i + 1));
    EXPECT_EQ(waiters.granted().back(), i) << "in the order in which they came";
    EXPECT_EQ(raw().hgetall("one"),
              (std::map<std::string, std::string>{{ownerField(client, waiters.owner(i)), "1"}}));
    EXPECT_EQ(client.stats().holds, 1U);
    if (i + 1 < kWaiters) {
      EXPECT_EQ(listener.messages().size(), 0U);
    }
    waiters.release(i);
  }
  EXPECT_EQ(client.stats().commands - before.commands, kWaiters + 1);
  EXPECT_EQ(client.stats().acquired - before.acquired, kWaiters);
  EXPECT_EQ(client.stats().contended - before.contended, kWaiters);
  EXPECT_EQ(client.stats().released - before.released, kWaiters + 1);
  EXPECT_TRUE(listener.waitFor(1, kLong));
  EXPECT_EQ(listener.messages().size(), 1U);
  expectNoKeys();
}

TEST_F(HandOverTest, AThousandWaitersTakeAboutAThousandCommands) {
  constexpr std::size_t kWaiters = 1000;
  Resource resource;
  std::atomic<std::size_t> left{kWaiters};
  // On a host that is busy the time would end a chain before its number does.
  Options settings = endless();
  settings.handOverLimit = 16;
  Client client = Client::connect(settings);
  RLock lock = client.getLock("crowd");
  const OwnerId first = taken(client, "crowd");
  for (std::size_t i = 0; i < kWaiters; ++i) {
    const OwnerId owner = newOwner();
    client.getLock("crowd").lockAsync({}, owner).start([&, owner](const Result<void>& result) {
      EXPECT_EQ(outcomeOf(result), "ok");
      resource.use();
      client.getLock("crowd").unlockAsync(owner).start([&](const Result<void>&) { --left; });
    });
  }
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == kWaiters);
  const Stats before = client.stats();
  lock.unlockAsync(first).get();
  EXPECT_EVENTUALLY(4 * kLong, left == 0);
  const auto commands = client.stats().commands - before.commands;
  // After each 16 a release that is announced, and an attempt.
  EXPECT_LE(commands, kWaiters + 2 * (kWaiters / 16) + 20);
  EXPECT_GE(client.stats().messages - before.messages, kWaiters / 17);
  EXPECT_EQ(resource.value(), static_cast<long>(kWaiters));
  EXPECT_EQ(resource.overlaps(), 0);
}

TEST_F(HandOverTest, OthersAreToldWhenTheNumberIsReached) {
  Options settings = endless();
  settings.handOverLimit = 2;
  Client client = Client::connect(settings);
  RLock lock = client.getLock("bound");
  const OwnerId first = taken(client, "bound");
  Waiters waiters(client, "bound", 6);
  RawSubscriber listener(rawOptions());
  listener.subscribe(channelOf("bound"));
  lock.unlockAsync(first).get();
  const std::vector<std::size_t> messages{0, 0, 1, 1, 1, 2};
  for (std::size_t i = 0; i < 6; ++i) {
    ASSERT_EVENTUALLY(kLong, waiters.answered(i + 1));
    EXPECT_TRUE(listener.waitFor(messages[i], kLong));
    EXPECT_EQ(listener.messages().size(), messages[i]) << i;
    waiters.release(i);
  }
}

TEST_F(HandOverTest, OthersAreToldWhenTheTimeIsOver) {
  Options settings = endless();
  settings.handOverTime = scaled(1s);
  Client client = Client::connect(settings);
  RLock lock = client.getLock("time");
  const OwnerId first = taken(client, "time");
  Waiters waiters(client, "time", 2);
  RawSubscriber listener(rawOptions());
  listener.subscribe(channelOf("time"));
  lock.unlockAsync(first).get();
  ASSERT_EVENTUALLY(kLong, waiters.answered(1));
  EXPECT_EQ(listener.messages().size(), 0U);
  // The time itself is what is tested.
  std::this_thread::sleep_for(scaled(1100ms));
  waiters.release(0);
  EXPECT_TRUE(listener.waitFor(1, kLong));
  ASSERT_EVENTUALLY(kLong, waiters.answered(2));
  waiters.release(1);
}

TEST_F(HandOverTest, ZeroSwitchesItOff) {
  for (const bool number : {true, false}) {
    Options settings = endless();
    settings.handOverLimit = number ? 0 : 16;
    settings.handOverTime = number ? 1h : 0ms;
    Client client = Client::connect(settings);
    RLock lock = client.getLock("off");
    const OwnerId first = newOwner();
    lock.lockAsync({}, first).get();
    Waiters waiters(client, "off", 1);
    RawSubscriber listener(rawOptions());
    listener.subscribe(channelOf("off"));
    lock.unlockAsync(first).get();
    EXPECT_TRUE(listener.waitFor(1, kLong));
    ASSERT_EVENTUALLY(kLong, waiters.answered(1));
    waiters.release(0);
  }
}

/// The first waiter tries when its pause is over; where nobody else hears of the release, at the
/// message or at the answer, whichever is later.
TEST_F(HandOverTest, OthersGoFirstWhenTheNumberIsReached) {
  for (const bool others : {true, false}) {
    Options settings = endless();
    settings.handOverLimit = 1;
    settings.safetyPoll = 1min;
    Client client = Client::connect(settings);
    const std::string name = others ? "with others" : "alone";
    RLock lock = client.getLock(name);
    const OwnerId first = taken(client, name);
    Waiters waiters(client, name, 2);
    RawSubscriber listener(rawOptions());
    if (others) {
      listener.subscribe(channelOf(name));
    }
    lock.unlockAsync(first).get();
    ASSERT_EVENTUALLY(kLong, waiters.answered(1));
    const Stats before = client.stats();
    waiters.release(0);
    ASSERT_EVENTUALLY(kLong, waiters.answered(2));
    // Where there are replicas, they may tell clients that the master does not count.
    const bool paused = others || settings.topology != rlock::Topology::single;
    EXPECT_EQ(client.stats().safetyPolls - before.safetyPolls, paused ? 1U : 0U);
    EXPECT_EVENTUALLY(kLong, client.stats().messages - before.messages == 1);
    EXPECT_LE(client.stats().wakeUps, before.wakeUps + (paused ? 0 : 1));
    EXPECT_EQ(client.stats().commands - before.commands, 2U);
    waiters.release(1);
  }
}

/// A client that asks a while after the message gets a lock that another one wants all the time.
TEST_F(HandOverTest, ASlowClientGetsItsTurn) {
  Client busy = connect();
  std::atomic<bool> over{false};
  std::vector<std::future<void>> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(inThread([&] {
      RLock lock = busy.getLock("slow");
      while (!over) {
        lock.lock();
        lock.unlock();
      }
    }));
  }
  RawSubscriber listener(rawOptions());
  listener.subscribe(channelOf("slow"));
  constexpr std::string_view attempt =
      "if redis.call('exists', KEYS[1]) == 1 then return 0 end "
      "return redis.call('hset', KEYS[1], 'foreign:1', 1)";
  std::size_t heard = 0;
  for (int turn = 0; turn < 10; ++turn) {
    bool granted = false;
    while (!granted && heard < 20'000) {
      heard = std::max(heard + 1, listener.messages().size());
      ASSERT_TRUE(listener.waitFor(heard, kLong));
      // As long as a client in another language needs.
      std::this_thread::sleep_for(1ms);
      granted = raw().run({"EVAL", attempt, "1", "slow"}).integer() == 1;
    }
    ASSERT_TRUE(granted) << turn << " turns after " << heard << " messages";
    raw().run({"DEL", "slow"});
    raw().publish(channelOf("slow"), "0");
  }
  over = true;
  for (auto& thread : threads) {
    thread.get();
  }
}

/// A client whose owners always want the lock does not keep it from another one for ever.
TEST_F(HandOverTest, AnotherClientGetsItsTurn) {
  Client busy = connect();
  Client other = connect();
  std::atomic<bool> over{false};
  Resource resource;
  std::vector<std::future<long>> threads;
  for (int i = 0; i < 4; ++i) {
    threads.push_back(inThread([&] {
      RLock lock = busy.getLock("turns");
      long uses = 0;
      while (!over) {
        lock.lock();
        resource.use();
        ++uses;
        lock.unlock();
      }
      return uses;
    }));
  }
  RLock lock = other.getLock("turns");
  long uses = 0;
  for (; uses < 20; ++uses) {
    ASSERT_TRUE(lock.tryLock(kLong)) << uses;
    resource.use();
    lock.unlock();
  }
  over = true;
  for (auto& thread : threads) {
    uses += thread.get();
  }
  EXPECT_EQ(resource.value(), uses);
  EXPECT_EQ(resource.overlaps(), 0);
  expectNoKeys();
}

TEST_F(HandOverTest, NobodyElseIsInside) {
  Client one = connect();
  Client two = connect();
  Resource resource;
  constexpr int kThreads = 16;
  constexpr int kUses = 40;
  std::vector<std::future<void>> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.push_back(inThread([&, i] {
      Client& client = i % 4 == 0 ? two : one;
      RLock lock = i % 3 == 0 ? client.getNonReentrantLock("resource") : client.getLock("resource");
      for (int use = 0; use < kUses; ++use) {
        lock.lock();
        EXPECT_TRUE(lock.isHeldByCurrentThread());
        resource.use();
        lock.unlock();
      }
    }));
  }
  for (auto& thread : threads) {
    thread.get();
  }
  EXPECT_EQ(resource.value(), kThreads * kUses);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EQ(one.stats().holds + two.stats().holds, 0U);
  expectNoKeys();
}

/// The terms are those of the next owner.
TEST_F(HandOverTest, TheLeaseIsTheNextOwners) {
  Client client = Client::connect(endless());
  RLock lock = client.getLock("lease");
  const OwnerId first = taken(client, "lease");
  Waiters brief(client, "lease", 1, {.lease = 20s});
  Waiters watched(client, "lease", 1);
  lock.unlockAsync(first).get();
  ASSERT_EVENTUALLY(kLong, brief.answered(1));
  EXPECT_LE(raw().pttl("lease"), 20'000);
  EXPECT_GT(raw().pttl("lease"), 1000);
  brief.release(0);
  ASSERT_EVENTUALLY(kLong, watched.answered(1));
  EXPECT_GT(raw().pttl("lease"), 60'000);
  watched.release(0);
}

TEST_F(HandOverTest, TheWatchdogKeepsWhatWasHandedOver) {
  Client client = connect(kWatchdog);
  RLock lock = client.getLock("kept");
  const OwnerId first = newOwner();
  lock.lockAsync({}, first).get();
  Waiters waiters(client, "kept", 1);
  lock.unlockAsync(first).get();
  ASSERT_EVENTUALLY(kLong, waiters.answered(1));
  // Renewed each third of its lease, so that it has outlived the lease it began with.
  const std::uint64_t renewals = client.stats().renewals;
  ASSERT_EVENTUALLY(kLong, client.stats().renewals >= renewals + 4);
  EXPECT_EQ(raw().hget("kept", ownerField(client, waiters.owner(0))), "1");
  EXPECT_EQ(raw().hget("kept", ownerField(client, first)), std::nullopt);
  waiters.release(0);
}

TEST_F(HandOverTest, OnlyTheLastHoldIsHandedOver) {
  Client client = Client::connect(endless());
  RLock lock = client.getLock("nested");
  const OwnerId first = newOwner();
  lock.lockAsync({}, first).get();
  lock.lockAsync({}, first).get();
  Waiters waiters(client, "nested", 1);
  lock.unlockAsync(first).get();
  EXPECT_EQ(raw().hget("nested", ownerField(client, first)), "1");
  EXPECT_FALSE(waiters.answered(1));
  lock.unlockAsync(first).get();
  ASSERT_EVENTUALLY(kLong, waiters.answered(1));
  waiters.release(0);
}

TEST_F(HandOverTest, AHoldThatWasLostIsNotHandedOver) {
  Client client = Client::connect(endless());
  RLock lock = client.getLock("lost");
  const OwnerId first = taken(client, "lost");
  Waiters waiters(client, "lost", 1);
  raw().run({"DEL", "lost"});
  EXPECT_EQ(outcomeOf([&] { lock.unlockAsync(first).get(); }), "notOwner");
  // By an attempt of its own.
  ASSERT_EVENTUALLY(kLong, waiters.answered(1));
  EXPECT_EQ(waiters.outcomes().front(), "ok");
  waiters.release(0);
  // Somebody else has it.
  lock.lockAsync({}, first).get();
  Waiters late(client, "lost", 1);
  raw().run({"DEL", "lost"});
  rawHold("lost", "foreign:1", 60s);
  const std::uint64_t commands = client.stats().commands;
  EXPECT_EQ(outcomeOf([&] { lock.unlockAsync(first).get(); }), "notOwner");
  // The release and the waiter's own attempt, which is refused.
  EXPECT_EVENTUALLY(kLong, client.stats().commands >= commands + 2 && client.stats().waiters == 1);
  EXPECT_FALSE(late.answered(1));
  EXPECT_EQ(raw().hgetall("lost"), (std::map<std::string, std::string>{{"foreign:1", "1"}}));
  rawRelease("lost");
  ASSERT_EVENTUALLY(kLong, late.answered(1));
  late.release(0);
}

/// One without expiry would outlive its holder.
TEST_F(HandOverTest, ALockThatCannotBeTakenInFullIsFree) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-pexpire"});
  RawRedisOptions user = rawOptions();
  user.username = "weak";
  user.password = "pw";
  RawRedis weak(user);
  rawHold("part", "a", 60s);
  RawSubscriber listener(rawOptions());
  listener.subscribe(channelOf("part"));
  const Value reply =
      weak.eval(lua::lock_hand_over.body,
                {"part"},
                {"a", "0", weak.publishing(), "0", channelOf("part"), "b", "60000"});
  EXPECT_EQ(reply, Value::makeArray({Value::makeInteger(0), Value::makeInteger(1)}));
  expectNoKeys();
  EXPECT_TRUE(listener.waitFor(1, kLong));
  EXPECT_EQ(listener.count(), 1U);
}

/// The next owner, to whom it was not handed over, tries by itself.
TEST_F(HandOverTest, AWaiterHearsWhyItCannotTakeTheLockInFull) {
  raw().run({"ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"});
  Options settings = endless();
  settings.username = "app";
  settings.password = "pw";
  Client client = Client::connect(settings);
  RLock lock = client.getLock("why");
  const OwnerId first = taken(client, "why");
  Waiters waiters(client, "why", 1);
  raw().run({"ACL", "SETUSER", "app", "-pexpire"});
  EXPECT_EQ(outcomeOf([&] { lock.unlockAsync(first).get(); }), "ok");
  ASSERT_EVENTUALLY(kLong, waiters.answered(1));
  EXPECT_EQ(waiters.outcomes().front(), "denied");
  expectNoKeys();
}

/// The server counts one hold more than this client knows of.
TEST_F(HandOverTest, AHoldTooManyIsReleasedForEverybody) {
  Client client = Client::connect(endless());
  RLock lock = client.getLock("many");
  const OwnerId first = taken(client, "many");
  raw().run({"HINCRBY", "many", ownerField(client, first), "1"});
  Waiters waiters(client, "many", 1);
  lock.unlockAsync(first).get();
  ASSERT_EVENTUALLY(kLong, waiters.answered(1));
  EXPECT_EQ(waiters.outcomes().front(), "ok");
  waiters.release(0);
  expectNoKeys();
}

/// An acknowledged acquisition asks for its own request.
TEST_F(HandOverTest, NotToAWaiterThatWantsAcknowledgements) {
  Client client = Client::connect(proxied());
  const auto handOvers =
      proxy().addRule(running(lua::lock_hand_over), TcpProxy::Action::pass(), {});
  RLock lock = client.getLock("acks");
  const OwnerId first = taken(client, "acks");
  Waiters waiters(client, "acks", 1);
  // More than there are anywhere.
  Waiters asking(client, "acks", 1, {.sync = SyncPolicy::replicas(9, 100ms)});
  lock.unlockAsync(first).get();
  ASSERT_EVENTUALLY(kLong, waiters.answered(1));
  EXPECT_EQ(handOvers.hits(), 1U);
  waiters.release(0);
  ASSERT_EVENTUALLY(kLong, asking.answered(1));
  EXPECT_EQ(asking.outcomes().front(), "notSynced");
  EXPECT_EQ(handOvers.hits(), 1U);
}

/// By the time that it goes out the next owner may have left.
TEST_F(HandOverTest, AReleaseThatMustWaitIsForEverybody) {
  Client client = Client::connect(proxied());
  RLock lock = client.getLock("outage");
  const OwnerId first = taken(client, "outage");
  Waiters waiters(client, "outage", 1);
  const auto handOvers =
      proxy().addRule(running(lua::lock_hand_over), TcpProxy::Action::pass(), {});
  const auto releases = proxy().addRule(running(lua::lock_release), TcpProxy::Action::pass(), {});
  proxy().refuseConnections(true);
  proxy().cutAll();
  ASSERT_EVENTUALLY(kLong, !client.connected());
  std::atomic<bool> unlocks{false};
  auto unlocking = inThread([&] {
    unlocks = true;
    return outcomeOf([&] { lock.unlockAsync(first).get(); });
  });
  EXPECT_EVENTUALLY(kLong, unlocks.load());
  // For longer than a hand-over may wait to be sent: the time itself is what is tested.
  std::this_thread::sleep_for(700ms);
  proxy().refuseConnections(false);
  EXPECT_EQ(unlocking.get(), "ok");
  ASSERT_EVENTUALLY(kLong, waiters.answered(1));
  EXPECT_EQ(waiters.outcomes().front(), "ok");
  EXPECT_EQ(handOvers.hits(), 0U);
  EXPECT_EQ(releases.hits(), 1U);
  waiters.release(0);
}

TEST_F(HandOverTest, AnotherKindOnTheSameNameTriesByItself) {
  Client client = Client::connect(endless());
  RLock lock = client.getLock("kinds");
  const OwnerId first = taken(client, "kinds");
  const OwnerId next = newOwner();
  FencedLock fenced = client.getFencedLock("kinds");
  auto waiting = fenced.acquireAsync({}, next).toFuture();
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  lock.unlockAsync(first).get();
  ASSERT_TRUE(ready(waiting, kLong));
  EXPECT_TRUE(waiting.get().token().has_value());
}

// The next owner leaves while the lock is on its way to it.

class HandOverLeaveTest : public HandOverTest {
 protected:
  /// The reply to the hand-over is held back.
  void SetUp() override {
    HandOverTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    Options settings = proxied();
    settings.handOverLimit = 10'000;
    settings.handOverTime = 1h;
    // For longer than any reply is held back.
    settings.commandTimeout = scaled(10s);
    client_.emplace(Client::connect(settings));
    warm(*client_, "leave");
    listener_.emplace(rawOptions());
    listener_->subscribe(channelOf("leave"));
    client_->getLock("leave").lockAsync({}, first_).get();
    proxy().addRule(running(lua::lock_hand_over), TcpProxy::Action::delayReply(scaled(1200ms)));
  }
  void stopWhileHandedOver(std::stop_source& stop) {
    ASSERT_EVENTUALLY(kLong, client_->stats().waiters == 1);
    unlocking_.emplace(client_->getLock("leave").unlockAsync(first_).toFuture());
    ASSERT_EVENTUALLY(kLong, raw().hget("leave", ownerField(*client_, first_)) == std::nullopt);
    stop.request_stop();
  }
  /// The next owner's hold is given back, and the others hear of it.
  void expectGivenBack() {
    EXPECT_EVENTUALLY(kLong, !raw().exists("leave"));
    EXPECT_TRUE(listener_->waitFor(1, kLong));
    EXPECT_EVENTUALLY(kLong, client_->stats().holds == 0);
  }

  std::optional<Client> client_;
  std::optional<RawSubscriber> listener_;
  std::optional<std::future<void>> unlocking_;
  const OwnerId first_ = newOwner();
};

/// A hold that was handed over is valid from when the release was sent, not from its reply.
TEST_F(HandOverLeaveTest, ItIsValidFromWhenItWasSent) {
  Waiters waiters(*client_, "leave", 1, {.lease = 20s});
  const auto sent = Clock::now();
  client_->getLock("leave").unlockAsync(first_).get();
  ASSERT_EVENTUALLY(kLong, waiters.answered(1));
  EXPECT_LE(waiters.validUntil(0), sent + 20s);
  waiters.release(0);
}

TEST_F(HandOverLeaveTest, ItsTimeIsUp) {
  proxy().clearRules();
  proxy().addRule(running(lua::lock_hand_over), TcpProxy::Action::delayReply(scaled(2s)));
  auto waiter = inThread([&] {
    const Stopwatch watch;
    const std::string answer =
        answerOf([&] { return client_->getLock("leave").tryLock(scaled(1s)); });
    EXPECT_LT(watch.elapsedMs(), scaled(1800ms)) << "it has waited for the reply";
    return answer;
  });
  ASSERT_EVENTUALLY(kLong, client_->stats().waiters == 1);
  client_->getLock("leave").unlockAsync(first_).get();
  EXPECT_EQ(waiter.get(), "timedOut");
  expectGivenBack();
}

TEST_F(HandOverLeaveTest, ItIsStopped) {
  std::stop_source stop;
  auto waiter = inThread([&] {
    return outcomeOf([&] { client_->getLock("leave").lockInterruptibly(stop.get_token()); });
  });
  stopWhileHandedOver(stop);
  EXPECT_EQ(waiter.get(), "cancelled");
  expectGivenBack();
}

TEST_F(HandOverLeaveTest, ItIsStoppedInTheBackground) {
  std::stop_source stop;
  auto waiter = inThread([&] {
    AcquireOptions terms;
    terms.stop = stop.get_token();
    return outcomeOf([&] {
      static_cast<void>(client_->getLock("leave").acquireAsync(terms, newOwner()).get());
    });
  });
  stopWhileHandedOver(stop);
  EXPECT_EQ(waiter.get(), "cancelled");
  expectGivenBack();
}

/// The next in the queue gets what the first has no use for.
TEST_F(HandOverLeaveTest, TheNextGetsWhatItGivesBack) {
  std::stop_source stop;
  auto waiter = inThread([&] {
    return outcomeOf([&] { client_->getLock("leave").lockInterruptibly(stop.get_token()); });
  });
  ASSERT_EVENTUALLY(kLong, client_->stats().waiters == 1);
  auto second = inThread([&] {
    RLock lock = client_->getLock("leave");
    lock.lock();
    lock.unlock();
  });
  ASSERT_EVENTUALLY(kLong, client_->stats().waiters == 2);
  auto unlocking = client_->getLock("leave").unlockAsync(first_).toFuture();
  ASSERT_EVENTUALLY(kLong, raw().hget("leave", ownerField(*client_, first_)) == std::nullopt);
  stop.request_stop();
  EXPECT_EQ(waiter.get(), "cancelled");
  unlocking.get();
  ASSERT_TRUE(ready(second, kLong));
  second.get();
  expectNoKeys();
}

TEST_F(HandOverLeaveTest, TheClientIsClosed) {
  auto waiter = inThread([&] { return outcomeOf([&] { client_->getLock("leave").lock(); }); });
  ASSERT_EVENTUALLY(kLong, client_->stats().waiters == 1);
  auto unlocking = client_->getLock("leave").unlockAsync(first_).toFuture();
  ASSERT_EVENTUALLY(kLong, raw().hget("leave", ownerField(*client_, first_)) == std::nullopt);
  client_->close(kLong);
  EXPECT_EQ(waiter.get(), "closed");
  static_cast<void>(outcomeOf([&] { unlocking.get(); }));
  EXPECT_EVENTUALLY(kLong, !raw().exists("leave"));
}

// A reply that is lost.

class HandOverLostReply : public LostReplyTest {
 protected:
  [[nodiscard]] int handOverLimit() const override { return 16; }
};

TEST_P(HandOverLostReply, BothOwnersKnowWhatTheyHave) {
  const bool kills = std::get<0>(GetParam()) == LostReplyPolicy::fence;
  for (const Face face : kFaces) {
    for (const bool background : {false, true}) {
      const std::string name = std::string("over-") + rlock::test::toString(face) +
                               (background ? "-background" : "-thread");
      const OwnerId first = newOwner();
      const OwnerId next = newOwner();
      // Of its own, so that no message about another name is still on its way.
      Client fresh = Client::connect(settings());
      prepare(fresh, name, channelOf(name), raw());
      FaceLock lock(face, fresh.getLock(name));
      lock.lock(first).value();
      auto waiter = inThread([&, background] {
        FaceLock mine(background ? Face::callback : Face::blocking, fresh.getLock(name));
        return outcomeOf(mine.lock(next));
      });
      ASSERT_EVENTUALLY(kLong, fresh.stats().waiters == 1);
      const auto fault = breakOnce(kills ? lua::lock_hand_over : lua::lock_release);
      EXPECT_EQ(outcomeOf(lock.unlock(first)), "ok") << name;
      EXPECT_EQ(fault.hits(), 1U);
      ASSERT_TRUE(ready(waiter, kLong)) << name;
      EXPECT_EQ(waiter.get(), "ok");
      deliverLate();
      EXPECT_EQ(raw().hgetall(name),
                (std::map<std::string, std::string>{{ownerField(fresh, next), "1"}}));
      EXPECT_EQ(outcomeOf(lock.unlock(first)), "notOwner");
      EXPECT_EQ(outcomeOf(lock.unlock(next)), "ok");
      EXPECT_FALSE(raw().exists(name));
      EXPECT_EVENTUALLY(kLong, fresh.stats().holds == 0);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Faults,
                         HandOverLostReply,
                         ::testing::Combine(kLostReplyPolicies, kAllFaults),
                         lostReplyName);

class HandOverUnderFaults : public LockTest {};

TEST_F(HandOverUnderFaults, SlowNobodyElseIsInside) {
  Options settings = proxied(30s);
  settings.commandTimeout = 250ms;
  settings.callTimeout = scaled(2500ms);
  settings.reconnectDelayMin = 5ms;
  settings.safetyPoll = 200ms;
  settings.handOverLimit = 16;
  Client client = Client::connect(settings);
  Client other = connect();
  Resource resource;
  std::atomic<bool> over{false};
  std::atomic<long> uses{0};
  std::vector<std::future<void>> threads;
  for (int i = 0; i < 8; ++i) {
    threads.push_back(inThread([&, i] {
      RLock lock = (i == 0 ? other : client).getLock("faults");
      while (!over) {
        try {
          lock.lock();
        } catch (const Error&) {
          continue;
        }
        resource.use();
        ++uses;
        static_cast<void>(outcomeOf([&] { lock.unlock(); }));
      }
    }));
  }
  breakUnderLoad(proxy(), [] {});
  over = true;
  for (auto& thread : threads) {
    thread.get();
  }
  EXPECT_EQ(resource.value(), uses.load());
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EVENTUALLY(kLong, client.stats().holds == 0);
  EXPECT_EVENTUALLY(kLong, !raw().exists("faults"));
}

}  // namespace
}  // namespace rlock::test
