// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace rlock::detail::net {

/// Whether a thread that waits for a reply should poll the socket before it sleeps: if the server
/// answers quicker than a sleeping thread is woken, and few requests are pending. With many the
/// next reply comes at once anyway, and a reader that sleeps meanwhile finds more of them in one
/// read, as the server finds more requests in one.
///
/// **Thread safety:** one thread at a time, the reader.
class RoundTrip {
 public:
  /// So many are few.
  static constexpr std::uint64_t kFew = 8;

  /// @param mayPoll  false: it never polls
  explicit RoundTrip(bool mayPoll) noexcept : mayPoll_(mayPoll), quick_(mayPoll) {}

  /// @param pending  requests that were pending when the reply came: behind many of them it says
  ///                 how long the queue was, and nothing of the server
  void note(std::chrono::steady_clock::duration measured, std::uint64_t pending) noexcept;
  /// Smoothed; 0 before the first.
  [[nodiscard]] std::chrono::nanoseconds smoothed() const noexcept { return smoothed_; }
  /// @param pending  requests that are pending now
  [[nodiscard]] bool polls(std::uint64_t pending) const noexcept {
    return quick_ && pending <= kFew;
  }

 private:
  // Polling pays while replies come quicker than a sleeping thread is woken. The two limits differ
  // because a measured round trip includes that wake-up once polling is off.
  static constexpr std::chrono::nanoseconds kPollBelow = std::chrono::microseconds(150);
  static constexpr std::chrono::nanoseconds kSleepAbove = std::chrono::microseconds(200);

  const bool mayPoll_;
  std::chrono::nanoseconds smoothed_{0};
  bool quick_;
};

inline void RoundTrip::note(std::chrono::steady_clock::duration measured,
                            std::uint64_t pending) noexcept {
  if (pending > kFew) {
    return;
  }
  const std::chrono::nanoseconds sample(measured);
  smoothed_ = smoothed_.count() == 0 ? sample : smoothed_ + (sample - smoothed_) / 8;
  if (mayPoll_) {
    quick_ = quick_ ? smoothed_ <= kSleepAbove : smoothed_ < kPollBelow;
  }
}

}  // namespace rlock::detail::net
