// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/back_off.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>

#include <chrono>
#include <string_view>

namespace rlock::detail {

/// The re-entrant lock, whose waiters hear nothing and look again after pauses of their own.
///
/// **Thread safety:** Immutable, safe from any thread.
class SpinScripts final : public LockScripts {
 public:
  SpinScripts(std::string_view lockName, const BackOff& backOff)
      : LockScripts(lockName, {.wakeRule = WakeRule::polling}), backOff_(backOff) {}
  [[nodiscard]] std::string_view kind() const noexcept override { return "spinLock"; }

  [[nodiscard]] std::chrono::milliseconds pollAfter(int attempts) const override {
    return backOff_.next(attempts);
  }

 private:
  const BackOff backOff_;
};

}  // namespace rlock::detail
