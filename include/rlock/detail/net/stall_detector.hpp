// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace rlock::detail::net {

/// Whether a connection with unanswered requests is dead: it is when the server has been silent for
/// too long. Only replies count, not bytes: a server that sends one now and then answers nobody.
/// Replies to others count, namely to those before the oldest request in a long queue.
///
/// The first look that finds it overdue grants a second one: it may be this process that was
/// stopped, with the replies in the socket and nobody to read them yet.
///
/// **Thread safety:** one thread at a time. It reads no clock.
class StallDetector {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// @param timeout  how long a connection with unanswered requests may be silent
  explicit StallDetector(std::chrono::milliseconds timeout) noexcept : timeout_(timeout) {}

  /// A reply has come, or the connection begins.
  void heard(TimePoint now) noexcept {
    lastReply_ = now;
    secondLook_ = TimePoint::max();
  }
  /// When the connection counts as dead if no reply comes.
  /// @param oldest  when the oldest unanswered request was submitted
  [[nodiscard]] TimePoint due(TimePoint oldest) const noexcept {
    return std::max(oldest, lastReply_) + timeout_;
  }
  /// Returns when to look again; max(): it is dead.
  TimePoint judge(TimePoint oldest, TimePoint now) noexcept;

 private:
  static constexpr std::chrono::milliseconds kSecondLook{10};

  const std::chrono::milliseconds timeout_;
  TimePoint lastReply_{};                    // or the beginning of the connection
  TimePoint secondLook_ = TimePoint::max();  // not max(): it is suspected
};

inline StallDetector::TimePoint StallDetector::judge(TimePoint oldest, TimePoint now) noexcept {
  const TimePoint end = due(oldest);
  if (now < end) {
    return end;
  }
  if (secondLook_ == TimePoint::max()) {
    secondLook_ = now + kSecondLook;
  }
  return now < secondLook_ ? secondLook_ : TimePoint::max();
}

}  // namespace rlock::detail::net
