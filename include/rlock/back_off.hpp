// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/duration.hpp>
#include <rlock/export.hpp>

#include <chrono>
#include <cstdint>

namespace rlock {

/// How long a waiter of a spin lock pauses between two attempts.
///
/// **Thread safety:** Immutable, safe from any thread.
///
/// The pause after the n-th attempt is base() and a random extra of 0 up to `n - 1` ms, but not
/// more than a quarter of the base: waiters that began together do not stay together. (Redisson's
/// `ConstantBackoff` has no extra.) All times are rounded up to whole milliseconds; more than 365
/// days counts as 365 days.
class RLOCK_EXPORT BackOff {
 public:
  /// The first pause is `initial`; each further one is `multiplier` times as long, up to `max`.
  /// @throws Error  `invalidArgument` unless all are above 0
  /// @par Source  Redisson `LockOptions.ExponentialBackOff`
  static BackOff exponential(Duration initial = std::chrono::milliseconds(1),
                             Duration max = std::chrono::milliseconds(128),
                             int multiplier = 2);
  /// All pauses are `delay`.
  /// @throws Error  `invalidArgument` unless it is above 0
  /// @par Source  Redisson `LockOptions.ConstantBackOff`
  static BackOff constant(Duration delay = std::chrono::milliseconds(64));

  /// The pause after the n-th attempt without the random extra. n counts from 1.
  [[nodiscard]] std::chrono::milliseconds base(int attempts) const noexcept;
  /// The longest random extra after the n-th attempt.
  [[nodiscard]] std::chrono::milliseconds longestExtra(int attempts) const noexcept;
  /// The pause after the n-th attempt.
  [[nodiscard]] std::chrono::milliseconds next(int attempts) const;

 private:
  BackOff(std::chrono::milliseconds initial, std::chrono::milliseconds max, int multiplier) noexcept
      : initial_(initial), max_(max), multiplier_(multiplier) {}

  std::chrono::milliseconds initial_;
  std::chrono::milliseconds max_;
  int multiplier_;
};

}  // namespace rlock
