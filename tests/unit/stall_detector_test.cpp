// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/net/stall_detector.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace rlock::detail::net {
namespace stall_detector_test {
namespace {

using namespace std::chrono_literals;

using TimePoint = StallDetector::TimePoint;

constexpr auto kTimeout = 1000ms;

class StallDetectorTest : public ::testing::Test {
 protected:
  StallDetectorTest() { detector_.heard(start_); }

  const TimePoint start_ = TimePoint(1h);
  StallDetector detector_{kTimeout};
};

TEST_F(StallDetectorTest, CountsFromTheOldestRequestOrTheLatestReply) {
  EXPECT_EQ(detector_.due(start_ - 1s), start_ + kTimeout) << "the connection counts like a reply";
  EXPECT_EQ(detector_.due(start_ + 100ms), start_ + 100ms + kTimeout);
  detector_.heard(start_ + 300ms);
  EXPECT_EQ(detector_.due(start_ + 100ms), start_ + 300ms + kTimeout);
}

TEST_F(StallDetectorTest, SilenceGetsOneSecondLook) {
  const TimePoint due = detector_.due(start_);
  EXPECT_EQ(detector_.judge(start_, due - 1ns), due);
  const TimePoint again = detector_.judge(start_, due);
  EXPECT_GT(again, due);
  EXPECT_LT(again, due + kTimeout);
  EXPECT_EQ(detector_.judge(start_, again - 1ns), again) << "it is not granted anew";
  EXPECT_EQ(detector_.judge(start_, again), TimePoint::max());
}

TEST_F(StallDetectorTest, AReplyEndsTheSuspicion) {
  const TimePoint again = detector_.judge(start_, start_ + kTimeout);
  detector_.heard(again - 1ms);
  const TimePoint due = again - 1ms + kTimeout;
  EXPECT_EQ(detector_.judge(start_, again), due);
  EXPECT_GT(detector_.judge(start_, due), due) << "the next silence gets a second look of its own";
}

TEST_F(StallDetectorTest, ASecondLookThatComesLateIsOneAllTheSame) {
  const TimePoint late = start_ + 1h;
  EXPECT_GT(detector_.judge(start_, late), late) << "this process was stopped, perhaps";
}

}  // namespace
}  // namespace stall_detector_test
}  // namespace rlock::detail::net
