// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace rlock::detail {

/// Keeps one call planned where many ask for one: the earliest, which plans the next when it comes.
///
/// **Thread safety:** One thread at a time.
class EarliestPlan {
 public:
  using Clock = std::chrono::steady_clock;

  /// False: a call at `when` is not needed, because one comes no later anyway.
  [[nodiscard]] bool plan(Clock::time_point when) noexcept {
    if (planned_ <= when) {
      return false;
    }
    planned_ = when;
    return true;
  }

  /// The call planned for `when` has come. False: an earlier one was planned after it, and did its
  /// work or will do it.
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
