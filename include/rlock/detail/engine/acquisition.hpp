// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/engine/acquire_fsm.hpp>
#include <rlock/detail/engine/call_step.hpp>
#include <rlock/detail/engine/validity.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// The decisions of one acquisition: which request goes out next and with which terms, what a reply
/// means, what a failure means, and until when its doubts are worth reconciling.
///
/// AcquireTask asks it at each event, acts on the Finding (leaves the gate, leaves the server's
/// queue), and then has decide() tell the AcquireFsm, which says what comes next. So it needs no
/// clock, thread or mutex: points in time come in, nothing goes out.
///
/// Invariants: before() is the count of holds that this owner knew of when the request at hand was
/// composed, and stays the same until the gate is left, because the gate keeps others out; only
/// where all of them must go before a new one, it becomes none. A
/// tombstone belongs to one request with all its reconciliations. A hold that this client does not
/// know is dropped once at most: a server that goes on to report one must not keep the call for
/// ever.
///
/// **Thread safety:** One thread at a time, the one that drives: the caller's, then the loop's. The
/// AcquireFsm that decide() is given has the task's mutex.
class Acquisition {
 public:
  using Clock = std::chrono::steady_clock;
  using Step = CallStep;

  /// The meaning of an event.
  struct Finding {
    enum class Kind : std::uint8_t {
      refused,       ///< another owner has it
      tooLate,       ///< granted, but the lease ran out on the way here
      happened,      ///< granted by a kind that leaves nothing behind which could be given back
      leftover,      ///< a hold that counts as over is still there: everything goes, then again
      granted,       ///< granted, with a lease that is good
      resolved,      ///< a lost request is reconciled, and the caller gets nothing of it
      unresolved,    ///< a lost request could not be reconciled in its time
      lost,          ///< the request may have been executed
      acknowledged,  ///< granted, and those have it who must have it
      unsynced,      ///< granted, and they have it not
      notSent,       ///< the caller's time was up before the request was sent
      failed         ///< certainly not executed, and will not be
    };
    Kind kind = Kind::failed;
    int count = 0;                  ///< granted: holds now
    bool tooMany = false;           ///< granted: more than this owner knows of
    bool held = false;              ///< resolved: a good hold is there
    bool undone = false;            ///< resolved: a hold was taken back
    bool leavesQueueEntry = false;  ///< the entry in the server's queue is used up, or never was
    std::optional<Error> error{};

    /// The request at hand is over for certain: the next one of this owner may go.
    [[nodiscard]] bool leavesGate() const noexcept {
      switch (kind) {
        case Kind::refused:
        case Kind::tooLate:
        case Kind::happened:
        case Kind::notSent:
        case Kind::failed:
          return true;
        case Kind::leftover:
        case Kind::granted:
        case Kind::acknowledged:
        case Kind::unsynced:
        case Kind::resolved:
        case Kind::unresolved:
        case Kind::lost:
          return false;
      }
      return false;
    }
  };

  /// @param traits    of the kind of lock; must outlive this
  /// @param params    already checked; must outlive this
  /// @param lease     what the request asks for
  /// @param deadline  the end of the caller's wait; time_point::max(): it has none
  Acquisition(const LockTraits& traits,
              const AcquireParams& params,
              std::chrono::milliseconds lease,
              Clock::time_point deadline)
      : traits_(traits), params_(params), lease_(lease), deadline_(deadline) {}

  ///@{
  /// The sort of call.
  [[nodiscard]] bool waits() const noexcept { return params_.wait.isPositive(); }
  [[nodiscard]] Clock::time_point deadline() const noexcept { return deadline_; }
  [[nodiscard]] bool endless() const noexcept { return deadline_ == Clock::time_point::max(); }
  [[nodiscard]] bool keepsHold() const noexcept { return traits_.holdKind != HoldKind::none; }
  /// The server drops what is obtained by itself, so that a reply can come too late.
  [[nodiscard]] bool expires() const noexcept { return keepsHold() || params_.lease; }
  /// A request that runs late would leave something behind.
  [[nodiscard]] bool needsGuard() const noexcept {
    return traits_.changesState && traits_.reconcileWithin.count() == 0;
  }
  ///@}

  /// Whether it stands behind the waiters that there are, instead of trying at once. Waiters that
  /// all get in together do not overtake one another, so that nobody has to.
  [[nodiscard]] bool queuesBehindOthers() const noexcept {
    return traits_.wakeRule == WakeRule::fifo || traits_.wakeRule == WakeRule::bestFit;
  }

  // Requests.

  /// A new attempt.
  /// @param before     holds that this owner has, as far as this client knows
  /// @param tombstone  empty: a lost request can be killed with its connection
  void beginAttempt(int before, std::string tombstone) {
    reconciling_ = false;
    before_ = before;
    heldStill_ = before;
    reconciledRemaining_.reset();
    kept_.reset();
    tried_ = true;
    ++attempts_;
    tombstone_ = std::move(tombstone);
    reconciliations_ = 0;
    enrols_ = waits() && traits_.queuesOnServer && !enrolled_;
  }
  [[nodiscard]] AcquireRequest attempt(std::string_view owner) const {
    return {owner, lease_, tombstone_, waits(), enrolled_ && !enrols_, before_ > 0};
  }
  /// The attempt is composed and about to be sent: what it obtains is good from here on.
  void sentAt(Clock::time_point now) noexcept {
    sentAt_ = now;
    enrolled_ = enrolled_ || enrols_;
  }

  /// Begins to reconcile a lost or surplus request. Returns until when that may be sent.
  /// @param keep         one hold more than before may remain, for the caller waits for it
  /// @param callTimeout  how long any call may take
  Clock::time_point beginReconciling(bool keep,
                                     Clock::time_point now,
                                     std::chrono::milliseconds callTimeout,
                                     std::chrono::milliseconds outageTimeout);
  /// The reconciliation at hand once more, or for the first time.
  [[nodiscard]] ReconcileRequest reconciling(std::string_view owner) {
    return {owner, before_ + (keeps_ ? 1 : 0), tombstone_, ++reconciliations_, keeps_};
  }
  [[nodiscard]] bool keeps() const noexcept { return keeps_; }

  /// For a request that is harmless only with a tombstone, and has none.
  void setTombstone(std::string tombstone) { tombstone_ = std::move(tombstone); }
  [[nodiscard]] bool hasTombstone() const noexcept { return !tombstone_.empty(); }

  /// The harm that the request at hand would do if it were executed late.
  [[nodiscard]] Call::Late late() const noexcept {
    if (!needsGuard() || hasTombstone() || (reconciling_ && traits_.ownIds)) {
      return Call::Late::harmless;
    }
    return reconciling_ ? Call::Late::takes : Call::Late::adds;
  }

  /// Until when a request may be sent that the caller waits for.
  [[nodiscard]] Clock::time_point sendBefore(Clock::time_point now,
                                             std::chrono::milliseconds outageTimeout) const {
    return limitedByOutage() ? std::min(deadline_, later(now, outageTimeout)) : deadline_;
  }
  /// The caller's time alone would let it wait for ever for a server that is not there.
  [[nodiscard]] bool limitedByOutage() const noexcept { return endless() || params_.forEver; }

  // Events.

  [[nodiscard]] Finding replied(const AcquireReply& reply, Clock::time_point now);
  /// The policy is met. The waiting took a while, so the grant may be too late by now.
  [[nodiscard]] Finding acknowledged(Clock::time_point now) const;
  /// @param answered  the caller has its answer already, or is to get none of it
  [[nodiscard]] Finding reconciled(const ReconcileReply& reply,
                                   bool answered,
                                   Clock::time_point now);
  /// Before replied() or reconciled(): the holds that are left of before(), as far as this client
  /// knows. None: they were lost while the request was under way.
  void heldStill(int count) noexcept { heldStill_ = count; }
  /// The request at hand was not executed, for another reason than the caller's time.
  [[nodiscard]] Finding failed(Error error);
  /// There was a connection, but no time left to send on it.
  [[nodiscard]] Finding notSent(Error error);
  /// Executed, or not, or still to be.
  [[nodiscard]] Finding lost();
  /// Nothing was sent since the gate was asked for, and nothing will be.
  [[nodiscard]] Finding turnedAway(Error error) {
    reconciling_ = false;
    return failed(std::move(error));
  }

  /// Tells the state machine.
  /// @param closed  the client is closed
  static Step decide(AcquireFsm& fsm, Finding finding, bool closed);
  /// Whether the caller has it, so that it is to be booked before the gate is left.
  [[nodiscard]] static bool obtains(Finding::Kind kind, Step next) noexcept {
    return next == Step::finish &&
           (kind == Finding::Kind::granted || kind == Finding::Kind::acknowledged ||
            kind == Finding::Kind::happened);
  }
  /// As Finding::leavesGate(), once the state machine has said what comes next.
  [[nodiscard]] static bool leavesGate(Finding::Kind kind, Step next) noexcept {
    return ((kind == Finding::Kind::granted || kind == Finding::Kind::acknowledged) &&
            next == Step::finish) ||
           (kind == Finding::Kind::resolved && next != Step::reconcileBack) ||
           (kind == Finding::Kind::unresolved && (next == Step::end || next == Step::finish));
  }
  /// There is no memory to go on with.
  /// @param executed  the server may have the request at hand
  static Step withoutMemory(AcquireFsm& fsm, bool executed);

  // Knowledge.

  [[nodiscard]] bool reconciles() const noexcept { return reconciling_; }
  [[nodiscard]] int before() const noexcept { return before_; }
  [[nodiscard]] int attempts() const noexcept { return attempts_; }
  [[nodiscard]] Clock::time_point validFrom() const noexcept { return sentAt_; }
  [[nodiscard]] std::optional<std::uint64_t> token() const noexcept { return token_; }
  [[nodiscard]] const PartIndexes& kept() const noexcept { return kept_; }
  /// How long what a reconciliation kept lasts. It may be left over from an earlier request, so
  /// that the time of this one says nothing.
  [[nodiscard]] std::optional<std::chrono::milliseconds> reconciledRemaining() const noexcept {
    return reconciledRemaining_;
  }
  /// How long the holder that was in the way has it, says the server; -1: not known.
  [[nodiscard]] std::chrono::milliseconds remaining() const noexcept { return remaining_; }
  /// Whether there was an attempt since this was last asked.
  [[nodiscard]] bool takeTried() noexcept { return std::exchange(tried_, false); }
  /// The attempt at hand would be the first to get a entry in the server's queue.
  [[nodiscard]] bool enrols() const noexcept { return enrols_; }
  /// Whether there may be a entry in the server's queue, which is the asker's to give up.
  [[nodiscard]] bool takeQueueEntry() noexcept { return std::exchange(enrolled_, false); }

  static Clock::time_point later(Clock::time_point when, Clock::duration by) noexcept {
    return when > Clock::time_point::max() - by ? Clock::time_point::max() : when + by;
  }

 private:
  Finding granted(std::int64_t count, Clock::time_point now);
  [[nodiscard]] bool tooLate(Clock::time_point now) const;
  /// Once in the life of a call: what is on the server beyond this client's knowledge goes.
  [[nodiscard]] bool mayDrop() noexcept { return !std::exchange(dropped_, true); }

  const LockTraits& traits_;
  const AcquireParams& params_;
  const std::chrono::milliseconds lease_;
  const Clock::time_point deadline_;

  // Of the request at hand.
  bool reconciling_ = false;
  int before_ = 0;
  int heldStill_ = 0;
  std::string tombstone_;
  std::int64_t reconciliations_ = 0;
  bool keeps_ = false;
  Clock::time_point sentAt_{};
  Clock::time_point reconcileBefore_ =
      Clock::time_point::max();  // later the server has forgotten it

  // Of the call.
  int attempts_ = 0;
  bool tried_ = false;
  bool enrolled_ = false;  // it may have a entry in the server's queue
  bool enrols_ = false;
  bool dropsAll_ =
      false;              // the next reconciliation leaves nothing of a hold unknown to this client
  bool dropped_ = false;  // that was done before
  std::chrono::milliseconds remaining_{-1};

  // Of the grant.
  int count_ = 0;
  std::optional<std::uint64_t> token_;
  PartIndexes kept_;  // AcquireReply::kept
  std::optional<std::chrono::milliseconds> reconciledRemaining_;
};

inline Acquisition::Clock::time_point Acquisition::beginReconciling(
    bool keep,
    Clock::time_point now,
    std::chrono::milliseconds callTimeout,
    std::chrono::milliseconds outageTimeout) {
  const bool limited = traits_.reconcileWithin.count() > 0;
  if (!reconciling_ && limited) {
    reconcileBefore_ = now + traits_.reconcileWithin;
  }
  reconciling_ = true;
  keeps_ = keep && !std::exchange(dropsAll_, false);
  if (keeps_) {
    return std::min(sendBefore(now, outageTimeout), reconcileBefore_);
  }
  // Once the lease is over there is nothing left to reconcile. A grant without a lease must not be
  // left behind.
  return limited || !expires() ? reconcileBefore_ : now + lease_ + callTimeout;
}

inline Acquisition::Finding Acquisition::replied(const AcquireReply& reply, Clock::time_point now) {
  if (!reply.granted) {
    remaining_ = reply.remaining;
    return {.kind = Finding::Kind::refused};
  }
  token_ = reply.token;
  kept_ = reply.kept;
  return granted(reply.count, now);
}

inline Acquisition::Finding Acquisition::granted(std::int64_t count, Clock::time_point now) {
  Finding finding;
  finding.leavesQueueEntry = true;
  if (tooLate(now)) {
    // A rest of the lease on the server counts as nothing: the next attempt finds it and
    // reconciles.
    remaining_ = std::chrono::milliseconds::zero();
    finding.kind = Finding::Kind::tooLate;
    return finding;
  }
  if (!traits_.changesState) {
    finding.kind = Finding::Kind::happened;
    return finding;
  }
  finding.count = static_cast<int>(count);
  count_ = finding.count;
  finding.tooMany = count > before_ + 1;
  // A hold that was lost, before the request or while it was under way, is still there, and its
  // token with it: a hold that is taken anew has a token of its own, so the old one goes first.
  if (count > 1 && heldStill_ == 0 && token_ && mayDrop()) {
    dropsAll_ = true;
    before_ = 0;
    finding.kind = Finding::Kind::leftover;
    return finding;
  }
  finding.kind = Finding::Kind::granted;
  return finding;
}

inline Acquisition::Finding Acquisition::acknowledged(Clock::time_point now) const {
  if (tooLate(now)) {
    return {.kind = Finding::Kind::tooLate};
  }
  return {.kind = Finding::Kind::acknowledged, .count = count_};
}

inline Acquisition::Finding Acquisition::reconciled(const ReconcileReply& reply,
                                                    bool answered,
                                                    Clock::time_point now) {
  const bool held = reply.now > before_ && !tooLate(now);
  if (held && !answered) {
    token_ = reply.token;
    kept_.reset();
    reconciledRemaining_ = reply.remaining;
    return granted(reply.now, now);
  }
  return {.kind = Finding::Kind::resolved, .held = held, .undone = reply.before > reply.now};
}

inline Acquisition::Finding Acquisition::failed(Error error) {
  if (reconciling_) {
    return {.kind = Finding::Kind::unresolved,
            .error = doubtful(error,
                              "whether it was obtained is not known; if it was, it is given back")};
  }
  // The server has a hold that came too late or counts as lost: away with it.
  if (error.errc() == Errc::reentry && before_ == 0 && mayDrop()) {
    dropsAll_ = true;
    return {.kind = Finding::Kind::leftover};
  }
  // A caller that does not wait cannot wait for itself: it is just refused.
  if (error.errc() == Errc::wouldDeadlock && !waits() && !params_.willRetry) {
    return {.kind = Finding::Kind::refused};
  }
  return {.kind = Finding::Kind::failed, .error = std::move(error)};
}

inline Acquisition::Finding Acquisition::notSent(Error error) {
  if (reconciling_ || endless() || !waits()) {
    return failed(std::move(error));
  }
  // The wait is over, as it would be if it had ended between two attempts.
  return {.kind = Finding::Kind::notSent,
          .leavesQueueEntry = std::exchange(enrols_, false),
          .error = Error(Errc::timedOut, "there was no time left to ask the server")};
}

inline Acquisition::Finding Acquisition::lost() {
  if (!traits_.changesState) {
    // Nothing was left behind, whether it was executed or not.
    return failed(Error(Errc::connectionFailed, "no node answered"));
  }
  return {.kind = Finding::Kind::lost};
}

inline Acquisition::Step Acquisition::decide(AcquireFsm& fsm, Finding finding, bool closed) {
  switch (finding.kind) {
    case Finding::Kind::refused:
    case Finding::Kind::tooLate:
      return fsm.refused();
    case Finding::Kind::happened:
      // There is nothing to give back if the caller has left.
      return fsm.answered() ? fsm.refused() : fsm.granted(false);
    case Finding::Kind::granted:
      // A closing client has counted what it gives back: a grant that comes after that is given
      // back here, and the caller hears of the closing.
      if (closed && fsm.stopped(closedError()) != Step::none) {
        static_cast<void>(fsm.granted(finding.tooMany));
        return Step::finishAndReconcileBack;
      }
      return fsm.granted(finding.tooMany);
    case Finding::Kind::acknowledged:
      if (closed && fsm.stopped(closedError()) != Step::none) {
        static_cast<void>(fsm.acknowledged());
        return Step::finishAndReconcileBack;
      }
      return fsm.acknowledged();
    case Finding::Kind::unsynced:
      if (closed && fsm.stopped(closedError()) != Step::none) {
        static_cast<void>(fsm.notAcknowledged(std::move(*finding.error)));
        return Step::finishAndReconcileBack;
      }
      return fsm.notAcknowledged(std::move(*finding.error));
    case Finding::Kind::leftover:
    case Finding::Kind::lost:
      return fsm.unknown();
    case Finding::Kind::resolved:
      return fsm.reconciled(finding.held);
    case Finding::Kind::unresolved:
      return fsm.reconcileFailed(std::move(*finding.error));
    case Finding::Kind::notSent:
      return fsm.notSent(std::move(*finding.error));
    case Finding::Kind::failed:
      return fsm.failed(std::move(*finding.error));
  }
  return Step::none;
}

inline Acquisition::Step Acquisition::withoutMemory(AcquireFsm& fsm, bool executed) {
  if (executed && fsm.result() == AcquireFsm::Result::granted) {
    // A grant leaves the gate before the caller is told of it, so that nobody knows of this one.
    return fsm.notBooked(memoryError());
  }
  const Step step = fsm.stopped(memoryError());
  if (!executed) {
    return step;
  }
  // A hold that it may have obtained is given back as if the reply had been lost.
  static_cast<void>(fsm.unknown());
  return step == Step::none ? Step::reconcileBack : Step::finishAndReconcileBack;
}

inline bool Acquisition::tooLate(Clock::time_point now) const {
  // Leases of a few milliseconds are nearly always over by the time of the reply; their users know.
  constexpr std::chrono::milliseconds kShortest{10};
  return expires() && lease_ > kShortest && now >= sentAt_ + lease_ - Validity::allowance(lease_);
}

}  // namespace rlock::detail
