// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/base/deadline_heap.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/hold_loss.hpp>
#include <rlock/detail/engine/validity.hpp>
#include <rlock/detail/executor/idempotency_key_pool.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Decides when each hold is renewed and when it counts as lost. It knows one point in time per
/// hold and says which is next; whoever owns the clock and the connection does the rest.
///
/// Invariants: a hold that it looks after is scheduled once, for its next renewal or for the moment
/// of its loss (Validity::lossAt()), whichever comes first; a lost one for when the server must
/// have dropped it, too; a retired one not at all. A hold whose renewal is due waits by the moment
/// of its loss until collect() gives it out: many may be due at once, and are given out in parts,
/// those first that would be lost first. One renewal of a hold is under way at a time.
/// Validity only ever comes from a moment before the request was sent, never from its reply. It is
/// a part of the HoldBook and called under its mutex: by HoldKeeper and HoldEvents on any thread,
/// by Renewals on the loop thread.
///
/// **Thread safety:** One thread at a time, together with the HoldLedger.
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  struct Work {
    /// To be renewed now, those first that would be lost first.
    std::vector<HoldPtr> renew;
    /// To be asked about now, in the same order; their leases stay what they are.
    std::vector<HoldPtr> verify;
    std::vector<HoldLoss> lost;  ///< to be announced now
    std::vector<HoldPtr> gone;   ///< announced before; the server must have dropped them by now
  };

  explicit Watchdog(std::chrono::milliseconds timeout) noexcept : timeout_(timeout) {}

  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }

  /// Keeps a lost hold until the server must have dropped it, too: until then its release still
  /// means something.
  void linger(Hold& hold) {
    hold.renewing = false;
    const auto longest = hold.doubtfulLease();
    putIn(hold,
          hold.validUntil + longest + Validity::notice(hold.lease) +
              Validity::allowance(std::max(hold.lease, longest)));
  }

  /// The server granted one more hold by a request that was sent at `sentAt`. An explicit lease
  /// inside a watched hold leaves it watched; validity never gets shorter.
  void granted(Hold& hold,
               TimePoint sentAt,
               std::chrono::milliseconds lease,
               bool watched,
               TimePoint maxHoldUntil);

  /// Some of the holds that have a lease each have ended.
  void partsEnded(Hold& hold) {
    endRenewalsForNone(hold);
    Validity::sum(hold);
    Validity::publish(hold);
  }

  /// The rest of a hold of several is valid no longer than this.
  void limit(Hold& hold, TimePoint until);

  /// A renewal sent at `sentAt` was confirmed at `now`.
  /// @param early  by how much the next one comes before it must
  void renewed(Hold& hold,
               TimePoint sentAt,
               TimePoint now = TimePoint::min(),
               Clock::duration early = Clock::duration::zero());

  /// When the renewal of a watched hold was due, whose confirmation is about to be booked: later
  /// than that after failures.
  [[nodiscard]] TimePoint dueOf(const Hold& hold) const noexcept {
    return hold.renewalFailures == 0
               ? hold.renewAt
               : hold.validUntil + Validity::allowance(hold.lease) - hold.lease + period();
  }

  /// The server has the hold, says the answer to a question that was sent at `sentAt`.
  void verified(Hold& hold, TimePoint sentAt);

  /// It is not known whether a renewal was done: it is tried again until the validity ends.
  void renewalFailed(Hold& hold, TimePoint now);

  /// Its lease is about to become another one, by a request that does not go through its owner: it
  /// is valid no longer than that from here on. Until a change counts, the server may have the
  /// longest of the leases before and after (Hold::doubtfulLease()).
  /// @param watched  its renewals go on, to see whether it is still there
  /// @return the idempotency key that the request is to have, which rules out a lost one; null: any
  IdempotencyKeyPool::Loan changeLease(Hold& hold,
                                       TimePoint now,
                                       std::chrono::milliseconds lease,
                                       bool watched);
  /// The request, sent at `sentAt`, was confirmed.
  void leaseChanged(Hold& hold, TimePoint sentAt, std::chrono::milliseconds lease);
  /// It was not. The hold stays valid as shortly as the request left it; the next one counts again.
  /// @param lost  the key of the request, which may have taken effect, or may still; null: it does
  /// not
  static void leaseNotChanged(Hold& hold, const IdempotencyKeyPool::Loan& lost) noexcept;

  /// The release of the last hold is on its way, or the hold is over: no renewal from here on.
  void retire(Hold& hold) noexcept {
    takeOut(hold);
    hold.renewing = false;
  }

  /// The release of one hold of several is done, or a release was not executed.
  void resume(Hold& hold) {
    if (hold.count > 0) {
      schedule(hold);
    }
  }

  /// Every watched hold is due now: what is on the other side may have forgotten it. O(n), and
  /// little for each.
  /// @param replaced  it is another server: holds that are not watched are asked about, too
  void renewAll(TimePoint now, bool replaced) noexcept;

  /// All that is due, but of the renewals only so many, or less without memory.
  Work collect(TimePoint now,
               std::size_t renewals = std::numeric_limits<std::size_t>::max()) noexcept;

  /// When collect() has something to do next; time_point::max() when there is nothing.
  [[nodiscard]] TimePoint nextDue() const noexcept {
    return overdue_.empty() ? scheduled_.nextDue() : overdueSince_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return scheduled_.size() + overdue_.size(); }

 private:
  using Heap = DeadlineHeap<Hold, &Hold::hook>;

  void collect(TimePoint now, std::size_t renewals, Work& work);
  [[nodiscard]] Clock::duration period() const noexcept {
    return std::chrono::nanoseconds(timeout_) / 3;
  }
  [[nodiscard]] Clock::duration firstRetry() const noexcept {
    return std::max<Clock::duration>(std::chrono::milliseconds(1), period() / 100);
  }

  static bool looksAfter(const Hold& hold) noexcept { return hold.watched || hold.suspect; }
  /// An answer to a request that was sent at `sentAt` says that the server has the hold.
  void proved(Hold& hold, TimePoint sentAt) const noexcept;
  static bool renews(const Hold& hold) noexcept {
    return looksAfter(hold) && !hold.renewing && hold.renewAt < hold.maxHoldUntil;
  }

  /// Tells the loss of a hold or of parts of it, if it is time for that; true: it was.
  bool loses(Hold& hold, TimePoint now, Work& work);

  void schedule(Hold& hold) noexcept {
    const TimePoint lossAt = Validity::lossAt(hold);
    putIn(hold, renews(hold) ? std::min(hold.renewAt, lossAt) : lossAt);
  }

  void putIn(Hold& hold, TimePoint due) noexcept {
    takeOut(hold);
    scheduled_.schedule(hold, due);
  }
  /// Its renewal is due.
  void wait(Hold& hold) noexcept {
    overdue_.schedule(hold, Validity::lossAt(hold));
    hold.overdue = true;
  }
  void takeOut(Hold& hold) noexcept {
    (std::exchange(hold.overdue, false) ? overdue_ : scheduled_).remove(hold);
  }

  const std::chrono::milliseconds timeout_;
  Heap scheduled_;
  Heap overdue_;  ///< by the moments of their losses
  TimePoint overdueSince_{};
  TimePoint replacedAt_ = TimePoint::min();  ///< when the server was last found to be another
};

inline void Watchdog::granted(Hold& hold,
                              TimePoint sentAt,
                              std::chrono::milliseconds lease,
                              bool watched,
                              TimePoint maxHoldUntil) {
  const TimePoint until = sentAt + lease - Validity::allowance(lease);
  // A hold that was told lost does not come back: neither its validity nor its maxHold count any
  // more.
  const bool first = hold.count <= 1 || hold.lost;
  // Holds with a lease each are not made longer by a later one, so that their renewal stays due.
  const bool renewsOthers = !first && hold.watched && hold.parts.size() > 1;
  if (first) {
    hold.watched = watched;
    hold.validUntil = until;
    hold.lease = lease;
    hold.maxHoldUntil = maxHoldUntil;
    hold.renewing = false;
  } else {
    hold.watched = hold.watched || watched;
    if (until > hold.validUntil) {
      hold.validUntil = until;
      hold.lease = lease;
    }
    hold.maxHoldUntil = std::min(hold.maxHoldUntil, maxHoldUntil);
  }
  hold.lost = false;
  hold.renewalFailures = 0;
  if (watched) {
    const TimePoint due = sentAt + period();
    hold.renewAt = renewsOthers ? std::min(hold.renewAt, due) : due;
  }
  // An answer of the server that is there now proves the holds before this one, too.
  hold.suspect = sentAt < replacedAt_;
  if (hold.suspect) {
    hold.renewAt = replacedAt_;
  }
  if (!hold.parts.empty()) {
    HoldPart& part = hold.parts.back();
    part.validUntil = until;
    part.lease = lease;
    part.watched = watched;
    part.renews = watched;
    part.maxHoldUntil = maxHoldUntil;
    Validity::sum(hold);
  }
  Validity::publish(hold);
  schedule(hold);
}

inline void Watchdog::limit(Hold& hold, TimePoint until) {
  if (until < hold.validUntil) {
    hold.validUntil = until;
    for (HoldPart& part : hold.parts) {
      part.validUntil = std::min(part.validUntil, until);
    }
    Validity::publish(hold);
    if (hold.hook.linked() && !hold.lost) {
      schedule(hold);
    }
  }
}

inline void Watchdog::renewed(Hold& hold, TimePoint sentAt, TimePoint now, Clock::duration early) {
  hold.renewing = false;
  if (!hold.hook.linked() || hold.lost) {
    return;
  }
  const TimePoint until = sentAt + timeout_ - Validity::allowance(timeout_);
  if (until > hold.validUntil) {
    hold.validUntil = until;
    hold.lease = timeout_;
  }
  for (HoldPart& part : hold.parts) {
    // One that may have ended before it was renewed was not; nor was one that may have been taken
    // after the renewal ran, which is booked late if another grant's reply comes first.
    if (!part.lost && part.validUntil > now && part.grantedAt < sentAt && until > part.validUntil) {
      part.validUntil = until;
      part.lease = timeout_;
      part.watched = true;
    }
  }
  Validity::sum(hold);
  hold.renewalFailures = 0;
  hold.renewAt = sentAt + period() - early;
  proved(hold, sentAt);
  Validity::publish(hold);
  schedule(hold);
}

inline void Watchdog::verified(Hold& hold, TimePoint sentAt) {
  hold.renewing = false;
  if (!hold.hook.linked() || hold.lost) {
    return;
  }
  hold.renewalFailures = 0;
  proved(hold, sentAt);
  schedule(hold);
}

inline void Watchdog::renewalFailed(Hold& hold, TimePoint now) {
  hold.renewing = false;
  if (!hold.hook.linked() || hold.lost) {
    return;
  }
  hold.renewAt = now + exponentialPause(firstRetry(), period() / 8, hold.renewalFailures++);
  schedule(hold);
}

inline IdempotencyKeyPool::Loan Watchdog::changeLease(Hold& hold,
                                                      TimePoint now,
                                                      std::chrono::milliseconds lease,
                                                      bool watched) {
  if (hold.leaseChanges == nullptr) {
    hold.leaseChanges = std::make_unique<LeaseChanges>();
  }
  LeaseChanges& changes = *hold.leaseChanges;
  changes.mixed = changes.underWay++ > 0;
  changes.longest = std::max({changes.longest, hold.lease, lease});
  hold.watched = hold.watched && watched;
  hold.renewing = false;
  hold.lease = std::min(hold.lease, lease);
  hold.validUntil = std::min(hold.validUntil, now + lease - Validity::allowance(lease));
  Validity::publish(hold);
  if (hold.hook.linked() && hold.lost) {
    linger(hold);
  } else if (hold.hook.linked()) {
    schedule(hold);
  }
  return std::exchange(changes.lost, nullptr);
}

inline void Watchdog::leaseChanged(Hold& hold, TimePoint sentAt, std::chrono::milliseconds lease) {
  LeaseChanges& changes = *hold.leaseChanges;
  --changes.underWay;
  if (changes.mixed || !hold.hook.linked() || hold.lost) {
    return;
  }
  changes.longest = std::chrono::milliseconds::zero();
  hold.lease = lease;
  hold.validUntil = sentAt + lease - Validity::allowance(lease);
  Validity::publish(hold);
  schedule(hold);
}

inline void Watchdog::leaseNotChanged(Hold& hold, const IdempotencyKeyPool::Loan& lost) noexcept {
  LeaseChanges& changes = *hold.leaseChanges;
  if (lost && changes.lost) {
    // The next request rules out one of them only. So this one stays under way for good, and no
    // later one makes the hold valid for longer.
    return;
  }
  --changes.underWay;
  if (lost) {
    changes.lost = lost;
  }
}

inline void Watchdog::renewAll(TimePoint now, bool replaced) noexcept {
  if (replaced) {
    replacedAt_ = now;
  }
  const auto visit = [&](Hold& hold, TimePoint due) noexcept {
    hold.overdue = false;
    hold.suspect = hold.suspect || (replaced && !hold.lost);
    if (hold.lost || !looksAfter(hold)) {
      scheduled_.schedule(hold, due);
      return;
    }
    hold.renewAt = now;
    if (renews(hold)) {
      wait(hold);
    } else {
      scheduled_.schedule(hold, Validity::lossAt(hold));
    }
  };
  overdueSince_ = now;
  Heap overdue;
  overdue.swap(overdue_);
  scheduled_.takeAll(visit);
  overdue.takeAll(visit);
}

inline Watchdog::Work Watchdog::collect(TimePoint now, std::size_t renewals) noexcept {
  Work work;
  overdueSince_ = now;
  try {
    collect(now, renewals, work);
  } catch (const std::bad_alloc&) {
    // The work collected so far is decided, and must go its way. The hold that there was no
    // memory for and those behind it are due still.
  }
  return work;
}

inline void Watchdog::collect(TimePoint now, std::size_t renewals, Work& work) {
  while (scheduled_.nextDue() <= now) {
    Hold& hold = scheduled_.top();
    if (hold.lost) {
      work.gone.emplace_back(&hold);
      takeOut(hold);
    } else if (!loses(hold, now, work)) {
      takeOut(hold);
      wait(hold);
    }
  }
  for (std::size_t given = 0;
       !overdue_.empty() && (given < renewals || overdue_.nextDue() <= now);) {
    Hold& hold = overdue_.top();
    if (loses(hold, now, work)) {
      continue;
    }
    (hold.watched ? work.renew : work.verify).emplace_back(&hold);
    ++given;
    hold.renewing = true;
    putIn(hold, Validity::lossAt(hold));
  }
}

inline void Watchdog::proved(Hold& hold, TimePoint sentAt) const noexcept {
  if (sentAt >= replacedAt_) {
    hold.suspect = false;
  } else if (hold.suspect) {
    // That was the server before.
    hold.renewAt = replacedAt_;
  }
}

inline bool Watchdog::loses(Hold& hold, TimePoint now, Work& work) {
  if (!hold.parts.empty() && losePartsDue(hold, now, work.lost)) {
    if (outlastsRelease(hold)) {
      schedule(hold);
    } else {
      // The release of what is left is under way, and nothing may renew it any more.
      retire(hold);
    }
    return true;
  }
  if (hold.lost) {
    linger(hold);
    return true;
  }
  if (now < Validity::lossAt(hold)) {
    return false;
  }
  lose(hold, Validity::reasonAt(hold, now), work.lost);
  linger(hold);
  return true;
}

}  // namespace rlock::detail
