// SPDX-License-Identifier: Apache-2.0

// The lock of the Redis documentation: SET NX PX, compare and delete. The behaviour that all kinds
// of lock share is tested elsewhere.

#include "integration/lost_reply_harness.hpp"

namespace rlock::test {
namespace {

std::string simpleChannelOf(const std::string& name) {
  return name.find('{') == std::string::npos ? "rlock_simple:{" + name + "}"
                                             : "rlock_simple:" + name;
}

// The release of programs that know only the documentation.
constexpr std::string_view kForeignRelease =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0";

class SimpleLock : public LockTest, public ::testing::WithParamInterface<Face> {
 protected:
  [[nodiscard]] static FaceLock lockOf(Client& client, std::string_view name) {
    return {GetParam(), client.getSimpleLock(name)};
  }
  bool foreignTake(const std::string& name,
                   const std::string& value,
                   std::chrono::milliseconds lease) {
    return !raw().command({"SET", name, value, "NX", "PX", std::to_string(lease.count())}).isNil();
  }
  bool foreignRelease(const std::string& name, const std::string& value) {
    return raw().eval(kForeignRelease, {name}, {value}).integer() == 1;
  }
};

INSTANTIATE_TEST_SUITE_P(Faces, SimpleLock, ::testing::ValuesIn(kFaces), faceName);

TEST_P(SimpleLock, StateAfterEachStep) {
  Client client = connect();
  const OwnerId a = newOwner();
  const OwnerId b = newOwner();
  for (const std::string name : {"S", "a{t}b"}) {
    FaceLock lock = lockOf(client, name);
    RawSubscriber subscriber(rawOptions());
    subscriber.subscribe(simpleChannelOf(name));
    EXPECT_EQ(outcomeOf(lock.lock(a, 20s)), "ok");
    EXPECT_EQ(raw().keys(), std::set<std::string>{name});
    EXPECT_EQ(raw().type(name), "string");
    EXPECT_EQ(raw().get(name), ownerField(client, a));
    EXPECT_LE(raw().pttl(name), 20'000);
    EXPECT_GT(raw().pttl(name), 15'000);
    EXPECT_TRUE(lock.isLocked());
    EXPECT_EQ(lock.holdCount(a), 1);
    EXPECT_EQ(lock.holdCount(b), 0);
    EXPECT_TRUE(lock.isHeldBy(a));
    EXPECT_EQ(answerOf(lock.tryLock(b)), "false");
    EXPECT_EQ(outcomeOf(lock.unlock(b)), "notOwner");
    EXPECT_EQ(raw().get(name), ownerField(client, a));
    EXPECT_EQ(subscriber.count(), 0U);
    EXPECT_EQ(outcomeOf(lock.unlock(a)), "ok");
    ASSERT_TRUE(subscriber.waitFor(1, kLong));
    EXPECT_EQ(subscriber.messages()[0], (RawSubscriber::Message{"", simpleChannelOf(name), "0"}));
    EXPECT_FALSE(lock.isLocked());
    EXPECT_EQ(lock.holdCount(a), 0);
    EXPECT_EQ(outcomeOf(lock.unlock(a)), "notOwner");
    expectNoKeys();
  }
}

TEST_P(SimpleLock, OneRoundTripEach) {
  Client client = connect();
  FaceLock lock = lockOf(client, "cost");
  lock.lock().value();
  lock.unlock().value();
  const auto before = client.stats().commands;
  lock.lock().value();
  EXPECT_EQ(client.stats().commands - before, 1U);
  lock.unlock().value();
  EXPECT_EQ(client.stats().commands - before, 2U);
}

TEST_P(SimpleLock, ReentryIsRefused) {
  Client client = connect(kWatchdog);
  FaceLock lock = lockOf(client, "again");
  const OwnerId owner = newOwner();
  lock.lock(owner, 20s).value();
  EXPECT_EQ(outcomeOf(lock.lock(owner)), "reentry");
  EXPECT_EQ(answerOf(lock.tryLock(owner)), "reentry");
  EXPECT_EQ(answerOf(lock.tryLock(owner, 10s)), "reentry");
  EXPECT_EQ(lock.holdCount(owner), 1);
  EXPECT_GT(raw().pttl("again"), kWatchdog.count()) << "the lease was changed";
  // Not even behind others, where it would wait for itself.
  auto waiter = inThread([&] { return outcomeOf(lockOf(client, "again").lock()); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  EXPECT_EQ(answerOf(lock.tryLock(owner, 2s)), "reentry");
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(waiter.get(), "ok");
}

TEST_P(SimpleLock, WhatIsLeftOfALostHoldIsItsOwnersToTake) {
  Client client = connect();
  FaceLock lock = lockOf(client, "left");
  const OwnerId owner = newOwner();
  raw().set("left", ownerField(client, owner), 20s);
  EXPECT_EQ(answerOf(lock.tryLock(newOwner())), "false");
  EXPECT_EQ(answerOf(lock.tryLock(owner, {}, 5s)), "true");
  EXPECT_GT(raw().pttl("left"), 15'000) << "the expiry was shortened";
  EXPECT_EQ(answerOf(lock.tryLock(owner)), "reentry");
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  expectNoKeys();
}

TEST_P(SimpleLock, WhatIsLeftOfALostHoldLastsForTheNewLease) {
  Client client = connect();
  FaceLock lock = lockOf(client, "left");
  const OwnerId owner = newOwner();
  raw().set("left", ownerField(client, owner), 5s);
  EXPECT_EQ(answerOf(lock.tryLock(owner, {}, 20s)), "true");
  EXPECT_GT(raw().pttl("left"), 15'000) << "another owner would get it during the lease";
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  expectNoKeys();
}

TEST_P(SimpleLock, AReleaseWakesAWaiterOfAnotherClient) {
  Client one = connect();
  Client two = connect();
  FaceLock lock = lockOf(one, "woken");
  lock.lock().value();
  auto waiter = inThread([&] {
    FaceLock mine = lockOf(two, "woken");
    const std::string got = outcomeOf(mine.lock());
    return got + "," + outcomeOf(mine.unlock());
  });
  ASSERT_EVENTUALLY(kLong, raw().numsub(simpleChannelOf("woken")) == 1);
  // The safety poll is a minute away, and the hold is renewed.
  lock.unlock().value();
  EXPECT_EQ(waiter.get(), "ok,ok");
}

TEST_P(SimpleLock, ForeignProgramsAndWeExcludeEachOther) {
  Client client = connect();
  FaceLock lock = lockOf(client, "shared");
  ASSERT_TRUE(foreignTake("shared", "6f1a", 20s));
  EXPECT_EQ(answerOf(lock.tryLock()), "false");
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  EXPECT_TRUE(lock.isLocked());
  EXPECT_EQ(lock.holdCount(), 0);
  EXPECT_EQ(raw().get("shared"), "6f1a");
  ASSERT_TRUE(foreignRelease("shared", "6f1a"));
  EXPECT_EQ(answerOf(lock.tryLock()), "true");
  EXPECT_FALSE(foreignTake("shared", "6f1b", 20s));
  EXPECT_FALSE(foreignRelease("shared", "6f1a"));
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_TRUE(foreignTake("shared", "6f1b", 20s));
}

TEST_P(SimpleLock, AForeignReleaseIsFoundByTheSafetyPoll) {
  Options settings = options();
  settings.safetyPoll = 60ms;
  Client client = Client::connect(settings);
  ASSERT_TRUE(foreignTake("polled", "6f1a", 20s));
  auto waiter = inThread([&] { return outcomeOf(lockOf(client, "polled").lock()); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  EXPECT_FALSE(ready(waiter, 100ms));
  ASSERT_TRUE(foreignRelease("polled", "6f1a"));
  EXPECT_EQ(waiter.get(), "ok");
}

TEST_P(SimpleLock, TheEndOfAForeignLeaseIsFoundAtOnce) {
  Client client = connect();
  ASSERT_TRUE(foreignTake("expires", "6f1a", 250ms));
  const Stopwatch watch;
  EXPECT_EQ(outcomeOf(lockOf(client, "expires").lock()), "ok");
  EXPECT_LT(watch.elapsedMs(), 250ms + scaled(250ms));
}

TEST_P(SimpleLock, AHoldWithoutExpiryIsWaitedFor) {
  raw().set("eternal", "6f1a");
  Options settings = options();
  settings.safetyPoll = 400ms;
  Client client = Client::connect(settings);
  FaceLock lock = lockOf(client, "eternal");
  EXPECT_EQ(lock.raw().remainTimeToLive(), std::chrono::milliseconds::max());
  // It ends in the middle between two polls.
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), 1s)), "false");
  raw().del("eternal");
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), kLong)), "true");
}

TEST_P(SimpleLock, AnotherTypeIsLeftAlone) {
  Client client = connect();
  FaceLock lock = lockOf(client, "typed");
  for (const auto& make :
       {RawRedis::Args{"HSET", "typed", "foreign:1", "1"}, RawRedis::Args{"RPUSH", "typed", "a"}}) {
    raw().del("typed");
    raw().run(make);
    EXPECT_EQ(outcomeOf(lock.lock()), "wrongType");
    EXPECT_EQ(answerOf(lock.tryLock()), "wrongType");
    EXPECT_EQ(outcomeOf(lock.unlock()), "wrongType");
    EXPECT_EQ(answerOf(lock.forceUnlock()), "wrongType");
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.holdCount()); }), "wrongType");
    EXPECT_TRUE(lock.isLocked());
    EXPECT_TRUE(raw().exists("typed"));
  }
  // Nor does the plain lock take this one for its own.
  raw().set("text", "6f1a");
  EXPECT_EQ(outcomeOf(FaceLock(GetParam(), client.getLock("text")).lock()), "wrongType");
  EXPECT_EQ(answerOf(FaceLock(GetParam(), client.getLock("text")).forceUnlock()), "wrongType");
  EXPECT_EQ(client.stats().holds, 0U);
}

TEST_P(SimpleLock, ForceUnlockFreesWhoeverHoldsIt) {
  Client client = connect();
  FaceLock lock = lockOf(client, "forced");
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(simpleChannelOf("forced"));
  EXPECT_EQ(answerOf(lock.forceUnlock()), "false");
  ASSERT_TRUE(foreignTake("forced", "6f1a", 20s));
  EXPECT_EQ(answerOf(lock.forceUnlock()), "true");
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  Lease lease = lock.raw().acquire();
  EXPECT_EQ(answerOf(lock.forceUnlock()), "true");
  EXPECT_EVENTUALLY(kLong, lease.lossReason() == LossReason::forced);
  EXPECT_FALSE(raw().exists("forced"));
  expectNoEternalKeys();
}

TEST_P(SimpleLock, OutOfMemoryRefusesAHoldAndLetsOneGo) {
  Client client = connect();
  FaceLock lock = lockOf(client, "full");
  FaceLock other = lockOf(client, "other");
  lock.lock(currentOwner(), 20s).value();
  raw().configSet("maxmemory", "1");
  EXPECT_EQ(outcomeOf(other.lock()), "outOfMemory");
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  raw().configSet("maxmemory", "0");
  expectNoKeys();
}

TEST_P(SimpleLock, ARefusedMessageIsNoRefusedRelease) {
  RLOCK_ONE_MASTER_ONLY("forbids a command that sharded channels do not need");
  raw().run({"ACL", "SETUSER", "quiet", "on", ">pw", "~*", "&*", "+@all", "-publish"});
  Options settings = options();
  settings.username = "quiet";
  settings.password = "pw";
  Client client = Client::connect(settings);
  FaceLock lock = lockOf(client, "quiet");
  lock.lock().value();
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_FALSE(raw().exists("quiet"));
  EXPECT_TRUE(log().contains("could not be told"));
}

class SimpleLockHolds : public LockTest {};
class SimpleLockHoldsSlow : public LockTest {};

TEST_F(SimpleLockHoldsSlow, TheWatchdogRenewsItBesideOtherKinds) {
  Client client = connect(kWatchdog);
  std::vector<Lease> leases;
  for (int i = 0; i < 5; ++i) {
    leases.push_back(client.getSimpleLock("s" + std::to_string(i)).acquire());
    leases.push_back(client.getLock("p" + std::to_string(i)).acquire());
  }
  const Stopwatch watch;
  while (watch.elapsedMs() < 2 * kWatchdog) {
    for (const std::string& key : raw().keys()) {
      ASSERT_GT(raw().pttl(key), 100) << key;
    }
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_EQ(raw().dbsize(), 10);
  for (Lease& lease : leases) {
    EXPECT_TRUE(lease.held());
    EXPECT_EQ(lease.release(), ReleaseResult::released);
  }
  expectNoKeys();
}

TEST_F(SimpleLockHolds, ALeaseEndsAndIsNotRenewed) {
  Client client = connect();
  RLock lock = client.getSimpleLock("leased");
  lock.lock(200ms);
  EXPECT_EVENTUALLY(kLong, !raw().exists("leased"));
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "notOwner");
}

TEST_F(SimpleLockHolds, TheRenewalSeesThatTheHoldIsGone) {
  Client client = connect(kWatchdog);
  Lease deleted = client.getSimpleLock("deleted").acquire();
  Lease taken = client.getSimpleLock("taken").acquire();
  Lease typed = client.getSimpleLock("typed").acquire();
  Lease kept = client.getSimpleLock("kept").acquire();
  raw().del("deleted");
  raw().set("taken", "6f1a", 20s);
  raw().del("typed");
  raw().run({"HSET", "typed", "a", "b"});
  EXPECT_EVENTUALLY(kLong, deleted.lossReason() == LossReason::refused);
  EXPECT_EVENTUALLY(kLong, taken.lossReason() == LossReason::refused);
  EXPECT_EVENTUALLY(kLong, typed.lossReason() == LossReason::refused);
  EXPECT_TRUE(kept.held());
  EXPECT_EQ(raw().get("taken"), "6f1a");
  EXPECT_EQ(taken.release(), ReleaseResult::lost);
  EXPECT_EQ(raw().get("taken"), "6f1a");
  EXPECT_GT(raw().pttl("taken"), 10'000);
  EXPECT_FALSE(raw().exists("deleted"));
}

TEST_F(SimpleLockHolds, AReconciliationThatGivesItBackTellsTheWaiters) {
  raw().set("s", "foreign:1", 60s);
  RawSubscriber listener(rawOptions());
  listener.subscribe(channelOf("s"));
  const auto bringTo = [&](const std::string& target) {
    raw().eval(lua::simple_reconcile.body,
               {"s"},
               {"foreign:1", target, "0", raw().publishing(), "60000", channelOf("s"), "1"});
  };
  // Each message of the test comes after those of the reconciliation before it.
  const auto mark = [&] { raw().run({raw().publishing(), channelOf("s"), "mark"}); };
  bringTo("1");
  EXPECT_EQ(raw().get("s"), "foreign:1");
  mark();
  bringTo("0");
  EXPECT_FALSE(raw().exists("s"));
  // It is gone, and nobody is told again.
  bringTo("0");
  mark();
  ASSERT_TRUE(listener.waitFor(3, kLong));
  EXPECT_EQ(listener.messages()[0].payload, "mark");
  EXPECT_EQ(listener.messages()[1].payload, "0");
  EXPECT_EQ(listener.messages()[2].payload, "mark");
}

TEST_F(SimpleLockHolds, ClosingGivesItBack) {
  Client client = connect();
  Lease lease = client.getSimpleLock("closing").acquire();
  EXPECT_TRUE(raw().exists("closing"));
  client.close(2s);
  EXPECT_EQ(lease.lossReason(), LossReason::clientClosed);
  expectNoKeys();
}

TEST_F(SimpleLockHolds, TheSameNameAsAnotherKindIsAnotherHold) {
  Client client = connect();
  Lease simple = client.getSimpleLock("name").acquire({}, currentOwner());
  EXPECT_EQ(outcomeOf([&] { client.getLock("name").lock(); }), "wrongType");
  EXPECT_EQ(outcomeOf([&] { client.getLock("name").unlock(); }), "wrongType");
  EXPECT_TRUE(simple.held());
  EXPECT_EQ(simple.release(), ReleaseResult::released);
}

TEST_F(SimpleLockHolds, ConcurrencyBetweenClients) {
  constexpr int kClients = 8;
  constexpr int kRounds = 10;
  Resource resource;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(connect()));
  }
  std::vector<std::future<std::string>> jobs;
  for (auto& client : clients) {
    for (int thread = 0; thread < 2; ++thread) {
      jobs.push_back(inThread([&resource, &client] {
        RLock lock = client->getSimpleLock("busy");
        return outcomeOf([&] {
          for (int round = 0; round < kRounds; ++round) {
            lock.lock();
            resource.use(100us);
            lock.unlock();
          }
        });
      }));
    }
  }
  for (auto& job : jobs) {
    EXPECT_EQ(job.get(), "ok");
  }
  EXPECT_EQ(resource.value(), 2 * kClients * kRounds);
  EXPECT_EQ(resource.overlaps(), 0);
  expectNoKeys();
}

// Lost replies.

class SimpleLostReply : public LostReplyTest {
 protected:
  [[nodiscard]] RLock warmLock() override { return client().getSimpleLock("warm"); }
  [[nodiscard]] bool heldBy(const std::string& name, OwnerId owner) {
    return raw().get(name) == ownerField(client(), owner);
  }
};

INSTANTIATE_TEST_SUITE_P(Faults,
                         SimpleLostReply,
                         ::testing::Combine(kLostReplyPolicies, kFewFaults),
                         lostReplyName);

TEST_P(SimpleLostReply, AcquireAndReleaseTakeEffectOnce) {
  for (const Face face : kFaces) {
    const std::string name = std::string("once-") + rlock::test::toString(face);
    const OwnerId owner = newOwner();
    FaceLock lock(face, client().getSimpleLock(name));
    const auto acquire = breakOnce(lua::simple_acquire);
    EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
    EXPECT_EQ(acquire.hits(), 1U);
    deliverLate();
    EXPECT_TRUE(heldBy(name, owner));
    EXPECT_EQ(outcomeOf(lock.lock(owner)), "reentry");
    const auto release = breakOnce(lua::simple_release);
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    EXPECT_EQ(release.hits(), 1U);
    deliverLate();
    EXPECT_FALSE(raw().exists(name));
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "notOwner");
  }
  EXPECT_EQ(client().stats().holds, 0U);
}

TEST_P(SimpleLostReply, ARefusedReentryStaysRefused) {
  const OwnerId owner = newOwner();
  FaceLock lock(Face::blocking, client().getSimpleLock("again"));
  lock.lock(owner).value();
  const auto fault = breakOnce(lua::simple_acquire);
  EXPECT_EQ(outcomeOf(lock.lock(owner)), "reentry");
  EXPECT_EQ(fault.hits(), 1U);
  deliverLate();
  EXPECT_TRUE(heldBy("again", owner));
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
}

TEST_P(SimpleLostReply, ALateReleaseDoesNotEndTheNextHold) {
  const OwnerId owner = newOwner();
  FaceLock lock(Face::blocking, client().getSimpleLock("next"));
  lock.lock(owner).value();
  breakOnce(lua::simple_release);
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
  deliverLate();
  EXPECT_TRUE(heldBy("next", owner));
}

TEST_P(SimpleLostReply, AnAttemptThatWasGivenUpLeavesNothing) {
  const OwnerId owner = newOwner();
  FaceLock lock(Face::future, client().getSimpleLock("late"));
  breakOnce(lua::simple_acquire);
  const std::string answer = answerOf(lock.tryLock(owner, 120ms));
  EXPECT_NE(answer, "false") << "nobody else held it";
  // The late request comes after the doubt was reconciled.
  EXPECT_EVENTUALLY(kLong, client().stats().reconnects > 0);
  EXPECT_FALSE(client().getSimpleLock("late").isHeldBy(newOwner()));
  deliverLate();
  if (answer == "true") {
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  }
  EXPECT_EVENTUALLY(kLong, !raw().exists("late"));
  EXPECT_EVENTUALLY(kLong, client().stats().holds == 0);
}

TEST_P(SimpleLostReply, ALostReleaseByAStrangerFreesNobodyElse) {
  raw().set("strange", "6f1a", 60s);
  const auto fault = breakOnce(lua::simple_release);
  EXPECT_EQ(outcomeOf([&] { client().getSimpleLock("strange").unlock(); }), "notOwner");
  EXPECT_EQ(fault.hits(), 1U);
  deliverLate();
  EXPECT_EQ(raw().get("strange"), "6f1a");
}

TEST_P(SimpleLostReply, RenewalsAreRepeated) {
  Options fast = settings();
  fast.watchdogTimeout = 3s;
  fast.commandTimeout = 500ms;
  Client renewing = Client::connect(fast);
  Lease lease = renewing.getSimpleLock("renewed").acquire();
  const auto until = lease.validUntil();
  const auto fault = breakOnce(lua::simple_renew);
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  EXPECT_EVENTUALLY(kLong, lease.validUntil() > until);
  deliverLate();
  EXPECT_TRUE(lease.held());
  EXPECT_TRUE(raw().exists("renewed"));
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_FALSE(raw().exists("renewed"));
}

TEST_P(SimpleLostReply, ForceIsRepeatedAndHitsNoNewcomer) {
  RLock lock = client().getSimpleLock("forced");
  raw().set("forced", "6f1a", 60s);
  const auto fault = breakOnce(lua::lock_force_release);
  auto call = inThread([&] { return answerOf([&] { return lock.forceUnlock(); }); });
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  const bool executed = !raw().exists("forced");
  if (executed) {
    raw().set("forced", "6f1b", 60s);
  }
  EXPECT_EQ(call.get(), "true");
  deliverLate();
  EXPECT_EQ(raw().get("forced"), executed ? std::optional<std::string>("6f1b") : std::nullopt);
  expectNoEternalKeys();
}

}  // namespace
}  // namespace rlock::test
