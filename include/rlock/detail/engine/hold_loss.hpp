// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/hold_handle.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/validity.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <new>
#include <string>
#include <vector>

namespace rlock::detail {

/// A loss as it was decided, to be told later: whose it is does not change any more, whatever the
/// same owner takes meanwhile. The handle shows it from the decision on.
///
/// The functions below decide. They belong to the thread that has the HoldLedger. A loss is decided
/// when it is among those that are to be told, and without memory it is not: whoever throws
/// std::bad_alloc has left that hold as it was.
struct HoldLoss {
  HoldPtr hold;
  LossReason reason = LossReason::none;
  std::uint64_t incarnation = 0;
  IntrusivePtr<HoldHandle> handle{};  ///< marked; null: nobody watches, or it was told before
  std::string label{};
  std::chrono::milliseconds lease{0};
  std::chrono::steady_clock::time_point validUntil{};
  std::chrono::steady_clock::time_point heldSince{};
  bool mayLast = false;  ///< the server may have it for longer than its lease

  /// Marks the handle, which is told later, unless it is lost already.
  void mark() noexcept {
    if (handle && !handle->markLost(reason)) {
      handle = nullptr;
    }
  }
};

///@{
/// Why a hold is lost of which the server says that it is not there.
inline LossReason goneReason(const Hold& hold) noexcept {
  return hold.suspect ? LossReason::failover : LossReason::refused;
}
/// As above, for a hold whose own time may have been over when the server said so.
inline LossReason goneReasonAt(const Hold& hold,
                               std::chrono::steady_clock::time_point now) noexcept {
  return now >= hold.validUntil ? Validity::reasonAt(hold, now) : goneReason(hold);
}
///@}

///@{
/// The loss of a hold, or of a part of it, which has a lease of its own, before it is decided.
inline HoldLoss lossOf(Hold& hold, LossReason reason) {
  return {HoldPtr(&hold),
          reason,
          hold.incarnation,
          hold.handle,
          hold.label,
          hold.lease,
          hold.validUntil,
          hold.heldSince,
          hold.doubtfulLease().count() > 0};
}
inline HoldLoss lossOf(Hold& hold, const HoldPart& part, LossReason reason) {
  return {HoldPtr(&hold),
          reason,
          part.incarnation,
          part.handle,
          part.label,
          part.lease,
          part.validUntil,
          hold.heldSince};
}
///@}

/// Decides that a hold is lost. Not for one that is lost already.
inline void lose(Hold& hold, LossReason reason, std::vector<HoldLoss>& losses) {
  HoldLoss& loss = losses.emplace_back(lossOf(hold, reason));
  hold.lost = true;
  loss.mark();
}

/// As above, for a part of a hold.
inline void lose(Hold& hold, HoldPart& part, LossReason reason, std::vector<HoldLoss>& losses) {
  HoldLoss& loss = losses.emplace_back(lossOf(hold, part, reason));
  part.lost = true;
  loss.mark();
}

/// As above, for all that an owner holds.
inline void loseAllOf(Hold& hold, LossReason reason, std::vector<HoldLoss>& losses) {
  if (hold.lost) {
    return;
  }
  if (hold.parts.empty()) {
    lose(hold, reason, losses);
    return;
  }
  for (HoldPart& part : hold.parts) {
    if (!part.lost) {
      lose(hold, part, reason, losses);
    }
  }
  hold.lost = true;
}

/// As loseAllOf(), where there is no memory for those that are to be told: the handles show it.
inline void loseUntold(Hold& hold, LossReason reason) noexcept {
  hold.lost = true;
  if (hold.handle) {
    hold.handle->markLost(reason);
  }
  for (HoldPart& part : hold.parts) {
    part.lost = true;
    if (part.handle) {
      part.handle->markLost(reason);
    }
  }
}

/// As loseAllOf(), or without memory as loseUntold().
inline void loseAllOfAnyway(Hold& hold, LossReason reason, std::vector<HoldLoss>& losses) noexcept {
  try {
    loseAllOf(hold, reason, losses);
  } catch (const std::bad_alloc&) {
    loseUntold(hold, reason);
  }
}

/// Whether its owner wants something of a hold when the release that is under way is done.
inline bool outlastsRelease(const Hold& hold) noexcept {
  if (hold.parts.empty()) {
    return hold.count > 1;
  }
  return std::any_of(hold.parts.begin(), hold.parts.end(), [](const HoldPart& part) {
    return !part.lost && !part.releasing;
  });
}

/// An abandoned hold counts no more, and nobody is told: its owner has asked for its release.
inline void forgetAbandoned(Hold& hold) noexcept {
  hold.lost = true;
  for (HoldPart& part : hold.parts) {
    part.lost = true;
  }
}

/// Once none is left that was taken to be renewed, those with a lease of their own end as it does.
inline void endRenewalsForNone(Hold& hold) noexcept {
  hold.watched =
      hold.watched && std::any_of(hold.parts.begin(), hold.parts.end(), [](const HoldPart& part) {
        return part.renews && !part.lost;
      });
}

/// Decides the loss of each part whose own time is over. False: nothing has changed, or all are
/// lost.
inline bool losePartsDue(Hold& hold,
                         std::chrono::steady_clock::time_point now,
                         std::vector<HoldLoss>& losses) {
  const auto over = [&](const HoldPart& part) {
    return part.lost || now >= Validity::lossAt(part);
  };
  const bool left = !std::all_of(hold.parts.begin(), hold.parts.end(), over);
  bool some = false;
  for (HoldPart& part : hold.parts) {
    if (part.lost || !over(part)) {
      continue;
    }
    const LossReason reason = Validity::reasonAt(hold, part, now);
    if (part.handle || !left || reason != LossReason::expired) {
      lose(hold, part, reason, losses);
    } else {
      // As long as its owner holds others, one that nobody watches just ends.
      part.lost = true;
    }
    some = true;
  }
  hold.lost = !left;
  if (left) {
    endRenewalsForNone(hold);
  }
  Validity::sum(hold);
  Validity::publish(hold);
  return some && left;
}

}  // namespace rlock::detail
