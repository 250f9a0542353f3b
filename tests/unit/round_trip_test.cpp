// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/net/round_trip.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

namespace rlock::detail::net {
namespace {

using namespace std::chrono_literals;

void noteOften(RoundTrip& roundTrip, std::chrono::nanoseconds measured) {
  for (int i = 0; i < 100; ++i) {
    roundTrip.note(measured);
  }
}

TEST(RoundTrip, BeginsWithTheFirstMeasurementAndFollowsSlowly) {
  RoundTrip roundTrip(true);
  EXPECT_EQ(roundTrip.smoothed(), 0ns);
  roundTrip.note(80us);
  EXPECT_EQ(roundTrip.smoothed(), 80us);
  roundTrip.note(160us);
  EXPECT_EQ(roundTrip.smoothed(), 90us);
  roundTrip.note(10us);
  EXPECT_EQ(roundTrip.smoothed(), 80us);
}

TEST(RoundTrip, PollsWhileRepliesComeQuickly) {
  RoundTrip roundTrip(true);
  EXPECT_TRUE(roundTrip.polls());
  noteOften(roundTrip, 195us);
  EXPECT_TRUE(roundTrip.polls());
  noteOften(roundTrip, 300us);
  EXPECT_FALSE(roundTrip.polls());
  noteOften(roundTrip, 170us);
  EXPECT_FALSE(roundTrip.polls()) << "a sleeping thread's wake-up is part of it";
  noteOften(roundTrip, 100us);
  EXPECT_TRUE(roundTrip.polls());
}

TEST(RoundTrip, PollsOnlyWhileFewRequestsArePending) {
  RoundTrip roundTrip(true);
  roundTrip.notePending(RoundTrip::kFew);
  EXPECT_TRUE(roundTrip.polls());
  roundTrip.notePending(RoundTrip::kFew + 1);
  EXPECT_FALSE(roundTrip.polls());
}

TEST(RoundTrip, RemembersACrowdForAWhile) {
  RoundTrip roundTrip(true);
  for (int i = 0; i < 1000; ++i) {
    // Of 16 callers the most wait for the server, or the most have just got their replies.
    roundTrip.notePending(i % 4 == 0 ? 16 : 1);
    ASSERT_FALSE(roundTrip.polls()) << i;
  }
  int reads = 0;
  while (!roundTrip.polls()) {
    roundTrip.notePending(1);
    ASSERT_LT(++reads, 20);
  }
  EXPECT_GT(reads, 5);
  for (int i = 0; i < 1000; ++i) {
    roundTrip.notePending(static_cast<std::uint64_t>(i) % RoundTrip::kFew);
    ASSERT_TRUE(roundTrip.polls()) << "few callers are no crowd, however long they go on";
  }
}

TEST(RoundTrip, TakesTheQueueForNoDistance) {
  RoundTrip roundTrip(true);
  roundTrip.notePending(1);
  roundTrip.note(80us);
  for (int i = 0; i < 100; ++i) {
    roundTrip.notePending(64);
    roundTrip.note(3ms);
  }
  EXPECT_EQ(roundTrip.smoothed(), 80us) << "64 requests are a queue";
  for (int i = 0; i < 100; ++i) {
    roundTrip.notePending(1);
  }
  EXPECT_TRUE(roundTrip.polls());
}

TEST(RoundTrip, NeverPollsWhenItMayNot) {
  RoundTrip roundTrip(false);
  EXPECT_FALSE(roundTrip.polls());
  noteOften(roundTrip, 10us);
  EXPECT_FALSE(roundTrip.polls());
  EXPECT_EQ(roundTrip.smoothed(), 10us);
}

}  // namespace
}  // namespace rlock::detail::net
