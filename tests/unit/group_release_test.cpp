// SPDX-License-Identifier: Apache-2.0
#include "unit/fake_member.hpp"
#include <rlock/detail/group/multi_lock.hpp>
#include <rlock/detail/group/red_lock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace group_release_test {
namespace {

using namespace std::chrono_literals;
using namespace group_test;

/// Some members whose owner has taken them twice.
template <class Lock>
struct TakenTwice : MembersInTime<Lock> {
  TakenTwice() {
    this->acquire();
    this->acquire();
  }
  FakeMember& member(std::size_t i) { return *this->list[i]; }
};

/// The answer of the members' servers when nothing is held there any more.
Error gone() {
  return Error(Errc::notOwner, "gone");
}

/// Runs the first of them only.
void runOne(Queue& queue) {
  auto first = std::move(queue.front());
  queue.pop_front();
  first();
}

TEST(GroupRelease, OfOneAcquisitionLeavesTheOther) {
  TakenTwice<MultiLock> members;
  members.release();
  ASSERT_TRUE(members.released && members.released->has_value());
  EXPECT_EQ(**members.released, ReleaseOutcome::stillHeld);
  EXPECT_TRUE(members.hold()->heldAt(members.env->now()));
  members.release();
  ASSERT_TRUE(members.released && members.released->has_value());
  EXPECT_EQ(**members.released, ReleaseOutcome::released);
  for (const auto& member : members.list) {
    EXPECT_EQ(member->released, 2) << member->name();
  }
}

// A lost member is asked but not waited for. The release of the rest begins before its answer.
TEST(GroupRelease, AnAnswerThatComesWhenTheRestIsReleasedIsOfItsOwnRound) {
  TakenTwice<RedLock> members;
  Queue late;
  members.member(2).releases = &late;
  members.member(2).loseAll(LossReason::unreachable);
  members.member(0).refusal = gone();
  members.member(1).refusal = gone();
  members.release();
  EXPECT_EQ(members.releaseError(), Errc::notOwner);
  EXPECT_EQ(late.size(), 2U) << "one for each acquisition";
  members.released.reset();
  runAll(late);
  runAll(members.queue);
  EXPECT_EQ(members.member(2).released, 2);
  EXPECT_EQ(members.member(2).releasedQuietly, 0);
  EXPECT_FALSE(members.released) << "the caller was told before";
}

// A member on which one of several holds was over before may have the others still.
TEST(GroupRelease, AMemberThatOnlyHadALostHoldToReleaseIsNotGone) {
  TakenTwice<RedLock> members;
  FakeMember& first = members.member(0);
  ASSERT_TRUE(first.grants.front()->markLost(LossReason::expired));
  first.grants.front()->signalLoss();
  first.refusal = gone();
  members.member(1).refusal = gone();
  members.release();
  EXPECT_EQ(members.releaseError(), Errc::notOwner);
  EXPECT_EQ(members.hold()->reason(), LossReason::none) << "the first and the third are left";
}

// The loop thread has found the loss first, and another owner must be able to have the lock when
// the release is answered.
TEST(GroupRelease, IsAnsweredWhenTheRestThatAnotherThreadReleasesIsFree) {
  TakenTwice<MultiLock> members;
  Queue slow;
  members.member(0).releases = &slow;
  members.member(1).refusal = gone();
  members.release();
  members.member(1).loseAll(LossReason::refused);
  runAll(members.queue);
  ASSERT_EQ(slow.size(), 2U);
  runOne(slow);
  runAll(members.queue);
  EXPECT_FALSE(members.released) << "its second hold is still there";
  runOne(slow);
  runAll(members.queue);
  EXPECT_EQ(members.releaseError(), Errc::notOwner);
}

/// Three members whose owner takes them anew. By the first one's answer that and perhaps the second
/// are lost, and so the whole, which nobody has told yet.
template <class Lock, std::size_t Lost>
struct TakenAfterTheLossOf : MembersInTime<Lock> {
  IntrusivePtr<HoldHandle> lost;

  TakenAfterTheLossOf() {
    this->acquire();
    lost = this->hold();
    this->list[0]->onGrant = [this] {
      for (std::size_t i = 0; i < Lost; ++i) {
        this->list[i]->grants.front()->markLost(LossReason::refused);
      }
    };
    this->acquire();
    EXPECT_NE(this->hold(), lost);
    EXPECT_EQ(lost->reason(), LossReason::none);
  }

  /// The loss is told; the third member's answer waits for `slow`.
  void tellLoss(Queue& slow) {
    this->list[2]->releases = &slow;
    this->pass(0ms);
    this->list[2]->releases = nullptr;
    EXPECT_EQ(lost->reason(), LossReason::refused);
    EXPECT_EQ(slow.size(), 1U);
  }
};

using TakenAfterALoss = TakenAfterTheLossOf<MultiLock, 1>;

TEST(GroupRelease, TakesTheRestOfTheHoldBeforeWithItWhoseLossNobodyHasToldYet) {
  TakenAfterALoss members;
  members.release();
  ASSERT_TRUE(members.released && members.released->has_value());
  EXPECT_EQ(**members.released, ReleaseOutcome::released);
  for (const auto& member : members.list) {
    EXPECT_EQ(member->released, 2) << member->name();
  }
  members.list[0]->grants.front()->signalLoss();
  members.pass(0ms);
  EXPECT_EQ(members.lost->reason(), LossReason::refused);
  for (const auto& member : members.list) {
    EXPECT_EQ(member->released, 2) << member->name() << ": it was released already";
  }
}

TEST(GroupRelease, WaitsForTheRestOfTheHoldBefore) {
  TakenAfterALoss members;
  Queue slow;
  members.tellLoss(slow);
  members.release();
  EXPECT_FALSE(members.released) << "the third is not free of the lost hold";
  runAll(slow);
  runAll(members.queue);
  ASSERT_TRUE(members.released && members.released->has_value());
}

// Others wait for the lock: a node that hangs must not keep it from them.
TEST(GroupRelease, IsSentBeforeTheRestOfTheHoldBeforeIsFree) {
  TakenAfterALoss members;
  Queue slow;
  members.tellLoss(slow);
  members.release();
  EXPECT_EQ(slow.size(), 1U);
  EXPECT_EQ(members.list[0]->released, 2);
  EXPECT_EQ(members.list[1]->released, 2);
  EXPECT_EQ(members.list[2]->released, 1) << "of the hold that it is for";
  EXPECT_FALSE(members.released);
  runAll(slow);
  runAll(members.queue);
  EXPECT_TRUE(members.released);
}

TEST(GroupRelease, WaitsForAMajorityToBeFreeOfTheHoldBefore) {
  TakenAfterTheLossOf<RedLock, 2> members;
  Queue slow;
  members.tellLoss(slow);
  members.release();
  EXPECT_EQ(slow.size(), 1U);
  ASSERT_TRUE(members.released && members.released->has_value());
  EXPECT_EQ(**members.released, ReleaseOutcome::released);
}

TEST(GroupRelease, OfOneOfTwoAcquisitionsAfterALossWaitsForNothing) {
  TakenAfterALoss members;
  Queue slow;
  members.tellLoss(slow);
  members.acquire();
  members.release();
  ASSERT_TRUE(members.released && members.released->has_value());
  EXPECT_EQ(**members.released, ReleaseOutcome::stillHeld);
  members.release();
  EXPECT_FALSE(members.released);
  runAll(slow);
  runAll(members.queue);
  EXPECT_TRUE(members.released);
}

// A hold keeps the one before it: not a chain of all that were ever lost.
TEST(GroupRelease, AfterManyLossesKeepsNoChainOfThem) {
  MembersInTime<MultiLock> members;
  std::vector<IntrusivePtr<HoldHandle>> holds;
  for (int i = 0; i < 4; ++i) {
    members.acquire();
    holds.push_back(members.hold());
    members.list[0]->onGrant = [&] {
      members.list[0]->grants[members.list[0]->grants.size() - 2]->markLost(LossReason::refused);
    };
  }
  members.acquire();
  members.pass(0ms);
  // Of each: the vector, and of the latest lost one the hold after it.
  for (std::size_t i = 0; i + 1 < holds.size(); ++i) {
    EXPECT_EQ(holds[i]->useCount(), 1U) << i;
  }
}

// The group forgets what it has asked to be released, so that nobody else would ask again.
TEST(GroupRelease, OfAMemberGoesOnWhateverItsServerSays) {
  TakenTwice<MultiLock> members;
  members.member(1).refusal.emplace(Errc::denied, "denied");
  members.release();
  EXPECT_EQ(members.releaseError(), Errc::denied);
  for (const auto& member : members.list) {
    EXPECT_EQ(member->releasesThatMustGo, 1) << member->name();
    EXPECT_EQ(member->releasedQuietly, 0) << member->name();
  }
}

TEST(GroupRelease, AfterAFailedAcquisitionGoesOnWhateverTheServerSays) {
  MembersInTime<MultiLock> members;
  members.list[1]->instead = refused();
  members.acquire();
  ASSERT_TRUE(members.answer);
  EXPECT_FALSE(members.hold());
  EXPECT_EQ(members.list[0]->released, 1);
  EXPECT_EQ(members.list[0]->releasesThatMustGo, 1);
}

TEST(GroupRelease, IsAnsweredThoughThereIsNoMemoryForTheRestOfAMember) {
  TakenTwice<MultiLock> members;
  members.member(1).refusal.emplace(Errc::connectionFailed, "away");
  members.member(1).failingQuietReleases = 1;
  // The time is over, so that one release ends both acquisitions.
  members.env->advance(1min);
  members.release();
  EXPECT_EQ(members.releaseError(), Errc::notOwner);
  EXPECT_EQ(members.member(1).released, 1);
  EXPECT_EQ(members.member(1).releasedQuietly, 1) << "most often there is memory at once";
}

// A second release would end the other acquisition.
TEST(GroupRelease, OfAMemberThatThereIsNoMemoryForIsMadeOnceInTheBackground) {
  TakenTwice<MultiLock> members;
  members.member(1).failingReleases = 1;
  members.release();
  EXPECT_EQ(members.releaseError(), Errc::overloaded);
  EXPECT_EQ(members.member(1).released, 0);
  EXPECT_EQ(members.member(1).releasedQuietly, 1);
}

}  // namespace
}  // namespace group_release_test
}  // namespace rlock::detail
