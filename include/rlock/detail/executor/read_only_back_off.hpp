// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace rlock::detail {

/// When a server that has turned read-only is left for a new connection, which may lead to the
/// master by now: at once after a time of calm, and more and more rarely while that helps nothing,
/// for it may be read-only for good.
///
/// **Thread safety:** one thread at a time. It reads no clock.
class ReadOnlyBackOff {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// @param min  the first pause
  /// @param max  the longest one
  ReadOnlyBackOff(std::chrono::nanoseconds min, std::chrono::nanoseconds max) noexcept
      : min_(min), max_(max) {}

  /// A request was refused. Returns whether the connection is to be left.
  [[nodiscard]] bool leaves(TimePoint now) noexcept {
    if (now < from_) {
      return false;
    }
    constexpr int kCalm = 10;
    const bool calm = now - from_ > kCalm * pause_;
    pause_ = calm ? min_ : std::min(2 * pause_, max_);
    from_ = now + pause_;
    return true;
  }

 private:
  const std::chrono::nanoseconds min_;
  const std::chrono::nanoseconds max_;
  TimePoint from_{};
  std::chrono::nanoseconds pause_{};
};

}  // namespace rlock::detail
