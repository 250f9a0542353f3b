// SPDX-License-Identifier: Apache-2.0

// Locks that are held while a majority of independent nodes says so.

#include "integration/group_harness.hpp"

#include <algorithm>

namespace rlock::test {
namespace {

class RedLockFaces : public GroupFaceTest {};
class RedLock : public GroupTest {
 protected:
  /// Takes the lock on some nodes as another program's client would.
  void foreignHold(std::initializer_list<std::size_t> nodes, const std::string& name) {
    for (const std::size_t i : nodes) {
      node(i).raw->run({"HINCRBY", memberName(i, name), "foreign:1", "1"});
      node(i).raw->run({"PEXPIRE", memberName(i, name), "60000"});
    }
  }
  void dropOn(std::size_t i, const std::string& name) {
    node(i).raw->run({"DEL", memberName(i, name)});
  }
  /// Waits until all members are held and the lock knows it: a majority is enough for its answer,
  /// and what a node has granted is booked when its reply has been read. Replies are read in order,
  /// so that the answer to a later question says so.
  void awaitAllMembers() {
    ASSERT_EVENTUALLY(kLong, countWith("r") == nodeCount());
    for (std::size_t i = 0; i < nodeCount(); ++i) {
      // Answered on the loop thread, so behind the grant, which may be booked there.
      static_cast<void>(node(i).client->getLock("another").isLockedAsync().toFuture().get());
    }
  }

  [[nodiscard]] static AcquireOptions leased(Duration lease) {
    AcquireOptions options;
    options.lease = lease;
    return options;
  }
  /// The scripts are known everywhere from here on.
  void warm(RLock lock) {
    lock.lock();
    // A minority's grants may still be on their way when a majority has granted or released.
    ASSERT_NO_FATAL_FAILURE(awaitAllMembers());
    lock.unlock();
    ASSERT_EVENTUALLY(kLong, countWith("r") == 0);
  }
};
class RedLockSlow : public RedLock {};

// ---- By each face

TEST_P(RedLockFaces, AMajorityIsHeldAndGivenBack) {
  startNodes(3);
  FaceLock lock = by(redLock(locks("r")));
  ASSERT_EQ(outcomeOf(lock.lock(currentOwner(), 60s)), "ok");
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  EXPECT_TRUE(lock.isLocked());
  EXPECT_GE(countWith("r"), 2U);
  EXPECT_EQ(inThread([&] {
              return answerOf(by(redLock(locks("r"))).tryLock(currentOwner(), {}, 60s));
            }).get(),
            "false");
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
  EXPECT_FALSE(lock.isLocked());
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
}

TEST_P(RedLockFaces, Reentrancy) {
  startNodes(3);
  FaceLock lock = by(redLock(locks("r")));
  lock.lock(currentOwner(), 60s).value();
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), {}, 60s)), "true");
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

TEST_P(RedLockFaces, AMinorityThatIsMissingDoesNotMatter) {
  startNodes(3);
  node(0).raw->run({"SET", memberName(0, "r"), "data"});
  FaceLock lock = by(redLock(locks("r")));
  ASSERT_EQ(answerOf(lock.tryLock(currentOwner(), {}, 10s)), "true");
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
}

TEST_P(RedLockFaces, NoQuorum) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(3);
  stopNode(0);
  stopNode(2);
  FaceLock lock = by(redLock(locks("r")));
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), {}, 2s)), "noQuorum");
  const Stopwatch watch;
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), 600ms, 2s)), "noQuorum");
  EXPECT_LT(watch.elapsedMs(), 600ms + scaled(150ms));
  outlives(1, "r");
  EXPECT_EVENTUALLY(kLong, !existsOn(1, "r"));
}

INSTANTIATE_TEST_SUITE_P(Faces, RedLockFaces, ::testing::ValuesIn(kFaces), faceName);

// ---- Conformance

TEST_F(RedLockSlow, RL01_RL02_RL03_LeasesOfEveryUnitProtectACounter) {
  startNodes(2);
  std::vector<RLock> members;
  for (int i = 0; i < 7; ++i) {
    members.push_back(node(i < 2 ? 0 : 1).client->getLock("lock" + std::to_string(i)));
  }
  for (const Duration lease : {Duration(2000ms), Duration(2s), Duration(std::chrono::minutes(1))}) {
    Resource resource;
    std::vector<std::future<std::string>> threads;
    for (int t = 0; t < 10; ++t) {
      threads.push_back(inThread([&] {
        RLock lock = redLock(members);
        return outcomeOf([&] {
          for (int round = 0; round < 3; ++round) {
            lock.lock(lease);
            resource.use(10ms);
            lock.unlock();
          }
        });
      }));
    }
    for (auto& thread : threads) {
      EXPECT_EQ(thread.get(), "ok");
    }
    EXPECT_EQ(resource.value(), 30);
    EXPECT_EQ(resource.overlaps(), 0);
  }
}

TEST_F(RedLockSlow, RL04_TryLockWithALease) {
  startNodes(2);
  std::vector<RLock> members{node(0).client->getLock("lock0"),
                             node(0).client->getLock("lock1"),
                             node(1).client->getLock("lock2")};
  Resource resource;
  std::vector<std::future<std::string>> threads;
  for (int t = 0; t < 10; ++t) {
    threads.push_back(inThread([&] {
      RLock lock = redLock(members);
      return outcomeOf([&] {
        for (int round = 0; round < 3;) {
          if (lock.tryLock(4s, 2s)) {
            ++round;
            resource.use(10ms);
            lock.unlock();
          }
        }
      });
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(resource.value(), 30);
  EXPECT_EQ(resource.overlaps(), 0);
}

TEST_F(RedLock, RL05_AMinorityDoesNotWin) {
  startNodes(2);
  RLock first = node(0).client->getLock("lock1");
  RLock second = node(0).client->getLock("lock2");
  RLock third = node(1).client->getLock("lock3");
  inThread([&] {
    second.lock(30s);
    third.lock(30s);
  }).get();
  std::stop_source stop;
  auto blocked = inThread([&] {
    return outcomeOf([&] { redLock({first, second, third}).lockInterruptibly(stop.get_token()); });
  });
  EXPECT_FALSE(redLock({first, second, third}).tryLock(0ms, 60s));
  EXPECT_FALSE(ready(blocked, 100ms));
  stop.request_stop();
  EXPECT_EQ(blocked.get(), "cancelled");
  EXPECT_EVENTUALLY(kLong, !first.isLocked());
}

TEST_F(RedLock, RL07_ProgressWithOneMemberTaken) {
  startNodes(2);
  for (std::size_t taken = 0; taken < 3; ++taken) {
    const std::string prefix = std::to_string(taken);
    std::vector<RLock> members{node(0).client->getLock(prefix + "lock1"),
                               node(0).client->getLock(prefix + "lock2"),
                               node(1).client->getLock(prefix + "lock3")};
    inThread([&] { members[taken].lock(30s); }).get();
    std::promise<void> held;
    auto holder = inThread([&] {
      RLock lock = redLock(members);
      lock.lock();
      held.set_value();
      std::this_thread::sleep_for(200ms);
      return outcomeOf([&] { lock.unlock(); });
    });
    held.get_future().wait();
    members[taken].forceUnlock();
    RLock lock = redLock(members);
    lock.lock();
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_EQ(holder.get(), "ok");
  }
}

TEST_F(RedLock, RL08_ANodeIsDown) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(2);
  std::vector<RLock> members{node(0).client->getLock("lock1"),
                             node(0).client->getLock("lock2"),
                             node(1).client->getLock("lock3")};
  stopNode(1);
  std::promise<void> held;
  auto holder = inThread([&] {
    RLock lock = redLock(members);
    lock.lock();
    held.set_value();
    std::this_thread::sleep_for(200ms);
    return outcomeOf([&] { lock.unlock(); });
  });
  held.get_future().wait();
  RLock lock = redLock(members);
  lock.lock();
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EQ(holder.get(), "ok");
}

// ---- Five nodes

TEST_F(RedLock, XML6_TwoOfFiveDownIsAMajority) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(5);
  stopNode(1);
  stopNode(3);
  RLock lock = redLock(locks("r"));
  const Stopwatch watch;
  ASSERT_TRUE(lock.tryLock(0ms, 60s));
  EXPECT_LT(watch.elapsedMs(), scaled(500ms)) << "nobody waits for the dead";
  EXPECT_EQ(countWith("r"), 3U);
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

TEST_F(RedLock, XML6_ThreeOfFiveDownIsNone) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(5);
  stopNode(0);
  stopNode(1);
  stopNode(3);
  RLock lock = redLock(locks("r"));
  const Stopwatch watch;
  EXPECT_EQ(answerOf([&] { return lock.tryLock(0ms, 2s); }), "noQuorum");
  EXPECT_LT(watch.elapsedMs(), scaled(600ms)) << "a node is asked for a tenth of the lease";
  outlives(2, "r");
  outlives(4, "r");
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
  EXPECT_EQ(answerOf([&] { return lock.isLocked(); }), "noQuorum");
}

TEST_F(RedLock, XML6_ABlackHoleDoesNotSlowTheMajority) {
  startNodes(5);
  RLock lock = redLock(locks("r"));
  warm(lock);
  node(2).proxy().blackHole();
  for (int round = 0; round < 3; ++round) {
    const Stopwatch watch;
    ASSERT_TRUE(lock.tryLock(0ms, 10s));
    lock.unlock();
    EXPECT_LT(watch.elapsedMs(), scaled(400ms));
  }
}

TEST_F(RedLock, XML6_ABlackHoleThatIsNeededCostsItsLimit) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  warm(lock);
  foreignHold({0}, "r");
  node(2).proxy().blackHole();
  const Stopwatch watch;
  EXPECT_EQ(answerOf([&] { return lock.tryLock(0ms, 2s); }), "false")
      << "two of three could be asked";
  EXPECT_LT(watch.elapsedMs(), 200ms + 200ms + scaled(200ms));
}

TEST_F(RedLock, XML6_ARestartInsideTheLeaseGivesNoSecondMajority) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(5);
  // One of the holder's nodes is missing; one of those it has forgets. Others get two at most.
  stopNode(4);
  RLock lock = redLock(locks("r"));
  ASSERT_TRUE(lock.tryLock(0ms, 30s));
  ASSERT_EVENTUALLY(kLong, countWith("r") == 4);
  restartNode(4);
  stopNode(0);
  restartNode(0);
  ASSERT_FALSE(existsOn(0, "r"));
  RLock other = redLock(otherLocks("r"));
  EXPECT_FALSE(inThread([&] { return other.tryLock(500ms, 30s); }).get());
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_TRUE(inThread([&] { return other.tryLock(5s, 10s); }).get());
}

// ---- Lost and late answers

TEST_F(RedLock, ALateGrantOfAFailedAttemptIsGivenBack) {
  startNodes(3, kLongWatchdog, scaled(10s));
  RLock lock = redLock(locks("r"));
  warm(lock);
  foreignHold({0}, "r");
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto late =
      node(2).proxy().addRule(TcpProxy::script("r"), TcpProxy::Action::stallReply(), once);
  EXPECT_EQ(answerOf([&] { return lock.tryLock(0ms, 60s); }), "false");
  EXPECT_TRUE(late.waitForHits(1, kLong));
  EXPECT_FALSE(existsOn(1, "r"));
  EXPECT_TRUE(existsOn(2, "r")) << "granted, but nobody knows yet";
  node(2).proxy().releaseStalled();
  EXPECT_EVENTUALLY(kLong, !existsOn(2, "r"));
}

TEST_F(RedLock, AGrantWhoseAnswerIsLostIsGivenBack) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  warm(lock);
  foreignHold({0}, "r");
  const auto lost =
      node(2).proxy().addRule(TcpProxy::script("r"), TcpProxy::Action::swallowReplyAndCut());
  // Without it the outcome would be certain before the last node is asked.
  node(1).proxy().blackHole();
  EXPECT_NE(answerOf([&] { return lock.tryLock(0ms, 5s); }), "true");
  EXPECT_TRUE(lost.waitForHits(1, kLong));
  outlives(2, "r");
  node(2).proxy().clearRules();
  EXPECT_EVENTUALLY(kLong, !existsOn(2, "r"));
}

TEST_F(RedLock, ALateGrantOfASuccessfulAttemptJoinsTheHold) {
  startNodes(3, kLongWatchdog, scaled(10s));
  RLock lock = redLock(locks("r"));
  warm(lock);
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto late =
      node(2).proxy().addRule(TcpProxy::script("r"), TcpProxy::Action::stallRequest(), once);
  ASSERT_TRUE(lock.tryLock(0ms, 60s));
  EXPECT_TRUE(late.waitForHits(1, kLong));
  EXPECT_FALSE(existsOn(2, "r"));
  node(2).proxy().releaseStalled();
  EXPECT_EVENTUALLY(kLong, existsOn(2, "r"));
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

TEST_F(RedLock, AnUnlockBeforeTheLastGrantLeavesNothing) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  warm(lock);
  node(2).proxy().setDelay(TcpProxy::Direction::toServer, 150ms);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(lock.tryLock(2s, 60s));
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  }
  node(2).proxy().heal();
  std::this_thread::sleep_for(300ms);
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

// ---- The hold

TEST_F(RedLock, ValidityIsTheLeaseLessDrift) {
  startNodes(3);
  const auto before = Clock::now();
  Lease lease = redLock(locks("r")).acquire(leased(10s));
  const auto after = Clock::now();
  EXPECT_GE(lease.validUntil(), before + 10s - 102ms - 12ms);
  EXPECT_LE(lease.validUntil(), after + 10s - 102ms);
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_FALSE(lease.held());
}

TEST_F(RedLock, ALeaseThatIsTooShortForTheNetworkIsNotHandedOut) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  warm(lock);
  for (std::size_t i = 0; i < 3; ++i) {
    node(i).proxy().setDelay(TcpProxy::Direction::toClient, 9ms);
  }
  EXPECT_NE(answerOf([&] { return lock.tryLock(0ms, 10ms); }), "true");
}

TEST_F(RedLock, AMinorityThatIsLostIsNoLoss) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  Lease lease = lock.acquire(leased(30s));
  ASSERT_NO_FATAL_FAILURE(awaitAllMembers());
  dropOn(1, "r");
  EXPECT_TRUE(lease.held());
  EXPECT_TRUE(lock.isHeldBy(lease.owner()));
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

TEST_F(RedLock, AMajorityThatIsLostIsTheLoss) {
  startNodes(3, kWatchdog);
  RLock lock = redLock(locks("r"));
  Lease lease = lock.acquire();
  ASSERT_NO_FATAL_FAILURE(awaitAllMembers());
  std::atomic<int> told{0};
  const std::stop_callback callback(lease.lostToken(), [&] { ++told; });
  // Taken by another, so that they cannot be had again.
  for (const std::size_t i : {0U, 1U}) {
    node(i).raw->run({"DEL", memberName(i, "r")});
    foreignHold({i}, "r");
  }
  EXPECT_EVENTUALLY(kLong, told == 1);
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(lease.lossReason(), LossReason::refused);
  EXPECT_EQ(outcomeOf(runBy(Face::future, lock.unlockAsync(lease.owner()))), "notOwner");
  outlives(2, "r");
  EXPECT_EVENTUALLY(kLong, !existsOn(2, "r")) << "what is left is released";
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
}

TEST_F(RedLock, C2_TheLossIsToldBeforeTheEndOfTheValidity) {
  noteSafetyCheck();
  // From this lease on the loss is told as early as it ever is.
  startNodes(3, 2 * kWatchdog);
  Lease lease = redLock(locks("r")).acquire();
  std::atomic<Clock::rep> toldAt{0};
  const std::stop_callback callback(lease.lostToken(),
                                    [&] { toldAt = Clock::now().time_since_epoch().count(); });
  node(0).proxy().blackHole();
  node(1).proxy().blackHole();
  auto until = lease.validUntil();
  ASSERT_EVENTUALLY(kLong, [&] {
    until = std::max(until, lease.validUntil());
    return lease.lostToken().stop_requested();
  }());
  ASSERT_EVENTUALLY(kLong, toldAt != 0);
  EXPECT_LE(Clock::time_point(Clock::duration(toldAt.load())), until);
  EXPECT_EQ(lease.lossReason(), LossReason::unreachable);
  EXPECT_FALSE(lease.held());
}

TEST_F(RedLock, AFixedLeaseEnds) {
  startNodes(3, kWatchdog);
  RLock lock = redLock(locks("r"));
  Lease lease = lock.acquire(leased(400ms));
  const auto until = lease.validUntil();
  ASSERT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  EXPECT_GT(Clock::now(), until - 100ms);
  EXPECT_EQ(lease.lossReason(), LossReason::expired);
  AcquireOptions options;
  options.maxHold = 200ms;
  Lease other = lock.acquire(std::move(options));
  ASSERT_EVENTUALLY(kLong, other.lostToken().stop_requested());
  EXPECT_EQ(other.lossReason(), LossReason::maxHold);
}

TEST_F(RedLock, TheWatchdogKeepsItAndFindsNodesThatComeBack) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(3);
  stopNode(2);
  RLock lock = redLock(locks("r"));
  Lease lease = lock.acquire();
  EXPECT_EQ(countWith("r"), 2U);
  std::this_thread::sleep_for(kWatchdog * 3 / 2);
  EXPECT_TRUE(lease.held());
  restartNode(2);
  EXPECT_EVENTUALLY(kLong, existsOn(2, "r")) << "obtained while the hold lasts";
  // Now another may go.
  stopNode(0);
  std::this_thread::sleep_for(kWatchdog * 3 / 2);
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

TEST_F(RedLock, ARepairOfAFixedLeaseDoesNotOutlastIt) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(3);
  RLock lock = redLock(locks("r"));
  Lease lease = lock.acquire(leased(2s));
  ASSERT_NO_FATAL_FAILURE(awaitAllMembers());
  stopNode(1);
  restartNode(1);
  // It is missed only when a member says so: a lease of its own is not renewed.
  EXPECT_TRUE(lease.held());
  node(2).raw->run({"PEXPIRE", memberName(2, "r"), "1"});
  EXPECT_LE(node(0).raw->pttl(memberName(0, "r")), 2000);
  EXPECT_LE(node(1).raw->pttl(memberName(1, "r")), 2000);
  outlives(0, "r");
  outlives(1, "r");
  lease.release();
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

TEST_F(RedLock, AMissingMemberOfAFixedLeaseIsObtainedForTheRest) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(3);
  stopNode(2);
  RLock lock = redLock(locks("r"));
  Lease lease = lock.acquire(leased(3s));
  const Stopwatch watch;
  std::this_thread::sleep_for(600ms);
  restartNode(2);
  // Counted from the acquisition. An attempt that is given up may get there first, and is released.
  const auto endsWithTheOthers = [&] {
    const auto left = node(2).raw->pttl(memberName(2, "r"));
    return left > 0 && left + watch.elapsedMs().count() <= 3300;
  };
  EXPECT_EVENTUALLY(kLong, endsWithTheOthers());
  for (std::size_t i = 0; i < nodeCount(); ++i) {
    outlives(i, "r");
  }
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

TEST_F(RedLock, WhatWasFreedByForceIsNotTakenAgain) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  Lease lease = lock.acquire();
  ASSERT_NO_FATAL_FAILURE(awaitAllMembers());
  EXPECT_TRUE(lock.forceUnlock());
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  EXPECT_EQ(lease.lossReason(), LossReason::forced);
  std::this_thread::sleep_for(kWatchdog / 2);
  EXPECT_EQ(countWith("r"), 0U);
}

TEST_F(RedLock, TheEndOfTheThreadIsTheLoss) {
  startNodes(3, kWatchdog);
  std::optional<Lease> lease;
  inThread([&] { lease = redLock(locks("r")).acquire({}, currentOwner()); }).get();
  EXPECT_EVENTUALLY(kLong, lease->lostToken().stop_requested());
  EXPECT_EQ(lease->lossReason(), LossReason::threadEnded);
  // It is left to expire: the work may go on in another thread.
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

// ---- Callers

TEST_F(RedLock, EvenNumbersNeedMoreThanHalf) {
  startNodes(4);
  foreignHold({0}, "r");
  RLock lock = redLock(locks("r"));
  ASSERT_TRUE(lock.tryLock(0ms, 10s));
  lock.unlock();
  foreignHold({1}, "r");
  EXPECT_FALSE(lock.tryLock(0ms, 10s)) << "two of four";
}

TEST_F(RedLock, AWaiterGetsItWhenTheMajorityIsFree) {
  startNodes(3);
  foreignHold({0, 1}, "r");
  RLock lock = redLock(locks("r"));
  const Stopwatch watch;
  EXPECT_FALSE(lock.tryLock(300ms, 10s));
  EXPECT_GE(watch.elapsedMs(), 299ms);
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(100ms));
  auto waiter = inThread([&] { return answerOf([&] { return lock.tryLock(10s, 10s); }); });
  EXPECT_FALSE(ready(waiter, 50ms));
  dropOn(1, "r");
  EXPECT_EQ(waiter.get(), "true");
}

TEST_F(RedLock, AStopEndsIt) {
  startNodes(3);
  foreignHold({0, 1}, "r");
  for (const Face face : kFaces) {
    std::stop_source stop;
    auto waiter = inThread([&] {
      return outcomeOf(runBy(
          face, redLock(locks("r")).lockInterruptiblyAsync(stop.get_token(), 60s, newOwner())));
    });
    EXPECT_FALSE(ready(waiter, 60ms));
    stop.request_stop();
    ASSERT_TRUE(ready(waiter, kLong));
    EXPECT_EQ(waiter.get(), "cancelled");
    EXPECT_EVENTUALLY(kLong, !existsOn(2, "r"));
  }
}

TEST_F(RedLock, AnEndlessCallGivesUpAfterTheOutageTimeout) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(3);
  RLock lock = redLock(otherLocks("r", 700ms));
  stopNode(0);
  stopNode(1);
  const Stopwatch watch;
  EXPECT_EQ(outcomeOf([&] { lock.lock(2s); }), "noQuorum");
  EXPECT_GE(watch.elapsedMs(), 650ms);
  EXPECT_LT(watch.elapsedMs(), 700ms + 600ms + scaled(300ms));
}

TEST_F(RedLock, ALossThatOnlyUnlockFindsEndsAllItsAcquisitions) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  warm(lock);
  for (int i = 0; i < 3; ++i) {
    lock.lock(30s);
  }
  // A majority is enough for each: what the third node grants later would be a new hold there.
  for (std::size_t i = 0; i < nodeCount(); ++i) {
    ASSERT_EVENTUALLY(
        kLong,
        node(i).raw->run({"HVALS", memberName(i, "r")}).strings() == std::vector<std::string>{"3"});
  }
  ASSERT_NO_FATAL_FAILURE(awaitAllMembers());
  dropOn(0, "r");
  dropOn(1, "r");
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "notOwner");
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "notOwner");
}

TEST_F(RedLock, AReentryThatLosesItsMajorityLeavesTheOuterHold) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  warm(lock);
  const OwnerId owner = newOwner();
  const Lease outer = lock.acquire({}, owner);
  ASSERT_NO_FATAL_FAILURE(awaitAllMembers());
  node(2).proxy().blackHole();
  Lease inner = lock.acquire({}, owner);
  dropOn(0, "r");
  EXPECT_EQ(inner.release(), ReleaseResult::lost);
  node(2).proxy().heal();
  EXPECT_TRUE(outer.held());
  EXPECT_TRUE(existsOn(1, "r") && existsOn(2, "r"));
}

TEST_F(RedLock, NothingOfAHoldThatIsOverIsLeftByTheNextOne) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  warm(lock);
  AcquireOptions options;
  options.maxHold = 100ms;
  const Lease over = lock.acquire(std::move(options), currentOwner());
  ASSERT_EVENTUALLY(kLong, over.lossReason() == LossReason::maxHold);
  lock.lock();
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

TEST_F(RedLock, AHoldMayBeMuchShorterThanItsLease) {
  // A hundredth of these is longer than the hold and its members' second besides.
  startNodes(3, 10min);
  RLock lock = redLock(locks("r"));
  warm(lock);
  for (const auto lease : {std::optional<Duration>(), std::optional<Duration>(10min)}) {
    AcquireOptions options;
    options.wait = 15s;
    options.lease = lease;
    options.maxHold = 100ms;
    std::optional<Lease> hold = lock.tryAcquire(std::move(options));
    ASSERT_TRUE(hold.has_value());
    EXPECT_EVENTUALLY(kLong, hold->lossReason() == LossReason::maxHold);
  }
}

TEST_F(RedLock, WatchdogsMayBeOfVeryDifferentLengths) {
  startNodes(3);
  std::vector<Client> clients;
  std::vector<RLock> members;
  for (std::size_t i = 0; i < nodeCount(); ++i) {
    Options settings = alert(node(i));
    // A hundredth of the longest is longer than the others.
    settings.watchdogTimeout = i == 0 ? std::chrono::hours(1) : std::chrono::seconds(30);
    clients.push_back(Client::connect(settings));
    members.push_back(clients.back().getLock(memberName(i, "r")));
  }
  AcquireOptions options;
  options.wait = 5s;
  std::optional<Lease> lease = redLock(members).tryAcquire(std::move(options));
  ASSERT_TRUE(lease.has_value());
  EXPECT_TRUE(lease->held());
  EXPECT_LE(lease->validUntil(), Clock::now() + 30s - 302ms);
  EXPECT_EQ(lease->release(), ReleaseResult::released);
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

TEST_F(RedLock, ANewHoldDoesNotEndWithAnOlderOnesMaxHold) {
  startNodes(3, kWatchdog);
  RLock lock = redLock(locks("r"));
  warm(lock);
  const OwnerId owner = newOwner();
  AcquireOptions options;
  options.maxHold = 100ms;
  const Lease over = lock.acquire(std::move(options), owner);
  ASSERT_EVENTUALLY(kLong, over.lossReason() == LossReason::maxHold);
  const Lease newer = lock.acquire({}, owner);
  // The members' maxHold is a second longer than that of the whole.
  EXPECT_FALSE(eventually(1500ms, [&] { return newer.lossReason() != LossReason::none; }));
  EXPECT_TRUE(newer.held());
}

TEST_F(RedLock, WhatWasFreedByForceAndTakenByOtherWaysIsNotReleased) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  warm(lock);
  Lease lease = lock.acquire({}, currentOwner());
  ASSERT_NO_FATAL_FAILURE(awaitAllMembers());
  EXPECT_TRUE(node(0).client->getLock("r").forceUnlock());
  node(0).client->getLock("r").lock();
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_EVENTUALLY(kLong, countWith("r") == 1);
  EXPECT_EQ(outcomeOf([&] { node(0).client->getLock("r").unlock(); }), "ok");
}

TEST_F(RedLock, WhatASecondObjectReleasesCountsNoMoreForTheFirst) {
  startNodes(3);
  RLock first = redLock(locks("r"));
  RLock second = redLock(locks("r"));
  warm(first);
  const auto lockOnAll = [&](RLock& lock, const std::string& count) {
    lock.lock();
    for (std::size_t i = 0; i < nodeCount(); ++i) {
      EXPECT_EVENTUALLY(kLong,
                        node(i).raw->run({"HVALS", memberName(i, "r")}).strings() ==
                            std::vector<std::string>{count});
    }
  };
  lockOnAll(first, "1");
  lockOnAll(first, "2");
  second.unlock();
  ASSERT_EVENTUALLY(kLong, first.getHoldCount() == 1);
  lockOnAll(first, "2");
  first.unlock();
  EXPECT_EQ(outcomeOf([&] { first.unlock(); }), "ok");
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

TEST_F(RedLock, WaitingForOnesOwnReadHoldsIsRefusedAtOnce) {
  RLOCK_ONE_SERVER_ONLY("has members of one name on several servers");
  startNodes(3);
  std::vector<RLock> members;
  const OwnerId owner = newOwner();
  for (std::size_t i = 0; i < 3; ++i) {
    ReadWriteLock sides = node(i).client->getReadWriteLock("rw");
    members.push_back(sides.writeLock());
    if (i > 0) {
      sides.readLock().lockAsync({}, owner).wait().value();
    }
  }
  RLock lock = redLock(members);
  EXPECT_EQ(answerOf(lock.tryLockAsync({}, owner).wait()), "false");
  const Stopwatch watch;
  AcquireOptions patient;
  patient.wait = 10s;
  EXPECT_EQ(answerOf(lock.tryLockAsync(std::move(patient), owner).wait()), "wouldDeadlock");
  EXPECT_EQ(outcomeOf(lock.lockAsync({}, owner).wait()), "wouldDeadlock");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  EXPECT_EVENTUALLY(kLong, !existsOn(0, "rw"));
}

TEST_F(RedLock, OnlyAMajorityThatTheThreadKeepsShutsItOut) {
  Client client = connect();
  RLock a = client.getLock("a");
  RLock b = client.getLock("b");
  RLock lock = redLock({a, b, client.getLock("c")});
  a.lock();
  Lease lease;
  EXPECT_EQ(outcomeOf([&] { lease = lock.acquire(); }), "ok");
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  b.lock();
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.acquire()); }), "wouldDeadlock");
  b.unlock();
  a.unlock();
}

TEST_F(RedLock, AClientThatWasClosedIsANodeLess) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  warm(lock);
  // The first of the list, which runs the timers.
  node(0).client->close(1s);
  ASSERT_TRUE(lock.tryLock(2s, 2s));
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  foreignHold({1}, "r");
  EXPECT_FALSE(lock.tryLock(300ms, 2s));
  Lease lease;
  dropOn(1, "r");
  lease = lock.acquire();
  std::this_thread::sleep_for(kWatchdog / 2);
  EXPECT_TRUE(lease.held());
  node(1).client->close(1s);
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  EXPECT_EQ(lease.lossReason(), LossReason::clientClosed);
  EXPECT_EQ(answerOf([&] { return lock.tryLock(1s); }), "closed");
}

TEST_F(RedLock, ABlockingCallOnAnyMembersLoopThread) {
  startNodes(3);
  RLock lock = redLock(locks("r"));
  std::promise<std::string> outcome;
  node(1).client->getLock("other").isLockedAsync().start(
      [&](const Result<bool>&) { outcome.set_value(answerOf([&] { return lock.tryLock(); })); });
  EXPECT_EQ(outcome.get_future().get(), "wouldDeadlock");
}

TEST_F(RedLock, QuestionsAreAnsweredByAMajority) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(3);
  RLock lock = redLock(locks("r"));
  EXPECT_EQ(lock.getName(), "red(r,r,r)");
  foreignHold({0}, "r");
  EXPECT_FALSE(lock.isLocked());
  EXPECT_FALSE(lock.remainTimeToLive());
  foreignHold({1}, "r");
  EXPECT_TRUE(lock.isLocked());
  ASSERT_TRUE(lock.remainTimeToLive());
  EXPECT_LE(*lock.remainTimeToLive(), 60s);
  EXPECT_EQ(lock.getHoldCount(), 0);
  stopNode(2);
  EXPECT_TRUE(lock.isLocked());
  EXPECT_TRUE(lock.forceUnlock());
  EXPECT_EQ(outcomeOf([&] { redLock({}); }), "invalidArgument");
}

TEST_F(RedLockSlow, ManyThreadsAndAnUnreliableNode) {
  startNodes(3);
  // Where it has none, the test ends here and not while threads wait.
  TcpProxy& unreliable = node(2).proxy();
  Resource resource;
  std::atomic<bool> done{false};
  std::atomic<long> rounds{0};
  std::vector<std::future<std::string>> threads;
  for (int t = 0; t < 8; ++t) {
    threads.push_back(inThread([&] {
      RLock lock = redLock(locks("r"));
      return outcomeOf([&] {
        while (!done) {
          if (lock.tryLock(5s, 5s)) {
            resource.use(1ms);
            ++rounds;
            lock.unlock();
          }
        }
      });
    }));
  }
  for (int i = 0; i < 8; ++i) {
    std::this_thread::sleep_for(500ms);
    unreliable.cutAll();
  }
  done = true;
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(resource.value(), rounds);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_GT(rounds, 20);
  EXPECT_EVENTUALLY(kLong, countWith("r") == 0);
}

}  // namespace
}  // namespace rlock::test
