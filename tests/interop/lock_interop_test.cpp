// SPDX-License-Identifier: Apache-2.0
#include "interop/interop_harness.hpp"

#include <algorithm>
#include <thread>

namespace rlock::test::interop {
namespace {

constexpr int kOwners = 4;
constexpr int kSectionsEach = 250;
constexpr int kWarmUp = 100;

/// The holder's process ends; the watchdogs run beside each other: both need short leases.
constexpr Peer::Tuning kShortLease{.watchdog = 2000ms};

using Kinds = std::vector<std::string>;

Kinds operator+(Kinds kinds, const Kinds& more) {
  kinds.insert(kinds.end(), more.begin(), more.end());
  return kinds;
}

std::vector<Subject> withOld(std::vector<Subject> subjects) {
  subjects.push_back(Subject{"plain", kOld});
  return subjects;
}

// ---------------------------------------------------------------------------------- exclusion

class ExclusionTest : public SubjectTest {};

TEST_P(ExclusionTest, IO1_TwoTimesFourOwnersLoseNoUpdate) {
  ASSERT_NO_FATAL_FAILURE(begin("exclusion", GetParam()));
  if (IsSkipped()) {
    return;
  }
  openBoth({.watchdog = 10'000ms});
  const std::string name = objectName();
  prepare(kind(), name);
  const auto hammer = [&](Side side, int owner, int times) {
    return startSections(side, owner, kind(), name, times, 50us);
  };

  // A virtual machine that has only just started would come when rlock is through.
  ASSERT_ANSWER(peer(Side::java).finish(hammer(Side::java, 1, kWarmUp)));
  std::vector<std::pair<Side, Call>> calls;
  for (int owner = 1; owner <= kOwners; ++owner) {
    for (const Side side : kSides) {
      calls.emplace_back(side, hammer(side, owner, kSectionsEach));
    }
  }
  for (const auto& [side, call] : calls) {
    const Answer answer = peer(side).finish(call, 180s);
    EXPECT_EQ(answer.text(), std::to_string(kSectionsEach)) << side << ": " << answer;
  }
  constexpr int kSections = kWarmUp + 2 * kOwners * kSectionsEach;
  const int changes = checkSections(kSections, kSections);
  // Otherwise the two did not meet. In a queue everybody's turn comes once a round.
  EXPECT_GE(changes, kind().ends_with("fair") ? kSectionsEach : 10);
  note("changed sides " + std::to_string(changes) + " times");
}

// ------------------------------------------------------------------------------------ wake-up

class WakeUpTest : public SubjectTest {
 protected:
  std::chrono::microseconds measure(Side holder) {
    const std::string name = objectName();
    Peer& holding = peer(holder);
    Peer& waiting = peer(other(holder));
    Answer held;
    return handOffP99(
        waiting,
        {.hold =
             [&] {
               held = holding.finish(startAcquire(holding, 1, name));
               EXPECT_TRUE(held.ok()) << held;
             },
         .wait = [&] { return startAcquire(waiting, 1, name); },
         .release = [&] { return release(holding, 1, name, held); },
         .leave =
             [&](const Answer& entered) { EXPECT_TRUE(release(waiting, 1, name, entered).ok()); }});
  }
};

TEST_P(WakeUpTest, IO2_TheOtherSideEntersBecauseOfTheMessage) {
  ASSERT_NO_FATAL_FAILURE(begin("wake-up", GetParam()));
  if (IsSkipped()) {
    return;
  }
  // Redisson's waiters otherwise sleep for what is left of the lease.
  const Peer::Tuning tuning{.watchdog = scaled(60'000ms), .safetyPoll = scaled(1000ms)};
  openBoth(tuning);
  prepare(kind(), objectName());
  const auto javaWaits = measure(Side::cpp);
  const auto cppWaits = measure(Side::java);
  const std::chrono::microseconds limit = tuning.safetyPoll / 10;
  EXPECT_LT(javaWaits, limit);
  EXPECT_LT(cppWaits, limit);
  note("p99 " + inMs(javaWaits) + " to Redisson, " + inMs(cppWaits) + " to rlock");
}

// -------------------------------------------------------------------------------- dead holder

class DeadHolderTest : public SubjectTest {};

TEST_P(DeadHolderTest, IO4_TheOtherSideEntersWithinTheLeaseOfAKilledHolder) {
  ASSERT_NO_FATAL_FAILURE(begin("holder killed", GetParam()));
  if (IsSkipped()) {
    return;
  }
  openBoth(kShortLease);
  const std::string name = objectName();
  for (const Side side : kSides) {
    std::unique_ptr<Peer> victim = newPeer(side);
    victim->open(1, uri(), kShortLease);
    ASSERT_ANSWER(victim->finish(startAcquire(*victim, 1, name)));
    Peer& survivor = peer(other(side));
    const Call wait = startAcquire(survivor, 1, name);
    // Beyond the first lease, so that only the watchdog can have kept it.
    std::this_thread::sleep_for(kShortLease.watchdog + 500ms);
    ASSERT_FALSE(survivor.finished(wait)) << "a live " << side << " holder lost its lock";
    const auto killed = std::chrono::steady_clock::now().time_since_epoch();
    victim->process().kill();
    const Answer entered = survivor.finish(wait);
    ASSERT_TRUE(entered.ok()) << entered;
    EXPECT_LE(entered.end - killed, kShortLease.watchdog + scaled(300ms)) << side << " was killed";
    ASSERT_ANSWER(release(survivor, 1, name, entered));
  }
}

class WatchdogTest : public SubjectTest {
 protected:
  /// The locks that each side holds: the same for readers, which share, and several for the kinds
  /// that consist of others.
  [[nodiscard]] std::vector<std::string> membersOf(Side side) const {
    if (kind() == "read") {
      return {"shared"};
    }
    const std::string name = std::string("of-") + toString(side);
    if (kind() == "multi" || kind() == "red") {
      return {name + "-1", name + "-2", name + "-3"};
    }
    return {name};
  }
  [[nodiscard]] std::string nameOf(Side side) const {
    std::string name;
    for (const std::string& member : membersOf(side)) {
      name.append(name.empty() ? "" : ",").append(member);
    }
    return name;
  }
};

TEST_P(WatchdogTest, IO4_WatchdogsOfBothSidesDoNotDisturbEachOther) {
  ASSERT_NO_FATAL_FAILURE(begin("watchdogs", GetParam()));
  if (IsSkipped()) {
    return;
  }
  openBoth(kShortLease);
  const int holds = kind().starts_with("nonreentrant") ? 1 : 2;
  for (const Side side : kSides) {
    for (int i = 0; i < holds; ++i) {
      ASSERT_ANSWER(peer(side).ask(1, 1, "lock", kind(), nameOf(side), {"-1"}));
    }
  }
  const Deadline end(3 * kShortLease.watchdog);
  std::chrono::milliseconds least = kShortLease.watchdog;
  while (!end.expired()) {
    for (const Side side : kSides) {
      for (const std::string& member : membersOf(side)) {
        least = std::min(least, std::chrono::milliseconds(raw().pttl(member)));
      }
      EXPECT_EQ(peer(other(side)).ask(1, 2, "tryLock", rival(), nameOf(side), {"0", "-1"}).text(),
                "false");
    }
    std::this_thread::sleep_for(50ms);
  }
  // Renewed at a third: two thirds are left then, less what the machine delays.
  EXPECT_GT(least, kShortLease.watchdog / 4);
  for (const Side side : kSides) {
    for (int i = 0; i < holds; ++i) {
      EXPECT_EQ(peer(side).ask(1, 1, "unlock", kind(), nameOf(side)).text(), "true");
    }
  }
  for (const Side side : kSides) {
    for (const std::string& member : membersOf(side)) {
      EXPECT_FALSE(raw().exists(member));
    }
  }
  EXPECT_EQ(peer(Side::cpp).ask(1, 1, "lost", kind(), nameOf(Side::cpp), {"0"}).text(), "none");
}

// -------------------------------------------------------------------------------- forceUnlock

class ForceTest : public SubjectTest {};

TEST_P(ForceTest, IO5_AForcedReleaseByRedissonReachesOurHolder) {
  ASSERT_NO_FATAL_FAILURE(begin("forced by Redisson", GetParam()));
  if (IsSkipped()) {
    return;
  }
  openBoth(kShortLease);
  Peer& java = peer(Side::java);
  Peer& cpp = peer(Side::cpp);
  const std::string name = objectName();
  ASSERT_ANSWER(cpp.ask(1, 1, "hold", kind(), name, {"-1"}));
  EXPECT_EQ(cpp.ask(1, 1, "held", kind(), name).text(), "held");
  const Call wait = java.start(1, 2, "lock", rival(), name, {"-1"});
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(java.ask(1, 1, "forceUnlock", kind(), name).text(), "true");
  const Answer entered = java.finish(wait);
  ASSERT_TRUE(entered.ok()) << entered;
  // Redisson tells nobody whom it took the lock from: the next renewal finds out.
  const auto third = kShortLease.watchdog / 3 + scaled(300ms);
  EXPECT_EQ(cpp.ask(1, 1, "lost", kind(), name, {std::to_string(third.count())}).text(), "refused");
  EXPECT_EQ(cpp.ask(1, 1, "held", kind(), name).text(), "lost: refused");
  EXPECT_EQ(cpp.ask(1, 1, "letGo", kind(), name).text(), "lost");
  EXPECT_EQ(cpp.ask(1, 1, "unlock", kind(), name).text(), "notOwner");
  EXPECT_EQ(java.ask(1, 2, "isHeld", rival(), name).text(), "true");
  ASSERT_ANSWER(java.ask(1, 2, "unlock", rival(), name));
}

TEST_P(ForceTest, IO5_AForcedReleaseOfALeaseIsNoticedWhenItIsReleased) {
  ASSERT_NO_FATAL_FAILURE(begin("lease forced by Redisson", GetParam()));
  if (IsSkipped()) {
    return;
  }
  openBoth(kShortLease);
  Peer& java = peer(Side::java);
  Peer& cpp = peer(Side::cpp);
  const std::string name = objectName();
  ASSERT_ANSWER(cpp.ask(1, 1, "hold", kind(), name, {"30000"}));
  EXPECT_EQ(java.ask(1, 1, "forceUnlock", kind(), name).text(), "true");
  ASSERT_ANSWER(java.ask(1, 2, "lock", rival(), name, {"-1"}));
  EXPECT_EQ(cpp.ask(1, 1, "letGo", kind(), name).text(), "lost");
  EXPECT_EQ(cpp.ask(1, 1, "unlock", kind(), name).text(), "notOwner");
  EXPECT_EQ(java.ask(1, 2, "isHeld", rival(), name).text(), "true");
  ASSERT_ANSWER(java.ask(1, 2, "unlock", rival(), name));
}

TEST_P(ForceTest, IO5_OurHolderHearsOfOurForcedReleaseWhileRedissonWaits) {
  ASSERT_NO_FATAL_FAILURE(begin("forced among rlock's", GetParam()));
  if (IsSkipped()) {
    return;
  }
  // Renewals would tell it after 20 s.
  constexpr Peer::Tuning tuning{.watchdog = 60'000ms};
  openBoth(tuning);
  Peer& java = peer(Side::java);
  Peer& cpp = peer(Side::cpp);
  std::unique_ptr<Peer> forcing = newPeer(Side::cpp);
  forcing->open(1, uri(), tuning);
  const std::string name = objectName();
  ASSERT_ANSWER(cpp.ask(1, 1, "hold", kind(), name, {"-1"}));
  const Call wait = java.start(1, 2, "lock", rival(), name, {"-1"});
  // It listens when it has held something for 100 ms.
  const std::string channel =
      "rlock_client:" + cpp.ownerField(1, 1).substr(0, cpp.ownerField(1, 1).find(':'));
  ASSERT_EVENTUALLY(5s, raw().numsub(channel) == 1);
  EXPECT_EQ(forcing->ask(1, 1, "forceUnlock", kind(), name).text(), "true");
  const Answer told = cpp.ask(1, 1, "lost", kind(), name, {"10000"});
  EXPECT_EQ(told.text(), "forced");
  EXPECT_LT(told.end - told.begin, scaled(500ms));
  ASSERT_ANSWER(java.finish(wait));
  EXPECT_EQ(cpp.ask(1, 1, "letGo", kind(), name).text(), "lost");
  EXPECT_EQ(cpp.ask(1, 1, "unlock", kind(), name).text(), "notOwner");
  EXPECT_EQ(java.ask(1, 2, "isHeld", rival(), name).text(), "true");
  ASSERT_ANSWER(java.ask(1, 2, "unlock", rival(), name));
}

TEST_P(ForceTest, IO5_RedissonsHolderIsRefusedAfterOurForcedRelease) {
  ASSERT_NO_FATAL_FAILURE(begin("forced by rlock", GetParam()));
  if (IsSkipped()) {
    return;
  }
  openBoth(kShortLease);
  Peer& java = peer(Side::java);
  Peer& cpp = peer(Side::cpp);
  const std::string name = objectName();
  ASSERT_ANSWER(java.ask(1, 1, "lock", kind(), name, {"-1"}));
  const Call wait = cpp.start(1, 2, "lock", rival(), name, {"-1"});
  const Call second = java.start(1, 3, "lock", rival(), name, {"-1"});
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(cpp.ask(1, 1, "forceUnlock", kind(), name).text(), "true");
  const auto release = [&](Peer& peer, int owner, Call call) {
    const Answer entered = peer.finish(call);
    ASSERT_TRUE(entered.ok()) << entered;
    EXPECT_EQ(java.ask(1, 1, "unlock", kind(), name).text(), "notOwner");
    EXPECT_EQ(peer.ask(1, owner, "isHeld", rival(), name).text(), "true");
    ASSERT_ANSWER(peer.ask(1, owner, "unlock", rival(), name));
  };
  // The two may get it in either order; one follows the other.
  const bool oursFirst =
      eventually(2s, [&] { return cpp.finished(wait); }) && !java.finished(second);
  if (oursFirst) {
    release(cpp, 2, wait);
    release(java, 3, second);
  } else {
    release(java, 3, second);
    release(cpp, 2, wait);
  }
  // Redisson lets anybody release a fair lock that nobody holds; rlock does not.
  const bool fair = kind().ends_with("fair");
  EXPECT_EQ(java.ask(1, 1, "unlock", kind(), name).text(), fair ? "true" : "notOwner");
  EXPECT_EQ(cpp.ask(1, 1, "unlock", kind(), name).text(), "notOwner");
}

/// The kinds that can be forced; those that consist of others cannot, in Redisson.
const Kinds kLocks = {
    "plain", "fair", "fenced", "spin", "write", "nonreentrant", "nonreentrantfair"};

INSTANTIATE_TEST_SUITE_P(
    Interop,
    ExclusionTest,
    ::testing::ValuesIn(withOld(newest(kLocks + Kinds{"multi", "red", "semaphore", "permits"}))),
    subjectName);
// Spin locks are not waited for by messages.
INSTANTIATE_TEST_SUITE_P(Interop,
                         WakeUpTest,
                         ::testing::ValuesIn(withOld(newest({"plain",
                                                             "fair",
                                                             "fenced",
                                                             "write",
                                                             "nonreentrant",
                                                             "nonreentrantfair",
                                                             "multi",
                                                             "red",
                                                             "semaphore",
                                                             "permits"}))),
                         subjectName);
INSTANTIATE_TEST_SUITE_P(Interop,
                         DeadHolderTest,
                         ::testing::ValuesIn(withOld(newest(kLocks + Kinds{"multi", "red"}))),
                         subjectName);
INSTANTIATE_TEST_SUITE_P(Interop,
                         WatchdogTest,
                         ::testing::ValuesIn(withOld(newest(kLocks +
                                                            Kinds{"read", "multi", "red"}))),
                         subjectName);
INSTANTIATE_TEST_SUITE_P(Interop,
                         ForceTest,
                         ::testing::ValuesIn(newest(kLocks + Kinds{"read"})),
                         subjectName);

}  // namespace
}  // namespace rlock::test::interop
