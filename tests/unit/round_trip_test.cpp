// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/net/round_trip.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace rlock::detail::net {
namespace {

using namespace std::chrono_literals;

void noteOften(RoundTrip& roundTrip, std::chrono::nanoseconds measured) {
  for (int i = 0; i < 100; ++i) {
    roundTrip.note(measured, 1);
  }
}

TEST(RoundTrip, BeginsWithTheFirstMeasurementAndFollowsSlowly) {
  RoundTrip roundTrip(true);
  EXPECT_EQ(roundTrip.smoothed(), 0ns);
  roundTrip.note(80us, 1);
  EXPECT_EQ(roundTrip.smoothed(), 80us);
  roundTrip.note(160us, 1);
  EXPECT_EQ(roundTrip.smoothed(), 90us);
  roundTrip.note(10us, 1);
  EXPECT_EQ(roundTrip.smoothed(), 80us);
}

TEST(RoundTrip, PollsWhileRepliesComeQuickly) {
  RoundTrip roundTrip(true);
  EXPECT_TRUE(roundTrip.polls(1));
  noteOften(roundTrip, 195us);
  EXPECT_TRUE(roundTrip.polls(1));
  noteOften(roundTrip, 300us);
  EXPECT_FALSE(roundTrip.polls(1));
  noteOften(roundTrip, 170us);
  EXPECT_FALSE(roundTrip.polls(1)) << "a sleeping thread's wake-up is part of it";
  noteOften(roundTrip, 100us);
  EXPECT_TRUE(roundTrip.polls(1));
}

TEST(RoundTrip, PollsOnlyWhileFewRequestsArePending) {
  const RoundTrip roundTrip(true);
  EXPECT_TRUE(roundTrip.polls(RoundTrip::kFew));
  EXPECT_FALSE(roundTrip.polls(RoundTrip::kFew + 1));
  EXPECT_FALSE(roundTrip.polls(64));
}

TEST(RoundTrip, TakesTheQueueForNoDistance) {
  RoundTrip roundTrip(true);
  roundTrip.note(80us, 1);
  for (int i = 0; i < 100; ++i) {
    roundTrip.note(3ms, 64);
  }
  EXPECT_EQ(roundTrip.smoothed(), 80us) << "64 requests are a queue";
  EXPECT_TRUE(roundTrip.polls(1));
}

TEST(RoundTrip, NeverPollsWhenItMayNot) {
  RoundTrip roundTrip(false);
  EXPECT_FALSE(roundTrip.polls(1));
  noteOften(roundTrip, 10us);
  EXPECT_FALSE(roundTrip.polls(1));
  EXPECT_EQ(roundTrip.smoothed(), 10us);
}

}  // namespace
}  // namespace rlock::detail::net
