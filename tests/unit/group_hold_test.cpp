// SPDX-License-Identifier: Apache-2.0
#include "unit/manual_env.hpp"
#include <rlock/detail/group/group_hold.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace rlock::detail {
namespace group_hold_test {
namespace {

using namespace std::chrono_literals;

class GroupHoldTest : public testing::Test {
 protected:
  /// Two of three members hold.
  GroupHoldTest() {
    for (std::size_t i = 0; i < 2; ++i) {
      grants_.push_back(grant());
    }
    grants_.emplace_back();
    hold_->enter(grants_, {});
    hold_->listen();
  }

  /// A hold of the two that was acquired on these terms.
  IntrusivePtr<GroupHold> acquired(const GroupHold::Terms& terms) {
    auto hold = makeIntrusive<GroupHold>(
        env_,
        2U,
        std::size_t{3},
        std::size_t{2},
        terms,
        GroupHold::Listeners{[](const IntrusivePtr<GroupHold>& /*hold*/) {}});
    hold->enter(grants_, terms);
    return hold;
  }
  static GroupHold::Terms shortenedBy(std::chrono::milliseconds margin) {
    GroupHold::Terms terms;
    terms.margins.assign(3, margin);
    return terms;
  }

  Grant grant() {
    Grant one;
    one.hold = makeIntrusive<HoldHandle>(++incarnations_);
    one.hold->setValidUntil(env_->now() + 1min);
    one.count = 1;
    return one;
  }
  void lose(std::size_t member) {
    grants_[member].hold->markLost(LossReason::refused);
    grants_[member].hold->signalLoss();
  }

  const std::shared_ptr<ManualEnv> env_ = std::make_shared<ManualEnv>();
  int losses_ = 0;
  int memberLosses_ = 0;
  std::uint64_t incarnations_ = 1;
  const IntrusivePtr<GroupHold> hold_ = makeIntrusive<GroupHold>(
      env_,
      1U,
      std::size_t{3},
      std::size_t{2},
      GroupHold::Terms{},
      GroupHold::Listeners{[this](const IntrusivePtr<GroupHold>& /*hold*/) { ++losses_; },
                           [this](const IntrusivePtr<GroupHold>& /*hold*/) { ++memberLosses_; }});
  MemberGrants grants_;
};

TEST_F(GroupHoldTest, IsLostWithoutAMajorityAndToldOnce) {
  ASSERT_TRUE(hold_->join(2, grant()));
  hold_->listen();
  lose(0);
  EXPECT_EQ(hold_->reason(), LossReason::none) << "two are left";
  EXPECT_EQ(memberLosses_, 1);
  lose(1);
  EXPECT_EQ(hold_->reason(), LossReason::refused);
  EXPECT_EQ(losses_, 1);
  EXPECT_EQ(memberLosses_, 1);
}

// Its client tells of the loss later, on its loop.
TEST_F(GroupHoldTest, ALossOfAMemberThatIsNotToldYetIsTheReason) {
  grants_[0].hold->markLost(LossReason::threadEnded);
  ASSERT_TRUE(hold_->markOverdue());
  EXPECT_EQ(hold_->reason(), LossReason::threadEnded);
  EXPECT_EQ(losses_, 1);
}

TEST_F(GroupHoldTest, ALossOfAMemberThatARunOutFindsIsTheReason) {
  grants_[1].hold->markLost(LossReason::forced);
  hold_->runOut();
  EXPECT_EQ(hold_->reason(), LossReason::forced);
}

TEST_F(GroupHoldTest, ALossOfAMemberThatAReleaseFindsIsTheReason) {
  grants_[1].hold->markLost(LossReason::failover);
  EXPECT_FALSE(hold_->leave().valid);
  ASSERT_TRUE(hold_->markOverdue());
  EXPECT_EQ(hold_->reason(), LossReason::failover);
}

TEST_F(GroupHoldTest, WithoutALossOfAMemberItsOwnTimeIsTheReason) {
  GroupHold::Terms terms;
  terms.lease = 1min;
  const auto leased = acquired(terms);
  terms.maxHoldUntil = env_->now() + 1min;
  const auto limited = acquired(terms);
  env_->advance(1min);
  for (const auto& hold : {hold_, leased, limited}) {
    EXPECT_TRUE(hold->markOverdue());
  }
  EXPECT_EQ(hold_->reason(), LossReason::unreachable);
  EXPECT_EQ(leased->reason(), LossReason::expired);
  EXPECT_EQ(limited->reason(), LossReason::maxHold);
}

// Each read hold has a lease of its own.
TEST_F(GroupHoldTest, TheReleaseOfOneAcquisitionLeavesTheOtherWhatIsLeft) {
  const MemberGrants again{grant(), grant(), {}};
  hold_->enter(again, {});
  hold_->listen();
  lose(0);
  ASSERT_TRUE(hold_->heldAt(env_->now())) << "it has one more";
  const GroupHold::Plan plan = hold_->leave();
  EXPECT_TRUE(plan.valid);
  EXPECT_FALSE(plan.last);
  EXPECT_TRUE(plan.lost[0]);
  EXPECT_EQ(plan.incarnations[0], std::vector<std::uint64_t>{grants_[0].hold->incarnation()});
  EXPECT_EQ(plan.incarnations[1], std::vector<std::uint64_t>{again[1].hold->incarnation()});
  EXPECT_TRUE(hold_->heldAt(env_->now()));
}

// It would stay on its server with nobody to release it.
TEST_F(GroupHoldTest, AMemberThatComesAfterTheLossIsNotTakenIn) {
  lose(0);
  EXPECT_EQ(losses_, 1);
  EXPECT_FALSE(hold_->join(2, grant()));
}

TEST_F(GroupHoldTest, AMemberThatComesAfterTheReleaseIsNotTakenIn) {
  const GroupHold::Plan plan = hold_->leave();
  EXPECT_TRUE(plan.last);
  EXPECT_FALSE(hold_->join(2, grant()));
}

TEST_F(GroupHoldTest, IsOverAndNotLostOnceItsOwnerHasGivenAMajorityBackByOtherWays) {
  ASSERT_TRUE(hold_->join(2, grant()));
  GroupHold::Plan rest;
  EXPECT_FALSE(hold_->endIfReturned(nullptr, rest));
  grants_[0].hold->setReleased();
  EXPECT_FALSE(hold_->endIfReturned(nullptr, rest)) << "two are left";
  EXPECT_FALSE(hold_->released());
  grants_[1].hold->setReleased();
  ASSERT_TRUE(hold_->endIfReturned(nullptr, rest));
  ASSERT_EQ(rest.incarnations.size(), 3U);
  EXPECT_TRUE(rest.incarnations[0].empty());
  EXPECT_TRUE(rest.incarnations[1].empty());
  EXPECT_EQ(rest.incarnations[2].size(), 1U) << "nobody else gives it back";
  EXPECT_TRUE(hold_->released());
  EXPECT_TRUE(hold_->repairs().stop_requested());
  rest = {};
  EXPECT_TRUE(hold_->endIfReturned(nullptr, rest)) << "still";
  EXPECT_TRUE(rest.empty());
  EXPECT_EQ(hold_->reason(), LossReason::none);
  EXPECT_EQ(losses_, 0);
}

TEST_F(GroupHoldTest, ALossIsNoGivingBack) {
  lose(0);
  lose(1);
  grants_[0].hold->setReleased();
  grants_[1].hold->setReleased();
  GroupHold::Plan rest;
  EXPECT_FALSE(hold_->endIfReturned(nullptr, rest));
}

// The release of a RedLock by another object may still be on its way to a minority. What is then
// one too many there goes with the next release.
TEST_F(GroupHoldTest, AMajoritySaysWhatWasGivenBackByOtherWays) {
  ASSERT_TRUE(hold_->join(2, grant()));
  grants_ = {grant(), grant(), grant()};
  hold_->enter(grants_, {});
  grants_[0].hold->setReleased();
  GroupHold::Plan rest;
  EXPECT_FALSE(hold_->endIfReturned(nullptr, rest));
  EXPECT_TRUE(hold_->heldAt(env_->now()));
  grants_[1].hold->setReleased();
  EXPECT_FALSE(hold_->endIfReturned(nullptr, rest));
  const GroupHold::Plan plan = hold_->leave();
  EXPECT_TRUE(plan.last);
  EXPECT_TRUE(plan.valid);
  EXPECT_EQ(plan.incarnations[0].size(), 1U);
  EXPECT_EQ(plan.incarnations[1].size(), 1U);
  EXPECT_EQ(plan.incarnations[2].size(), 2U);
}

TEST_F(GroupHoldTest, AHoldOfAMemberIsReleasedOnce) {
  ASSERT_TRUE(hold_->join(2, grant()));
  const GroupHold::Plan plan = hold_->leave();
  for (const std::vector<std::uint64_t>& incarnations : plan.incarnations) {
    EXPECT_EQ(incarnations.size(), 1U);
  }
  for (const std::vector<std::uint64_t>& incarnations : hold_->giveBack().incarnations) {
    EXPECT_TRUE(incarnations.empty());
  }
}

/// Its place in the majority is taken by one that was obtained later, without the re-entry.
TEST_F(GroupHoldTest, AMemberThatWasLostSaysNothingOfARelease) {
  MemberGrants again{grant(), grant(), {}};
  again[0].count = again[1].count = 2;
  hold_->enter(again, {});
  ASSERT_TRUE(hold_->join(2, grant()));
  hold_->listen();
  again[1].hold->markLost(LossReason::unreachable);
  lose(1);
  EXPECT_EQ(hold_->reason(), LossReason::none);
  GroupHold::Plan plan = hold_->leave();
  EXPECT_TRUE(plan.valid);
  EXPECT_FALSE(plan.last);
  EXPECT_EQ(plan.incarnations[0].size(), 1U);
  EXPECT_EQ(plan.incarnations[1].size(), 1U) << "its server may have it still";
  EXPECT_TRUE(plan.incarnations[2].empty());
  EXPECT_FALSE(plan.lost[0]);
  EXPECT_TRUE(plan.lost[1]);
  plan = hold_->leave();
  EXPECT_FALSE(plan.lost[0]);
  EXPECT_TRUE(plan.lost[1]);
  EXPECT_FALSE(plan.lost[2]);
}

TEST_F(GroupHoldTest, EachMembersValidityIsShortenedByItsOwnMargin) {
  grants_[0].hold->setValidUntil(env_->now() + 1h);
  GroupHold::Terms terms;
  terms.margins = {36s, 300ms, 300ms};
  const auto hold = acquired(terms);
  EXPECT_EQ(hold->validUntil(), env_->now() + 1min - 300ms);
  grants_[1].hold->setValidUntil(env_->now() + 2h);
  EXPECT_EQ(hold->validUntil(), env_->now() + 1h - 36s);
}

TEST_F(GroupHoldTest, OfAReentrysMarginsTheLongerCount) {
  const auto until = env_->now() + 1min;
  const auto hold = acquired(shortenedBy(10ms));
  EXPECT_EQ(hold->validUntil(), until - 10ms);
  hold->enter(grants_, shortenedBy(6s));
  EXPECT_EQ(hold->validUntil(), until - 6s);
  hold->enter(grants_, shortenedBy(10ms));
  EXPECT_EQ(hold->validUntil(), until - 6s);
  // The fixture's hold began without margins.
  hold_->enter(grants_, shortenedBy(6s));
  EXPECT_EQ(hold_->validUntil(), until - 6s);
}

TEST_F(GroupHoldTest, OfAReentrysNoticesTheLongerCounts) {
  const auto until = env_->now() + 1min;
  GroupHold::Terms brief;
  brief.notice = 1ms;
  GroupHold::Terms early;
  early.notice = 100ms;
  const auto hold = acquired(brief);
  EXPECT_EQ(hold->lossAt(), until - 1ms);
  hold->enter(grants_, early);
  EXPECT_EQ(hold->lossAt(), until - 100ms);
  hold->enter(grants_, brief);
  EXPECT_EQ(hold->lossAt(), until - 100ms);
}

TEST_F(GroupHoldTest, OfAReentrysPoliciesTheLatestThatThereIsCounts) {
  const auto under = [](std::optional<SyncPolicy> policy) {
    GroupHold::Terms terms;
    terms.sync = policy;
    return terms;
  };
  const auto hold = acquired(under(std::nullopt));
  EXPECT_FALSE(hold->terms().sync);
  hold->enter(grants_, under(SyncPolicy::replicas(2)));
  EXPECT_EQ(hold->terms().sync, SyncPolicy::replicas(2));
  hold->enter(grants_, under(std::nullopt));
  hold->enter(grants_, under(SyncPolicy::none()));
  EXPECT_EQ(hold->terms().sync, SyncPolicy::replicas(2));
  hold->enter(grants_, under(SyncPolicy::localAof()));
  EXPECT_EQ(hold->terms().sync, SyncPolicy::localAof());
}

TEST_F(GroupHoldTest, OfAReentrysMaxHoldsTheEarlierEndCounts) {
  GroupHold::Terms later;
  later.maxHoldUntil = env_->now() + 40s;
  GroupHold::Terms sooner;
  sooner.maxHoldUntil = env_->now() + 20s;
  const auto hold = acquired(later);
  EXPECT_EQ(hold->validUntil(), later.maxHoldUntil);
  hold->enter(grants_, sooner);
  EXPECT_EQ(hold->validUntil(), sooner.maxHoldUntil);
  hold->enter(grants_, later);
  EXPECT_EQ(hold->validUntil(), sooner.maxHoldUntil);
}

TEST_F(GroupHoldTest, OfAReentrysLeasesTheLongerCountsAndAWatchedOneMost) {
  using Lease = std::optional<std::chrono::milliseconds>;
  const auto leased = [](Lease lease) {
    GroupHold::Terms terms;
    terms.lease = lease;
    return terms;
  };
  const auto hold = acquired(leased(10s));
  hold->enter(grants_, leased(20s));
  EXPECT_EQ(hold->terms().lease, Lease(20s));
  hold->enter(grants_, leased(10s));
  EXPECT_EQ(hold->terms().lease, Lease(20s));
  hold->enter(grants_, leased(std::nullopt));
  EXPECT_EQ(hold->terms().lease, Lease());
  hold->enter(grants_, leased(10s));
  EXPECT_EQ(hold->terms().lease, Lease()) << "it stays watched";
}

/// Of a hold whose deadline must not be asked for.
class UntouchableHold final : public HoldHandle {
 public:
  [[nodiscard]] Clock::time_point validUntil() const noexcept override { ::_exit(2); }
};

// A thread of the parent may have had any mutex at the moment of the fork.
TEST_F(GroupHoldTest, InAChildNothingIsHeldAndNoMutexIsTaken) {
  ASSERT_TRUE(hold_->heldAt(env_->now()));
  const UntouchableHold other;
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const bool held = other.heldAt(env_->now()) || hold_->heldAt(env_->now());
    ::_exit(held || hold_->validUntil() != GroupHold::Clock::time_point{} ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(hold_->heldAt(env_->now()));
}

}  // namespace
}  // namespace group_hold_test
}  // namespace rlock::detail
