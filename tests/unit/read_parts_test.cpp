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

/// The release takes its own part, whatever the clocks say: the server does the same.
TEST_F(ReadPartsTest, AReleaseTakesOneAwayAlthoughOthersAreOver) {
  add(10s);
  add(30s, true);
  add(20s);
  add(30s, true);
  now_ += 20s;
  EXPECT_EQ(released({.incarnation = 4, .remain = 3}), 3);
  EXPECT_EQ(left(), (Left{1, 2, 3}));
  EXPECT_EQ(released({.incarnation = 2, .remain = 2}), 2);
  EXPECT_EQ(left(), (Left{1, 3}));
  EXPECT_TRUE(losses_.empty());
}

/// Their indexes are those that they have after the release.
TEST_F(ReadPartsTest, WhatIsOverOnTheServerIsLostAndKeepsItsPlace) {
  for (const std::uint64_t which : {1U, 3U}) {
    SCOPED_TRACE(which);
    hold_->parts.keepOnly({});
    losses_.clear();
    add(30s);
    add(30s, true);
    add(30s);
    const auto handle = hold_->parts[1].handle;
    EXPECT_EQ(released({.incarnation = which, .remain = 2, .over = {which == 1 ? 1 : 2}}), 2);
    EXPECT_EQ(left(), (which == 1 ? Left{2, 3} : Left{1, 2}));
    ASSERT_EQ(losses_.size(), 1U);
    EXPECT_EQ(losses_[0].incarnation, 2U);
    EXPECT_EQ(handle->reason(), LossReason::refused);
    EXPECT_FALSE(hold_->lost);
  }
}

TEST_F(ReadPartsTest, WhatIsOverOnTheServerAndByTheClockHasExpired) {
  add(30s);
  add(10s);
  add(10s, true);
  add(30s);
  now_ += 10s;
  EXPECT_EQ(released({.incarnation = 4, .remain = 3, .over = {2, 3}}), 3);
  ASSERT_EQ(losses_.size(), 1U) << "of the other nobody is told";
  EXPECT_EQ(losses_[0].incarnation, 3U);
  EXPECT_EQ(losses_[0].reason, LossReason::expired);
}

/// Then the indexes would mean others.
TEST_F(ReadPartsTest, WhereTheServerCountsFewerTheLatestAreGone) {
  add(30s);
  add(10s);
  add(60s, true);
  add(30s);
  EXPECT_EQ(released({.incarnation = 4, .remain = 2, .over = {1}}), 2);
  EXPECT_EQ(left(), (Left{1, 2}));
  ASSERT_EQ(losses_.size(), 1U);
  EXPECT_EQ(losses_[0].incarnation, 3U);
}

TEST_F(ReadPartsTest, TheOnesThatAreLostAreNotWanted) {
  add(30s);
  add(30s);
  EXPECT_EQ(ReadParts(*hold_).wanted(), 2);
  hold_->parts[0].lost = true;
  EXPECT_EQ(ReadParts(*hold_).wanted(), 1);
}

/// A hold that ended by itself is given back before the one around it.
TEST_F(ReadPartsTest, WhatTheServerDroppedIsGivenBackOnce) {
  add(30s);
  add(10s);
  add(10s);
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
  now_ += 10s;
  ReadParts(*hold_).keep(1, now_, losses_);
  EXPECT_EQ(left(), (Left{1}));
  add(30s);
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited()) << "the latest of all is there";
  EXPECT_EQ(released({.remain = 1}), 1);
  EXPECT_TRUE(ReadParts(*hold_).takeForfeited());
  EXPECT_TRUE(ReadParts(*hold_).takeForfeited());
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
  EXPECT_EQ(released({.remain = 0}), 0);
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
}

TEST_F(ReadPartsTest, AHoldWithAnObjectIsGivenBackByIt) {
  add(30s);
  add(10s, true);
  now_ += 10s;
  ReadParts(*hold_).keep(1, now_, losses_);
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
}

/// The one around it may go first, by its object.
TEST_F(ReadPartsTest, WhatTheServerDroppedOutlivesTheHoldAroundIt) {
  add(30s);
  add(30s, true);
  add(10s);
  now_ += 10s;
  ReadParts(*hold_).keep(2, now_, losses_);
  EXPECT_EQ(released({.incarnation = 2, .remain = 1}), 1);
  EXPECT_EQ(left(), (Left{1}));
  EXPECT_TRUE(ReadParts(*hold_).takeForfeited());
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
}

/// The library gives back what was lost; its owner, whom no object tells, comes to do so later.
TEST_F(ReadPartsTest, WhatTheLibraryGaveBackIsNotTakenFromTheHoldAroundIt) {
  add(30s);
  add(30s);
  hold_->parts.back().lost = true;
  EXPECT_EQ(released({.incarnation = 2, .remain = 1}), 1);
  EXPECT_EQ(left(), (Left{1}));
  EXPECT_TRUE(ReadParts(*hold_).takeForfeited());
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
}

TEST_F(ReadPartsTest, WhatItsOwnerGaveBackIsGivenBack) {
  add(30s);
  add(30s);
  hold_->parts.back().lost = true;
  EXPECT_EQ(released({.incarnation = 0, .remain = 1}), 1);
  EXPECT_EQ(left(), (Left{1}));
  EXPECT_FALSE(ReadParts(*hold_).takeForfeited());
}

TEST_F(ReadPartsTest, APartWhoseTimeIsOverIsALossOnlyToWhoeverWatchesIt) {
  add(10s);
  add(10s, true);
  now_ += 10s;
  ReadParts(*hold_).keep(0, now_, losses_);
  EXPECT_EQ(left(), Left());
  ASSERT_EQ(losses_.size(), 1U);
  EXPECT_EQ(losses_[0].incarnation, 2U);
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
  EXPECT_EQ(released({1, 1, false, {}}), 1);
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
    EXPECT_EQ(released({0, 1, true, {}}), 1);
    EXPECT_EQ(left(), (Left{1}));
    ASSERT_EQ(losses_.size(), watched ? 1U : 0U);
    if (watched) {
      EXPECT_EQ(losses_[0].reason, LossReason::expired);
    }
  }
}

}  // namespace
}  // namespace rlock::detail
