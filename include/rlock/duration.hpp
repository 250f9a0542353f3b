// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <chrono>
#include <compare>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <string_view>
#include <type_traits>

namespace rlock {

/// A length of time that cannot overflow: any `std::chrono::duration` converts to it, and a value
/// that does not fit becomes max() or min().
///
/// **Thread safety:** Immutable, safe from any thread.
///
/// The resolution is 1 ns and the range 292 years either way. max() means "for ever"; so does the
/// maximum of the source type, such as `std::chrono::hours::max()`, and floating infinity. NaN
/// gives a value for which valid() is false, which every call refuses with `invalidArgument`. A
/// fraction of a nanosecond rounds to the nearest, but never to zero (integer sources: away from
/// zero).
class Duration {
 public:
  /// Zero.
  constexpr Duration() noexcept = default;

  /// @param value  of any arithmetic representation; a value that does not fit saturates
  template <class Rep, class Period>
  requires std::is_arithmetic_v<Rep>
  // NOLINTNEXTLINE(google-explicit-constructor): the implicit conversion is the type's purpose
  constexpr Duration(std::chrono::duration<Rep, Period> value) noexcept
      : count_(convert<Rep, Period>(value.count())) {}

  /// For ever.
  static constexpr Duration max() noexcept { return Duration(kMax); }
  /// The most negative value, about -292 years.
  static constexpr Duration min() noexcept { return Duration(kMin); }
  /// No time at all.
  static constexpr Duration zero() noexcept { return Duration(); }

  /// Whether it is max().
  constexpr bool isInfinite() const noexcept { return count_ == kMax; }
  /// False for a duration made from NaN.
  constexpr bool valid() const noexcept { return count_ != kInvalid; }
  /// False for zero, for negative values and for a value that is not valid.
  constexpr bool isPositive() const noexcept { return count_ > 0; }

  /// Rounded up to whole milliseconds (1 ns gives 1 ms); `milliseconds::max()` when infinite,
  /// `milliseconds::min()` when not valid.
  constexpr std::chrono::milliseconds ceilMilliseconds() const noexcept {
    if (const auto special = specialMilliseconds(); special.count() != 0) {
      return special;
    }
    return std::chrono::milliseconds(count_ / kPerMilli + (count_ % kPerMilli > 0 ? 1 : 0));
  }
  /// Rounded down, towards the past; otherwise as ceilMilliseconds().
  constexpr std::chrono::milliseconds floorMilliseconds() const noexcept {
    if (const auto special = specialMilliseconds(); special.count() != 0) {
      return special;
    }
    return std::chrono::milliseconds(count_ / kPerMilli - (count_ % kPerMilli < 0 ? 1 : 0));
  }
  /// `nanoseconds::max()` when infinite, `nanoseconds::min()` when not valid.
  constexpr std::chrono::nanoseconds nanoseconds() const noexcept {
    return std::chrono::nanoseconds(count_);
  }

  /// `now` plus this, saturating; `time_point::max()` when infinite; `now` when not valid.
  constexpr std::chrono::steady_clock::time_point deadlineFrom(
      std::chrono::steady_clock::time_point now) const noexcept;

  /// Compares lengths; a value that is not valid sorts below all others.
  friend constexpr std::strong_ordering operator<=>(Duration a, Duration b) noexcept {
    return a.count_ <=> b.count_;
  }
  /// Compares lengths; values that are not valid are equal to each other.
  friend constexpr bool operator==(Duration a, Duration b) noexcept = default;

 private:
  __extension__ using Wide = __int128;

  static constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  static constexpr std::int64_t kInvalid = std::numeric_limits<std::int64_t>::min();
  static constexpr std::int64_t kMin = kInvalid + 1;
  static constexpr std::int64_t kPerMilli = 1'000'000;
  static constexpr std::int64_t kPerSecond = 1'000'000'000;

  explicit constexpr Duration(std::int64_t count) noexcept : count_(count) {}

  constexpr std::chrono::milliseconds specialMilliseconds() const noexcept {
    if (isInfinite()) {
      return std::chrono::milliseconds::max();
    }
    return valid() ? std::chrono::milliseconds::zero() : std::chrono::milliseconds::min();
  }

  template <class Rep, class Period>
  static constexpr std::int64_t convert(Rep value) noexcept {
    if constexpr (std::is_floating_point_v<Rep>) {
      return convertFloating<Rep, Period>(value);
    } else {
      return convertInteger<Rep, Period>(value);
    }
  }

  template <class Rep, class Period>
  static constexpr std::int64_t convertFloating(Rep value) noexcept;

  template <class Rep, class Period>
  static constexpr std::int64_t convertInteger(Rep value) noexcept;

  std::int64_t count_ = 0;
};

constexpr std::chrono::steady_clock::time_point Duration::deadlineFrom(
    std::chrono::steady_clock::time_point now) const noexcept {
  using TimePoint = std::chrono::steady_clock::time_point;
  static_assert(std::is_same_v<TimePoint::duration, std::chrono::nanoseconds>);
  if (!valid()) {
    return now;
  }
  if (isInfinite()) {
    return TimePoint::max();
  }
  const std::int64_t at = now.time_since_epoch().count();
  if (count_ > 0 && at > kMax - count_) {
    return TimePoint::max();
  }
  if (count_ < 0 && at < std::numeric_limits<std::int64_t>::min() - count_) {
    return TimePoint::min();
  }
  return TimePoint(std::chrono::nanoseconds(at + count_));
}

template <class Rep, class Period>
constexpr std::int64_t Duration::convertFloating(Rep value) noexcept {
  // The multiplication stays in Rep: widening 0.1f first would carry its rounding error into the
  // nanoseconds, and 100 ms would round up to 101.
  constexpr Rep kFactor = static_cast<Rep>(static_cast<long double>(kPerSecond) *
                                           static_cast<long double>(Period::num) /
                                           static_cast<long double>(Period::den));
  constexpr Rep kLimit = static_cast<Rep>(static_cast<long double>(kMax) / kFactor);
  if (value != value) {  // NOLINT(misc-redundant-expression): the constexpr form of isnan
    return kInvalid;
  }
  if (value >= kLimit) {
    return kMax;
  }
  if (value <= -kLimit) {
    return kMin;
  }
  const Rep scaled = value * kFactor;
  constexpr Rep kBound = static_cast<Rep>(kMax);
  if (scaled >= kBound) {
    return kMax;
  }
  if (scaled <= -kBound) {
    return kMin;
  }
  const auto whole = static_cast<std::int64_t>(scaled);
  const Rep rest = scaled - static_cast<Rep>(whole);
  constexpr Rep kHalf = static_cast<Rep>(0.5);
  if (value > 0) {
    return whole + (rest >= kHalf || whole == 0 ? 1 : 0);
  }
  if (value < 0) {
    return whole - (rest <= -kHalf || whole == 0 ? 1 : 0);
  }
  return 0;
}

template <class Rep, class Period>
constexpr std::int64_t Duration::convertInteger(Rep value) noexcept {
  if (value == std::numeric_limits<Rep>::max()) {
    return kMax;
  }
  if (std::is_signed_v<Rep> && value == std::numeric_limits<Rep>::min()) {
    return kMin;
  }
  constexpr std::intmax_t kCommon = std::gcd(kPerSecond, Period::den);
  constexpr Wide kMultiplier = static_cast<Wide>(Period::num) * (kPerSecond / kCommon);
  constexpr Wide kDivisor = Period::den / kCommon;
  constexpr Wide kWideMax = ~(static_cast<Wide>(1) << 127);
  const bool negative = value < static_cast<Rep>(0);
  const Wide magnitude = negative ? -static_cast<Wide>(value) : static_cast<Wide>(value);
  // A product beyond 127 bits is beyond 63 bits after any division by a 63-bit number too.
  if (magnitude > kWideMax / kMultiplier) {
    return negative ? kMin : kMax;
  }
  const Wide product = magnitude * kMultiplier;
  const Wide whole = product / kDivisor + (product % kDivisor != 0 ? 1 : 0);
  if (whole >= kMax) {
    return negative ? kMin : kMax;
  }
  return negative ? -static_cast<std::int64_t>(whole) : static_cast<std::int64_t>(whole);
}

/// The duration as text in the largest unit that needs no fraction, such as `30s`, `1500ms`, `-1s`,
/// `0ms`, `365d`, `for ever` or `not a number`. Option URIs accept these forms, except negative
/// ones and the last two.
inline std::string toString(Duration duration) {
  if (!duration.valid()) {
    return "not a number";
  }
  if (duration.isInfinite()) {
    return "for ever";
  }
  struct Unit {
    std::int64_t nanoseconds;
    std::string_view name;
  };
  constexpr std::array<Unit, 7> kUnits{{{86'400'000'000'000, "d"},
                                        {3'600'000'000'000, "h"},
                                        {60'000'000'000, "m"},
                                        {1'000'000'000, "s"},
                                        {1'000'000, "ms"},
                                        {1'000, "us"},
                                        {1, "ns"}}};
  const std::int64_t count = duration.nanoseconds().count();
  if (count == 0) {
    return "0ms";
  }
  for (const Unit& unit : kUnits) {
    if (count % unit.nanoseconds == 0) {
      return std::to_string(count / unit.nanoseconds).append(unit.name);
    }
  }
  return {};
}

}  // namespace rlock
