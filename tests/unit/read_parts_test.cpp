// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/read_parts.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace rlock::detail {
namespace {

using namespace std::chrono_literals;

/// One owner's read hold. Its parts have the incarnations 1, 2, ... and are valid for so long.
class ReadPartsTest : public testing::Test {
 protected:
  void add(std::chrono::milliseconds validFor, bool watched = false) {
    HoldPart& part = hold_->parts.emplace_back();
    part.incarnation = hold_->parts.size();
    part.lease = validFor;
    part.validUntil = now_ + validFor;
    if (watched) {
      part.handle = makeIntrusive<HoldHandle>(part.incarnation);
    }
    hold_->count = static_cast<int>(hold_->parts.size());
  }
  [[nodiscard]] std::vector<std::uint64_t> left() const {
    std::vector<std::uint64_t> result;
    for (const HoldPart& part : hold_->parts) {
      result.push_back(part.incarnation);
    }
    return result;
  }
  int released(const HoldRelease& release) {
    return ReadParts(*hold_).released(release, now_, watchdog_, losses_);
  }

  /// @param indexes  the server says where what is left stands
  int releasedAllButTheFirst(std::uint64_t incarnation, bool indexes) {
    HoldRelease release{.incarnation = incarnation, .remain = 1};
    if (indexes) {
      release.indexes = std::vector<int>{1};
    }
    return released(release);
  }

  using Left = std::vector<std::uint64_t>;

  ReadParts::Clock::time_point now_ = ReadParts::Clock::time_point(1h);
  std::shared_ptr<int> lock_ = std::make_shared<int>();
  HoldPtr hold_ = makeIntrusive<Hold>(lock_, HoldKind::read, "name", OwnerId{7});
  Watchdog watchdog_{30s};
  ReadParts::Losses losses_;
};

TEST_F(ReadPartsTest, FindsAPartByItsIncarnationAndCountsFromOne) {
  add(10s);
  add(10s);
  const ReadParts parts(*hold_);
  ASSERT_NE(parts.find(2), nullptr);
  EXPECT_EQ(parts.indexOf(*parts.find(2)), 2);
  EXPECT_EQ(parts.find(3), nullptr);
}

TEST_F(ReadPartsTest, TheLeaseToRestoreIsThatOfTheLatestThatIsLeft) {
  add(10s);
  EXPECT_FALSE(ReadParts(*hold_).leavesWatched(0));
  add(30s);
  hold_->parts.back().watched = true;
  EXPECT_FALSE(ReadParts(*hold_).leavesWatched(0));
  EXPECT_FALSE(ReadParts(*hold_).leavesWatched(2));
  EXPECT_TRUE(ReadParts(*hold_).leavesWatched(1));
  hold_->parts.back().lost = true;
  EXPECT_FALSE(ReadParts(*hold_).leavesWatched(1)) << "it may be over on the server";
}

TEST_F(ReadPartsTest, KeepsTheIndexesThatTheServerNames) {
  add(10s);
  add(10s);
  add(10s);
  ReadParts(*hold_).keep(std::vector<int>{1, 3}, 9, now_, losses_);
  EXPECT_EQ(left(), (Left{1, 3}));
  ASSERT_EQ(losses_.size(), 1U) << "it should not have been over yet";
  EXPECT_EQ(losses_[0].incarnation, 2U);
  EXPECT_EQ(losses_[0].reason, LossReason::refused);
}

/// A hold that ended by itself is given back before the one around it.
TEST_F(ReadPartsTest, WhatTheServerDroppedIsGivenBackOnce) {
  add(30s);
  add(10s);
  add(10s);
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
  now_ += 10s;
  ReadParts(*hold_).keep(std::vector<int>{1}, 1, now_, losses_);
  EXPECT_EQ(left(), (Left{1}));
  add(30s);
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited()) << "the latest of all is there";
  EXPECT_EQ(released({.remain = 1, .indexes = std::vector<int>{1}}), 1);
  EXPECT_TRUE(ReadParts(*hold_).takeForfeited());
  EXPECT_TRUE(ReadParts(*hold_).takeForfeited());
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
  EXPECT_EQ(released({.remain = 0, .indexes = std::vector<int>{}}), 0);
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
}

TEST_F(ReadPartsTest, AHoldWithAnObjectIsGivenBackByIt) {
  add(30s);
  add(10s, true);
  now_ += 10s;
  ReadParts(*hold_).keep(std::vector<int>{1}, 1, now_, losses_);
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
}

/// The one around it may go first, by its object.
TEST_F(ReadPartsTest, WhatTheServerDroppedOutlivesTheHoldAroundIt) {
  for (const bool indexes : {true, false}) {
    hold_->parts.keepOnly({});
    add(30s);
    add(30s, true);
    add(10s);
    now_ += 10s;
    ReadParts(*hold_).keep(std::vector<int>{1, 2}, 2, now_, losses_);
    EXPECT_EQ(releasedAllButTheFirst(2, indexes), 1);
    EXPECT_EQ(left(), (Left{1}));
    EXPECT_TRUE(ReadParts(*hold_).takeForfeited());
    EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
  }
}

/// The library gives back what was lost; its owner, whom no object tells, comes to do so later.
TEST_F(ReadPartsTest, WhatTheLibraryGaveBackIsNotTakenFromTheHoldAroundIt) {
  for (const bool indexes : {true, false}) {
    SCOPED_TRACE(indexes);
    hold_->parts.keepOnly({});
    add(30s);
    add(30s);
    hold_->parts.back().lost = true;
    EXPECT_EQ(releasedAllButTheFirst(2, indexes), 1);
    EXPECT_EQ(left(), (Left{1}));
    EXPECT_TRUE(ReadParts(*hold_).takeForfeited());
    EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
  }
}

TEST_F(ReadPartsTest, WhatItsOwnerGaveBackIsGivenBack) {
  for (const bool indexes : {true, false}) {
    SCOPED_TRACE(indexes);
    hold_->parts.keepOnly({});
    add(30s);
    add(30s);
    hold_->parts.back().lost = true;
    EXPECT_EQ(releasedAllButTheFirst(0, indexes), 1);
    EXPECT_EQ(left(), (Left{1}));
    EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
  }
}

TEST_F(ReadPartsTest, WithoutIndexesTheFirstToExpireAreOver) {
  add(30s);
  add(10s);
  add(20s);
  ReadParts(*hold_).keep({}, 1, now_, losses_);
  EXPECT_EQ(left(), (Left{1}));
}

TEST_F(ReadPartsTest, APartWhoseTimeIsOverIsALossOnlyToWhoeverWatchesIt) {
  add(10s);
  add(10s, true);
  now_ += 10s;
  ReadParts(*hold_).keep(std::vector<int>(), 0, now_, losses_);
  EXPECT_EQ(left(), Left());
  ASSERT_EQ(losses_.size(), 1U);
  EXPECT_EQ(losses_[0].incarnation, 2U);
  EXPECT_EQ(losses_[0].reason, LossReason::expired);
}

TEST_F(ReadPartsTest, APartWhoseTimeIsOverHasExpired) {
  add(10s, true);
  add(30s);
  now_ += 10s;
  ReadParts(*hold_).keep(std::vector<int>{2}, 1, now_, losses_);
  ASSERT_EQ(losses_.size(), 1U);
  EXPECT_EQ(losses_[0].reason, LossReason::expired);
}

TEST_F(ReadPartsTest, AReleaseWithoutAnIncarnationTakesTheLatest) {
  add(10s);
  add(10s, true);
  const auto handle = hold_->parts.back().handle;
  EXPECT_EQ(released({0, 1, false, {}}), 1);
  EXPECT_EQ(left(), (Left{1}));
  EXPECT_TRUE(handle->released());
  EXPECT_TRUE(losses_.empty());
}

TEST_F(ReadPartsTest, AReleaseTakesThePartThatItMeans) {
  add(10s);
  add(20s);
  EXPECT_EQ(released({1, 1, false, std::vector<int>{2}}), 1);
  EXPECT_EQ(left(), (Left{2}));
  EXPECT_TRUE(losses_.empty());
  EXPECT_EQ(hold_->validUntil, now_ + 20s);
}

TEST_F(ReadPartsTest, APartThatTheServerDidNotKnowIsLost) {
  add(10s, true);
  const auto handle = hold_->parts.back().handle;
  EXPECT_EQ(released({1, 0, true, {}}), 0);
  ASSERT_EQ(losses_.size(), 1U);
  EXPECT_EQ(losses_[0].incarnation, 1U);
  EXPECT_EQ(handle->reason(), LossReason::refused);
  EXPECT_FALSE(handle->released());
}

/// Its owner may come before the watchdog has looked.
TEST_F(ReadPartsTest, APartWhoseTimeIsOverIsALossAtItsReleaseOnlyToWhoeverWatchesIt) {
  for (const bool watched : {true, false}) {
    SCOPED_TRACE(watched);
    hold_->parts.keepOnly({});
    losses_.clear();
    add(30s);
    add(10s, watched);
    now_ += 10s;
    EXPECT_EQ(released({0, 1, true, std::vector<int>{1}}), 1);
    EXPECT_EQ(left(), (Left{1}));
    ASSERT_EQ(losses_.size(), watched ? 1U : 0U);
    if (watched) {
      EXPECT_EQ(losses_[0].reason, LossReason::expired);
    }
  }
}

}  // namespace
}  // namespace rlock::detail
