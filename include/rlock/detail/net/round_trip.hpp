// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace rlock::detail::net {

/// How long replies take on a connection, and whether a thread that waits for one should poll the
/// socket before it sleeps.
///
/// **Thread safety:** note() from one thread at a time, the reader; the rest from any thread.
class RoundTrip {
 public:
  /// @param mayPoll  false: it never polls
  explicit RoundTrip(bool mayPoll) noexcept : mayPoll_(mayPoll), polls_(mayPoll) {}

  void note(std::chrono::steady_clock::duration measured) noexcept;
  /// Smoothed; 0 before the first.
  [[nodiscard]] std::chrono::nanoseconds smoothed() const noexcept {
    return std::chrono::nanoseconds(smoothed_.load(std::memory_order_relaxed));
  }
  [[nodiscard]] bool polls() const noexcept { return polls_.load(std::memory_order_relaxed); }

 private:
  // Polling pays while replies come quicker than a sleeping thread is woken. The two limits differ
  // because a measured round trip includes that wake-up once polling is off.
  static constexpr std::chrono::nanoseconds kPollBelow = std::chrono::microseconds(150);
  static constexpr std::chrono::nanoseconds kSleepAbove = std::chrono::microseconds(200);

  const bool mayPoll_;
  std::atomic<std::int64_t> smoothed_{0};
  std::atomic<bool> polls_;
};

inline void RoundTrip::note(std::chrono::steady_clock::duration measured) noexcept {
  const std::int64_t sample = std::chrono::nanoseconds(measured).count();
  const std::int64_t old = smoothed_.load(std::memory_order_relaxed);
  const std::int64_t smooth = old == 0 ? sample : old + (sample - old) / 8;
  smoothed_.store(smooth, std::memory_order_relaxed);
  if (mayPoll_) {
    const bool polling = polls();
    if (polling && smooth > kSleepAbove.count()) {
      polls_.store(false, std::memory_order_relaxed);
    } else if (!polling && smooth < kPollBelow.count()) {
      polls_.store(true, std::memory_order_relaxed);
    }
  }
}

}  // namespace rlock::detail::net
