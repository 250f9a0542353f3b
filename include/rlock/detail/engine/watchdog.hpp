// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/deadline_heap.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Decides when each hold is renewed and when it counts as lost. It knows one point in time per
/// hold and says which is next; whoever owns the clock and the connection does the rest.
///
/// **Thread safety:** One thread at a time, together with the HoldLedger.
///
/// A hold is valid from before its request was sent for the length of its lease, less an allowance
/// for clocks that run at different rates. Its loss is announced a little before that, so that the
/// announcement is over when the server may give the lock away.
class Watchdog {
 public:
  using Clock = std::chrono::steady_clock;
  using TimePoint = Clock::time_point;

  /// A loss as it was decided, to be told later: whose it is does not change any more, whatever the
  /// same owner takes meanwhile.
  struct Lost {
    HoldPtr hold;
    LossReason reason = LossReason::none;
    std::uint64_t incarnation = 0;
    IntrusivePtr<HoldHandle> handle{};  ///< marked; null: nobody watches, or it was told before
    std::string label{};
  };
  struct Work {
    std::vector<HoldPtr> renew;  ///< to be renewed now, in order of their deadlines
    std::vector<Lost> lost;      ///< to be announced now
    std::vector<HoldPtr> gone;   ///< announced before; the server must have dropped them by now
  };

  explicit Watchdog(std::chrono::milliseconds timeout) noexcept : timeout_(timeout) {}

  [[nodiscard]] std::chrono::milliseconds timeout() const noexcept { return timeout_; }

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

  /// Decides that a hold is lost: whoever looks at its handle sees it from here on. Not for one
  /// that is lost already.
  static Lost lose(Hold& hold, LossReason reason) {
    hold.lost = true;
    Lost lost{HoldPtr(&hold), reason, hold.incarnation, hold.handle, hold.label};
    if (lost.handle && !lost.handle->markLost(reason)) {
      lost.handle = nullptr;
    }
    return lost;
  }

  /// As lose(), for a hold that has a lease of its own.
  static Lost lose(Hold& hold, HoldPart& part, LossReason reason) {
    part.lost = true;
    Lost lost{HoldPtr(&hold), reason, part.incarnation, part.handle, part.label};
    if (lost.handle && !lost.handle->markLost(reason)) {
      lost.handle = nullptr;
    }
    return lost;
  }
  /// As lose(), for all that an owner holds.
  static void loseAll(Hold& hold, LossReason reason, std::vector<Lost>& losses) {
    if (hold.lost) {
      return;
    }
    if (hold.parts.empty()) {
      losses.push_back(lose(hold, reason));
      return;
    }
    hold.lost = true;
    for (HoldPart& part : hold.parts) {
      if (!part.lost) {
        losses.push_back(lose(hold, part, reason));
      }
    }
  }

  /// Keeps a lost hold until the server must have dropped it, too: until then its release still
  /// means something.
  void linger(Hold& hold) {
    hold.renewing = false;
    heap_.schedule(hold, hold.validUntil + notice(hold.lease) + allowance(hold.lease));
  }

  /// The server granted one more hold by a request that was sent at `sentAt`. An explicit lease
  /// inside a watched hold leaves it watched; validity never gets shorter.
  void granted(Hold& hold,
               TimePoint sentAt,
               std::chrono::milliseconds lease,
               bool watched,
               TimePoint maxHoldUntil) {
    const TimePoint until = sentAt + lease - allowance(lease);
    // A hold that was told lost does not come back: neither its validity nor its maxHold count any
    // more.
    const bool first = hold.count <= 1 || hold.lost;
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
      hold.renewAt = sentAt + period();
    }
    if (!hold.parts.empty()) {
      HoldPart& part = hold.parts.back();
      part.validUntil = until;
      part.lease = lease;
      part.maxHoldUntil = maxHoldUntil;
      sum(hold);
    }
    publish(hold);
    schedule(hold);
  }

  /// Some of the holds that have a lease each have ended.
  void partsEnded(Hold& hold) {
    sum(hold);
    publish(hold);
  }

  /// The rest of a hold of several is valid no longer than this.
  void limit(Hold& hold, TimePoint until) {
    if (until < hold.validUntil) {
      hold.validUntil = until;
      for (HoldPart& part : hold.parts) {
        part.validUntil = std::min(part.validUntil, until);
      }
      publish(hold);
      if (hold.hook.linked() && !hold.lost) {
        schedule(hold);
      }
    }
  }

  /// A renewal sent at `sentAt` was confirmed at `now`.
  void renewed(Hold& hold, TimePoint sentAt, TimePoint now = TimePoint::min()) {
    hold.renewing = false;
    if (!hold.hook.linked() || hold.lost) {
      return;
    }
    const TimePoint until = sentAt + timeout_ - allowance(timeout_);
    if (until > hold.validUntil) {
      hold.validUntil = until;
      hold.lease = timeout_;
    }
    for (HoldPart& part : hold.parts) {
      // One that may have ended before it was renewed was not.
      if (!part.lost && part.validUntil > now && until > part.validUntil) {
        part.validUntil = until;
        part.lease = timeout_;
      }
    }
    sum(hold);
    hold.renewalFailures = 0;
    hold.renewAt = sentAt + period();
    publish(hold);
    schedule(hold);
  }

  /// It is not known whether a renewal was done: it is tried again until the validity ends.
  void renewalFailed(Hold& hold, TimePoint now) {
    hold.renewing = false;
    if (!hold.hook.linked() || hold.lost) {
      return;
    }
    const int doublings = std::min(hold.renewalFailures++, 6);
    hold.renewAt = now + std::min<Clock::duration>(period() / 8, firstRetry() * (1 << doublings));
    schedule(hold);
  }

  /// Its lease is about to become another one, by a request that does not go through its owner: it
  /// is valid no longer than that from here on.
  /// @param watched  its renewals go on, to see whether it is still there
  void changeLease(Hold& hold, TimePoint now, std::chrono::milliseconds lease, bool watched) {
    hold.leaseChangesMixed = hold.leaseChanges++ > 0;
    hold.watched = hold.watched && watched;
    hold.renewing = false;
    hold.lease = std::min(hold.lease, lease);
    hold.validUntil = std::min(hold.validUntil, now + lease - allowance(lease));
    publish(hold);
    if (hold.hook.linked() && !hold.lost) {
      schedule(hold);
    }
  }
  /// The request, sent at `sentAt`, was confirmed.
  void leaseChanged(Hold& hold, TimePoint sentAt, std::chrono::milliseconds lease) {
    --hold.leaseChanges;
    if (hold.leaseChangesMixed || !hold.hook.linked() || hold.lost) {
      return;
    }
    hold.lease = lease;
    hold.validUntil = sentAt + lease - allowance(lease);
    publish(hold);
    schedule(hold);
  }

  /// The release of the last hold is on its way, or the hold is over: no renewal from here on.
  void retire(Hold& hold) noexcept {
    heap_.remove(hold);
    hold.renewing = false;
  }

  /// The release of one hold of several is done, or a release was not executed.
  void resume(Hold& hold) {
    if (hold.count > 0) {
      schedule(hold);
    }
  }

  /// Every watched hold is due now: what is on the other side may have forgotten it.
  void renewAll(TimePoint now) {
    // A copy: scheduling changes the order.
    const std::vector<Hold*> all = heap_.elements();
    for (Hold* hold : all) {
      if (hold->watched && !hold->lost) {
        hold->renewAt = now;
        schedule(*hold);
      }
    }
  }

  /// Everything that is due.
  Work collect(TimePoint now) {
    Work work;
    while (!heap_.empty() && heap_.nextDue() <= now) {
      Hold& hold = heap_.top();
      if (hold.lost) {
        heap_.remove(hold);
        work.gone.emplace_back(&hold);
        continue;
      }
      if (!hold.parts.empty() && losePartsDue(hold, now, work.lost)) {
        schedule(hold);
        continue;
      }
      if (hold.lost) {
        linger(hold);
        continue;
      }
      if (now >= lossAt(hold)) {
        work.lost.push_back(lose(hold, reasonAt(hold, now)));
        linger(hold);
        continue;
      }
      hold.renewing = true;
      work.renew.emplace_back(&hold);
      heap_.schedule(hold, lossAt(hold));
    }
    return work;
  }

  /// When collect() has something to do next; time_point::max() when there is nothing.
  [[nodiscard]] TimePoint nextDue() const noexcept { return heap_.nextDue(); }
  [[nodiscard]] std::size_t size() const noexcept { return heap_.size(); }

 private:
  using Heap = DeadlineHeap<Hold, &Hold::hook>;

  [[nodiscard]] Clock::duration period() const noexcept {
    return std::chrono::nanoseconds(timeout_) / 3;
  }
  [[nodiscard]] Clock::duration firstRetry() const noexcept {
    return std::max<Clock::duration>(std::chrono::milliseconds(1), period() / 100);
  }

  static TimePoint lossAt(const Hold& hold) noexcept {
    // The first that is over, as long as there are several.
    auto first = TimePoint::max();
    for (const HoldPart& part : hold.parts) {
      first = part.lost ? first : std::min(first, lossAt(part));
    }
    if (first != TimePoint::max()) {
      return first;
    }
    return std::min(hold.validUntil - notice(hold.lease), hold.maxHoldUntil);
  }
  static LossReason reasonAt(const Hold& hold, TimePoint now) noexcept {
    if (now >= hold.maxHoldUntil) {
      return LossReason::maxHold;
    }
    return hold.watched ? LossReason::unreachable : LossReason::expired;
  }

  /// Decides the loss of each part whose own time is over. False: nothing has changed, or all are
  /// lost.
  static bool losePartsDue(Hold& hold, TimePoint now, std::vector<Lost>& losses) {
    const auto over = [&](const HoldPart& part) { return part.lost || now >= lossAt(part); };
    const bool left = !std::all_of(hold.parts.begin(), hold.parts.end(), over);
    bool some = false;
    for (HoldPart& part : hold.parts) {
      if (part.lost || !over(part)) {
        continue;
      }
      const bool maxHold = now >= part.maxHoldUntil;
      Lost lost = lose(hold,
                       part,
                       maxHold        ? LossReason::maxHold
                       : hold.watched ? LossReason::unreachable
                                      : LossReason::expired);
      // As long as its owner holds others, one that nobody watches just ends.
      if (part.handle || !left || lost.reason != LossReason::expired) {
        losses.push_back(std::move(lost));
      }
      some = true;
    }
    hold.lost = !left;
    sum(hold);
    publish(hold);
    return some && left;
  }

  /// Computes the validity of a hold from its parts, which have a lease each.
  static void sum(Hold& hold) {
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

  static TimePoint lossAt(const HoldPart& part) noexcept {
    return std::min(part.validUntil - notice(part.lease), part.maxHoldUntil);
  }

  void schedule(Hold& hold) {
    const bool renews = hold.watched && !hold.renewing && hold.renewAt < hold.maxHoldUntil;
    heap_.schedule(hold, renews ? std::min(hold.renewAt, lossAt(hold)) : lossAt(hold));
  }

  static void publish(Hold& hold) noexcept {
    if (hold.handle) {
      hold.handle->setValidUntil(std::min(hold.validUntil, hold.maxHoldUntil));
    }
    for (const HoldPart& part : hold.parts) {
      if (part.handle && !part.lost) {
        part.handle->setValidUntil(std::min(part.validUntil, part.maxHoldUntil));
      }
    }
  }

  const std::chrono::milliseconds timeout_;
  Heap heap_;
};

}  // namespace rlock::detail
