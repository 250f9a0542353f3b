// SPDX-License-Identifier: Apache-2.0
#include <rlock/back_off.hpp>
#include <rlock/detail/base/backoff.hpp>
#include <rlock/error.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <vector>

namespace rlock {
namespace {

using std::chrono::milliseconds;
using Pauses = std::vector<milliseconds::rep>;

Pauses basesOf(const BackOff& backOff, int count) {
  Pauses pauses;
  for (int attempts = 1; attempts <= count; ++attempts) {
    pauses.push_back(backOff.base(attempts).count());
  }
  return pauses;
}

template <class Make>
std::optional<Errc> refusal(Make make) {
  try {
    static_cast<void>(make());
    return std::nullopt;
  } catch (const Error& error) {
    return error.errc();
  }
}

TEST(BackOffTest, BO01_ExponentialGrowsToItsCap) {
  const BackOff backOff = BackOff::exponential(milliseconds(10), milliseconds(100), 3);
  EXPECT_EQ(basesOf(backOff, 6), (Pauses{10, 30, 90, 100, 100, 100}));
  for (int round = 0; round < 200; ++round) {
    const auto expect = [&](int attempts, milliseconds low, milliseconds high) {
      const milliseconds pause = backOff.next(attempts);
      EXPECT_GE(pause, low) << attempts;
      EXPECT_LE(pause, high) << attempts;
    };
    expect(1, milliseconds(10), milliseconds(10));
    expect(2, milliseconds(30), milliseconds(31));
    expect(3, milliseconds(90), milliseconds(92));
    expect(4, milliseconds(100), milliseconds(103));
    expect(5, milliseconds(100), milliseconds(104));
  }
}

TEST(BackOffTest, BO01_TheDefaults) {
  EXPECT_EQ(basesOf(BackOff::exponential(), 10), (Pauses{1, 2, 4, 8, 16, 32, 64, 128, 128, 128}));
  EXPECT_EQ(basesOf(BackOff::constant(), 3), (Pauses{64, 64, 64}));
}

TEST(BackOffTest, BO02_ConstantStaysTheSame) {
  const BackOff backOff = BackOff::constant(milliseconds(30));
  EXPECT_EQ(basesOf(backOff, 10), Pauses(10, 30));
  EXPECT_EQ(backOff.next(1), milliseconds(30));
}

TEST(BackOffTest, TheExtraIsSpreadAndAtMostAQuarter) {
  const BackOff backOff = BackOff::constant(milliseconds(40));
  EXPECT_EQ(backOff.longestExtra(1), milliseconds(0));
  EXPECT_EQ(backOff.longestExtra(4), milliseconds(3));
  EXPECT_EQ(backOff.longestExtra(11), milliseconds(10));
  EXPECT_EQ(backOff.longestExtra(1'000'000), milliseconds(10));
  EXPECT_EQ(BackOff::exponential().longestExtra(2), milliseconds(0)) << "a quarter of 2 ms";
  std::set<milliseconds::rep> seen;
  for (int round = 0; round < 2000; ++round) {
    seen.insert(backOff.next(100).count());
  }
  EXPECT_EQ(seen.size(), 11U);
  EXPECT_EQ(*seen.begin(), 40);
  EXPECT_EQ(*seen.rbegin(), 50);
}

TEST(BackOffTest, RefusesWhatIsNotAboveZero) {
  const milliseconds one(1);
  EXPECT_EQ(refusal([&] { return BackOff::exponential(milliseconds(0)); }), Errc::invalidArgument);
  EXPECT_EQ(refusal([&] { return BackOff::exponential(-one); }), Errc::invalidArgument);
  EXPECT_EQ(refusal([&] { return BackOff::exponential(one, milliseconds(0)); }),
            Errc::invalidArgument);
  EXPECT_EQ(refusal([&] { return BackOff::exponential(one, one, 0); }), Errc::invalidArgument);
  EXPECT_EQ(refusal([&] { return BackOff::exponential(one, one, -2); }), Errc::invalidArgument);
  EXPECT_EQ(refusal([&] { return BackOff::constant(milliseconds(0)); }), Errc::invalidArgument);
  EXPECT_EQ(refusal([&] {
              return BackOff::constant(
                  std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN()));
            }),
            Errc::invalidArgument);
  EXPECT_EQ(refusal([&] { return BackOff::exponential(one, one, 1); }), std::nullopt);
}

TEST(BackOffTest, OddParametersNeitherOverflowNorLoop) {
  const BackOff endless =
      BackOff::exponential(Duration::max(), Duration::max(), std::numeric_limits<int>::max());
  EXPECT_EQ(endless.base(std::numeric_limits<int>::max()), std::chrono::hours(24 * 365));
  const BackOff steep =
      BackOff::exponential(milliseconds(3), Duration::max(), std::numeric_limits<int>::max());
  EXPECT_EQ(steep.base(1), milliseconds(3));
  EXPECT_GT(steep.base(2), milliseconds(3));
  EXPECT_EQ(steep.base(3), std::chrono::hours(24 * 365));
  const BackOff level = BackOff::exponential(milliseconds(5), Duration::max(), 1);
  EXPECT_EQ(level.base(std::numeric_limits<int>::max()), milliseconds(5));
  EXPECT_EQ(level.base(-7), milliseconds(5));
  const BackOff capped = BackOff::exponential(milliseconds(50), milliseconds(20), 2);
  EXPECT_EQ(basesOf(capped, 3), (Pauses{20, 20, 20}));
  EXPECT_EQ(BackOff::constant(std::chrono::nanoseconds(1)).base(1), milliseconds(1));
  EXPECT_EQ(BackOff::constant(std::chrono::microseconds(1001)).base(1), milliseconds(2));
}

TEST(ExponentialPause, GrowsToItsCapAndNoFurther) {
  const auto pause = [](int attempt, int multiplier) {
    return detail::exponentialPause(milliseconds(10), milliseconds(100), attempt, multiplier);
  };
  EXPECT_EQ(pause(0, 3), milliseconds(10));
  EXPECT_EQ(pause(1, 3), milliseconds(30));
  EXPECT_EQ(pause(2, 3), milliseconds(90));
  EXPECT_EQ(pause(3, 3), milliseconds(100));
  EXPECT_EQ(pause(std::numeric_limits<int>::max(), 3), milliseconds(100));
  EXPECT_EQ(pause(std::numeric_limits<int>::max(), 1), milliseconds(10));
  EXPECT_EQ(detail::exponentialPause(milliseconds(0), milliseconds(100), 1'000'000'000),
            milliseconds(0));
  EXPECT_EQ(detail::exponentialPause(milliseconds(200), milliseconds(100), 0), milliseconds(100));
}

TEST(ExponentialPause, DoesNotOverflow) {
  constexpr auto kLongest = std::chrono::nanoseconds::max();
  EXPECT_EQ(detail::exponentialPause(std::chrono::nanoseconds(1), kLongest, 200), kLongest);
}

TEST(DoublingPause, DoublesToItsLongestAndBeginsAnew) {
  detail::DoublingPause pause(milliseconds(50), milliseconds(300));
  EXPECT_EQ(pause.next(), milliseconds(50));
  EXPECT_EQ(pause.next(), milliseconds(100));
  EXPECT_EQ(pause.current(), milliseconds(200));
  pause.grow();
  EXPECT_EQ(pause.next(), milliseconds(300));
  EXPECT_EQ(pause.current(), milliseconds(300));
  pause.reset();
  EXPECT_EQ(pause.current(), milliseconds(50));
}

TEST(BackoffPause, LeavesOutPartOfTheSecondHalf) {
  for (std::uint32_t random = 0; random < 5000; ++random) {
    const auto pause = detail::backoffPause(milliseconds(10), milliseconds(100), 2, random);
    EXPECT_GT(pause, milliseconds(20));
    EXPECT_LE(pause, milliseconds(40));
  }
  EXPECT_EQ(detail::backoffPause(milliseconds(10), milliseconds(100), 2, 0), milliseconds(40));
  EXPECT_LT(detail::backoffPause(milliseconds(10), milliseconds(100), 2, 1023), milliseconds(21));
}

}  // namespace
}  // namespace rlock
