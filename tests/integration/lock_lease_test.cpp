// SPDX-License-Identifier: Apache-2.0

// Lease arithmetic on the server, and what a Lease object says about its hold.

#include "integration/lock_harness.hpp"

#include <stdexcept>

namespace rlock::test {
namespace {

class LeaseTimes : public FaceTest {};
class LeaseForms : public LockTest {};
class LeaseObject : public LockTest {};
class LeaseObjectSlow : public LockTest {};

INSTANTIATE_TEST_SUITE_P(Faces, LeaseTimes, ::testing::ValuesIn(kFaces), faceName);

TEST_P(LeaseTimes, XTTL2_AnExplicitLeaseInsideAWatchedHoldLeavesItWatched) {
  Client client = connect(2 * kWatchdog);
  FaceLock lock = lockOf(client, "ttl2");
  lock.lock().value();
  lock.lock(currentOwner(), 200ms).value();
  EXPECT_GT(raw().pttl("ttl2"), 250);
  lock.unlock().value();
  // Renewed each third of its lease, so that it has outlived the lease it began with.
  const std::uint64_t renewals = client.stats().renewals;
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= renewals + 4);
  EXPECT_EQ(lock.holdCount(), 1);
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
}

TEST_P(LeaseTimes, XTTL3_AWatchedHoldInsideALongLeaseNeverShortensIt) {
  Client client = connect(kWatchdog);
  FaceLock lock = lockOf(client, "ttl3");
  lock.lock(currentOwner(), 60s).value();
  lock.lock().value();
  EXPECT_GT(raw().pttl("ttl3"), 50'000);
  std::this_thread::sleep_for(kWatchdog / 2);
  EXPECT_GT(raw().pttl("ttl3"), 50'000) << "a renewal has shortened it";
  lock.unlock().value();
  EXPECT_GT(raw().pttl("ttl3"), 50'000);
  lock.unlock().value();
}

TEST_P(LeaseTimes, ReentryNeverShortensALease) {
  Client client = connect();
  FaceLock lock = lockOf(client, "ttl");
  lock.lock(currentOwner(), 60s).value();
  lock.lock(currentOwner(), 5s).value();
  EXPECT_GT(raw().pttl("ttl"), 50'000);
  lock.lock(currentOwner(), 100s).value();
  EXPECT_GT(raw().pttl("ttl"), 90'000);
  EXPECT_EQ(lock.holdCount(), 3);
}

TEST_P(LeaseTimes, APartialReleaseLeavesAnExplicitLeaseAlone) {
  Client client = connect();
  FaceLock lock = lockOf(client, "ttl");
  lock.lock(currentOwner(), 20s).value();
  lock.lock(currentOwner(), 20s).value();
  raw().run({"PEXPIRE", "ttl", "7000"});
  lock.unlock().value();
  EXPECT_LE(raw().pttl("ttl"), 7000);
  EXPECT_GT(raw().pttl("ttl"), 4000);
}

TEST_P(LeaseTimes, APartialReleaseGivesAWatchedHoldItsLeaseBack) {
  Client client = connect();
  for (const RLock& made : {client.getLock("plain"), client.getFairLock("fair")}) {
    const std::string name = made.getName();
    FaceLock lock(GetParam(), made);
    lock.lock().value();
    lock.lock().value();
    // Another program has shortened it.
    raw().run({"PEXPIRE", name, "7000"});
    lock.unlock().value();
    EXPECT_GT(raw().pttl(name), 100'000) << name;
    lock.unlock().value();
  }
  expectNoKeys();
}

TEST_P(LeaseTimes, XTTL4_ALeaseBelowAMillisecondRoundsUp) {
  proxy().recordCommands(true);
  const auto acquires = running(lua::lock_acquire);
  Client client = Client::connect(proxied());
  for (const Duration lease : {Duration(500us), Duration(1ns), Duration(1ms)}) {
    FaceLock lock = lockOf(client, "ttl4");
    proxy().clearCommands();
    EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), {}, lease)), "true");
    bool sent = false;
    for (const auto& argv : proxy().commands()) {
      if (acquires(argv)) {
        // The first argument after the keys, whose number is in front of them.
        sent = sent || argv.at(3 + std::stoul(argv.at(2))) == "1";
      }
    }
    EXPECT_TRUE(sent);
    EXPECT_EVENTUALLY(kLong, !raw().exists("ttl4"));
  }
}

TEST_P(LeaseTimes, XTTL5_ZeroAndNegativeLeasesAreRefusedBeforeAnythingIsSent) {
  Client client = connect();
  FaceLock lock = lockOf(client, "ttl5");
  raw().resetStats();
  for (const Duration lease : {Duration(0ms),
                               Duration(-1s),
                               Duration(std::chrono::nanoseconds::min()),
                               Duration(std::chrono::hours::min()),
                               Duration(-1ns)}) {
    EXPECT_EQ(outcomeOf(lock.lock(currentOwner(), lease)), "invalidArgument");
    EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), {}, lease)), "invalidArgument");
    EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), 1s, lease)), "invalidArgument");
  }
  EXPECT_EQ(raw().commandCalls("evalsha") + raw().commandCalls("eval"), 0);
  expectNoKeys();
}

TEST_P(LeaseTimes, XTTL6_EndlessLeasesAreRefusedAndTheLongestWorks) {
  Client client = connect();
  FaceLock lock = lockOf(client, "ttl6");
  for (const Duration lease :
       {Duration::max(),
        Duration(std::chrono::milliseconds::max()),
        Duration(std::chrono::hours::max()),
        Duration(std::chrono::hours(24) * 400),
        Duration(std::chrono::duration<double>(1e300)),
        Duration(std::chrono::hours(24 * 365) + 1ns),
        Duration(std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN()))}) {
    EXPECT_EQ(outcomeOf(lock.lock(currentOwner(), lease)), "invalidArgument");
  }
  expectNoKeys();
  EXPECT_EQ(outcomeOf(lock.lock(currentOwner(), std::chrono::hours(24 * 365))), "ok");
  EXPECT_GT(raw().pttl("ttl6"), 0);
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
}

TEST_P(LeaseTimes, XTTL7_Waits) {
  Client client = connect();
  rawHold("ttl7", "foreign:1", 20s);
  FaceLock lock = lockOf(client, "ttl7");
  for (const Duration wait :
       {Duration::zero(), Duration(-1ms), Duration::min(), Duration(std::chrono::hours::min())}) {
    const Stopwatch watch;
    EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), wait)), "false");
    EXPECT_LT(watch.elapsedMs(), scaled(1s));
  }
  for (const Duration wait : {Duration::max(),
                              Duration(std::chrono::hours::max()),
                              Duration(std::chrono::milliseconds::max())}) {
    auto waiter = inThread([&] {
      FaceLock mine = lockOf(client, "ttl7");
      const std::string got = answerOf(mine.tryLock(currentOwner(), wait));
      return got + "," + outcomeOf(mine.unlock());
    });
    EXPECT_FALSE(ready(waiter, 150ms));
    rawRelease("ttl7");
    EXPECT_EQ(waiter.get(), "true,ok");
    rawHold("ttl7", "foreign:1", 20s);
  }
}

TEST_P(LeaseTimes, XTTL10_AKeyAboutToExpireIsNoReasonToSpin) {
  Client client = connect();
  FaceLock lock = lockOf(client, "ttl10");
  EXPECT_EQ(answerOf(lock.tryLock()), "true");
  lock.unlock().value();
  raw().resetStats();
  constexpr int kRounds = 40;
  for (int i = 0; i < kRounds; ++i) {
    rawHold("ttl10", "foreign:1", std::chrono::milliseconds(1 + i % 4));
    EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), scaled(3s))), "true");
    EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  }
  // One refused try, one after the subscription, one after expiry and one release, with some room.
  EXPECT_LE(raw().commandCalls("evalsha"), 8 * kRounds);
}

TEST_P(LeaseTimes, XTTL11_AStrangersUnlockDoesNotTouchTheLease) {
  Client client = connect();
  FaceLock lock = lockOf(client, "ttl11");
  lock.lock(currentOwner(), 20s).value();
  lock.lock(currentOwner(), 20s).value();
  EXPECT_EQ(outcomeOf(lock.unlock(newOwner())), "notOwner");
  EXPECT_EQ(lock.holdCount(), 2);
  lock.unlock().value();
  EXPECT_GT(raw().pttl("ttl11"), 15'000);
  EXPECT_EQ(lock.holdCount(), 1);
}

// A lease that is lost on the way leaves the hold to the watchdog.
TEST_F(LeaseForms, EveryFormOfACallGivesTheHoldItsLease) {
  Client client = connect();
  RLock lock = client.getLock("forms");
  std::stop_source stop;
  const OwnerId owner = newOwner();
  const auto expectLeased = [&](const char* form, OwnerId holder) {
    const std::int64_t left = raw().pttl("forms");
    EXPECT_GT(left, 0) << form;
    EXPECT_LE(left, 20'000) << form;
    EXPECT_EQ(outcomeOf(lock.unlockAsync(holder).wait()), "ok") << form;
  };
  lock.lock(20s);
  expectLeased("lock", currentOwner());
  lock.lockInterruptibly(stop.get_token(), 20s);
  expectLeased("lockInterruptibly", currentOwner());
  EXPECT_TRUE(lock.tryLock(5s, 20s));
  expectLeased("tryLock", currentOwner());
  EXPECT_TRUE(lock.tryLock(stop.get_token(), 5s, 20s));
  expectLeased("tryLock with a stop token", currentOwner());
  lock.lockAsync({.lease = 20s}).get();
  expectLeased("lockAsync", currentOwner());
  lock.lockAsync({.lease = 20s}, owner).get();
  expectLeased("lockAsync of an owner", owner);
  lock.lockAsync(20s).get();
  expectLeased("lockAsync with a lease alone", currentOwner());
  lock.lockAsync(20s, owner).get();
  expectLeased("lockAsync with a lease alone, of an owner", owner);
  EXPECT_TRUE(lock.tryLockAsync({.lease = 20s}, owner).get());
  expectLeased("tryLockAsync of an owner", owner);
  EXPECT_TRUE(lock.tryLockAsync(5s, 20s).get());
  expectLeased("tryLockAsync with a wait", currentOwner());
  EXPECT_TRUE(lock.tryLockAsync(5s, 20s, owner).get());
  expectLeased("tryLockAsync with a wait, of an owner", owner);
  EXPECT_TRUE(lock.tryLockAsync(stop.get_token(), 5s, 20s).get());
  expectLeased("tryLockAsync with a stop token", currentOwner());
  EXPECT_TRUE(lock.tryLockAsync(stop.get_token(), 5s, 20s, owner).get());
  expectLeased("tryLockAsync with a stop token, of an owner", owner);
  lock.lockInterruptiblyAsync(stop.get_token(), 20s).get();
  expectLeased("lockInterruptiblyAsync", currentOwner());
  lock.lockInterruptiblyAsync(stop.get_token(), 20s, owner).get();
  expectLeased("lockInterruptiblyAsync of an owner", owner);
  expectNoKeys();
}

// The object.

TEST_F(LeaseObject, HeldAndReleased) {
  Client client = connect();
  RLock lock = client.getLock("lease");
  Lease lease = lock.acquire({.lease = 10s});
  EXPECT_TRUE(lease.held());
  EXPECT_TRUE(static_cast<bool>(lease));
  EXPECT_EQ(lease.lossReason(), LossReason::none);
  EXPECT_FALSE(lease.lostToken().stop_requested());
  EXPECT_FALSE(lease.token());
  EXPECT_LE(lease.validUntil(), Clock::now() + 10s);
  EXPECT_GT(lease.validUntil(), Clock::now() + 8s);
  EXPECT_FALSE(lock.tryAcquire());
  const std::stop_token token = lease.lostToken();
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_FALSE(token.stop_requested()) << "a release is no loss";
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  expectNoKeys();
}

TEST_F(LeaseObject, AnEmptyLeaseHoldsNothing) {
  Lease lease;
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(lease.validUntil(), Clock::time_point{});
  EXPECT_FALSE(lease.lostToken().stop_possible());
  EXPECT_EQ(lease.lossReason(), LossReason::none);
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
}

TEST_F(LeaseObject, ValidityIsNeverLongerThanOnTheServer) {
  noteSafetyCheck();
  Client client = Client::connect(proxied());
  RLock lock = client.getLock("valid");
  // The server has counted for so long when the grant arrives.
  const auto late = proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::delayReply(50ms));
  for (int i = 0; i < 20; ++i) {
    const auto before = Clock::now();
    Lease lease = lock.acquire({.lease = 5s});
    EXPECT_GT(lease.validUntil(), before + 4990ms);
    const std::int64_t onServer = raw().pttl("valid");
    const auto left = lease.validUntil() - Clock::now();
    EXPECT_LE(wholeMs(left).count(), onServer);
    lease.release();
  }
}

TEST_F(LeaseObject, ValidityBeginsWithTheRequestAndNotWithItsReply) {
  noteSafetyCheck();
  constexpr auto kDelay = 200ms;
  Client client = Client::connect(proxied());
  RLock lock = client.getLock("valid");
  const auto late =
      proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::delayReply(kDelay));
  for (int i = 0; i < 3; ++i) {
    Lease lease = lock.acquire({.lease = 5s});
    // The request was sent before this moment, however long the host stood still.
    const auto latestRequest = Clock::now() - kDelay;
    EXPECT_LE(lease.validUntil(), latestRequest + 5s);
    EXPECT_EQ(lease.release(), ReleaseResult::released);
  }
}

TEST_F(LeaseObject, C2_TheLossIsToldBeforeTheServerGivesTheLockAway) {
  noteSafetyCheck();
  Client client = connect();
  // From this lease on the loss is told as early as it ever is.
  Lease lease = client.getLock("c2").acquire({.lease = 2s});
  const auto validUntil = lease.validUntil();
  std::atomic<Clock::rep> toldAt{0};
  const std::stop_callback callback(lease.lostToken(),
                                    [&] { toldAt = Clock::now().time_since_epoch().count(); });
  // Another client takes the lock the moment it can.
  Client other = connect();
  auto taker = inThread([&] {
    RLock mine = other.getLock("c2");
    mine.lock();
    return Clock::now();
  });
  const auto takenAt = taker.get();
  EXPECT_FALSE(lease.held());
  ASSERT_EVENTUALLY(kLong, toldAt != 0);
  EXPECT_EQ(lease.lossReason(), LossReason::expired);
  const Clock::time_point told{Clock::duration(toldAt.load())};
  EXPECT_LE(told, takenAt);
  EXPECT_LE(told, validUntil);
  EXPECT_LT(validUntil, takenAt);
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_TRUE(raw().exists("c2")) << "a late release has freed another's lock";
}

TEST_F(LeaseObject, ReasonRefusedAfterTheKeyWasDeleted) {
  Client client = connect(kWatchdog);
  Lease lease = client.getLock("reason").acquire();
  raw().del("reason");
  EXPECT_EVENTUALLY(kLong, lease.lossReason() == LossReason::refused);
  EXPECT_FALSE(lease.held());
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_FALSE(raw().exists("reason")) << "the renewal has made the key again";
}

TEST_F(LeaseObject, ReasonRefusedFoundByTheRelease) {
  Client client = connect();
  Lease lease = client.getLock("reason").acquire({.lease = 20s});
  const std::stop_token token = lease.lostToken();
  raw().del("reason");
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_EVENTUALLY(kLong, token.stop_requested());
}

TEST_F(LeaseObject, ReasonForced) {
  Client client = connect();
  RLock lock = client.getLock("reason");
  Lease lease = lock.acquire();
  EXPECT_TRUE(lock.forceUnlock());
  EXPECT_EQ(lease.lossReason(), LossReason::forced);
  EXPECT_FALSE(lease.held());
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
}

TEST_F(LeaseObject, ReasonExpired) {
  Client client = connect();
  Lease lease = client.getLock("reason").acquire({.lease = 100ms});
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  EXPECT_EQ(lease.lossReason(), LossReason::expired);
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
}

TEST_F(LeaseObject, ReasonUnreachable) {
  Options settings = proxied(kWatchdog);
  settings.commandTimeout = 200ms;
  Client client = Client::connect(settings);
  Lease lease = client.getLock("reason").acquire();
  proxy().blackHole();
  const auto before = Clock::now();
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  EXPECT_LT(Clock::now() - before, kWatchdog + scaled(100ms));
  EXPECT_EQ(lease.lossReason(), LossReason::unreachable);
  EXPECT_FALSE(lease.held());
}

TEST_F(LeaseObject, ReasonMaxHold) {
  Client client = connect(kWatchdog);
  const auto before = Clock::now();
  Lease lease = client.getLock("reason").acquire({.maxHold = 1500ms});
  const auto obtained = Clock::now();
  EXPECT_LE(lease.validUntil(), obtained + 1500ms);
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  const auto told = Clock::now();
  EXPECT_GE(told - before, 1200ms) << "it was renewed once and more";
  EXPECT_LT(told - obtained, 1500ms + scaled(200ms));
  EXPECT_EQ(lease.lossReason(), LossReason::maxHold);
  EXPECT_FALSE(lease.held());
  EXPECT_EVENTUALLY(kWatchdog + 500ms, !raw().exists("reason"));
}

TEST_F(LeaseObject, MaxHoldAndLeaseTheSmallerCounts) {
  Client client = connect();
  Lease shortHold = client.getLock("a").acquire({.lease = 20s, .maxHold = 100ms});
  Lease shortLease = client.getLock("b").acquire({.lease = 100ms, .maxHold = 20s});
  EXPECT_LE(shortHold.validUntil(), Clock::now() + 100ms);
  EXPECT_LE(shortLease.validUntil(), Clock::now() + 100ms);
  EXPECT_EVENTUALLY(kLong, shortHold.lossReason() == LossReason::maxHold);
  EXPECT_EVENTUALLY(kLong, shortLease.lossReason() == LossReason::expired);
  EXPECT_EQ(outcomeOf([&] {
              static_cast<void>(client.getLock("c").acquire({.maxHold = Duration::zero()}));
            }),
            "invalidArgument");
}

TEST_F(LeaseObject, ReasonThreadEnded) {
  Client client = connect();
  Lease lease =
      inThread([&] { return client.getLock("reason").acquire({}, currentOwner()); }).get();
  EXPECT_EVENTUALLY(kLong, lease.lossReason() == LossReason::threadEnded);
  EXPECT_FALSE(lease.held());
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
}

TEST_F(LeaseObject, ReasonClientClosed) {
  Client client = connect();
  Lease lease = client.getLock("reason").acquire();
  const std::stop_token token = lease.lostToken();
  client.close(2s);
  EXPECT_FALSE(lease.held());
  EXPECT_TRUE(token.stop_requested());
  EXPECT_EQ(lease.lossReason(), LossReason::clientClosed);
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_FALSE(raw().exists("reason")) << "closing gives holds back";
}

/// Ends a lease of an owner that has taken the lock again since, and says whether it still has it.
bool survivesItsEnd(Client& client, RLock& lock, Lease lease) {
  const OwnerId owner = lease.owner();
  lock.tryLockAsync({}, owner).get();
  const auto before = client.stats().commands;
  lease = Lease();
  // Anything that the lease has sent in the background goes before this.
  const bool held = lock.isHeldByAsync(owner).toFuture().get();
  EXPECT_EQ(client.stats().commands - before, 1U) << "a release was sent";
  return held && lock.getHoldCountAsync(owner).get() == 1;
}

TEST_F(LeaseObject, AHoldThatWasRefusedOrForcedIsNotReleasedAgain) {
  RLOCK_ONE_MASTER_ONLY("counts the commands of one connection");
  Client client = connect(kWatchdog);
  RLock lock = client.getLock("ended");
  Lease forced = lock.acquire({.lease = 20s});
  EXPECT_TRUE(lock.forceUnlock());
  EXPECT_EVENTUALLY(kLong, forced.lossReason() == LossReason::forced);
  EXPECT_TRUE(survivesItsEnd(client, lock, std::move(forced)));
  EXPECT_TRUE(lock.forceUnlock());
  Lease refused = lock.acquire();
  raw().del("ended");
  EXPECT_EVENTUALLY(kLong, refused.lossReason() == LossReason::refused);
  EXPECT_TRUE(survivesItsEnd(client, lock, std::move(refused)));
}

TEST_F(LeaseObject, AHoldThatMayStillBeThereIsReleased) {
  Client client = connect();
  RLock lock = client.getLock("ended");
  Lease lease = lock.acquire({.lease = 2s});
  // Over for this client, and not on the server.
  raw().run({"PEXPIRE", "ended", "120000"});
  ASSERT_EVENTUALLY(kLong, lease.lossReason() == LossReason::expired);
  lease = Lease();
  EXPECT_EVENTUALLY(kLong, !raw().exists("ended"));
}

TEST_F(LeaseObject, StillHeldWithTheOwnerOfAnotherHold) {
  Client client = connect();
  RLock lock = client.getLock("nested");
  Lease outer = lock.acquire();
  Lease inner = lock.acquire({}, outer.owner());
  EXPECT_EQ(onlyEntry("nested").second, "2");
  EXPECT_EQ(inner.release(), ReleaseResult::stillHeld);
  EXPECT_TRUE(outer.held());
  EXPECT_EQ(outer.release(), ReleaseResult::released);
}

TEST_F(LeaseObject, UnknownWhenTheServerDoesNotAnswer) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Options settings = options();
  settings.commandTimeout = 150ms;
  settings.watchdogTimeout = 20s;
  Client client = Client::connect(settings);
  Lease lease = client.getLock("unknown").acquire();
  server().freeze();
  const Stopwatch watch;
  EXPECT_EQ(lease.release(), ReleaseResult::unknown);
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(kLate));
  server().thaw();
  EXPECT_EVENTUALLY(kLong, !raw().exists("unknown")) << "the release goes on in the background";
}

TEST_F(LeaseObject, XCPP5_MoveSwapAndSelfMove) {
  Client client = connect();
  RLock lockA = client.getLock("a");
  RLock lockB = client.getLock("b");
  Lease a = lockA.acquire();
  Lease b = lockB.acquire();
  const OwnerId ownerA = a.owner();
  swap(a, b);
  EXPECT_EQ(b.owner(), ownerA);
  EXPECT_TRUE(a.held());
  EXPECT_TRUE(b.held());
  Lease& same = a;
  a = std::move(same);
  EXPECT_TRUE(a.held());
  a.swap(same);
  EXPECT_TRUE(a.held());
  Lease moved(std::move(a));
  EXPECT_FALSE(a.held());  // NOLINT(bugprone-use-after-move): an empty Lease is defined
  EXPECT_TRUE(moved.held());
  // Assignment gives back what was held before.
  moved = std::move(b);
  EXPECT_TRUE(moved.held());
  EXPECT_EVENTUALLY(kLong, !raw().exists("b"));
  EXPECT_TRUE(raw().exists("a"));
  moved = Lease();
  EXPECT_EVENTUALLY(kLong, !raw().exists("a"));
}

TEST_F(LeaseObject, TheDestructorReleases) {
  Client client = connect();
  RLock lock = client.getLock("scope");
  {
    const Lease lease = lock.acquire();
    EXPECT_TRUE(raw().exists("scope"));
  }
  EXPECT_EVENTUALLY(kLong, !raw().exists("scope"));
  EXPECT_EQ(client.stats().holds, 0U);
}

TEST_F(LeaseObject, XCPP1_TheDestructorNeitherThrowsNorHangsWhenRedisIsDown) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Client client = connect();
  std::optional<Lease> lease = client.getLock("down").acquire();
  std::optional<Lease> unwound = client.getLock("unwound").acquire();
  server().kill();
  const Stopwatch watch;
  lease.reset();
  EXPECT_LT(watch.elapsedMs(), scaled(kLate));
  try {
    const Lease inScope = std::move(*unwound);
    throw std::runtime_error("unwinding");
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "unwinding");
  }
  EXPECT_LT(watch.elapsedMs(), scaled(2 * kLate));
}

TEST_F(LeaseObject, XCPP1_TheDestructorAfterTheLoss) {
  Client client = connect();
  {
    Lease lease = client.getLock("lost").acquire({.lease = 50ms});
    EXPECT_EVENTUALLY(kLong, !raw().exists("lost"));
    rawHold("lost", "foreign:1", 20s);
  }
  // Anything that the destructor has sent is done when this is answered.
  EXPECT_FALSE(client.getLock("lost").tryLock());
  EXPECT_EQ(raw().hgetall("lost"), (std::map<std::string, std::string>{{"foreign:1", "1"}}));
}

TEST_F(LeaseObject, XCPP1_AnUndoneReleaseIsDoneWhenRedisAnswersAgain) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Options settings = options();
  settings.watchdogTimeout = 20s;
  Client client = Client::connect(settings);
  std::optional<Lease> lease = client.getLock("frozen").acquire();
  server().freeze();
  lease.reset();
  server().thaw();
  EXPECT_EVENTUALLY(kLong, !raw().exists("frozen"));
}

TEST_F(LeaseObject, TimedOutAndEmptyWhenNotObtained) {
  Client client = connect();
  rawHold("taken", "foreign:1", 20s);
  RLock lock = client.getLock("taken");
  EXPECT_FALSE(lock.tryAcquire());
  EXPECT_FALSE(lock.tryAcquire({.wait = 1s}));
  const Stopwatch watch;
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.acquire({.wait = 100ms})); }), "timedOut");
  EXPECT_GE(watch.elapsedMs(), 100ms);
}

TEST_F(LeaseObject, LabelsAppearInTheLog) {
  Client client = connect();
  Lease lease = client.getLock("labelled").acquire({.lease = 60ms, .label = "nightly-report"});
  EXPECT_TRUE(log().waitFor("nightly-report", kLong));
}

TEST_F(LeaseObjectSlow, AWatchedLeaseStaysValidAcrossRenewals) {
  Client client = connect(kWatchdog);
  Lease lease = client.getLock("renewed").acquire();
  const auto first = lease.validUntil();
  const auto end = Clock::now() + 3 * kWatchdog;
  bool alwaysHeld = true;
  while (Clock::now() < end) {
    alwaysHeld = alwaysHeld && lease.held();
    std::this_thread::sleep_for(5ms);
  }
  EXPECT_TRUE(alwaysHeld);
  EXPECT_GT(lease.validUntil(), first + kWatchdog);
  EXPECT_GE(client.stats().renewals, 5U);
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  raw().resetStats();
  std::this_thread::sleep_for(kWatchdog);
  EXPECT_EQ(raw().commandCalls("evalsha"), 0) << "a renewal was sent after the release";
  EXPECT_EQ(client.stats().holds, 0U);
  EXPECT_EQ(client.stats().lost, 0U);
}

}  // namespace
}  // namespace rlock::test
