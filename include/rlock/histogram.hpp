// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace rlock {

/// How many durations fell into which range, and their sum: the ranges end at 2^10 ns, which is
/// 1.024 us, at 2^11 ns and so on, up to 2^43 ns, which is 2 h 26 min; the last has what is longer.
///
/// **Thread safety:** A plain value; one thread at a time.
struct Histogram {
  /// How many ranges there are.
  static constexpr std::size_t kBuckets = 35;

  /// How many durations fell into each range, and not into the ones before.
  std::array<std::uint64_t, kBuckets> counts{};
  /// Of all durations together.
  std::chrono::nanoseconds sum{0};

  /// The longest duration that belongs to a range; `nanoseconds::max()` for the last.
  [[nodiscard]] static constexpr std::chrono::nanoseconds upperBound(std::size_t bucket) noexcept {
    if (bucket >= kBuckets - 1) {
      return std::chrono::nanoseconds::max();
    }
    return std::chrono::nanoseconds(std::int64_t{1} << (kFirst + bucket));
  }
  /// The range that a duration belongs to. A negative one counts as zero.
  [[nodiscard]] static constexpr std::size_t bucketOf(std::chrono::nanoseconds duration) noexcept {
    const auto count = static_cast<std::uint64_t>(duration.count() < 1 ? 1 : duration.count());
    // The low bits are set so that all that belongs to the first range has its width.
    const auto width =
        static_cast<std::size_t>(std::bit_width((count - 1) | ((std::uint64_t{1} << kFirst) - 1)));
    return width - kFirst < kBuckets ? width - kFirst : kBuckets - 1;
  }

  /// How many durations there were.
  [[nodiscard]] constexpr std::uint64_t count() const noexcept {
    std::uint64_t all = 0;
    for (const std::uint64_t each : counts) {
      all += each;
    }
    return all;
  }
  /// The arithmetic mean; zero without durations.
  [[nodiscard]] constexpr std::chrono::nanoseconds mean() const noexcept {
    const std::uint64_t all = count();
    return all == 0 ? std::chrono::nanoseconds(0)
                    : std::chrono::nanoseconds(sum.count() / static_cast<std::int64_t>(all));
  }
  /// A duration that the given part of all durations does not exceed, such as 0.99: estimated
  /// within its range, so that it is at most twice what it should be or half of it. Zero without
  /// durations; the beginning of the last range for what belongs there.
  /// @param part  0 to 1; what is outside counts as the nearer end
  [[nodiscard]] constexpr std::chrono::nanoseconds quantile(double part) const noexcept;

  /// The first range ends at 2 to the power of this, in nanoseconds.
  static constexpr std::size_t kFirst = 10;

  /// Field by field.
  friend bool operator==(const Histogram&, const Histogram&) noexcept = default;
};

constexpr std::chrono::nanoseconds Histogram::quantile(double part) const noexcept {
  const std::uint64_t all = count();
  if (all == 0) {
    return std::chrono::nanoseconds(0);
  }
  // Of <algorithm>, which has 5,000 lines, nothing else would be used.
  const double within = part < 0.0 ? 0.0 : part > 1.0 ? 1.0 : part;
  const double rank = within * static_cast<double>(all);
  double below = 0;
  for (std::size_t bucket = 0; bucket < kBuckets; ++bucket) {
    const auto here = static_cast<double>(counts[bucket]);
    if (here > 0 && below + here >= rank) {
      const auto from = bucket == 0 ? std::chrono::nanoseconds(0) : upperBound(bucket - 1);
      if (bucket + 1 == kBuckets) {
        return from;
      }
      const auto width = static_cast<double>((upperBound(bucket) - from).count());
      const double above = rank > below ? rank - below : 0.0;
      return from + std::chrono::nanoseconds(static_cast<std::int64_t>(width * above / here));
    }
    below += here;
  }
  return upperBound(kBuckets - 2);
}

}  // namespace rlock
