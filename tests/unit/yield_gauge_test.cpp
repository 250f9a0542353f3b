// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/net/yield_gauge.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

namespace rlock::detail::net {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::nanoseconds kInTime = YieldGauge::kLate;
constexpr std::chrono::nanoseconds kTooLate = YieldGauge::kLate + 1ns;

/// How many occasions pass until it is allowed again.
std::uint32_t pauseOf(YieldGauge& gauge) {
  std::uint32_t occasions = 0;
  while (!gauge.allowed()) {
    ++occasions;
  }
  return occasions;
}

TEST(YieldGauge, AllowsItWhileTheProcessorComesBackInTime) {
  YieldGauge gauge;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_TRUE(gauge.allowed());
    gauge.returned(kInTime);
  }
}

TEST(YieldGauge, ForbidsItForAWhileAfterALateReturn) {
  YieldGauge gauge;
  gauge.returned(kTooLate);
  EXPECT_EQ(pauseOf(gauge), YieldGauge::kLeastPause);
  gauge.returned(kInTime);
  EXPECT_TRUE(gauge.allowed());
}

TEST(YieldGauge, EachLateReturnDoublesThePauseUpToALimit) {
  YieldGauge gauge;
  for (std::uint32_t pause = YieldGauge::kLeastPause; pause < YieldGauge::kLongestPause;
       pause *= 2) {
    gauge.returned(kTooLate);
    EXPECT_EQ(pauseOf(gauge), pause);
  }
  for (int i = 0; i < 3; ++i) {
    gauge.returned(kTooLate);
    EXPECT_EQ(pauseOf(gauge), YieldGauge::kLongestPause);
  }
}

TEST(YieldGauge, OnlyAWhileOfReturnsInTimeMakesThePauseShortAgain) {
  YieldGauge gauge;
  gauge.returned(kTooLate);
  pauseOf(gauge);
  for (std::uint32_t i = 0; i + 1 < YieldGauge::kLeastPause; ++i) {
    gauge.returned(kInTime);
  }
  gauge.returned(kTooLate);
  EXPECT_EQ(pauseOf(gauge), 2 * YieldGauge::kLeastPause) << "the last of them was late";
  for (std::uint32_t i = 0; i < YieldGauge::kLeastPause; ++i) {
    gauge.returned(kInTime);
  }
  gauge.returned(kTooLate);
  EXPECT_EQ(pauseOf(gauge), YieldGauge::kLeastPause);
}

}  // namespace
}  // namespace rlock::detail::net
