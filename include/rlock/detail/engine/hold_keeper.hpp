// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/hold_handle.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/base/thread_owner.hpp>
#include <rlock/detail/engine/closing.hpp>
#include <rlock/detail/engine/engine_context.hpp>
#include <rlock/detail/engine/force_listener.hpp>
#include <rlock/detail/engine/hold_book.hpp>
#include <rlock/detail/engine/hold_gates.hpp>
#include <rlock/detail/engine/hold_labels.hpp>
#include <rlock/detail/engine/hold_loss.hpp>
#include <rlock/detail/engine/loss_teller.hpp>
#include <rlock/detail/engine/read_parts.hpp>
#include <rlock/detail/engine/renewals.hpp>
#include <rlock/detail/engine/validity.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/duration.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Books what the client's owners obtain and release, and answers from the books.
///
/// A grant and a release are booked by whoever has the gate of the hold (HoldGates), on the thread
/// that took the reply: AcquireTask and ReleaseTask. Everything else comes at any time from
/// elsewhere (HoldEvents, Renewals). So each booking asks what has become of the hold since its
/// request was sent: a grant that meets a lost hold begins a new incarnation, and one that meets a
/// closed client or an ended thread is lost at once. Each is one step under the mutex of the
/// HoldBook; what follows from it, such as telling the holder or setting the timer, is done after
/// that.
///
/// **Thread safety:** Safe to call concurrently from any thread. The caller holds no lock of the
/// engine.
class HoldKeeper {
 public:
  using Clock = std::chrono::steady_clock;

  HoldKeeper(EngineContext& context,
             HoldBook& book,
             HoldGates& gates,
             Renewals& renewals,
             ForceListener& listener,
             LossTeller& losses,
             HoldLabels& labels,
             Closing& closing)
      : context_(context),
        book_(book),
        gates_(gates),
        renewals_(renewals),
        listener_(listener),
        losses_(losses),
        labels_(labels),
        closing_(closing),
        begin_(context.env()->makeTask([this] { beginOnLoop(); })) {}

  // Questions.

  /// Whether this owner holds the lock, on whichever side, as far as this client knows.
  [[nodiscard]] bool holds(std::string_view name, OwnerId owner) const;
  /// Another owner that holds what these scripts are for, as far as this client knows.
  [[nodiscard]] std::optional<OwnerId> anotherHolder(const LockScripts& scripts,
                                                     OwnerId owner) const;
  /// Whether this owner has a hold that shuts out everybody else who wants the lock by these
  /// scripts, renewed until it is released. Not while its release is under way, nor while one that
  /// has failed goes on in the background.
  [[nodiscard]] bool keeps(const LockScripts& scripts, OwnerId owner) const;
  /// When a hold is over at the latest unless renewed.
  [[nodiscard]] Clock::time_point endOf(const Hold& hold) const {
    return book_.endOf(hold, context_.now());
  }
  /// How many the watchdog looks after.
  [[nodiscard]] std::size_t size() const;

  // Grants.

  struct GrantTerms {
    Clock::time_point sentAt;
    Clock::time_point
        now;  ///< the time of booking; the time at which the reply came is good enough
    std::chrono::milliseconds lease;
    bool watched = true;
    std::optional<std::chrono::nanoseconds> maxHold;
    bool wantsHandle = false;
    bool fenced = false;  ///< it has a fencing token
    int afresh = 0;       ///< AcquireParams::afresh
    std::string_view label;
    SyncPolicy sync{};
    bool mayLeaveGate = false;  ///< in the same step, if nothing else is to be done
  };
  struct Granted {
    IntrusivePtr<HoldHandle> handle{};  ///< if one is wanted
    std::optional<HoldGates::Left>
        left{};  ///< if the gate was left in the same step: for afterLeaving()
  };
  /// Books a grant. The gate must be held.
  /// @param before  holds before the request
  /// @param count   holds now, says the server
  Granted granted(Hold& hold, int before, int count, const GrantTerms& terms);
  /// Limits the validity of the hold: the reply to a request sent at `sentAt` said that the server
  /// keeps it for `remaining` unless it is renewed.
  void limit(Hold& hold, Clock::time_point sentAt, std::chrono::milliseconds remaining);

  // Releases.

  /// Says what a release is to do.
  struct ReleasePlan {
    bool nothing = false;  ///< what was to be released is over already: send nothing
    bool all = false;      ///< the hold is lost: release all of its count
    bool last = false;     ///< its owner wants nothing of the hold any more
    bool lost = false;     ///< what is released was lost, so it is not reported as released
    int before = 0;        ///< holds before the request
    int partIndex = 0;     ///< ReleaseRequest::partIndex
    bool valid = false;    ///< the hold was certainly there
    std::chrono::milliseconds restore{0};  ///< the lease to restore if holds remain; zero: leave it
  };
  /// A release is about to be sent: the last hold is not renewed from here on. The gate must be
  /// held.
  /// @param incarnation  ReleaseTarget::incarnation
  /// @param now          or a moment ago
  ReleasePlan releasing(Hold& hold, std::uint64_t incarnation, Clock::time_point now) {
    const MutexLock lock(book_.mutex);
    return releasingWithin(hold, incarnation, now);
  }
  /// As releasing(), for the callback of HoldGates::enter(), which runs under the mutex. Clang's
  /// analysis cannot see that.
  ReleasePlan releasingWithin(Hold& hold,
                              std::uint64_t incarnation,
                              Clock::time_point now) RLOCK_NO_THREAD_SAFETY_ANALYSIS;
  /// As releasing() would find that there is nothing to release, whatever is under way.
  [[nodiscard]] bool isOver(const LockScripts& scripts,
                            OwnerId owner,
                            std::uint64_t incarnation) const;
  enum class GivenUp : std::uint8_t {
    refused,    ///< it was not executed
    doubtful,   ///< it may have been, but what it came to cannot be known; its owner may ask again
    forgotten,  ///< the same, and nobody will ask again: the hold counts no more
  };
  /// A release that nothing more is done about.
  void notReleased(Hold& hold, GivenUp how = GivenUp::refused);
  /// The holds that a release has left.
  struct Released {
    int remain = 0;             ///< holds that are left
    Clock::time_point since{};  ///< when the first of all began
    bool lost = false;          ///< it was told lost before, so that it is no release besides
  };
  /// A release was executed, or found nothing. If nothing else is to be done the gate is left in
  /// the same step, and what is returned is to be given to HoldGates::afterLeaving().
  std::optional<HoldGates::Left> released(Hold& hold, const HoldRelease& release, Released& result);
  /// An acquisition was reconciled or refused, which has left so many of the holds that were there
  /// before it. The gate must be held.
  void counted(Hold& hold, int count);

 private:
  /// The kinds of holds that shut others out of a name.
  static constexpr std::array kLockKinds{
      HoldKind::lock, HoldKind::read, HoldKind::write, HoldKind::simple};

  /// The consequences of a grant, for when the mutex is free.
  struct Aftermath {
    std::vector<HoldLoss> vanished;  ///< holds before it that turn out to be over
    std::vector<HoldLoss> ended;     ///< the grant itself, which came too late
    std::vector<HoldDoubt> unsure;
    bool needsLoop = false;

    [[nodiscard]] bool empty() const noexcept {
      return !needsLoop && vanished.empty() && ended.empty() && unsure.empty();
    }
  };
  /// The first step of granted(), under the mutex. It fails only for want of memory, and then the
  /// grant is not booked.
  /// @param after  gets what is to be done when the mutex is free; nothing if the gate was left
  Granted bookGrant(Hold& hold, int before, int count, const GrantTerms& terms, Aftermath& after)
      RLOCK_EXCLUDES(book_.mutex);
  /// The second step: wakes the loop, tells of losses, writes the label and asks the server about
  /// doubts. It cannot fail: the grant is booked, and the caller would take it for undone.
  void tellOfGrant(const Hold& hold, const GrantTerms& terms, Aftermath& after) noexcept
      RLOCK_EXCLUDES(book_.mutex);
  /// One more read hold. Returns how many there are.
  int countRead(Hold& hold,
                int before,
                int count,
                const GrantTerms& terms,
                const IntrusivePtr<HoldHandle>& fresh,
                Aftermath& after) RLOCK_REQUIRES(book_.mutex);
  /// One more of a hold that has one lease. Returns how many there are.
  int countWhole(Hold& hold, int before, int count, Aftermath& after) RLOCK_REQUIRES(book_.mutex);
  static IntrusivePtr<HoldHandle> handleOf(Hold& hold,
                                           const GrantTerms& terms,
                                           const IntrusivePtr<HoldHandle>& fresh);
  /// Shows the holders how often the hold is held. One of several with a lease each is held once.
  static void publishCount(const Hold& hold) noexcept {
    if (hold.handle) {
      hold.handle->setCount(hold.count);
    }
  }
  void bookWhatCameMeanwhile(Hold& hold,
                             Clock::time_point sentAt,
                             bool tokenIsOver,
                             Aftermath& after) noexcept RLOCK_REQUIRES(book_.mutex);
  /// Whether the loss of what a release is about was told before. Not of a read hold that just
  /// ended beside others.
  static bool wasLost(Hold& hold, std::uint64_t incarnation) noexcept;
  /// The timer is to be set earlier, or the client is to begin to listen. It cannot fail: the book
  /// says already that it is done, so that nobody would try again.
  void wakeLoop() noexcept RLOCK_EXCLUDES(book_.mutex) { begin_->post(context_.sharing(*this)); }
  void beginOnLoop();
  /// Of losses that a grant or a release has met. It is booked, so that this cannot fail: its
  /// caller would take it for undone.
  void tell(std::vector<HoldLoss>& losses) noexcept;

  EngineContext& context_;
  HoldBook& book_;
  HoldGates& gates_;
  Renewals& renewals_;
  ForceListener& listener_;
  LossTeller& losses_;
  HoldLabels& labels_;
  Closing& closing_;
  const std::unique_ptr<ReadyTask> begin_;
  std::uint64_t incarnations_ RLOCK_GUARDED_BY(book_.mutex) = 0;
};

// Questions.

inline bool HoldKeeper::holds(std::string_view name, OwnerId owner) const {
  const MutexLock lock(book_.mutex);
  for (const HoldKind kind : kLockKinds) {
    const HoldPtr hold = book_.ledger.peek(kind, name, owner);
    if (hold && hold->count > 0) {
      return true;
    }
  }
  return false;
}

inline std::optional<OwnerId> HoldKeeper::anotherHolder(const LockScripts& scripts,
                                                        OwnerId owner) const {
  const MutexLock lock(book_.mutex);
  for (const HoldPtr& hold : book_.ledger.named(scripts.name)) {
    if (hold->kind == scripts.traits.holdKind && hold->owner != owner && hold->count > 0 &&
        !hold->lost) {
      return hold->owner;
    }
  }
  return std::nullopt;
}

inline bool HoldKeeper::keeps(const LockScripts& scripts, OwnerId owner) const {
  const bool reads = scripts.traits.holdKind == HoldKind::read;
  const MutexLock lock(book_.mutex);
  for (const HoldKind kind : kLockKinds) {
    if (reads && kind == HoldKind::read) {
      continue;
    }
    const HoldPtr hold = book_.ledger.peek(kind, scripts.name, owner);
    // The watchdog has no hold whose release is under way.
    if (hold && hold->count > 0 && hold->watched && !hold->lost && hold->hook.linked() &&
        hold->maxHoldUntil == Clock::time_point::max()) {
      return true;
    }
  }
  return false;
}

inline std::size_t HoldKeeper::size() const {
  const MutexLock lock(book_.mutex);
  return book_.watchdog.size();
}

// Grants.

inline HoldKeeper::Granted HoldKeeper::granted(Hold& hold,
                                               int before,
                                               int count,
                                               const GrantTerms& terms) {
  Aftermath after;
  Granted result = bookGrant(hold, before, count, terms, after);
  if (!result.left) {
    tellOfGrant(hold, terms, after);
  }
  return result;
}

inline HoldKeeper::Granted HoldKeeper::bookGrant(
    Hold& hold, int before, int count, const GrantTerms& terms, Aftermath& after) {
  Granted result;
  // Made before anything is booked: a grant is booked whole or, without memory, not at all.
  const IntrusivePtr<HoldHandle> fresh =
      terms.wantsHandle ? makeIntrusive<HoldHandle>() : IntrusivePtr<HoldHandle>();
  RareText label(terms.label);
  context_.counters().acquired.fetch_add(1, std::memory_order_relaxed);
  const MutexLock lock(book_.mutex);
  if (hold.doubtedAt >= terms.sentAt) {
    after.unsure.reserve(1);
  }
  // Lost since the reply was read: with the hold its token is over, which this grant has, too.
  const bool tokenIsOver = terms.fenced && before > 0 && count > before && hold.lost;
  if (std::exchange(hold.abandoned, false)) {
    // Its owner wanted to be rid of it, and will not release it once more beside this one.
    forgetAbandoned(hold);
  }
  count = hold.kind == HoldKind::read ? countRead(hold, before, count, terms, fresh, after)
                                      : countWhole(hold, before, count, after);
  if (before <= terms.afresh) {
    hold.maxHoldUntil = Clock::time_point::max();
  }
  hold.count = count;
  hold.overcounted = false;
  hold.grantedAt = terms.now;
  if (before == 0 || count <= 1) {
    hold.heldSince = terms.now;
  }
  if (before == 0 || count <= 1 || !label.empty()) {
    // A further hold without a label leaves that of the others, which renewals write again.
    hold.label = std::move(label);
  }
  if (before == 0 || terms.sync.any()) {
    hold.setSync(terms.sync);
  }
  const auto maxHoldUntil =
      terms.maxHold ? Duration(*terms.maxHold).deadlineFrom(terms.now) : Clock::time_point::max();
  book_.watchdog.granted(hold, terms.sentAt, terms.lease, terms.watched, maxHoldUntil);
  result.handle = handleOf(hold, terms, fresh);
  publishCount(hold);
  bookWhatCameMeanwhile(hold, terms.sentAt, tokenIsOver, after);
  after.needsLoop = book_.needsTimer();
  after.needsLoop = !std::exchange(book_.listening, true) || after.needsLoop;
  if (terms.mayLeaveGate && terms.label.empty() && after.empty()) {
    // The usual case: nothing after this can fail, so the gate can be left in the same step.
    result.left = gates_.leaveWithin(book_, hold);
  }
  return result;
}

inline void HoldKeeper::tellOfGrant(const Hold& hold,
                                    const GrantTerms& terms,
                                    Aftermath& after) noexcept {
  if (after.needsLoop) {
    wakeLoop();
  }
  tell(after.ended);
  if (!terms.label.empty() && !context_.closed()) {
    // One that came after the client was closed would be written after it was taken away.
    labels_.note(hold, terms.label, terms.lease);
  }
  tell(after.vanished);
  listener_.check(std::move(after.unsure));
}

inline int HoldKeeper::countRead(Hold& hold,
                                 int before,
                                 int count,
                                 const GrantTerms& terms,
                                 const IntrusivePtr<HoldHandle>& fresh,
                                 Aftermath& after) {
  // Made first, because a loss that keep() has decided must be told. There is room for it where
  // keep() drops a part, and where it drops none it has changed nothing.
  HoldPart latest;
  latest.label = RareText(terms.label);
  // Each read hold has a lease of its own: the earlier ones end independently of this one. They are
  // all counted, or all are over.
  ReadParts(hold).keep(before > 0 ? count - 1 : 0, context_.now(), after.vanished);
  HoldPart& part = hold.parts.emplace_back(std::move(latest));
  hold.incarnation = ++incarnations_;
  part.incarnation = hold.incarnation;
  part.grantedAt = terms.now;
  if (fresh) {
    fresh->setIncarnation(part.incarnation);
    part.handle = fresh;
  }
  return static_cast<int>(hold.parts.size());
}

inline int HoldKeeper::countWhole(Hold& hold, int before, int count, Aftermath& after) {
  const bool alone = count <= before - (hold.overcounted ? 1 : 0);
  if (before > 0 && alone && !hold.lost) {
    // The server had dropped the holds that came before this one. A holder that hears of this
    // grant must not take them for valid.
    lose(hold, goneReason(hold), after.vanished);
  }
  if (before == 0 || alone || hold.lost) {
    // Holds that were lost, perhaps while this request was under way, or that a failover has left,
    // are not counted: the release of this one finds more than it expects, and ends them.
    count = 1;
    hold.incarnation = ++incarnations_;
    hold.handle = nullptr;
  }
  return count;
}

inline IntrusivePtr<HoldHandle> HoldKeeper::handleOf(Hold& hold,
                                                     const GrantTerms& terms,
                                                     const IntrusivePtr<HoldHandle>& fresh) {
  if (!hold.parts.empty()) {
    return hold.parts.back().handle;
  }
  if (fresh && !hold.handle) {
    fresh->setIncarnation(hold.incarnation);
    hold.handle = fresh;
    hold.handle->setValidUntil(std::min(hold.validUntil, hold.maxHoldUntil));
  }
  return terms.wantsHandle ? hold.handle : nullptr;
}

/// Books the events between the request and now, which met no hold, because it was not booked yet.
inline void HoldKeeper::bookWhatCameMeanwhile(Hold& hold,
                                              Clock::time_point sentAt,
                                              bool tokenIsOver,
                                              Aftermath& after) noexcept {
  if (context_.closed()) {
    // Closing has counted what is held without this one: it is given back by itself.
    loseAllOfAnyway(hold, LossReason::clientClosed, after.ended);
    book_.watchdog.retire(hold);
    hold.count = 0;
    try {
      book_.late.emplace_back(&hold);
    } catch (const std::bad_alloc&) {
      // It ends with its lease.
    }
  } else if (threadHasEnded(hold.owner)) {
    // The owner's threadEnded() was called before this is booked, or comes when it is.
    loseAllOfAnyway(hold, LossReason::threadEnded, after.ended);
    hold.leftToExpire = true;
    book_.watchdog.linger(hold);
  } else if (tokenIsOver) {
    // The rest of it on the server is given back.
    loseAllOfAnyway(hold, LossReason::unreachable, after.ended);
    book_.watchdog.linger(hold);
  } else if (hold.doubtedAt >= sentAt) {
    // Race: a forced release was heard of while the request was under way. If it ran after the
    // grant this hold is gone; ForceListener asks the server.
    after.unsure.push_back({HoldPtr(&hold), hold.grantedAt});
  }
}

inline void HoldKeeper::limit(Hold& hold,
                              Clock::time_point sentAt,
                              std::chrono::milliseconds remaining) {
  bool needsLoop = false;
  {
    const MutexLock lock(book_.mutex);
    book_.watchdog.limit(hold, sentAt + remaining - Validity::allowance(remaining));
    needsLoop = book_.needsTimer();
  }
  if (needsLoop) {
    wakeLoop();
  }
}

inline void HoldKeeper::tell(std::vector<HoldLoss>& losses) noexcept {
  if (losses.empty()) {
    return;
  }
  if (context_.closed()) {
    closing_.mayBeOver();
  }
  try {
    losses_.announceOnLoop(std::move(losses));
  } catch (const std::bad_alloc&) {
    // The handles show it.
  }
}

/// Both are begun, whichever was asked for: ForceListener leaves an armed timer alone, and Renewals
/// sets its timer to HoldBook::armed.
inline void HoldKeeper::beginOnLoop() {
  if (!context_.closed()) {
    listener_.begin();
    renewals_.begin();
  }
}

// Releases.

inline HoldKeeper::ReleasePlan HoldKeeper::releasingWithin(Hold& hold,
                                                           std::uint64_t incarnation,
                                                           Clock::time_point now) {
  ReleasePlan plan;
  hold.abandoned = false;
  plan.valid = hold.count > 0 && now < hold.validUntil;
  if (incarnation != 0) {
    // The decision is made here, where no other request about the hold is under way.
    plan.nothing = hold.incarnation != incarnation || hold.count == 0;
    plan.all = hold.lost;
    plan.lost = hold.lost;
  }
  HoldPart* part = nullptr;
  if (incarnation == 0 && !hold.parts.empty()) {
    // The server may have fewer than this owner knows of, and then its latest is the one around.
    plan.nothing = ReadParts(hold).takeForfeited();
    part = &hold.parts.back();
    plan.partIndex = static_cast<int>(hold.parts.size());
  } else if (!hold.parts.empty()) {
    const ReadParts parts(hold);
    part = parts.find(incarnation);
    plan.nothing = part == nullptr || hold.count == 0;
    plan.lost = hold.lost || (!plan.nothing && part->lost);
    plan.partIndex = plan.nothing ? 0 : parts.indexOf(*part);
  }
  plan.before = hold.count;
  // The rest of a lost hold is to end soon.
  const bool watched = hold.parts.empty() ? hold.watched && !hold.lost
                                          : ReadParts(hold).leavesWatched(plan.partIndex);
  plan.restore = watched ? context_.options().watchdogTimeout : std::chrono::milliseconds::zero();
  if (part != nullptr && !plan.nothing) {
    part->releasing = true;
  }
  plan.last = !plan.nothing && !outlastsRelease(hold);
  if (plan.last || (plan.all && !plan.nothing)) {
    book_.watchdog.retire(hold);
  }
  return plan;
}

inline bool HoldKeeper::isOver(const LockScripts& scripts,
                               OwnerId owner,
                               std::uint64_t incarnation) const {
  const MutexLock lock(book_.mutex);
  const HoldPtr hold = book_.ledger.peek(scripts.traits.holdKind, scripts.name, owner);
  if (hold && !hold->parts.empty()) {
    return incarnation != 0 && (ReadParts(*hold).find(incarnation) == nullptr || hold->count == 0);
  }
  return incarnation != 0 && (!hold || hold->incarnation != incarnation || hold->count == 0);
}

inline void HoldKeeper::notReleased(Hold& hold, GivenUp how) {
  const bool certain = how == GivenUp::refused;
  bool needsLoop = false;
  {
    const MutexLock lock(book_.mutex);
    if (!outlastsRelease(hold)) {
      // The owner has asked for the release, so the hold is no longer renewed and expires.
      hold.watched = false;
      hold.abandoned = true;
    } else if (how == GivenUp::forgotten && hold.parts.empty()) {
      // If the server counts one more, the release of the last one finds and ends it.
      --hold.count;
      publishCount(hold);
    } else if (how == GivenUp::doubtful && hold.parts.empty()) {
      hold.overcounted = true;
    }
    for (HoldPart& part : hold.parts) {
      // One that may have been released counts no more, wherever it is.
      part.lost = part.lost || (part.releasing && !certain);
      part.releasing = false;
    }
    book_.watchdog.resume(hold);
    needsLoop = book_.needsTimer();
  }
  if (needsLoop) {
    wakeLoop();
  }
}

inline void HoldKeeper::counted(Hold& hold, int count) {
  std::vector<HoldLoss> found;
  {
    const MutexLock lock(book_.mutex);
    if (hold.parts.empty()) {
      if (count == 0 && hold.count > 0) {
        book_.end(hold, goneReasonAt(hold, context_.now()), found);
      }
    } else if (count < static_cast<int>(hold.parts.size())) {
      hold.count = ReadParts(hold).counted(count, context_.now(), book_.watchdog, found);
      if (hold.count == 0) {
        book_.watchdog.retire(hold);
      }
    }
  }
  tell(found);
}

inline bool HoldKeeper::wasLost(Hold& hold, std::uint64_t incarnation) noexcept {
  if (hold.lost || hold.parts.empty()) {
    return hold.lost;
  }
  const HoldPart* const part =
      incarnation == 0 ? &hold.parts.back() : ReadParts(hold).find(incarnation);
  return part != nullptr && part->lost && part->handle;
}

inline std::optional<HoldGates::Left> HoldKeeper::released(Hold& hold,
                                                           const HoldRelease& release,
                                                           Released& result) {
  int remain = release.remain;
  const bool lost = release.lost;
  std::string label;
  bool needsLoop = false;
  std::vector<HoldLoss> found;
  std::optional<HoldGates::Left> left;
  try {
    const MutexLock lock(book_.mutex);
    if (!hold.label.empty()) {
      label = hold.label;
    }
    result.since = hold.heldSince;
    result.lost = wasLost(hold, release.incarnation);
    if (!hold.parts.empty()) {
      remain = ReadParts(hold).released(release, context_.now(), book_.watchdog, found);
    } else if (remain == 0 && !hold.lost && (lost ? hold.count > 0 : hold.leavesOthers())) {
      // It is not there, or the others are not that its owner holds beside the released one.
      lose(hold, goneReasonAt(hold, context_.now()), found);
    }
    hold.count = remain;
    hold.overcounted = false;
    result.remain = hold.parts.empty() ? remain : ReadParts(hold).wanted();
    if (remain == 0) {
      book_.watchdog.retire(hold);
      if (const auto handle = std::exchange(hold.handle, nullptr); handle && found.empty()) {
        handle->setReleased();
      }
    } else {
      publishCount(hold);
      if (hold.lost) {
        book_.watchdog.linger(hold);
      } else {
        book_.watchdog.resume(hold);
      }
      needsLoop = book_.needsTimer();
    }
    if (!needsLoop && !lost && label.empty()) {
      left = gates_.leaveWithin(book_, hold);
    }
  } catch (const std::bad_alloc&) {
    // The losses that are decided are told, although the release is booked later.
    tell(found);
    throw;
  }
  if (needsLoop) {
    wakeLoop();
  }
  // Also one that was there to be released may show that others of its owner are not.
  tell(found);
  if (!lost) {
    losses_.recent().forget(hold);
    if (!result.lost) {
      context_.counters().released.fetch_add(1, std::memory_order_relaxed);
    }
    if (remain == 0 && !label.empty()) {
      labels_.note(hold, {}, std::chrono::milliseconds::zero());
    }
  }
  return left;
}

}  // namespace rlock::detail
