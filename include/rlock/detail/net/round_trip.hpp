// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>

namespace rlock::detail::net {

/// Whether a thread that waits for a reply should poll the socket before it sleeps: if the server
/// answers quicker than a sleeping thread is woken, and few requests are pending at once. With many
/// the next reply comes at once anyway, a reader that sleeps meanwhile finds more of them in one
/// read, as the server finds more requests in one, and a reader that polls keeps a processor from
/// the threads that have got theirs.
///
/// Of many callers most have their reply just after a read, so that for a moment few requests are
/// pending. A reader therefore goes by how many there lately were at once.
///
/// **Thread safety:** one thread at a time, the reader.
class RoundTrip {
 public:
  /// So many are few. Measured: 4 callers gain by polling, 8 do not, and 16 lose.
  static constexpr std::uint64_t kFew = 5;

  /// @param mayPoll  false: it never polls
  explicit RoundTrip(bool mayPoll) noexcept : mayPoll_(mayPoll), quick_(mayPoll) {}

  /// A thread becomes the reader, or replies have come.
  /// @param pending  how many requests are pending, those counted whose replies have come
  void notePending(std::uint64_t pending) noexcept;
  /// A reply has come. Behind many requests its time says how long the queue was, and nothing of
  /// the server, and is not counted.
  void note(std::chrono::steady_clock::duration measured) noexcept;
  /// Smoothed; 0 before the first.
  [[nodiscard]] std::chrono::nanoseconds smoothed() const noexcept { return smoothed_; }
  [[nodiscard]] bool polls() const noexcept { return quick_ && !crowded(); }

 private:
  // Polling pays while replies come quicker than a sleeping thread is woken. The two limits differ
  // because a measured round trip includes that wake-up once polling is off.
  static constexpr std::chrono::nanoseconds kPollBelow = std::chrono::microseconds(150);
  static constexpr std::chrono::nanoseconds kSleepAbove = std::chrono::microseconds(200);
  // The crowd is counted in parts of a request, so that it can shrink by an eighth each time.
  static constexpr std::uint64_t kParts = 16;

  [[nodiscard]] bool crowded() const noexcept { return crowd_ > kFew * kParts; }

  const bool mayPoll_;
  std::chrono::nanoseconds smoothed_{0};
  bool quick_;
  std::uint64_t crowd_ = 0;  // grows at once, shrinks slowly
};

inline void RoundTrip::notePending(std::uint64_t pending) noexcept {
  const std::uint64_t now = pending * kParts;
  crowd_ = now >= crowd_ ? now : crowd_ - (crowd_ - now + 7) / 8;
}

inline void RoundTrip::note(std::chrono::steady_clock::duration measured) noexcept {
  if (crowded()) {
    return;
  }
  const std::chrono::nanoseconds sample(measured);
  smoothed_ = smoothed_.count() == 0 ? sample : smoothed_ + (sample - smoothed_) / 8;
  if (mayPoll_) {
    quick_ = quick_ ? smoothed_ <= kSleepAbove : smoothed_ < kPollBelow;
  }
}

}  // namespace rlock::detail::net
