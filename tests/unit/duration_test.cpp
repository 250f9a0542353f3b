// SPDX-License-Identifier: Apache-2.0
#include <rlock/duration.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <ratio>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace rlock {
namespace {

using std::chrono::duration;
using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::nanoseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

template <class T>
using Limits = std::numeric_limits<T>;
using Weeks = duration<std::int64_t, std::ratio<604800>>;
using Picoseconds = duration<std::int64_t, std::pico>;
template <class Rep>
using SecondsOf = duration<Rep>;

constexpr std::int64_t kMaxCount = Limits<std::int64_t>::max();

struct ConversionCase {
  std::string what;
  Duration made;
  Duration expected;
};

TEST(Duration, ConvertsEveryKindOfSource) {
  const std::vector<ConversionCase> cases{
      {"zero", seconds(0), Duration::zero()},
      {"1 ns", nanoseconds(1), nanoseconds(1)},
      {"-1 ns", nanoseconds(-1), nanoseconds(-1)},
      {"1 h", hours(1), nanoseconds(3'600'000'000'000)},
      {"365 d", hours(365 * 24), seconds(31'536'000)},
      {"narrow", SecondsOf<std::int16_t>(-5), seconds(-5)},
      {"unsigned", SecondsOf<std::uint32_t>(5), seconds(5)},
      {"unsigned zero", SecondsOf<std::uint64_t>(0), seconds(0)},
      {"third of a second", duration<int, std::ratio<1, 3>>(1), nanoseconds(333'333'334)},
      {"minus a third", duration<int, std::ratio<1, 3>>(-1), nanoseconds(-333'333'334)},
      {"1 ps", Picoseconds(1), nanoseconds(1)},
      {"-1 ps", Picoseconds(-1), nanoseconds(-1)},
      {"1000 ps", Picoseconds(1000), nanoseconds(1)},
      {"1001 ps", Picoseconds(1001), nanoseconds(2)},
      {"largest finite", nanoseconds(kMaxCount - 1), nanoseconds(kMaxCount - 1)},
      {"largest whole seconds", seconds(9'223'372'036), nanoseconds(9'223'372'036'000'000'000)},
      {"one second more", seconds(9'223'372'037), Duration::max()},
      {"one second less than the least", seconds(-9'223'372'037), Duration::min()},
      {"ns max", nanoseconds::max(), Duration::max()},
      {"ns min", nanoseconds::min(), Duration::min()},
      {"hours max", hours::max(), Duration::max()},
      {"hours max - 1", hours::max() - hours(1), Duration::max()},
      {"hours min", hours::min(), Duration::min()},
      {"ms max", milliseconds::max(), Duration::max()},
      {"ms min", milliseconds::min(), Duration::min()},
      {"weeks max", Weeks::max(), Duration::max()},
      {"weeks min + 1", Weeks(Weeks::min().count() + 1), Duration::min()},
      {"int max", SecondsOf<int>(Limits<int>::max()), Duration::max()},
      {"int max - 1", SecondsOf<int>(Limits<int>::max() - 1), seconds(Limits<int>::max() - 1)},
      {"int min", SecondsOf<int>(Limits<int>::min()), Duration::min()},
      {"uint64 max", SecondsOf<std::uint64_t>::max(), Duration::max()},
      {"uint64 max - 1 ns",
       duration<std::uint64_t, std::nano>(Limits<std::uint64_t>::max() - 1),
       Duration::max()},
      {"ps max", Picoseconds::max(), Duration::max()},
      {"ps max - 1", Picoseconds(kMaxCount - 1), nanoseconds(9'223'372'036'854'776)},
      {"coarsest period",
       duration<std::int64_t, std::ratio<Limits<std::intmax_t>::max()>>(1),
       Duration::max()},
      {"0.1 s", duration<double>(0.1), milliseconds(100)},
      {"0.3 s", duration<double>(0.3), milliseconds(300)},
      {"0.1 s float", duration<float>(0.1F), milliseconds(100)},
      {"0.1 ms", duration<double, std::milli>(0.1), microseconds(100)},
      {"1.5 ms long double", duration<long double, std::milli>(1.5L), microseconds(1500)},
      {"-2.5 s", duration<double>(-2.5), milliseconds(-2500)},
      {"half a minute", duration<double, std::ratio<60>>(0.5), seconds(30)},
      {"0.4 ns", duration<double, std::nano>(0.4), nanoseconds(1)},
      {"1.4 ns", duration<double, std::nano>(1.4), nanoseconds(1)},
      {"1.5 ns", duration<double, std::nano>(1.5), nanoseconds(2)},
      {"-0.4 ns", duration<double, std::nano>(-0.4), nanoseconds(-1)},
      {"-1.5 ns", duration<double, std::nano>(-1.5), nanoseconds(-2)},
      {"denormal", duration<double>(Limits<double>::denorm_min()), nanoseconds(1)},
      {"-0.0", duration<double>(-0.0), nanoseconds(0)},
      {"infinity", duration<double>(Limits<double>::infinity()), Duration::max()},
      {"-infinity", duration<double>(-Limits<double>::infinity()), Duration::min()},
      {"double max", duration<double>::max(), Duration::max()},
      {"double lowest", duration<double>(Limits<double>::lowest()), Duration::min()},
      {"1e300 h", duration<double, std::ratio<3600>>(1e300), Duration::max()},
      {"float max", duration<float, std::ratio<3600>>::max(), Duration::max()},
      {"2^63 ns", duration<double, std::nano>(9223372036854775808.0), Duration::max()},
      {"-2^63 ns", duration<double, std::nano>(-9223372036854775808.0), Duration::min()},
      {"just below 2^63 ns",
       duration<double, std::nano>(9223372036854774784.0),
       nanoseconds(9223372036854774784)},
      {"293 years", duration<double, std::ratio<31556952>>(293.0), Duration::max()},
  };
  for (const ConversionCase& test : cases) {
    EXPECT_EQ(test.made, test.expected) << test.what << ": " << test.made.nanoseconds().count();
    EXPECT_TRUE(test.made.valid()) << test.what;
  }
}

TEST(Duration, NanIsNotValid) {
  for (const Duration nan : {Duration(duration<double>(Limits<double>::quiet_NaN())),
                             Duration(duration<float>(-Limits<float>::quiet_NaN())),
                             Duration(duration<long double>(Limits<long double>::quiet_NaN()))}) {
    EXPECT_FALSE(nan.valid());
    EXPECT_FALSE(nan.isPositive());
    EXPECT_FALSE(nan.isInfinite());
    EXPECT_LT(nan, Duration::min());
    EXPECT_EQ(nan.ceilMilliseconds(), milliseconds::min());
    EXPECT_EQ(nan.floorMilliseconds(), milliseconds::min());
    EXPECT_EQ(nan.nanoseconds(), nanoseconds::min());
    EXPECT_EQ(toString(nan), "not a number");
  }
}

TEST(Duration, DefaultIsZero) {
  constexpr Duration kDefault;
  static_assert(kDefault == Duration::zero());
  static_assert(kDefault.valid() && !kDefault.isPositive() && !kDefault.isInfinite());
}

TEST(Duration, ConvertsInConstantExpressions) {
  static_assert(Duration(hours::max()).isInfinite());
  static_assert(Duration(duration<double>(0.25)) == milliseconds(250));
  static_assert(!Duration(duration<double>(Limits<double>::quiet_NaN())).valid());
  static_assert(Duration(duration<double>(Limits<double>::max())).isInfinite());
  static_assert(Duration(nanoseconds(1)).ceilMilliseconds() == milliseconds(1));
  static_assert(sizeof(Duration) == sizeof(std::int64_t));
  static_assert(std::is_nothrow_convertible_v<hours, Duration>);
  static_assert(std::is_nothrow_convertible_v<duration<float>, Duration>);
  static_assert(!std::is_convertible_v<int, Duration>);
  static_assert(!std::is_constructible_v<Duration, std::int64_t>);
}

TEST(Duration, RoundsToMilliseconds) {
  struct Case {
    Duration made;
    milliseconds up;
    milliseconds down;
  };
  const std::vector<Case> cases{
      {nanoseconds(0), milliseconds(0), milliseconds(0)},
      {nanoseconds(1), milliseconds(1), milliseconds(0)},
      {nanoseconds(999'999), milliseconds(1), milliseconds(0)},
      {nanoseconds(1'000'000), milliseconds(1), milliseconds(1)},
      {nanoseconds(1'000'001), milliseconds(2), milliseconds(1)},
      {nanoseconds(-1), milliseconds(0), milliseconds(-1)},
      {nanoseconds(-999'999), milliseconds(0), milliseconds(-1)},
      {nanoseconds(-1'000'000), milliseconds(-1), milliseconds(-1)},
      {nanoseconds(-1'000'001), milliseconds(-1), milliseconds(-2)},
      {nanoseconds(kMaxCount - 1),
       milliseconds(9'223'372'036'855),
       milliseconds(9'223'372'036'854)},
      {Duration::max(), milliseconds::max(), milliseconds::max()},
      {Duration::min(), milliseconds(-9'223'372'036'854), milliseconds(-9'223'372'036'855)},
  };
  for (const Case& test : cases) {
    EXPECT_EQ(test.made.ceilMilliseconds(), test.up) << test.made.nanoseconds().count();
    EXPECT_EQ(test.made.floorMilliseconds(), test.down) << test.made.nanoseconds().count();
  }
}

TEST(Duration, OrdersAndCompares) {
  EXPECT_LT(Duration::min(), Duration::zero());
  EXPECT_LT(Duration::zero(), Duration(nanoseconds(1)));
  EXPECT_LT(Duration(hours(1)), Duration::max());
  EXPECT_EQ(Duration(hours(1)), minutes(60));
  EXPECT_GT(Duration(seconds(2)), milliseconds(1999));
  EXPECT_TRUE(Duration(nanoseconds(1)).isPositive());
  EXPECT_TRUE(Duration::max().isPositive());
  EXPECT_FALSE(Duration(nanoseconds(-1)).isPositive());
  EXPECT_FALSE(Duration(nanoseconds(kMaxCount - 1)).isInfinite());
  const std::set<Duration> sorted{seconds(2), seconds(1), minutes(1)};
  EXPECT_EQ(*sorted.begin(), seconds(1));
}

TEST(Duration, DeadlineSaturates) {
  using TimePoint = steady_clock::time_point;
  const auto at = [](std::int64_t count) { return TimePoint(nanoseconds(count)); };
  struct Case {
    Duration wait;
    TimePoint now;
    TimePoint deadline;
  };
  const std::vector<Case> cases{
      {seconds(1), at(5), at(1'000'000'005)},
      {seconds(0), at(5), at(5)},
      {seconds(-1), at(5), at(-999'999'995)},
      {Duration::max(), at(5), TimePoint::max()},
      {Duration::max(), at(-5), TimePoint::max()},
      {nanoseconds(kMaxCount - 1), at(1), at(kMaxCount)},
      {nanoseconds(kMaxCount - 1), at(2), TimePoint::max()},
      {nanoseconds(kMaxCount - 1), at(0), at(kMaxCount - 1)},
      {hours(1), TimePoint::max(), TimePoint::max()},
      {nanoseconds(-1), TimePoint::min(), TimePoint::min()},
      {Duration::min(), at(0), at(-kMaxCount)},
      {Duration::min(), at(-1), TimePoint::min()},
      {Duration::min(), at(-2), TimePoint::min()},
      {duration<double>(Limits<double>::quiet_NaN()), at(7), at(7)},
  };
  for (const Case& test : cases) {
    EXPECT_EQ(test.wait.deadlineFrom(test.now), test.deadline)
        << test.wait.nanoseconds().count() << " from " << test.now.time_since_epoch().count();
  }
}

TEST(Duration, PrintsTheLargestWholeUnit) {
  const std::vector<std::pair<Duration, std::string>> cases{
      {seconds(0), "0ms"},
      {nanoseconds(1), "1ns"},
      {nanoseconds(1'500), "1500ns"},
      {microseconds(50), "50us"},
      {milliseconds(1500), "1500ms"},
      {milliseconds(3000), "3s"},
      {seconds(90), "90s"},
      {minutes(5), "5m"},
      {hours(1), "1h"},
      {hours(24 * 365), "365d"},
      {seconds(-1), "-1s"},
      {Duration::max(), "for ever"},
      {Duration::min(), "-9223372036854775807ns"},
  };
  for (const auto& [made, text] : cases) {
    EXPECT_EQ(toString(made), text);
  }
}

}  // namespace
}  // namespace rlock
