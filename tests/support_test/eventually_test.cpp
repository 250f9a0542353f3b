// SPDX-License-Identifier: Apache-2.0
#include "support/eventually.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace rlock::test {
namespace {

using std::chrono::milliseconds;

TEST(Eventually, ReturnsAsSoonAsTheConditionHolds) {
  std::atomic<bool> set = false;
  std::thread setter([&] {
    std::this_thread::sleep_for(milliseconds(20));
    set = true;
  });
  const Stopwatch watch;
  EXPECT_TRUE(eventually(milliseconds(10'000), [&] { return set.load(); }));
  EXPECT_LT(watch.elapsedMs(), milliseconds(5'000));
  setter.join();
}

TEST(Eventually, GivesUpAfterTheDeadline) {
  const Stopwatch watch;
  EXPECT_FALSE(eventually(milliseconds(30), [] { return false; }));
  EXPECT_GE(watch.elapsedMs(), scaled(milliseconds(30)) - milliseconds(1));
}

TEST(Eventually, AsksAtLeastOnce) {
  EXPECT_TRUE(eventually(milliseconds(0), [] { return true; }));
  int asked = 0;
  EXPECT_FALSE(eventually(milliseconds(-1), [&] { return ++asked == 0; }));
  EXPECT_GE(asked, 1);
}

TEST(Eventually, MacrosPollTheExpression) {
  int asked = 0;
  EXPECT_EVENTUALLY(milliseconds(1'000), ++asked == 3);
  ASSERT_EVENTUALLY(milliseconds(1'000), ++asked == 5);
  EXPECT_EQ(asked, 5);
}

TEST(Deadline, NeverHasNegativeTimeLeft) {
  const Deadline past(milliseconds(-5));
  EXPECT_TRUE(past.expired());
  EXPECT_EQ(past.remaining(), milliseconds(0));
  const Deadline future(milliseconds(60'000));
  EXPECT_FALSE(future.expired());
  EXPECT_GT(future.remaining(), milliseconds(0));
}

TEST(Stopwatch, RestartsAtZero) {
  Stopwatch watch;
  std::this_thread::sleep_for(milliseconds(15));
  EXPECT_GE(watch.elapsedMs(), milliseconds(15));
  const auto before = Stopwatch::Clock::now();
  watch.restart();
  const auto elapsed = watch.elapsed();
  EXPECT_LE(elapsed, Stopwatch::Clock::now() - before);
}

}  // namespace
}  // namespace rlock::test
