// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace rlock::detail {

/// Keeps a single call planned although many callers ask for one. The earliest request wins; the
/// call plans the next one when it comes.
///
/// **Thread safety:** One thread at a time.
class EarliestPlan {
 public:
  using Clock = std::chrono::steady_clock;

  /// Plans a call for `when`. False: no call is needed, because one is planned no later than that.
  [[nodiscard]] bool plan(Clock::time_point when) noexcept {
    if (planned_ <= when) {
      return false;
    }
    planned_ = when;
    return true;
  }

  /// Nothing will come of the call planned for `when`. A later plan is not touched.
  void cancel(Clock::time_point when) noexcept {
    if (planned_ == when) {
      planned_ = Clock::time_point::max();
    }
  }

  /// Begins the call planned for `when`. False: an earlier call was planned after it, and has done
  /// its work or will do it.
  [[nodiscard]] bool begin(Clock::time_point when) noexcept {
    if (planned_ != when) {
      return false;
    }
    planned_ = Clock::time_point::max();
    return true;
  }

 private:
  Clock::time_point planned_ = Clock::time_point::max();
};

}  // namespace rlock::detail
