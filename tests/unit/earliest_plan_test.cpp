// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/group/earliest_plan.hpp>

#include <gtest/gtest.h>

namespace rlock::detail {
namespace {

using namespace std::chrono_literals;

TEST(EarliestPlan, HoweverManyAskOneCallIsMade) {
  const EarliestPlan::Clock::time_point start{};
  EarliestPlan plan;
  EXPECT_TRUE(plan.plan(start + 10s));
  for (int i = 0; i < 5; ++i) {
    EXPECT_FALSE(plan.plan(start + 10s + std::chrono::seconds(i)));
  }
  EXPECT_TRUE(plan.begin(start + 10s));
  EXPECT_FALSE(plan.begin(start + 10s)) << "once";
  EXPECT_TRUE(plan.plan(start + 20s)) << "the next one";
}

TEST(EarliestPlan, AnEarlierCallReplacesALaterOne) {
  const EarliestPlan::Clock::time_point start{};
  EarliestPlan plan;
  EXPECT_TRUE(plan.plan(start + 10s));
  EXPECT_TRUE(plan.plan(start + 1s));
  EXPECT_TRUE(plan.begin(start + 1s));
  EXPECT_TRUE(plan.plan(start + 4s));
  EXPECT_FALSE(plan.begin(start + 10s)) << "whoever was replaced does nothing";
  EXPECT_TRUE(plan.begin(start + 4s));
}

TEST(EarliestPlan, WhatWillNotComeIsPlannedAnew) {
  const EarliestPlan::Clock::time_point start{};
  EarliestPlan plan;
  EXPECT_TRUE(plan.plan(start + 10s));
  plan.cancel(start + 10s);
  EXPECT_FALSE(plan.begin(start + 10s));
  EXPECT_TRUE(plan.plan(start + 12s));
  plan.cancel(start + 10s);
  EXPECT_TRUE(plan.begin(start + 12s)) << "the other one stays";
}

}  // namespace
}  // namespace rlock::detail
