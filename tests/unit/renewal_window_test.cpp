// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/renewal_window.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace rlock::detail {
namespace renewal_window_test {
namespace {

using TimePoint = RenewalWindow::TimePoint;
using Batch = RenewalWindow::Batch;
using End = RenewalWindow::End;

void firstForm(Call& /*call*/, std::span<const RenewalRequest> /*renewals*/) {}
void otherForm(Call& /*call*/, std::span<const RenewalRequest> /*renewals*/) {}

constexpr RenewalGroup kFirst{&firstForm, 1, RenewalAim::renew, {}};
constexpr RenewalGroup kOther{&otherForm, 1, RenewalAim::renew, {}};

TimePoint at(std::int64_t ms) {
  return TimePoint(std::chrono::milliseconds(ms));
}

HoldPtr makeHold() {
  static const auto name = std::make_shared<const std::string>("orders");
  return makeIntrusive<Hold>(name, HoldKind::lock, *name, OwnerId{1});
}

std::vector<HoldPtr> push(RenewalWindow& window,
                          const RenewalGroup& group,
                          std::size_t count,
                          TimePoint lossAt = at(0)) {
  std::vector<HoldPtr> holds;
  for (std::size_t i = 0; i < count; ++i) {
    window.push(group, holds.emplace_back(makeHold()), lossAt);
  }
  return holds;
}

/// The server has answered a batch of that form over the present connection.
void answerOne(RenewalWindow& window, const RenewalGroup& group) {
  push(window, group, 1);
  ASSERT_TRUE(window.next());
  window.ended(group.form, End::replied);
}

std::size_t takeAll(RenewalWindow& window) {
  std::size_t batches = 0;
  while (window.next()) {
    ++batches;
  }
  return batches;
}

TEST(RenewalWindow, IsIdleAtFirst) {
  RenewalWindow window(10);
  EXPECT_TRUE(window.idle());
  EXPECT_FALSE(window.next());
}

TEST(RenewalWindow, MakesBatchesOfAGroup) {
  RenewalWindow window(3);
  answerOne(window, kFirst);
  const std::vector<HoldPtr> holds = push(window, kFirst, 7);
  EXPECT_FALSE(window.idle());
  for (const std::vector<HoldPtr>& expected :
       {std::vector<HoldPtr>(holds.begin(), holds.begin() + 3),
        std::vector<HoldPtr>(holds.begin() + 3, holds.begin() + 6),
        std::vector<HoldPtr>(holds.begin() + 6, holds.end())}) {
    const std::optional<Batch> batch = window.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->holds, expected);
    EXPECT_EQ(batch->group.form, kFirst.form);
  }
  EXPECT_FALSE(window.next());
}

TEST(RenewalWindow, OneMayBeABatch) {
  RenewalWindow window(1);
  answerOne(window, kFirst);
  push(window, kFirst, 2);
  EXPECT_EQ(takeAll(window), 2U);
}

TEST(RenewalWindow, HoldsOfDifferentGroupsGoInDifferentBatches) {
  RenewalWindow window(10);
  answerOne(window, kFirst);
  answerOne(window, kOther);
  RenewalGroup slot = kFirst;
  slot.slot = 2;
  RenewalGroup aim = kFirst;
  aim.aim = RenewalAim::verify;
  RenewalGroup sync = kFirst;
  sync.sync = SyncPolicy::replicas(1, std::chrono::milliseconds(100));
  const std::vector<RenewalGroup> groups{kFirst, kOther, slot, aim, sync};
  for (int round = 0; round < 2; ++round) {
    for (const RenewalGroup& group : groups) {
      push(window, group, 1);
    }
  }
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const std::optional<Batch> batch = window.next();
    ASSERT_TRUE(batch);
    EXPECT_EQ(batch->holds.size(), 2U);
  }
  EXPECT_FALSE(window.next());
}

TEST(RenewalWindow, OnlySoManyAreUnderWay) {
  RenewalWindow window(1);
  answerOne(window, kFirst);
  push(window, kFirst, 2 * RenewalWindow::kAtOnce);
  EXPECT_EQ(takeAll(window), RenewalWindow::kAtOnce);
  window.ended(kFirst.form, End::replied);
  EXPECT_EQ(takeAll(window), 1U) << "an answer makes room for one";
}

TEST(RenewalWindow, ALostReplyGivesItsPlaceBack) {
  RenewalWindow window(1);
  answerOne(window, kFirst);
  push(window, kFirst, 2 * RenewalWindow::kAtOnce);
  EXPECT_EQ(takeAll(window), RenewalWindow::kAtOnce);
  for (std::size_t i = 0; i < RenewalWindow::kAtOnce; ++i) {
    window.ended(kFirst.form, End::unanswered);
  }
  EXPECT_EQ(takeAll(window), 1U) << "nobody knows whether the server is still there";
  window.ended(kFirst.form, End::replied);
  EXPECT_EQ(takeAll(window), RenewalWindow::kAtOnce - 1);
  for (std::size_t i = 0; i + 1 < RenewalWindow::kAtOnce; ++i) {
    window.ended(kFirst.form, End::replied);
  }
  EXPECT_TRUE(window.idle());
}

TEST(RenewalWindow, ThoseFirstThatWouldBeLostFirst) {
  RenewalWindow window(2);
  answerOne(window, kFirst);
  answerOne(window, kOther);
  const auto late = push(window, kFirst, 2, at(30));
  const auto early = push(window, kFirst, 2, at(10));
  const auto other = push(window, kOther, 2, at(20));
  const HoldPtr apart = makeHold();
  window.pushApart(kFirst, {apart}, at(5));
  EXPECT_EQ(window.next()->holds, std::vector{apart});
  EXPECT_EQ(window.next()->holds, early);
  EXPECT_EQ(window.next()->holds, other);
  EXPECT_EQ(window.next()->holds, late);
}

/// A hold that joins a waiting batch does not wait behind others that have more time.
TEST(RenewalWindow, ABatchGoesAsEarlyAsTheFirstOfItsHoldsNeeds) {
  RenewalWindow window(3);
  answerOne(window, kFirst);
  answerOne(window, kOther);
  std::vector<HoldPtr> joined = push(window, kFirst, 1, at(30));
  const auto other = push(window, kOther, 1, at(20));
  joined.push_back(push(window, kFirst, 1, at(10)).front());
  joined.push_back(push(window, kFirst, 1, at(40)).front());
  const auto late = push(window, kFirst, 1, at(15));
  EXPECT_EQ(window.next()->holds, joined);
  EXPECT_EQ(window.next()->holds, late);
  EXPECT_EQ(window.next()->holds, other);
}

TEST(RenewalWindow, WhatWasTakenApartStaysApart) {
  RenewalWindow window(10);
  answerOne(window, kFirst);
  const std::vector<HoldPtr> apart{makeHold(), makeHold()};
  window.pushApart(kFirst, apart, at(1));
  const auto others = push(window, kFirst, 3, at(1));
  EXPECT_EQ(window.next()->holds, apart);
  EXPECT_EQ(window.next()->holds, others);
}

TEST(RenewalWindow, NobodyJoinsABatchThatHasGone) {
  RenewalWindow window(10);
  answerOne(window, kFirst);
  const auto first = push(window, kFirst, 2);
  EXPECT_EQ(window.next()->holds, first);
  const auto second = push(window, kFirst, 2);
  EXPECT_EQ(window.next()->holds, second);
}

TEST(RenewalWindow, TheFirstBatchOfAFormGoesAlone) {
  RenewalWindow window(1);
  push(window, kFirst, 5, at(1));
  push(window, kOther, 5, at(2));
  EXPECT_EQ(takeAll(window), 2U) << "one of each form";
  window.ended(kFirst.form, End::replied);
  EXPECT_EQ(takeAll(window), 4U) << "the others of that form follow";
  window.ended(kOther.form, End::replied);
  EXPECT_EQ(takeAll(window), 4U);
}

TEST(RenewalWindow, SoItDoesAfterAReconnection) {
  RenewalWindow window(1);
  answerOne(window, kFirst);
  window.reconnected();
  push(window, kFirst, 5);
  EXPECT_EQ(takeAll(window), 1U);
  window.ended(kFirst.form, End::unanswered);
  EXPECT_EQ(takeAll(window), 1U) << "it brought nothing";
  window.ended(kFirst.form, End::replied);
  EXPECT_EQ(takeAll(window), 3U);
}

TEST(RenewalWindow, ARefusalSaysNothingOfTheScript) {
  RenewalWindow window(1);
  push(window, kFirst, 5);
  EXPECT_EQ(takeAll(window), 1U);
  window.ended(kFirst.form, End::refused);
  EXPECT_EQ(takeAll(window), 1U) << "it may still be missing";
  window.ended(kFirst.form, End::replied);
  EXPECT_EQ(takeAll(window), 3U);
  window.ended(kFirst.form, End::refused);
  push(window, kFirst, 2);
  EXPECT_EQ(takeAll(window), 2U) << "it is there";
}

TEST(RenewalWindow, ABatchKnowsWhetherItIsOneOfMany) {
  RenewalWindow window(1);
  answerOne(window, kFirst);
  push(window, kFirst, 1);
  EXPECT_FALSE(window.next()->crowded);
  window.ended(kFirst.form, End::replied);
  push(window, kFirst, 2);
  EXPECT_TRUE(window.next()->crowded) << "another waits";
  EXPECT_TRUE(window.next()->crowded) << "another is under way";
}

TEST(RenewalWindow, WhatIsUnderWayEndsAfterTheEnd) {
  RenewalWindow window(1);
  answerOne(window, kFirst);
  push(window, kFirst, 3);
  ASSERT_TRUE(window.next());
  window.clear();
  EXPECT_FALSE(window.next());
  EXPECT_FALSE(window.idle());
  window.ended(kFirst.form, End::replied);
  EXPECT_TRUE(window.idle());
}

}  // namespace
}  // namespace renewal_window_test
}  // namespace rlock::detail
