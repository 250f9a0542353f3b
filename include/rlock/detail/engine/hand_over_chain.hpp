// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace rlock::detail {

/// How often and how long a lock may go from owner to owner of one client while other clients are
/// not told that it was free.
struct HandOverLimits {
  int count = 0;                      ///< hand-overs in a row; 0: none
  std::chrono::milliseconds time{0};  ///< from the first of them to the last; 0: none
  bool standsBack = true;             ///< its waiters pause for others after the last one

  [[nodiscard]] bool any() const noexcept { return count > 0 && time.count() > 0; }
};

/// The hand-overs of one lock in a row. When they have been as many as the limits allow, or have
/// gone on for as long, a release that is announced must come in between: then others have the same
/// chance as this client's waiters. A hand-over that is allowed may be the last to begin within the
/// time, so that others wait for that long and for one hold.
///
/// **Thread safety:** One thread at a time.
class HandOverChain {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Whether the lock may be handed over now; it counts as if it was.
  [[nodiscard]] bool next(const HandOverLimits& limits, TimePoint now) noexcept;
  /// The lock is released for everybody.
  void end() noexcept { length_ = 0; }

 private:
  int length_ = 0;
  TimePoint began_{};
};

inline bool HandOverChain::next(const HandOverLimits& limits, TimePoint now) noexcept {
  const bool allowed =
      limits.any() && length_ < limits.count && (length_ == 0 || now - began_ < limits.time);
  if (!allowed) {
    end();
    return false;
  }
  if (length_++ == 0) {
    began_ = now;
  }
  return true;
}

}  // namespace rlock::detail
