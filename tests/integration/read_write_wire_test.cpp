// SPDX-License-Identifier: Apache-2.0

// The state on the server after each step of a read-write lock, and how it goes together with a
// client of another make.

#include "integration/read_write_harness.hpp"

namespace rlock::test {
namespace {

class ReadWriteWire : public ReadWriteFaceTest {
 protected:
  [[nodiscard]] Client patient() {
    Options settings = options();
    settings.watchdogTimeout = 30s;
    return Client::connect(settings);
  }
  /// Within five seconds below.
  void expectTtl(const std::string& key, std::int64_t ms) {
    EXPECT_LE(raw().pttl(key), ms) << key;
    EXPECT_GT(raw().pttl(key), ms - 5'000) << key;
  }
};

INSTANTIATE_TEST_SUITE_P(Faces, ReadWriteWire, ::testing::ValuesIn(kFaces), faceName);

TEST_P(ReadWriteWire, V23_ReadHolds) {
  Client client = patient();
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe("redisson_rwlock:{M}");
  const OwnerId a = newOwner();
  const std::string field = ownerField(client, a);
  FaceSides lock = sidesOf(client, "M");

  lock.read.lock(a).value();
  EXPECT_EQ(raw().hgetall("M"), (Fields{{"mode", "read"}, {field, "1"}}));
  const std::string first = "{M}:" + field + ":rwlock_timeout:1";
  const std::string second = "{M}:" + field + ":rwlock_timeout:2";
  EXPECT_EQ(raw().get(first), "1");
  expectTtl("M", 30'000);
  expectTtl(first, 30'000);

  lock.read.lock(a, 5s).value();
  EXPECT_EQ(raw().hgetall("M"), (Fields{{"mode", "read"}, {field, "2"}}));
  EXPECT_EQ(raw().get(second), "1");
  expectTtl("M", 30'000);
  expectTtl(second, 5'000);

  EXPECT_EQ(answerOf(lock.write.tryLock(newOwner())), "false");
  EXPECT_EQ(raw().keys(), (std::set<std::string>{"M", first, second}))
      << "no intent without a wait";

  lock.read.unlock(a).value();
  EXPECT_EQ(raw().keys(), (std::set<std::string>{"M", first}));
  expectTtl("M", 30'000);
  EXPECT_EQ(subscriber.count(), 0U);

  lock.read.unlock(a).value();
  expectNoKeys();
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages()[0], (RawSubscriber::Message{"", "redisson_rwlock:{M}", "0"}));
}

TEST_P(ReadWriteWire, V23_D02_NothingIsHeld) {
  Client client = patient();
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(rwChannel("M"));
  FaceSides lock = sidesOf(client, "M");
  for (int twice = 0; twice < 2; ++twice) {
    EXPECT_EQ(outcomeOf(lock.read.unlock()), "notOwner");
    EXPECT_EQ(outcomeOf(lock.write.unlock()), "notOwner");
  }
  rawRead("M", "foreign:1", 20s);
  EXPECT_EQ(outcomeOf(lock.read.unlock()), "notOwner");
  EXPECT_EQ(outcomeOf(lock.write.unlock()), "notOwner");
  raw().flushAll();
  rawWrite("M", "foreign:1", 20s);
  EXPECT_EQ(outcomeOf(lock.read.unlock()), "notOwner");
  EXPECT_EQ(outcomeOf(lock.write.unlock()), "notOwner");
  EXPECT_EQ(raw().hgetall("M"), (Fields{{"mode", "write"}, {"foreign:1:write", "1"}}));
  raw().flushAll();
  raw().publish(rwChannel("M"), "7");
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages().front().payload, "7") << "nothing before";
}

TEST_P(ReadWriteWire, V23_WriteHolds) {
  Client client = patient();
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(rwChannel("M"));
  const OwnerId a = newOwner();
  const std::string field = ownerField(client, a);
  FaceSides lock = sidesOf(client, "M");

  lock.write.lock(a, 60s).value();
  EXPECT_EQ(raw().hgetall("M"), (Fields{{"mode", "write"}, {field + ":write", "1"}}));
  lock.write.lock(a, 60s).value();
  EXPECT_EQ(raw().hgetall("M"), (Fields{{"mode", "write"}, {field + ":write", "2"}}));
  expectTtl("M", 60'000);  // not 120 s

  lock.read.lock(a, 5s).value();
  lock.read.lock(a, 5s).value();
  EXPECT_EQ(raw().hgetall("M"), (Fields{{"mode", "write"}, {field + ":write", "2"}, {field, "2"}}));
  lock.read.unlock(a).value();
  expectTtl("M", 60'000);  // not 5 s
  EXPECT_EQ(answerOf(lock.read.tryLock(newOwner())), "false");
  lock.write.unlock(a).value();
  EXPECT_EQ(subscriber.count(), 0U);
  EXPECT_EQ(raw().hget("M", "mode"), "write");

  lock.write.unlock(a).value();
  EXPECT_EQ(raw().hgetall("M"), (Fields{{"mode", "read"}, {field, "1"}}));
  expectTtl("M", 5'000);
  ASSERT_TRUE(subscriber.waitFor(1, kLong)) << "readers may come";
  EXPECT_EQ(subscriber.messages()[0].payload, "1");

  lock.read.unlock(a).value();
  ASSERT_TRUE(subscriber.waitFor(2, kLong));
  EXPECT_EQ(subscriber.messages()[1].payload, "0");
  lock.write.lock(a).value();
  lock.write.unlock(a).value();
  ASSERT_TRUE(subscriber.waitFor(3, kLong));
  EXPECT_EQ(subscriber.messages()[2].payload, "1");
  expectNoKeys();
}

TEST_P(ReadWriteWire, V9_Force) {
  Client client = patient();
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(rwChannel("M"));
  FaceSides lock = sidesOf(client, "M");
  rawRead("M", "foreign:1", 20s);
  rawRead("M", "foreign:2", 20s);
  EXPECT_EQ(answerOf(lock.write.forceUnlock()), "false");
  EXPECT_EQ(subscriber.count(), 0U);
  EXPECT_EQ(answerOf(lock.read.forceUnlock()), "true");
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages()[0].payload, "1");
  rawWrite("M", "foreign:1", 20s);
  rawRead("M", "foreign:1", 20s);
  EXPECT_TRUE(lock.read.isLocked());
  raw().run({"HSET", "M", "mode", "write"});
  EXPECT_EQ(answerOf(lock.read.forceUnlock()), "false");
  EXPECT_EQ(answerOf(lock.write.forceUnlock()), "true");
  ASSERT_TRUE(subscriber.waitFor(2, kLong));
  EXPECT_EQ(subscriber.messages()[1].payload, "1");
  EXPECT_FALSE(raw().exists("M"));
  EXPECT_EQ(holdKeys(), std::set<std::string>());
  expectNoEternalKeys();
}

TEST_P(ReadWriteWire, V4_OneRenewalForTheHoldsOfAnOwnerAndNobodyElses) {
  Options settings = options();
  settings.watchdogTimeout = 1800ms;
  Client client = Client::connect(settings);
  const OwnerId a = newOwner();
  FaceSides lock = sidesOf(client, "M");
  lock.read.lock(a).value();
  lock.read.lock(a, 750ms).value();
  rawRead("M", "dead:1", 400ms);
  EXPECT_EVENTUALLY(kLong, !raw().exists(holdKey("M", "dead:1", 1)));
  // Both holds four times, which is longer than the watchdog's lease.
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= 8);
  const std::string field = ownerField(client, a);
  EXPECT_GT(raw().pttl(holdKey("M", field, 1)), 200);
  EXPECT_GT(raw().pttl(holdKey("M", field, 2)), 200) << "a lease in a watched hold is watched";
  EXPECT_GT(raw().pttl("M"), 200);
  EXPECT_EQ(client.stats().lost, 0U);
  raw().del("M");
  EXPECT_EVENTUALLY(kLong, client.stats().lost == 2U);
}

TEST_P(ReadWriteWire, TheSidesOfManyLocksAreRenewedInFewRequests) {
  Options settings = tuned(proxyUri());
  settings.watchdogTimeout = 1500ms;
  Client client = Client::connect(settings);
  std::vector<FaceSides> locks;
  for (int i = 0; i < 20; ++i) {
    locks.push_back(sidesOf(client, "many" + std::to_string(i)));
    locks.back().write.lock().value();
    locks.back().read.lock().value();
  }
  // From the first renewal on they come together.
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= 40);
  proxy().recordCommands(true);
  const std::uint64_t before = client.stats().renewals;
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= before + 40);
  EXPECT_LE(proxy().countCommands(running(lua::rw_read_renew)), 20U);
  EXPECT_GE(proxy().countCommands(running(lua::rw_read_renew)), 1U);
  EXPECT_GE(proxy().countCommands(running(lua::lock_renew)), 1U);
  for (FaceSides& lock : locks) {
    EXPECT_EQ(outcomeOf(lock.write.unlock()), "ok");
    EXPECT_EQ(outcomeOf(lock.read.unlock()), "ok");
  }
  expectNoKeys();
}

TEST_P(ReadWriteWire, AKeyOfAnotherType) {
  Client client = patient();
  FaceSides lock = sidesOf(client, "text");
  raw().set("text", "not a lock");
  EXPECT_EQ(answerOf(lock.read.tryLock()), "wrongType");
  EXPECT_EQ(answerOf(lock.write.tryLock()), "wrongType");
  EXPECT_EQ(outcomeOf(lock.read.unlock()), "wrongType");
  EXPECT_EQ(outcomeOf(lock.write.unlock()), "wrongType");
  EXPECT_EQ(answerOf(lock.read.forceUnlock()), "wrongType");
  EXPECT_EQ(raw().get("text"), "not a lock");
}

// With a client of another make.

TEST_P(ReadWriteWire, AForeignReadersReleaseLeavesOurHold) {
  Client client = patient();
  FaceSides lock = sidesOf(client, "peer");
  const OwnerId owner = newOwner();
  const std::string field = ownerField(client, owner);
  rawRead("peer", "foreign:1", 60s);
  lock.read.lock(owner, 20s).value();
  rawReadRelease("peer", "foreign:1");
  EXPECT_EQ(raw().hgetall("peer"), (Fields{{"mode", "read"}, {field, "1"}}));
  expectTtl("peer", 20'000);
  EXPECT_EQ(lock.read.holdCount(owner), 1);
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "ok");
  expectNoKeys();
}

TEST_P(ReadWriteWire, OurReadersReleaseLeavesAForeignHold) {
  Client client = patient();
  FaceSides lock = sidesOf(client, "peer");
  rawRead("peer", "foreign:1", 20s);
  rawRead("peer", "foreign:1", 30s);
  lock.read.lock(currentOwner(), 60s).value();
  expectTtl("peer", 60'000);
  lock.read.unlock().value();
  EXPECT_EQ(raw().hgetall("peer"), (Fields{{"mode", "read"}, {"foreign:1", "2"}}));
  expectTtl("peer", 30'000);
  EXPECT_TRUE(raw().exists(holdKey("peer", "foreign:1", 2)));
  EXPECT_EQ(answerOf(lock.write.tryLock()), "false");
  rawReadRelease("peer", "foreign:1");
  rawReadRelease("peer", "foreign:1");
  EXPECT_EQ(answerOf(lock.write.tryLock()), "true");
}

/// One that is over keeps its place until its owner gives it back.
TEST_P(ReadWriteWire, AForeignReleaseBesideOursThatIsOver) {
  for (const bool givenBack : {false, true}) {
    const std::string name = givenBack ? "given-back" : "gap";
    Client client = patient();
    FaceSides lock = sidesOf(client, name);
    const OwnerId owner = newOwner();
    const std::string field = ownerField(client, owner);
    rawRead(name, "foreign:1", 60s);
    Lease over = client.getReadWriteLock(name).readLock().acquire({.lease = 50ms}, owner);
    lock.read.lock(owner, 20s).value();
    EXPECT_EVENTUALLY(kLong, lock.read.holdCount(owner) == 1);
    lock.read.lock(owner, 25s).value();
    lock.read.lock(owner, 30s).value();
    lock.read.unlock(owner).value();
    EXPECT_EQ(raw().hget(name, field), "3");
    if (givenBack) {
      EXPECT_EQ(over.release(), ReleaseResult::lost);
      EXPECT_EQ(raw().hget(name, field), "2");
    }
    EXPECT_EQ(lock.read.holdCount(owner), 2);
    expectTtl(holdKey(name, field, givenBack ? 1 : 2), 20'000);
    expectTtl(holdKey(name, field, givenBack ? 2 : 3), 25'000);
    rawReadRelease(name, "foreign:1");
    expectTtl(name, 25'000);
    EXPECT_EQ(answerOf(lock.write.tryLock(newOwner())), "false");
  }
}

TEST_P(ReadWriteWire, ForeignWritersAndReadersWakeOurWaiters) {
  Client client = patient();
  FaceSides lock = sidesOf(client, "peer");
  rawWrite("peer", "foreign:1", 60s);
  auto reader = inThread([&] {
    FaceSides mine = sidesOf(client, "peer");
    const std::string got = answerOf(mine.read.tryLock(currentOwner(), 20s));
    return got + "," + outcomeOf(mine.read.unlock());
  });
  ASSERT_EVENTUALLY(kLong, raw().numsub(rwChannel("peer")) == 1);
  std::this_thread::sleep_for(50ms);
  const Stopwatch watch;
  rawWriteRelease("peer", "foreign:1");
  EXPECT_EQ(reader.get(), "true,ok");

  rawRead("peer", "foreign:1", 60s);
  auto writer = inThread([&] { return answerOf(lock.write.tryLock(currentOwner(), 20s)); });
  ASSERT_EVENTUALLY(kLong, raw().exists(intentKey("peer")));
  rawReadRelease("peer", "foreign:1");
  EXPECT_EQ(writer.get(), "true");
  EXPECT_LT(watch.elapsedMs(), scaled(5s));
}

TEST_P(ReadWriteWire, AForeignDowngradeIsFoundByThePoll) {
  Client client = patient();
  rawWrite("peer", "foreign:1", 60s);
  rawRead("peer", "foreign:1", 60s);
  raw().run({"HSET", "peer", "mode", "write"});
  EXPECT_EQ(answerOf(sidesOf(client, "peer").read.tryLock()), "false");
  rawWriteRelease("peer", "foreign:1");
  EXPECT_EQ(raw().hgetall("peer"), (Fields{{"mode", "read"}, {"foreign:1", "1"}}));
  EXPECT_EQ(answerOf(sidesOf(client, "peer").read.tryLock()), "true");
}

TEST_P(ReadWriteWire, APayloadOfAnyKindIsNews) {
  Client client = patient();
  FaceSides lock = sidesOf(client, "news");
  for (const char* payload : {"0", "1", "42"}) {
    rawWrite("news", "foreign:1", 60s);
    auto reader = inThread([&] {
      FaceSides mine = sidesOf(client, "news");
      const std::string got = answerOf(mine.read.tryLock(currentOwner(), 20s));
      return got + "," + outcomeOf(mine.read.unlock());
    });
    ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
    ASSERT_EVENTUALLY(kLong, raw().numsub(rwChannel("news")) == 1);
    std::this_thread::sleep_for(30ms);
    raw().del("news");
    raw().publish(rwChannel("news"), payload);
    EXPECT_EQ(reader.get(), "true,ok");
  }
}

// At the memory limit and without permissions.

class ReadWriteServerError : public ReadWriteTest {};

TEST_F(ReadWriteServerError, ReleasingWorksAtTheMemoryLimit) {
  Client client = connect();
  ReadWriteLock lock = client.getReadWriteLock("oom");
  const OwnerId owner = newOwner();
  Lease write = lock.writeLock().acquire({.lease = 60s}, owner);
  Lease outer = lock.readLock().acquire({.lease = 60s}, owner);
  Lease inner = lock.readLock().acquire({.lease = 60s}, owner);
  raw().configSet("maxmemory-policy", "noeviction");
  raw().configSet("maxmemory", "1");
  EXPECT_EQ(answerOf([&] { return lock.readLock().tryLock(); }), "false");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.readLock().acquire({.wait = 0ms}, owner)); }),
            "outOfMemory");
  EXPECT_EQ(inner.release(), ReleaseResult::stillHeld);
  EXPECT_EQ(write.release(), ReleaseResult::released);
  EXPECT_EQ(raw().hget("oom", "mode"), "read");
  EXPECT_EQ(outer.release(), ReleaseResult::released);
  EXPECT_EQ(holdKeys(), std::set<std::string>());
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.writeLock().tryLock()); }), "outOfMemory");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.readLock().tryLock()); }), "outOfMemory");
  expectNoKeys();
}

/// A forced release has ended a read hold, and its owner holds a lock of another kind by that name.
TEST_F(ReadWriteServerError, AReconciliationLeavesALockOfAnotherKind) {
  Client client = connect();
  RLock plain = client.getLock("other");
  const OwnerId owner = newOwner();
  const std::string field = ownerField(client, owner);
  const Lease lease = plain.acquire({.lease = 60s}, owner);
  for (const char* lost : {"release", "undo", "acquire"}) {
    SCOPED_TRACE(lost);
    raw().eval(lua::rw_read_reconcile.body,
               {"other", "{other}:" + field + ":rwlock_timeout", "intent"},
               {field, "{other}", "PUBLISH", "channel", "0", "120000", lost, "0", "1", "1"});
    EXPECT_EQ(raw().hgetall("other"), (Fields{{field, "1"}}));
  }
  EXPECT_GT(raw().pttl("other"), 50'000);
  EXPECT_TRUE(lease.held());
}

TEST_F(ReadWriteServerError, ARefusedMessageDoesNotUndoARelease) {
  raw().run({"ACL", "SETUSER", "mute", "on", ">pw", "~*", "&*", "+@all", "-publish"});
  Options settings = options();
  settings.username = "mute";
  settings.password = "pw";
  Client client = Client::connect(settings);
  ReadWriteLock lock = client.getReadWriteLock("mute");
  for (RLock side : {lock.readLock(), lock.writeLock()}) {
    side.lock();
    EXPECT_EQ(outcomeOf([&] { side.unlock(); }), "ok");
    side.lock();
    EXPECT_TRUE(side.forceUnlock());
  }
  EXPECT_FALSE(raw().exists("mute"));
  EXPECT_EQ(holdKeys(), std::set<std::string>());
}

TEST_F(ReadWriteServerError, AnIntentOfAnotherTypeLeavesNoHold) {
  Client client = connect();
  ReadWriteLock lock = client.getReadWriteLock("other");
  raw().run({"RPUSH", intentKey("other"), "foreign"});
  EXPECT_EQ(answerOf([&] { return lock.writeLock().tryLock(); }), "wrongType");
  EXPECT_EQ(answerOf([&] { return lock.readLock().tryLock(); }), "wrongType");
  EXPECT_EQ(raw().keys(), std::set<std::string>{intentKey("other")});
}

TEST_F(ReadWriteServerError, WithoutExpiriesNothingIsHeld) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-pexpire"});
  Options settings = options();
  settings.username = "weak";
  settings.password = "pw";
  Client client = Client::connect(settings);
  ReadWriteLock lock = client.getReadWriteLock("weak");
  EXPECT_EQ(answerOf([&] { return lock.readLock().tryLock(); }), "denied");
  EXPECT_EQ(answerOf([&] { return lock.writeLock().tryLock(); }), "denied");
  expectNoKeys();
  rawRead("weak", "foreign:1", 20s);
  EXPECT_EQ(answerOf([&] { return lock.readLock().tryLock(1ms, 60s); }), "denied");
  EXPECT_EQ(raw().hgetall("weak"), (Fields{{"mode", "read"}, {"foreign:1", "1"}}));
  EXPECT_EQ(holdKeys().size(), 1U);
}

TEST_F(ReadWriteServerError, ARefusedExpiryTakesOneWriteHoldBack) {
  raw().run({"ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all"});
  Options settings = options();
  settings.username = "app";
  settings.password = "pw";
  Client client = Client::connect(settings);
  RLock writer = client.getReadWriteLock("app").writeLock();
  const OwnerId owner = newOwner();
  Lease first = writer.acquire({.lease = 60s}, owner);
  raw().run({"ACL", "SETUSER", "app", "-pexpire"});
  // Only a longer lease needs another expiry.
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(writer.acquire({.lease = 120s}, owner)); }),
            "denied");
  EXPECT_EQ(raw().hgetall("app"),
            (Fields{{"mode", "write"}, {ownerField(client, owner) + ":write", "1"}}));
  EXPECT_EQ(first.release(), ReleaseResult::released);
  expectNoKeys();
}

}  // namespace
}  // namespace rlock::test
