// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/hold_loss.hpp>
#include <rlock/detail/engine/validity.hpp>
#include <rlock/detail/engine/watchdog.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace rlock::detail {

/// All that is known of what a client holds, under one mutex: the ledger, the watchdog and what
/// must change together with them. HoldGates, HoldKeeper, Renewals, ForceListener and Closing work
/// on it; each locks it for one step and acts on what it found when it has unlocked it. No other
/// mutex of the engine is taken meanwhile, and nothing of the application runs.
///
/// **Thread safety:** The mutex guards the rest, and the members of every Hold besides.
struct HoldBook {
  using Clock = std::chrono::steady_clock;

  explicit HoldBook(std::chrono::milliseconds watchdogTimeout) : watchdog(watchdogTimeout) {}

  AnnotatedMutex mutex;
  HoldLedger ledger RLOCK_GUARDED_BY(mutex);
  Watchdog watchdog RLOCK_GUARDED_BY(mutex);
  /// When the watchdog's timer looks next, or is about to be set to.
  Clock::time_point armed RLOCK_GUARDED_BY(mutex) = Clock::time_point::max();
  /// The client hears of forced releases by others, or is about to.
  bool listening RLOCK_GUARDED_BY(mutex) = false;
  /// Requests under way that may obtain something.
  std::size_t unreconciled RLOCK_GUARDED_BY(mutex) = 0;
  /// Granted while closing, to be given back.
  std::vector<HoldPtr> late RLOCK_GUARDED_BY(mutex);

  /// True: the timer must be set earlier, on the loop thread.
  [[nodiscard]] bool needsTimer() noexcept RLOCK_REQUIRES(mutex) {
    const auto due = watchdog.nextDue();
    if (due >= armed) {
      return false;
    }
    armed = due;
    return true;
  }
  /// The watchdog has just looked. Returns the time that the timer is to be set to; until then
  /// `armed` stays, also when what it was set for goes: the next grant is due later and needs no
  /// other time, where it would have to wake the loop thread otherwise.
  [[nodiscard]] Clock::time_point arm() noexcept RLOCK_REQUIRES(mutex) {
    return armed = watchdog.nextDue();
  }
  /// When a hold is over at the latest unless renewed.
  [[nodiscard]] Clock::time_point endOf(const Hold& hold, Clock::time_point now)
      RLOCK_EXCLUDES(mutex) {
    const MutexLock lock(mutex);
    // A renewal whose answer did not come may have been executed, and so may a change of the lease.
    const auto renewed = hold.watched ? watchdog.timeout() : std::chrono::milliseconds::zero();
    const auto anew = std::max(renewed, hold.doubtfulLease());
    return std::max(hold.validUntil, now + anew) + Validity::allowance(std::max(hold.lease, anew));
  }
  /// The server has nothing of this hold any more: its holders are told.
  void end(Hold& hold, LossReason reason, std::vector<HoldLoss>& losses) RLOCK_REQUIRES(mutex) {
    loseAllOf(hold, reason, losses);
    watchdog.retire(hold);
    hold.count = 0;
    ledger.forgetIfUnused(hold);
  }
};

/// The lock that a hold is of.
[[nodiscard]] inline const LockScripts& scriptsOf(const Hold& hold) noexcept {
  return *static_cast<const LockScripts*>(hold.keepAlive.get());
}

}  // namespace rlock::detail
