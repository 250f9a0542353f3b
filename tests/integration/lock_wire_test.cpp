// SPDX-License-Identifier: Apache-2.0

// The state on the server after each step, as any other client of the protocol sees and leaves it.

#include "integration/lock_harness.hpp"

namespace rlock::test {
namespace {

using Fields = std::map<std::string, std::string>;

class LockWire : public FaceTest {
 protected:
  LockWire() { noteSafetyCheck(); }
};
class LockWireScripts : public LockTest {};

// No client has so many: the number is written there.
TEST_F(LockWireScripts, XSCL7_AHoldTooManyIsRefusedAndChangesNothing) {
  Client client = connect();
  const OwnerId owner = newOwner();
  const std::string field = ownerField(client, owner);
  const auto acquire = [&] {
    return raw().eval(lua::lock_acquire.body, {"XSCL7"}, {"60000", field});
  };
  rawHold("XSCL7", field, 20s);
  raw().run({"HSET", "XSCL7", field, "2147483647"});
  EXPECT_FALSE(acquire().isError());
  EXPECT_EQ(raw().hget("XSCL7", field), "2147483648");
  EXPECT_EQ(client.getLock("XSCL7").getHoldCountAsync(owner).get(), 2147483647)
      << "the most that a caller can be told";
  const std::string most = "9223372036854775807";
  raw().run({"HSET", "XSCL7", field, most});
  raw().run({"PEXPIRE", "XSCL7", "20000"});
  EXPECT_TRUE(acquire().isError());
  EXPECT_EQ(raw().hget("XSCL7", field), most);
  EXPECT_LE(raw().pttl("XSCL7"), 20'000) << "what was refused has prolonged it";
}

class LockWireNames : public LockTest {};

INSTANTIATE_TEST_SUITE_P(Faces, LockWire, ::testing::ValuesIn(kFaces), faceName);

TEST_P(LockWire, V23_AcquireReenterReleaseStep) {
  Options settings = options();
  settings.watchdogTimeout = 30s;
  Client client = Client::connect(settings);
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe("redisson_lock__channel:{L}");
  const OwnerId a = newOwner();
  const OwnerId b = newOwner();
  FaceLock lock = lockOf(client, "L");
  const std::string field = ownerField(client, a);

  lock.lock(a).value();
  EXPECT_EQ(raw().type("L"), "hash");
  EXPECT_EQ(raw().hgetall("L"), (Fields{{field, "1"}}));
  EXPECT_LE(raw().pttl("L"), 30'000);
  EXPECT_GT(raw().pttl("L"), 25'000);

  EXPECT_EQ(answerOf(lock.tryLock(b)), "false");
  EXPECT_EQ(raw().hgetall("L"), (Fields{{field, "1"}}));

  lock.lock(a).value();
  EXPECT_EQ(raw().hgetall("L"), (Fields{{field, "2"}}));

  lock.unlock(a).value();
  EXPECT_EQ(raw().hgetall("L"), (Fields{{field, "1"}}));
  EXPECT_EQ(subscriber.count(), 0U);

  lock.unlock(a).value();
  EXPECT_FALSE(raw().exists("L"));
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages()[0],
            (RawSubscriber::Message{"", "redisson_lock__channel:{L}", "0"}));

  EXPECT_EQ(outcomeOf(lock.unlock(a)), "notOwner");
  EXPECT_EQ(outcomeOf(lock.unlock(b)), "notOwner");
  expectNoKeys();
  EXPECT_EQ(subscriber.count(), 1U);
}

TEST_P(LockWire, V6_ForceUnlockDeletesAndPublishesOnce) {
  Client client = connect();
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe("redisson_lock__channel:{forced}");
  FaceLock lock = lockOf(client, "forced");
  EXPECT_EQ(answerOf(lock.forceUnlock()), "false");
  rawHold("forced", "stranger:1", 20s);
  EXPECT_EQ(answerOf(lock.forceUnlock()), "true");
  EXPECT_FALSE(raw().exists("forced"));
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages().front().payload, "0");
  EXPECT_EQ(subscriber.count(), 1U);
  for (const std::string& key : raw().keys()) {
    EXPECT_TRUE(key.starts_with("redisson_unlock_latch:{forced}:") ||
                key.find("{forced}") != std::string::npos)
        << key;
  }
  expectNoEternalKeys();
}

TEST_P(LockWire, V6_TheLeaseIsTheKeysTimeToLive) {
  Client client = connect();
  FaceLock lock = lockOf(client, "leased");
  lock.lock(currentOwner(), 20s).value();
  EXPECT_LE(raw().pttl("leased"), 20'000);
  EXPECT_GT(raw().pttl("leased"), 15'000);
  lock.unlock().value();
  lock.lock(currentOwner(), std::chrono::microseconds(20'000'001)).value();
  EXPECT_LE(raw().pttl("leased"), 20'001);
  lock.unlock().value();
  expectNoKeys();
}

TEST_P(LockWire, V6_AForeignHoldExcludesAndItsReleaseWakes) {
  Client client = connect();
  rawHold("shared", "aaaaaaaa-0000-4000-8000-000000000001:1", 20s);
  EXPECT_EQ(answerOf(lockOf(client, "shared").tryLock()), "false");
  EXPECT_TRUE(lockOf(client, "shared").isLocked());
  EXPECT_EQ(outcomeOf(lockOf(client, "shared").unlock()), "notOwner");
  auto waiter = inThread([&] {
    FaceLock lock = lockOf(client, "shared");
    const std::string got = outcomeOf(lock.lock());
    return got + "," + outcomeOf(lock.unlock());
  });
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("shared")) == 1);
  EXPECT_FALSE(ready(waiter, 100ms));
  EXPECT_EQ(raw().hgetall("shared"), (Fields{{"aaaaaaaa-0000-4000-8000-000000000001:1", "1"}}));
  const Stopwatch watch;
  rawRelease("shared");
  EXPECT_EQ(waiter.get(), "ok,ok");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  expectNoKeys();
}

TEST_P(LockWire, V6_AForeignWaiterIsWokenByUs) {
  Client client = connect();
  FaceLock lock = lockOf(client, "shared");
  lock.lock().value();
  RawSubscriber foreign(rawOptions());
  foreign.subscribe(channelOf("shared"));
  // The foreign client's attempt, as its script does it.
  EXPECT_TRUE(raw().exists("shared"));
  lock.unlock().value();
  ASSERT_TRUE(foreign.waitFor(1, kLong));
  EXPECT_EQ(foreign.messages()[0].payload, "0");
  rawHold("shared", "foreign:7", 20s);
  EXPECT_EQ(answerOf(lock.tryLock()), "false");
}

TEST_P(LockWire, V6_AForeignReentrantHoldIsNotOurs) {
  Client client = connect();
  raw().run({"HSET", "shared", "foreign:7", "3"});
  raw().run({"PEXPIRE", "shared", "20000"});
  FaceLock lock = lockOf(client, "shared");
  EXPECT_EQ(lock.holdCount(), 0);
  EXPECT_EQ(answerOf(lock.tryLock()), "false");
  EXPECT_EQ(raw().hgetall("shared"), (Fields{{"foreign:7", "3"}}));
}

TEST_P(LockWire, V6_AHoldWithoutExpiryIsWaitedFor) {
  raw().run({"HSET", "eternal", "foreign:7", "1"});
  Options settings = options();
  // The wait below ends in the middle of a pause.
  settings.safetyPoll = 1200ms;
  Client client = Client::connect(settings);
  FaceLock lock = lockOf(client, "eternal");
  EXPECT_EQ(lock.raw().remainTimeToLive(), std::chrono::milliseconds::max());
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), 2s)), "false");
  raw().del("eternal");
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), scaled(2s))), "true");
}

TEST_P(LockWire, V6_AForeignHoldOfMoreThan292YearsIsWaitedFor) {
  Client client = connect();
  FaceLock lock = lockOf(client, "ages");
  for (const char* const lease : {"9223372036854775", "4611686018427387903"}) {
    raw().run({"HSET", "ages", "ffffffff-0000-0000-0000-000000000000:1", "1"});
    ASSERT_EQ(raw().run({"PEXPIRE", "ages", lease}).integer(), 1);
    const auto before = client.stats().commands;
    EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), 1s)), "false");
    EXPECT_LE(client.stats().commands - before, 6U) << lease;
    raw().del("ages");
  }
}

TEST_P(LockWire, C6_NothingIsLeftBehind) {
  Options settings = options();
  settings.subscriptionLinger = 50ms;
  Client client = Client::connect(settings);
  rawHold("residue", "foreign:7", 20s);
  EXPECT_EQ(answerOf(lockOf(client, "residue").tryLock(currentOwner(), 1s)), "false");
  EXPECT_EVENTUALLY(kLong, raw().pubsubChannels("redisson*").empty());
  rawRelease("residue");
  for (int i = 0; i < 20; ++i) {
    FaceLock lock = lockOf(client, "residue" + std::to_string(i));
    lock.lock().value();
    lock.unlock().value();
  }
  expectNoKeys();
  EXPECT_EVENTUALLY(kLong, client.stats().channels == 0);
  EXPECT_EQ(client.stats().holds, 0U);
  EXPECT_EQ(client.stats().waiters, 0U);
}

TEST_P(LockWire, C6_TombstonesHaveAnExpiry) {
  Options settings = proxied();
  settings.lostReplyPolicy = LostReplyPolicy::marker;
  Client client = Client::connect(settings);
  FaceLock lock = lockOf(client, "marked");
  lock.lock().value();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto lost =
      proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::swallowReplyAndCut(), once);
  lock.lock().value();
  EXPECT_EQ(lost.hits(), 1U);
  lock.unlock().value();
  EXPECT_EQ(onlyEntry("marked").second, "1");
  lock.unlock().value();
  EXPECT_FALSE(raw().exists("marked"));
  const std::set<std::string> markers = raw().keys();
  EXPECT_FALSE(markers.empty());
  for (const std::string& key : markers) {
    EXPECT_NE(key.find("{marked}"), std::string::npos) << key;
    // For as long as the request before may still come.
    EXPECT_GT(raw().pttl(key), 100'000) << key;
  }
}

TEST_P(LockWire, OwnerFieldsAreTheClientsUuidAndANumber) {
  Client client = connect();
  ASSERT_EQ(client.id().size(), 36U);
  EXPECT_EQ(client.id()[14], '4');
  for (std::size_t i = 0; i < 36; ++i) {
    const char c = client.id()[i];
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    EXPECT_TRUE(dash ? c == '-' : (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) << client.id();
  }
  lockOf(client, "owned").lock().value();
  EXPECT_EQ(onlyEntry("owned").first, ownerField(client, currentOwner()));
  lockOf(client, "owned").unlock().value();
}

// Names.

/// Locks, looks, is woken through the channel, and unlocks.
void roundTrip(Client& client,
               RawRedis& raw,
               const RawRedisOptions& redis,
               const std::string& name,
               const std::string& channel) {
  RawSubscriber subscriber(redis);
  subscriber.subscribe(channel);
  RLock lock = client.getLock(name);
  EXPECT_EQ(lock.getName(), name);
  lock.lock();
  EXPECT_EQ(raw.keys(), std::set<std::string>{name});
  EXPECT_EQ(raw.type(name), "hash");
  auto waiter = inThread([&] {
    RLock mine = client.getLock(name);
    return outcomeOf([&] {
      mine.lock();
      mine.unlock();
    });
  });
  EXPECT_TRUE(eventually(kLong, [&] { return raw.numsub(channel) == 2; }));
  lock.unlock();
  EXPECT_EQ(waiter.get(), "ok");
  ASSERT_TRUE(subscriber.waitFor(2, kLong));
  EXPECT_EQ(subscriber.messages()[0].payload, "0");
  EXPECT_EQ(raw.keys(), std::set<std::string>());
}

TEST_F(LockWireNames, XNAM2_AllByteValues) {
  RLOCK_ONE_MASTER_ONLY("has a brace that a cluster cannot have");
  Client client = Client::connect(uri("hand-over-limit=0&safety-poll=1m"));
  std::string all;
  for (int byte = 0; byte < 256; ++byte) {
    all.push_back(static_cast<char>(byte));
  }
  // It contains an opening brace, so none are added.
  roundTrip(client, raw(), rawOptions(), all, "redisson_lock__channel:" + all);
  std::string noBrace = all;
  noBrace.erase(noBrace.find('{'), 1);
  roundTrip(client, raw(), rawOptions(), noBrace, "redisson_lock__channel:{" + noBrace + "}");
}

TEST_F(LockWireNames, XNAM2_OddNames) {
  RLOCK_ONE_MASTER_ONLY("has braces that a cluster cannot have");
  Client client = Client::connect(uri("hand-over-limit=0&safety-poll=1m"));
  const std::vector<std::string> names{" ",
                                       "a b",
                                       "\r\n",
                                       std::string("a\0b", 3),
                                       std::string(1, '\0'),
                                       "*?[x]",
                                       "\xff\xfe",
                                       "}",
                                       "%s%n",
                                       "$6\r\nfoobar\r\n",
                                       "-ERR no\r\n"};
  for (const std::string& name : names) {
    roundTrip(client, raw(), rawOptions(), name, "redisson_lock__channel:{" + name + "}");
  }
}

TEST_F(LockWireNames, XNAM3_Braces) {
  RLOCK_ONE_MASTER_ONLY("has braces that a cluster cannot have");
  Client client = Client::connect(uri("hand-over-limit=0&safety-poll=1m"));
  for (const std::string name : {"{tag}x", "a{b}c", "a{b", "{}x", "}{", "{a}{b}", "x{}y{z}"}) {
    roundTrip(client, raw(), rawOptions(), name, "redisson_lock__channel:" + name);
  }
  roundTrip(client, raw(), rawOptions(), "a}b", "redisson_lock__channel:{a}b}");
}

TEST_F(LockWireNames, XNAM2_NamesThatDifferAfterANulAreDifferentLocks) {
  Client client = Client::connect(uri("hand-over-limit=0&safety-poll=1m"));
  RLock one = client.getLock(std::string("same\0one", 8));
  RLock two = client.getLock(std::string("same\0two", 8));
  one.lock();
  EXPECT_TRUE(inThread([&] { return two.tryLock(); }).get());
  EXPECT_FALSE(inThread([&] { return one.tryLock(); }).get());
  EXPECT_FALSE(raw().exists("same"));
}

TEST_F(LockWireNames, XNAM1_LongestName) {
  Client client = Client::connect(uri("hand-over-limit=0&safety-poll=1m"));
  const std::string longest(std::size_t{64} << 10, 'n');
  roundTrip(client, raw(), rawOptions(), longest, "redisson_lock__channel:{" + longest + "}");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(client.getLock(longest + "n")); }),
            "invalidArgument");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(client.getLock("")); }), "invalidArgument");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(client.getLock("n")); }), "ok");
}

TEST_F(LockWireNames, XNAM4_ALockNamedLikeAnothersChannelOrTombstone) {
  Client client = Client::connect(uri("hand-over-limit=0&safety-poll=1m"));
  RLock plain = client.getLock("x");
  RLock channelName = client.getLock("redisson_lock__channel:{x}");
  RLock markerName = client.getLock("redisson_unlock_latch:{x}:0");
  plain.lock();
  channelName.lock();
  markerName.lock();
  plain.unlock();
  EXPECT_TRUE(channelName.isHeldByCurrentThread());
  EXPECT_TRUE(markerName.isHeldByCurrentThread());
}

}  // namespace
}  // namespace rlock::test
