// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/engine/validity.hpp>

#include <algorithm>
#include <chrono>

namespace rlock::detail {

/// The wishes of an acquisition, and until when they are worth asking for: the kind of lock, the
/// caller's parameters, the lease, the deadline. It does not change during the call.
///
/// **Thread safety:** Any thread.
class AcquisitionTerms {
 public:
  using Clock = std::chrono::steady_clock;

  /// @param traits    of the kind of lock; must outlive this
  /// @param params    already checked
  /// @param lease     what the request asks for
  /// @param deadline  the end of the caller's wait; time_point::max(): it has none
  AcquisitionTerms(const LockTraits& traits,
                   const AcquireParams& params,
                   std::chrono::milliseconds lease,
                   Clock::time_point deadline)
      : traits_(traits),
        lease_(lease),
        deadline_(deadline),
        waits_(params.wait.isPositive()),
        willRetry_(params.willRetry),
        hasLease_(params.lease),
        forEver_(params.forEver) {}

  [[nodiscard]] const LockTraits& traits() const noexcept { return traits_; }
  [[nodiscard]] std::chrono::milliseconds lease() const noexcept { return lease_; }
  [[nodiscard]] Clock::time_point deadline() const noexcept { return deadline_; }
  [[nodiscard]] bool endless() const noexcept { return deadline_ == Clock::time_point::max(); }
  [[nodiscard]] bool waits() const noexcept { return waits_; }
  /// It neither waits nor is made again when it is refused.
  [[nodiscard]] bool triesOnce() const noexcept { return !waits() && !willRetry_; }
  [[nodiscard]] bool keepsHold() const noexcept { return traits_.holdKind != HoldKind::none; }
  /// The server drops what is obtained by itself, so that a reply can come too late.
  [[nodiscard]] bool expires() const noexcept { return keepsHold() || hasLease_; }
  /// The watchdog does not renew it.
  [[nodiscard]] bool hasLease() const noexcept { return hasLease_; }
  /// A request that runs late would leave something behind.
  [[nodiscard]] bool needsGuard() const noexcept {
    return traits_.changesState && traits_.reconcileWithin.count() == 0;
  }
  /// Whether it stands behind the waiters that there are, instead of trying at once. Waiters that
  /// all get in together do not overtake one another, so that nobody has to.
  [[nodiscard]] bool queuesBehindOthers() const noexcept {
    return traits_.wakeRule == WakeRule::fifo || traits_.wakeRule == WakeRule::bestFit;
  }

  /// The caller's time alone would let it wait for ever for a server that is not there.
  [[nodiscard]] bool limitedByOutage() const noexcept { return endless() || forEver_; }
  /// Until when a request may be sent that the caller waits for.
  [[nodiscard]] Clock::time_point sendBefore(Clock::time_point now,
                                             std::chrono::milliseconds outageTimeout) const {
    return limitedByOutage() ? std::min(deadline_, later(now, outageTimeout)) : deadline_;
  }
  /// Whether the lease of a request that was sent then is over, or so nearly that it may be.
  [[nodiscard]] bool tooLate(Clock::time_point sentAt, Clock::time_point now) const {
    // Leases of a few milliseconds are nearly always over by the time of the reply; their users
    // know.
    constexpr std::chrono::milliseconds kShortest{10};
    return expires() && lease_ > kShortest && now >= sentAt + lease_ - Validity::allowance(lease_);
  }

  static Clock::time_point later(Clock::time_point when, Clock::duration by) noexcept {
    return when > Clock::time_point::max() - by ? Clock::time_point::max() : when + by;
  }

 private:
  const LockTraits& traits_;
  const std::chrono::milliseconds lease_;
  const Clock::time_point deadline_;
  const bool waits_;
  const bool willRetry_;
  const bool hasLease_;
  const bool forEver_;
};

}  // namespace rlock::detail
