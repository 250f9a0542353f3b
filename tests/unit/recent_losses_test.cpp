// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/recent_losses.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>

namespace rlock::detail {
namespace {

using namespace std::chrono_literals;

constexpr RecentLosses::Clock::time_point kNow = RecentLosses::Clock::time_point() + 1h;

HoldPtr holdOf(const std::string& name, std::uint64_t owner, HoldKind kind = HoldKind::lock) {
  const auto kept = std::make_shared<const std::string>(name);
  return makeIntrusive<Hold>(kept, kind, *kept, OwnerId{owner});
}

class RecentLossesTest : public testing::Test {
 protected:
  void lose(const HoldPtr& hold, LossReason reason = LossReason::expired) {
    losses_.note(*hold, {reason, 1000ms, kNow});
  }
  [[nodiscard]] std::string tell(const std::string& name,
                                 std::uint64_t owner,
                                 HoldKind kind = HoldKind::lock,
                                 RecentLosses::Clock::time_point now = kNow + 250ms) const {
    return losses_.tell(kind, name, OwnerId{owner}, now);
  }

  RecentLosses losses_;
};

TEST_F(RecentLossesTest, KnowsNothingAtFirst) {
  EXPECT_EQ(tell("a", 1), "");
}

TEST_F(RecentLossesTest, SaysWhenALeaseEnded) {
  lose(holdOf("a", 1));
  EXPECT_EQ(tell("a", 1), "the lease of 1000 ms ended 250 ms ago");
  EXPECT_EQ(tell("a", 1, HoldKind::lock, kNow - 5ms), "the lease of 1000 ms ended 0 ms ago");
}

TEST_F(RecentLossesTest, SaysWhyAHoldWasLost) {
  lose(holdOf("a", 1), LossReason::forced);
  EXPECT_EQ(tell("a", 1), "it was lost 250 ms ago: forced");
}

TEST_F(RecentLossesTest, ItIsTheOwnersOfThatLock) {
  lose(holdOf("a", 1));
  EXPECT_EQ(tell("a", 2), "");
  EXPECT_EQ(tell("b", 1), "");
  EXPECT_EQ(tell("a", 1, HoldKind::read), "");
}

TEST_F(RecentLossesTest, TheLatestCounts) {
  lose(holdOf("a", 1), LossReason::forced);
  lose(holdOf("a", 1));
  EXPECT_EQ(tell("a", 1), "the lease of 1000 ms ended 250 ms ago");
}

TEST_F(RecentLossesTest, ForgetsWhatWasTakenAndReleasedSince) {
  lose(holdOf("a", 1));
  lose(holdOf("a", 2));
  losses_.forget(*holdOf("a", 1));
  EXPECT_EQ(tell("a", 1), "");
  EXPECT_NE(tell("a", 2), "");
}

TEST_F(RecentLossesTest, KeepsTheLatestOnes) {
  for (std::uint64_t owner = 0; owner <= RecentLosses::kMost; ++owner) {
    lose(holdOf("a", owner));
    // The same again takes no place.
    lose(holdOf("a", owner));
  }
  EXPECT_EQ(tell("a", 0), "");
  for (std::uint64_t owner = 1; owner <= RecentLosses::kMost; ++owner) {
    EXPECT_NE(tell("a", owner), "") << owner;
  }
}

}  // namespace
}  // namespace rlock::detail
