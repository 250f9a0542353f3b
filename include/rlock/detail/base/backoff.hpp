// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace rlock::detail {

/// `first`, multiplied `attempt` times, but never more than `longest`.
inline std::chrono::nanoseconds exponentialPause(std::chrono::nanoseconds first,
                                                 std::chrono::nanoseconds longest,
                                                 int attempt,
                                                 int multiplier = 2) noexcept {
  std::chrono::nanoseconds pause = first;
  // A pause that does not grow would be multiplied for nothing; one that grows soon ends the loop.
  for (int i = 0; i < attempt && multiplier > 1 && pause.count() > 0 && pause < longest; ++i) {
    pause = pause > longest / multiplier ? longest : pause * multiplier;
  }
  return std::min(pause, longest);
}

/// A pause that doubles each time that what it is for was in vain.
///
/// **Thread safety:** one thread at a time.
class DoublingPause {
 public:
  constexpr DoublingPause(std::chrono::nanoseconds first, std::chrono::nanoseconds longest) noexcept
      : first_(first), longest_(longest), current_(first) {}

  [[nodiscard]] constexpr std::chrono::nanoseconds current() const noexcept { return current_; }
  /// Twice as long, but not longer than the longest.
  constexpr void grow() noexcept { current_ = std::min(2 * current_, longest_); }
  constexpr void reset() noexcept { current_ = first_; }
  /// The current one; the next one is twice as long.
  constexpr std::chrono::nanoseconds next() noexcept {
    const std::chrono::nanoseconds pause = current_;
    grow();
    return pause;
  }

 private:
  std::chrono::nanoseconds first_;
  std::chrono::nanoseconds longest_;
  std::chrono::nanoseconds current_;
};

/// For backoffPause() where there are no random bits at hand: numbers that follow each other become
/// such that differ in all low bits. The factor is 2^32 divided by the golden ratio.
constexpr std::uint32_t spreadBits(std::uint64_t number) noexcept {
  return static_cast<std::uint32_t>(number * 2654435761U);
}

/// The pause before the n-th repetition. It doubles from `min` to `max`; a random part of its
/// second half is left out, so that many callers do not come back together.
/// @param attempt  0 for the first repetition
/// @param random   any number; only its low 10 bits count
inline std::chrono::nanoseconds backoffPause(std::chrono::nanoseconds min,
                                             std::chrono::nanoseconds max,
                                             int attempt,
                                             std::uint32_t random) noexcept {
  const std::chrono::nanoseconds pause = exponentialPause(min, max, attempt);
  return pause - pause / 2 * static_cast<std::int64_t>(random % 1024) / 1024;
}

}  // namespace rlock::detail
