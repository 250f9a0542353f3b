// SPDX-License-Identifier: Apache-2.0

// A Lease belongs to one incarnation of a hold: whatever became of it, it can neither see nor end
// what the same owner has taken since.

#include "integration/group_harness.hpp"

namespace rlock::test {
namespace {

/// How the old Lease goes.
enum class End { released, destroyed, assigned };

class LeaseIncarnation : public LockTest, public ::testing::WithParamInterface<End> {
 protected:
  /// Ends a lost Lease; what its owner has taken since is untouched.
  static void end(Lease lost) {
    switch (GetParam()) {
      case End::released:
        EXPECT_EQ(lost.release(), ReleaseResult::lost);
        return;
      case End::destroyed:
        return;
      case End::assigned:
        lost = Lease();
        return;
    }
  }

  /// The new hold is there, and there once: its release frees the lock.
  void expectUntouched(RLock& lock, Lease& newer) {
    noteSafetyCheck();
    // Any request that the old one has sent is answered before this.
    EXPECT_TRUE(lock.isHeldBy(newer.owner()));
    EXPECT_TRUE(newer.held());
    EXPECT_EQ(newer.lossReason(), LossReason::none);
    EXPECT_FALSE(newer.lostToken().stop_requested());
    EXPECT_FALSE(lock.tryAcquire());
    EXPECT_EQ(newer.release(), ReleaseResult::released);
    EXPECT_FALSE(lock.isLocked());
  }
};

std::string endName(const ::testing::TestParamInfo<End>& info) {
  switch (info.param) {
    case End::released:
      return "released";
    case End::destroyed:
      return "destroyed";
    case End::assigned:
      return "assigned";
  }
  return "unknown";
}

INSTANTIATE_TEST_SUITE_P(Ends,
                         LeaseIncarnation,
                         ::testing::Values(End::released, End::destroyed, End::assigned),
                         endName);

TEST_P(LeaseIncarnation, AnExpiredOneLeavesTheNextAlone) {
  Client client = connect();
  for (RLock lock : {client.getLock("plain"),
                     client.getFairLock("fair"),
                     client.getNonReentrantLock("once"),
                     client.getSimpleLock("simple"),
                     client.getReadWriteLock("rw").writeLock(),
                     RLock(client.getFencedLock("fenced"))}) {
    SCOPED_TRACE(lock.getName());
    const OwnerId owner = newOwner();
    Lease old = lock.acquire({.lease = 100ms}, owner);
    ASSERT_EVENTUALLY(kLong, old.lossReason() == LossReason::expired);
    Lease newer = lock.acquire({.lease = 20s}, owner);
    end(std::move(old));
    expectUntouched(lock, newer);
  }
}

TEST_P(LeaseIncarnation, OneThatIsLostButStillOnTheServerLeavesTheNextAlone) {
  Client client = connect();
  std::vector<RLock> locks{client.getLock("plain"),
                           client.getNonReentrantLock("once"),
                           client.getSimpleLock("simple"),
                           RLock(client.getFencedLock("fenced"))};
  std::vector<Lease> leases;
  // Told 100 ms before the server drops them.
  for (RLock& lock : locks) {
    leases.push_back(lock.acquire({.lease = 2s}));
  }
  for (std::size_t i = 0; i < locks.size(); ++i) {
    SCOPED_TRACE(locks[i].getName());
    Lease& old = leases[i];
    ASSERT_EVENTUALLY(kLong, old.lossReason() == LossReason::expired);
    Lease newer = locks[i].acquire({.lease = 20s}, old.owner());
    if (old.token()) {
      EXPECT_GT(newer.token(), old.token());
    }
    end(std::move(old));
    expectUntouched(locks[i], newer);
  }
}

TEST_P(LeaseIncarnation, ARefusedOneLeavesTheNextAlone) {
  Client client = connect(kWatchdog);
  RLock lock = client.getLock("refused");
  const OwnerId owner = newOwner();
  Lease old = lock.acquire({}, owner);
  raw().del("refused");
  ASSERT_EVENTUALLY(kLong, old.lossReason() == LossReason::refused);
  Lease newer = lock.acquire({.lease = 20s}, owner);
  end(std::move(old));
  expectUntouched(lock, newer);
}

TEST_P(LeaseIncarnation, OneThatOnlyTheNextHasFoundGoneLeavesItAlone) {
  Client client = connect();
  RLock lock = client.getLock("vanished");
  const OwnerId owner = newOwner();
  Lease old = lock.acquire({.lease = 20s}, owner);
  raw().del("vanished");
  Lease newer = lock.acquire({.lease = 20s}, owner);
  EXPECT_EQ(old.lossReason(), LossReason::refused);
  end(std::move(old));
  expectUntouched(lock, newer);
}

TEST_P(LeaseIncarnation, AForcedOneLeavesTheNextAlone) {
  Client client = connect();
  RLock lock = client.getLock("forced");
  const OwnerId owner = newOwner();
  Lease old = lock.acquire({}, owner);
  EXPECT_TRUE(lock.forceUnlock());
  Lease newer = lock.acquire({}, owner);
  EXPECT_EQ(old.lossReason(), LossReason::forced);
  end(std::move(old));
  expectUntouched(lock, newer);
}

TEST_P(LeaseIncarnation, OneWhoseMaxHoldIsOverLeavesTheNextAlone) {
  Client client = connect();
  RLock lock = client.getLock("max");
  const OwnerId owner = newOwner();
  Lease old = lock.acquire({.maxHold = 100ms}, owner);
  ASSERT_EVENTUALLY(kLong, old.lossReason() == LossReason::maxHold);
  Lease newer = lock.acquire({}, owner);
  end(std::move(old));
  expectUntouched(lock, newer);
}

TEST_P(LeaseIncarnation, AnUnreachableOneLeavesTheNextAlone) {
  Options settings = proxied(kWatchdog);
  settings.commandTimeout = 200ms;
  Client client = Client::connect(settings);
  RLock lock = client.getLock("unreachable");
  const OwnerId owner = newOwner();
  Lease old = lock.acquire({}, owner);
  proxy().blackHole();
  ASSERT_EVENTUALLY(kLong, old.lossReason() == LossReason::unreachable);
  proxy().endBlackHole();
  Lease newer = lock.acquire({.lease = 20s}, owner);
  end(std::move(old));
  expectUntouched(lock, newer);
}

TEST_P(LeaseIncarnation, ALostMultiLockLeavesTheNextAlone) {
  Client client = connect(kWatchdog);
  RLock a = client.getLock("a");
  RLock b = client.getLock("b");
  RLock lock = multiLock({a, b});
  const OwnerId owner = newOwner();
  Lease old = lock.acquire({}, owner);
  raw().del("a");
  ASSERT_EVENTUALLY(kLong, old.lossReason() == LossReason::refused);
  Lease newer = lock.acquire({.lease = 20s}, owner);
  end(std::move(old));
  EXPECT_EQ(a.isHeldBy(owner), b.isHeldBy(owner));
  expectUntouched(lock, newer);
  EXPECT_FALSE(b.isLocked());
}

TEST_P(LeaseIncarnation, AReleaseWaitsForTheNextAcquisitionThatIsUnderWayAndLeavesItAlone) {
  Client client = Client::connect(proxied());
  RLock lock = client.getLock("flight");
  const OwnerId owner = newOwner();
  Lease old = lock.acquire({.lease = 100ms}, owner);
  ASSERT_EVENTUALLY(kLong, old.lossReason() == LossReason::expired);
  const auto late =
      proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::delayReply(200ms));
  auto next = lock.acquireAsync({.lease = 20s}, owner).toFuture();
  ASSERT_TRUE(late.waitForHits(1, kLong));
  end(std::move(old));
  Lease newer = next.get();
  proxy().clearRules();
  expectUntouched(lock, newer);
}

class LeaseCount : public LockTest {};

/// An owner that holds a lock gets in, so a refusal says that its hold is gone.
TEST_F(LeaseCount, ARefusedReentryTellsThatTheHoldIsGone) {
  Client client = connect();
  Client other = connect();
  const auto locksOf = [](Client& of) {
    return std::vector<RLock>{of.getLock("plain"),
                              of.getFairLock("fair"),
                              of.getSimpleLock("simple"),
                              of.getReadWriteLock("write").writeLock(),
                              of.getReadWriteLock("read").readLock(),
                              RLock(of.getFencedLock("fenced"))};
  };
  std::vector<RLock> theirs = locksOf(other);
  theirs[4] = other.getReadWriteLock("read").writeLock();
  std::vector<RLock> locks = locksOf(client);
  for (std::size_t i = 0; i < locks.size(); ++i) {
    RLock& lock = locks[i];
    SCOPED_TRACE(lock.getName());
    const OwnerId owner = newOwner();
    Lease gone = lock.acquire({.lease = 1h}, owner);
    raw().del(lock.getName());
    const Lease next = theirs[i].acquire({.lease = 1h});
    EXPECT_TRUE(gone.held());
    EXPECT_FALSE(lock.tryLockAsync(AcquireOptions{.wait = 0ms}, owner).get());
    EXPECT_FALSE(gone.held());
    EXPECT_EQ(gone.lossReason(), LossReason::refused);
    EXPECT_EVENTUALLY(kLong, gone.lostToken().stop_requested());
  }
}

TEST_F(LeaseCount, TwoLeasesOfOneOwnerAreReleasedOnceEach) {
  Client client = connect();
  RLock lock = client.getLock("count");
  const OwnerId owner = newOwner();
  Lease outer = lock.acquire({}, owner);
  Lease inner = lock.acquire({}, owner);
  Lease moved = std::move(inner);
  EXPECT_EQ(moved.release(), ReleaseResult::stillHeld);
  EXPECT_EQ(moved.release(), ReleaseResult::lost);
  EXPECT_EQ(inner.release(), ReleaseResult::lost);  // NOLINT(bugprone-use-after-move): empty
  EXPECT_TRUE(outer.held());
  EXPECT_TRUE(lock.isHeldBy(owner));
  EXPECT_EQ(outer.release(), ReleaseResult::released);
  expectNoKeys();
}

TEST_F(LeaseCount, ALostHoldIsGivenBackHoweverOftenItWasTaken) {
  Client client = connect();
  RLock lock = client.getLock("count");
  const OwnerId owner = newOwner();
  Lease outer = lock.acquire({.lease = 2s}, owner);
  Lease inner = lock.acquire({.lease = 2s}, owner);
  ASSERT_EVENTUALLY(kLong, inner.lossReason() == LossReason::expired);
  EXPECT_EQ(inner.release(), ReleaseResult::lost);
  EXPECT_FALSE(lock.isLocked());
  EXPECT_EQ(outer.release(), ReleaseResult::lost);
}

TEST_F(LeaseCount, AHoldWhoseMaxHoldIsOverIsGivenBack) {
  Options settings = options();
  settings.watchdogTimeout = 30s;
  Client client = Client::connect(settings);
  Lease lease = client.getLock("max").acquire({.maxHold = 100ms});
  EXPECT_EVENTUALLY(kLong, !raw().exists("max"));
  EXPECT_EQ(lease.lossReason(), LossReason::maxHold);
}

TEST_F(LeaseCount, AnUnreachableHoldIsGivenBackWhenTheServerAnswersAgain) {
  Options settings = proxied(kWatchdog);
  settings.commandTimeout = 200ms;
  settings.reconnectDelayMax = 50ms;
  Client client = Client::connect(settings);
  Lease lease = client.getLock("back").acquire();
  // The renewals are executed, but their answers do not come.
  const auto mute = proxy().addRule(running(lua::lock_renew), TcpProxy::Action::swallowReply());
  ASSERT_EVENTUALLY(kLong, lease.lossReason() == LossReason::unreachable);
  EXPECT_EVENTUALLY(kWatchdog / 2, !raw().exists("back"));
}

TEST_F(LeaseCount, AForcedReleaseThatRacesWithAReentryTellsTheRightHandle) {
  Client client = connect();
  RLock lock = client.getLock("race");
  RLock other = client.getLock("other");
  for (int i = 0; i < 60; ++i) {
    const OwnerId owner = newOwner();
    Lease old = lock.acquire({.lease = 20s}, owner);
    // The loop thread has something else to do, so that the loss is told late.
    auto free = std::make_shared<std::promise<void>>();
    std::promise<void> busy;
    other.isLockedAsync().start([&busy, done = free->get_future().share()](const Result<bool>&) {
      busy.set_value();
      done.wait_for(20ms);
    });
    busy.get_future().wait();
    std::atomic<int> ready{0};
    auto force = inThread([&] {
      for (++ready; ready < 2;) {
      }
      return lock.forceUnlock();
    });
    for (++ready; ready < 2;) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(i % 20 * 10));
    Lease newer = lock.acquire({.lease = 20s}, owner);
    EXPECT_TRUE(force.get());
    free->set_value();
    const bool there = lock.isHeldBy(owner);
    if (there && newer.lossReason() == LossReason::none &&
        raw().run({"HGET", "race", ownerField(client, owner)}).string() == "1") {
      // The re-entry may have found it gone before the forced release was booked.
      EXPECT_NE(old.lossReason(), LossReason::none) << i;
      EXPECT_FALSE(old.held()) << i;
    }
    if (there) {
      EXPECT_EQ(newer.lossReason(), LossReason::none) << i;
    } else {
      EXPECT_EVENTUALLY(kLong, newer.lossReason() == LossReason::forced);
    }
    newer.release();
    old.release();
    EXPECT_FALSE(raw().exists("race")) << i;
  }
}

// The grant was executed before the forced release, and is heard of after it.
TEST_F(LeaseCount, AForcedReleaseThatOvertakesTheAnswerToAGrantIsTold) {
  Client client = Client::connect(proxied());
  Client other = connect();
  const Lease listens = client.getLock("warm").acquire();
  ASSERT_EVENTUALLY(kLong, raw().numsub("rlock_client:" + client.id()) == 1);
  RLock lock = client.getLock("overtaken");
  const OwnerId owner = newOwner();
  rawHold("foreign", "other:1", 60s);
  const auto looks = proxy().addRule(TcpProxy::script("foreign"), TcpProxy::Action::pass());
  auto waiting = client.getLock("foreign").lockAsync({}, newOwner()).toFuture();
  // Before it subscribes, and after it has.
  ASSERT_TRUE(looks.waitForHits(2, kLong));
  TcpProxy::RuleOptions once;
  once.limit = 1;
  for (const bool reentry : {false, true}) {
    SCOPED_TRACE(reentry);
    std::optional<Lease> outer;
    if (reentry) {
      outer = lock.acquire({.lease = 20s}, owner);
    }
    const auto late =
        proxy().addRule(TcpProxy::script("overtaken"), TcpProxy::Action::stallReply(), once);
    std::optional<Lease> lease;
    auto acquiring = inThread([&] { lease = lock.acquire({.lease = 20s}, owner); });
    ASSERT_TRUE(late.waitForHits(1, kLong));
    EXPECT_TRUE(other.getLock("overtaken").forceUnlock());
    // A later message on the same connection was heard, so the one about the force was as well.
    const std::size_t before = looks.hits();
    raw().publish(channelOf("foreign"), "0");
    ASSERT_TRUE(looks.waitForHits(before + 1, kLong));
    proxy().releaseStalled();
    acquiring.get();
    EXPECT_EVENTUALLY(kLong, lease->lossReason() == LossReason::forced);
    EXPECT_EVENTUALLY(kLong, !outer || outer->lossReason() == LossReason::forced);
    EXPECT_EQ(lease->release(), ReleaseResult::lost);
  }
  rawRelease("foreign");
  waiting.get();
}

class ReadLeases : public LockTest {
 protected:
  /// How many holds of one owner the server counts that have not expired.
  [[nodiscard]] int countOf(RLock& read, OwnerId owner) {
    return runBy(Face::blocking, read.getHoldCountAsync(owner)).value();
  }
};

TEST_F(ReadLeases, AnExpiredOuterOneDoesNotReleaseTheInnerOne) {
  std::atomic<int> told{0};
  Options settings = options();
  settings.onLost = [&](const LostHold& hold) {
    told += hold.reason == LossReason::expired ? 1 : 0;
  };
  Client client = Client::connect(settings);
  RLock read = client.getReadWriteLock("rw").readLock();
  RLock write = client.getReadWriteLock("rw").writeLock();
  const OwnerId owner = newOwner();
  Lease outer = read.acquire({.lease = 200ms}, owner);
  Lease inner = read.acquire({.lease = 60s}, owner);
  EXPECT_LT(outer.validUntil(), inner.validUntil());
  ASSERT_EVENTUALLY(kLong, outer.lossReason() == LossReason::expired);
  EXPECT_TRUE(outer.lostToken().stop_requested() ||
              eventually(kLong, [&] { return outer.lostToken().stop_requested(); }));
  EXPECT_EQ(outer.release(), ReleaseResult::lost);
  EXPECT_TRUE(inner.held());
  EXPECT_EQ(countOf(read, owner), 1);
  EXPECT_FALSE(write.tryAcquire());
  EXPECT_GT(raw().pttl("rw"), 50'000);
  EXPECT_EQ(inner.release(), ReleaseResult::released);
  EXPECT_TRUE(write.tryAcquire());
  EXPECT_EVENTUALLY(kLong, told == 1);
}

TEST_F(ReadLeases, TheDestructorOfALostOneDoesNotReleaseTheOthers) {
  Client client = connect();
  RLock read = client.getReadWriteLock("rw").readLock();
  const OwnerId owner = newOwner();
  Lease first = read.acquire({.lease = 60s}, owner);
  std::optional<Lease> second = read.acquire({.lease = 100ms}, owner);
  Lease third = read.acquire({.lease = 60s}, owner);
  ASSERT_EVENTUALLY(kLong, second->lossReason() == LossReason::expired);
  second.reset();
  Lease fourth = read.acquire({.lease = 60s}, owner);
  EXPECT_EQ(countOf(read, owner), 3);
  EXPECT_TRUE(first.held() && third.held() && fourth.held());
  EXPECT_EQ(first.release(), ReleaseResult::stillHeld);
  EXPECT_EQ(fourth.release(), ReleaseResult::stillHeld);
  EXPECT_EQ(third.release(), ReleaseResult::released);
  expectNoKeys();
}

TEST_F(ReadLeases, ReleasingOneLeavesTheOthersTheirsInWhateverOrder) {
  Client client = connect();
  RLock read = client.getReadWriteLock("rw").readLock();
  const OwnerId owner = newOwner();
  Lease brief = read.acquire({.lease = 5s}, owner);
  Lease longer = read.acquire({.lease = 60s}, owner);
  Lease medium = read.acquire({.lease = 30s}, owner);
  const auto until = longer.validUntil();
  const Stopwatch release;
  EXPECT_EQ(brief.release(), ReleaseResult::stillHeld);
  const auto took = release.elapsed();
  // The reply says in whole milliseconds how long the lease lasts when the script runs, and the
  // client counts it from when it sent the release: a slow way there is taken off.
  EXPECT_GE(longer.validUntil(), until - took - 5ms);
  EXPECT_GT(raw().pttl("rw"), 50'000);
  EXPECT_EQ(longer.release(), ReleaseResult::stillHeld);
  EXPECT_TRUE(medium.held());
  EXPECT_GT(raw().pttl("rw"), 20'000);
  EXPECT_LE(raw().pttl("rw"), 30'000);
  EXPECT_EQ(medium.release(), ReleaseResult::released);
  expectNoKeys();
}

TEST_F(ReadLeases, ALostReplyToAReleaseTakesNoMoreThanItsOwnHold) {
  const auto swallowed = TcpProxy::Action::swallowReplyAndCut();
  for (const auto& fault : {swallowed, TcpProxy::Action::cutBeforeForward()}) {
    for (const bool longestGoes : {true, false}) {
      Client client = Client::connect(proxied());
      RLock read = client.getReadWriteLock("rw").readLock();
      const OwnerId owner = newOwner();
      { Lease warm = read.acquire({}, owner); }
      ASSERT_EVENTUALLY(kLong, raw().keys().empty());
      Lease outer = read.acquire({.lease = longestGoes ? 60s : 20s}, owner);
      Lease inner = read.acquire({.lease = longestGoes ? 20s : 60s}, owner);
      TcpProxy::RuleOptions once;
      once.ignoreErrorReplies = true;
      once.limit = 1;
      const auto rule = proxy().addRule(running(lua::rw_read_release), fault, once);
      EXPECT_EQ(outer.release(), ReleaseResult::stillHeld);
      EXPECT_EQ(countOf(read, owner), 1);
      if (longestGoes) {
        EXPECT_LE(raw().pttl("rw"), 20'000) << "a writer sleeps until then";
      } else {
        EXPECT_GT(raw().pttl("rw"), 50'000) << "the inner one's lease is gone";
      }
      EXPECT_TRUE(inner.held());
      EXPECT_EQ(inner.release(), ReleaseResult::released);
      expectNoKeys();
    }
  }
}

/// The key of a hold is gone that should be there: the release of another says so, gives its lease
/// to nobody, and leaves the others where they are.
TEST_F(ReadLeases, AReleaseFindsAnotherThatIsGone) {
  Client client = connect(30s);
  const ReadWriteLock both = client.getReadWriteLock("rw");
  RLock read = both.readLock();
  const OwnerId owner = newOwner();
  const std::string keys = "{rw}:" + ownerField(client, owner) + ":rwlock_timeout:";
  Lease write = both.writeLock().acquire({.lease = 30s}, owner);
  Lease first = read.acquire({.lease = 30s}, owner);
  Lease watched = read.acquire({}, owner);
  Lease inner = read.acquire({.lease = 1s}, owner);
  raw().del(keys + "2");
  raw().run({"PEXPIRE", "rw", "20000"});
  EXPECT_EQ(inner.release(), ReleaseResult::stillHeld);
  EXPECT_LE(raw().pttl("rw"), 20'000);
  EXPECT_EVENTUALLY(kLong, watched.lossReason() == LossReason::refused);
  EXPECT_EQ(countOf(read, owner), 1);
  EXPECT_EQ(watched.release(), ReleaseResult::lost);
  EXPECT_TRUE(first.held());
  EXPECT_TRUE(raw().exists(keys + "1"));
  EXPECT_EQ(first.release(), ReleaseResult::released);
  EXPECT_EQ(write.release(), ReleaseResult::released);
  expectNoKeys();
}

TEST_F(ReadLeases, AWatchedOneKeepsTheOthersOfItsOwner) {
  Client client = connect(kWatchdog);
  RLock read = client.getReadWriteLock("rw").readLock();
  const OwnerId owner = newOwner();
  Lease outer = read.acquire({}, owner);
  Lease inner = read.acquire({.lease = kWatchdog}, owner);
  EXPECT_FALSE(eventually(kWatchdog + kWatchdog / 2, [&] { return !inner.held(); }));
  EXPECT_TRUE(outer.held());
  EXPECT_EQ(countOf(read, owner), 2);
  EXPECT_EQ(outer.release(), ReleaseResult::stillHeld);
  EXPECT_TRUE(inner.held());
  EXPECT_EQ(inner.release(), ReleaseResult::released);
  expectNoKeys();
}

TEST_F(ReadLeases, EachHasAMaxHoldOfItsOwn) {
  Client client = connect();
  RLock read = client.getReadWriteLock("rw").readLock();
  const OwnerId owner = newOwner();
  Lease bounded = read.acquire({.maxHold = 100ms}, owner);
  Lease other = read.acquire({}, owner);
  ASSERT_EVENTUALLY(kLong, bounded.lossReason() == LossReason::maxHold);
  EXPECT_EVENTUALLY(kLong, countOf(read, owner) == 1);
  EXPECT_TRUE(other.held());
  EXPECT_EQ(other.release(), ReleaseResult::released);
  expectNoKeys();
}

TEST_F(ReadLeases, AForcedReleaseTellsEachOfThem) {
  Client client = connect();
  RLock read = client.getReadWriteLock("rw").readLock();
  const OwnerId owner = newOwner();
  Lease outer = read.acquire({}, owner);
  Lease inner = read.acquire({.lease = 60s}, owner);
  EXPECT_TRUE(read.forceUnlock());
  EXPECT_EQ(outer.lossReason(), LossReason::forced);
  EXPECT_EQ(inner.lossReason(), LossReason::forced);
  Lease newer = read.acquire({}, owner);
  EXPECT_EQ(outer.release(), ReleaseResult::lost);
  EXPECT_EQ(inner.release(), ReleaseResult::lost);
  EXPECT_EQ(newer.release(), ReleaseResult::released);
  EXPECT_FALSE(read.isLocked());
}

class LostGroup : public GroupTest {};

TEST_F(LostGroup, ALostRedLockIsNotRenewedAndGivesBackWhatIsLeft) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(3, kWatchdog);
  RLock lock = redLock(locks("r"));
  Lease lease = lock.acquire();
  ASSERT_EVENTUALLY(kLong, countWith("r") == 3);
  stopNode(0);
  stopNode(1);
  ASSERT_EVENTUALLY(kLong, lease.lossReason() == LossReason::unreachable);
  outlives(2, "r");
  EXPECT_EVENTUALLY(kLong, !existsOn(2, "r"));
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
}

TEST_F(LostGroup, ALostMultiLockGivesBackTheOtherMembers) {
  Client client = connect(kWatchdog);
  Lease lease = multiLock({client.getLock("a"), client.getLock("b")}).acquire();
  raw().del("a");
  ASSERT_EVENTUALLY(kLong, lease.lossReason() == LossReason::refused);
  // The other one would be gone with its lease, too.
  raw().run({"PEXPIRE", "b", "120000"});
  EXPECT_EVENTUALLY(kLong, !raw().exists("b"));
}

TEST_F(LostGroup, ALostGroupLeavesWhatItsOwnerTookOfAMemberByItself) {
  Client client = connect(kWatchdog);
  RLock b = client.getLock("b");
  const OwnerId owner = newOwner();
  Lease own = b.acquire({}, owner);
  Lease lease = multiLock({client.getLock("a"), b}).acquire({}, owner);
  raw().del("a");
  ASSERT_EVENTUALLY(kLong, lease.lossReason() == LossReason::refused);
  EXPECT_EVENTUALLY(kLong, raw().run({"HGET", "b", ownerField(client, owner)}).string() == "1");
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_TRUE(own.held());
  EXPECT_EQ(own.release(), ReleaseResult::released);
}

TEST_F(LostGroup, GroupsCheckAllArgumentsThemselvesAndFirst) {
  Client client = connect();
  const std::vector<RLock> members{client.getLock("a"), client.getLock("b")};
  raw().resetStats();
  for (RLock lock : {multiLock(members), redLock(members)}) {
    for (AcquireOptions bad : {AcquireOptions{.lease = 0ms},
                               AcquireOptions{.lease = std::chrono::hours(24 * 366)},
                               AcquireOptions{.maxHold = Duration::zero()},
                               AcquireOptions{.label = std::string(257, 'x')}}) {
      EXPECT_EQ(outcomeOf(lock.acquireAsync(bad).wait()), "invalidArgument");
      EXPECT_EQ(outcomeOf(lock.tryAcquireAsync(bad).wait()), "invalidArgument");
      std::promise<std::string> told;
      lock.lockAsync(bad, newOwner()).start([&](const Result<void>& result) {
        told.set_value(outcomeOf(result));
      });
      EXPECT_EQ(told.get_future().get(), "invalidArgument");
    }
  }
  EXPECT_EQ(raw().commandCalls("evalsha") + raw().commandCalls("eval"), 0);
}

TEST_F(LostGroup, TheLongestMaxHoldsAreNoneAtAll) {
  Client client = connect();
  RLock lock = redLock({client.getLock("a"), client.getLock("b"), client.getLock("c")});
  for (const Duration maxHold : {Duration(std::chrono::nanoseconds::max() - 1ns),
                                 Duration(std::chrono::hours(24 * 365 * 292)),
                                 Duration::max()}) {
    Lease lease = lock.acquire({.maxHold = maxHold});
    EXPECT_TRUE(lease.held());
    EXPECT_EQ(lease.release(), ReleaseResult::released);
  }
}

}  // namespace
}  // namespace rlock::test
