// SPDX-License-Identifier: Apache-2.0
#include "unit/manual_env.hpp"
#include <rlock/detail/group/group_hold.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
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
  std::uint64_t incarnations_ = 1;
  const IntrusivePtr<GroupHold> hold_ =
      makeIntrusive<GroupHold>(env_,
                               1U,
                               std::size_t{3},
                               std::size_t{2},
                               GroupHold::Terms{},
                               [this](const IntrusivePtr<GroupHold>& /*hold*/) { ++losses_; });
  MemberGrants grants_;
};

TEST_F(GroupHoldTest, IsLostWithoutAMajorityAndToldOnce) {
  ASSERT_TRUE(hold_->join(2, grant()));
  hold_->listen();
  lose(0);
  EXPECT_EQ(hold_->reason(), LossReason::none) << "two are left";
  lose(1);
  EXPECT_EQ(hold_->reason(), LossReason::refused);
  EXPECT_EQ(losses_, 1);
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

}  // namespace
}  // namespace group_hold_test
}  // namespace rlock::detail
