// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <chrono>

namespace rlock::detail {

/// How long a hold is valid: from before its request was sent for the length of its lease, less an
/// allowance for clocks that run at different rates. Its loss is announced a little before that, so
/// that the announcement is over when the server may give the lock away.
///
/// **Thread safety:** One thread at a time, together with the HoldLedger.
struct Validity {
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  /// How much of a lease is not counted as valid: server clocks count whole milliseconds, and two
  /// clocks may differ by 1000 parts per million.
  static Clock::duration allowance(std::chrono::milliseconds lease) noexcept {
    return std::chrono::milliseconds(1) + std::chrono::nanoseconds(lease) / 1000;
  }
  /// How long before the end of its validity the loss of a hold is announced.
  static Clock::duration notice(std::chrono::milliseconds lease) noexcept {
    return std::clamp<Clock::duration>(std::chrono::nanoseconds(lease) / 20,
                                       std::chrono::milliseconds(1),
                                       std::chrono::milliseconds(100));
  }

  /// How long the server must keep a hold that is to stay valid as long as it is now. Of several
  /// parts, the first that is over: a part of its own lease has the right expiry where it is known
  /// at all, and outliving that would keep others out when its owner is gone.
  static std::chrono::milliseconds leftOf(const Hold& hold, TimePoint now) noexcept;

  /// When the loss of a hold is to be announced: of its parts, the first that is over, as long as
  /// there are several.
  static TimePoint lossAt(const Hold& hold) noexcept;
  static TimePoint lossAt(const HoldPart& part) noexcept {
    return std::min(part.validUntil - notice(part.lease), part.maxHoldUntil);
  }
  ///@{
  /// Why a hold, or a part of it, is over. A part that the watchdog has never renewed ends as its
  /// own lease does, also where the others are watched.
  static LossReason reasonAt(const Hold& hold, TimePoint now) noexcept {
    return reasonAt(hold.watched, hold.maxHoldUntil, now);
  }
  static LossReason reasonAt(const Hold& hold, const HoldPart& part, TimePoint now) noexcept {
    return reasonAt(hold.watched && part.watched, part.maxHoldUntil, now);
  }
  ///@}

  /// Computes the validity of a hold from its parts, which have a lease each.
  static void sum(Hold& hold) noexcept;
  /// Shows the holders how long their hold is valid.
  static void publish(Hold& hold) noexcept;

 private:
  static LossReason reasonAt(bool watched, TimePoint maxHoldUntil, TimePoint now) noexcept {
    return now >= maxHoldUntil ? LossReason::maxHold
           : watched           ? LossReason::unreachable
                               : LossReason::expired;
  }
};

inline Validity::TimePoint Validity::lossAt(const Hold& hold) noexcept {
  auto first = TimePoint::max();
  for (const HoldPart& part : hold.parts) {
    first = part.lost ? first : std::min(first, lossAt(part));
  }
  if (first != TimePoint::max()) {
    return first;
  }
  return std::min(hold.validUntil - notice(hold.lease), hold.maxHoldUntil);
}

inline std::chrono::milliseconds Validity::leftOf(const Hold& hold, TimePoint now) noexcept {
  const auto ends = [](const auto& held) {
    return std::min(held.validUntil, held.maxHoldUntil) + allowance(held.lease);
  };
  auto first = TimePoint::max();
  for (const HoldPart& part : hold.parts) {
    first = part.lost ? first : std::min(first, ends(part));
  }
  return std::chrono::ceil<std::chrono::milliseconds>(
      (first == TimePoint::max() ? ends(hold) : first) - now);
}

inline void Validity::sum(Hold& hold) noexcept {
  bool first = true;
  for (const HoldPart& part : hold.parts) {
    if (!part.lost && (first || part.validUntil > hold.validUntil)) {
      hold.validUntil = part.validUntil;
      hold.lease = part.lease;
    }
    if (!part.lost) {
      hold.maxHoldUntil =
          first ? part.maxHoldUntil : std::max(hold.maxHoldUntil, part.maxHoldUntil);
      first = false;
    }
  }
}

inline void Validity::publish(Hold& hold) noexcept {
  if (hold.handle) {
    hold.handle->setValidUntil(std::min(hold.validUntil, hold.maxHoldUntil));
  }
  for (const HoldPart& part : hold.parts) {
    if (part.handle && !part.lost) {
      part.handle->setValidUntil(std::min(part.validUntil, part.maxHoldUntil));
    }
  }
}

}  // namespace rlock::detail
