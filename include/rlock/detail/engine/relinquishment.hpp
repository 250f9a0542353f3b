// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_traits.hpp>
#include <rlock/detail/engine/call_step.hpp>
#include <rlock/detail/engine/release_fsm.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>
#include <rlock/detail/executor/reply_error.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// The decisions of one release: with which terms its requests go out, what a reply amounts to, and
/// whether a failure is the caller's or the release goes on without it.
///
/// ReleaseTask asks it at each event, books what the Finding says, leaves the gate, and then has
/// decide() tell the ReleaseFsm, which says what comes next. It needs no clock, thread or mutex.
///
/// Invariants: before() is the count of holds that this owner knew of when the release was planned,
/// and the gate keeps it so. The caller is told that it released a hold only if one was there that
/// it knew of and that nobody had told it was lost.
///
/// **Thread safety:** One thread at a time, the one that drives: the caller's, then the loop's. The
/// ReleaseFsm that decide() is given has the task's mutex.
class Relinquishment {
 public:
  using Clock = std::chrono::steady_clock;
  using Step = CallStep;

  /// The hold as it is known when the gate is held.
  struct Plan {
    bool all = false;   ///< the hold is lost: what is left of it goes, however often it was taken
    bool last = false;  ///< its owner wants nothing of it any more: what is left of it goes, too
    bool lost = false;  ///< what it is about is lost, so that nobody is told that it is released
    int before = 0;     ///< holds before the request
    int partIndex = 0;  ///< ReleaseRequest::partIndex
    std::chrono::milliseconds restore{0};  ///< ReleaseRequest::restore
  };

  struct Finding {
    enum class Kind : std::uint8_t {
      released,      ///< the server counted one hold less
      notOwner,      ///< there was no such hold, or nobody may be told that it is released
      reconciled,    ///< the count is what it must be; `outcome` says what the release amounts to
      unreconciled,  ///< it could not be brought to that in its time
      goesOn,        ///< not executed, but the hold must not stay
      otherData,     ///< not executed: other data stands where the lock was
      notReleased,   ///< not executed, and the caller may try again
      lost           ///< the request may have been executed
    };
    Kind kind = Kind::lost;
    int remain = 0;         ///< holds that are left, as this owner knows
    bool known = false;     ///< released: this owner knew of the hold
    bool tooMany = false;   ///< released: the server counts more than `remain`
    bool booked = false;    ///< the ledger is to be told
    bool lostHold = false;  ///< booked: as a hold that was lost
    ReleaseFsm::Result outcome = ReleaseFsm::Result::pending;
    PartIndexes over{};                                ///< booked: ReleaseReply::over
    std::optional<std::chrono::milliseconds> lasts{};  ///< how long the holds that remain last
    std::optional<Error> error{};

    /// The request at hand is over for certain: the next one of this owner may go.
    [[nodiscard]] bool leavesGate() const noexcept {
      return booked || kind == Kind::notReleased || kind == Kind::notOwner;
    }
  };

  /// @param traits  of the kind of lock; must outlive this
  explicit Relinquishment(const LockTraits& traits) noexcept : traits_(traits) {}

  /// Its caller would not try again if it failed, but is told of that.
  void setMustGo() noexcept { mustGo_ = true; }
  /// As setMustGo(), and nobody waits to be told.
  void setNobodyAsks() noexcept { mustGo_ = nobodyAsks_ = true; }
  [[nodiscard]] bool mustGo() const noexcept { return mustGo_; }
  [[nodiscard]] bool nobodyAsks() const noexcept { return nobodyAsks_; }

  // Requests.

  /// @param tombstone      empty: a lost request can be killed with its connection
  /// @param validWhenSent  the hold was certainly there when the request was about to be sent
  void beginAttempt(const Plan& plan, std::string tombstone, bool validWhenSent) {
    plan_ = plan;
    reconciling_ = false;
    reconciliations_ = 0;
    tombstone_ = std::move(tombstone);
    validWhenSent_ = validWhenSent;
  }
  [[nodiscard]] ReleaseRequest attempt(std::string_view owner) const {
    return {owner, plan_.restore, tombstone_, plan_.partIndex, plan_.before};
  }
  void beginReconciling() noexcept { reconciling_ = true; }
  /// The reconciliation at hand once more, or for the first time.
  [[nodiscard]] ReconcileRequest reconciling(std::string_view owner) {
    ReconcileRequest request{owner, expected(), tombstone_};
    request.number = ++reconciliations_;
    request.partIndex = plan_.all || plan_.last ? 0 : plan_.partIndex;
    request.before = plan_.before;
    return request;
  }
  [[nodiscard]] bool reconciles() const noexcept { return reconciling_; }
  /// Until when the reconciliation goes on: as long as the hold can live, for then it is gone by
  /// itself. But where a lost request is not killed with its connection, nothing but the tombstone
  /// keeps it from coming later still and taking a hold that the same owner has by then.
  /// @param holdEnds  when the hold is over at the latest
  [[nodiscard]] Clock::time_point reconcilesUntil(Clock::time_point now,
                                                  Clock::time_point holdEnds,
                                                  Clock::duration callTimeout) const noexcept {
    const auto until = holdEnds + callTimeout;
    return hasTombstone() ? std::max(until, now + kTombstoneLife) : until;
  }
  [[nodiscard]] int before() const noexcept { return plan_.before; }

  /// Whether a request of this kind needs a tombstone where connections cannot be killed.
  [[nodiscard]] bool needsGuard() const noexcept { return !traits_.ownIds; }
  void setTombstone(std::string tombstone) { tombstone_ = std::move(tombstone); }
  [[nodiscard]] bool hasTombstone() const noexcept { return !tombstone_.empty(); }
  /// Executed late, it would take a later hold of the same owner.
  [[nodiscard]] Call::Late late() const noexcept {
    return traits_.ownIds || hasTombstone() ? Call::Late::harmless : Call::Late::takes;
  }

  // Events.

  [[nodiscard]] Finding replied(const ReleaseReply& reply) const;
  [[nodiscard]] Finding reconciled(const ReconcileReply& reply) const;
  /// @param answered  by the server, not for want of a connection
  [[nodiscard]] Finding failed(Error error, bool answered) const;

  /// Tells the state machine.
  static Step decide(ReleaseFsm& fsm, Finding finding);
  /// There is no memory to go on with.
  /// @param executed  the server may have the request at hand
  static Step withoutMemory(ReleaseFsm& fsm, bool executed) {
    // Completed in the background, as if the reply had been lost.
    return executed ? fsm.unknown() : fsm.failed(memoryError());
  }

 private:
  /// Holds that may remain.
  [[nodiscard]] std::int64_t expected() const noexcept {
    return plan_.all || plan_.last ? 0 : std::max(plan_.before - 1, 0);
  }

  const LockTraits& traits_;
  bool mustGo_ = false;
  bool nobodyAsks_ = false;
  Plan plan_;
  bool reconciling_ = false;
  std::int64_t reconciliations_ = 0;  // of the release at hand
  std::string tombstone_;
  bool validWhenSent_ = false;
};

inline Relinquishment::Finding Relinquishment::replied(const ReleaseReply& reply) const {
  Finding finding;
  finding.remain = static_cast<int>(std::min(reply.remain, expected()));
  finding.tooMany = reply.remain > expected();
  finding.over = reply.over;
  if (finding.remain > 0) {
    finding.lasts = reply.remaining;
  }
  if (!reply.owned || (plan_.lost && !finding.tooMany)) {
    finding.kind = Finding::Kind::notOwner;
    finding.booked = true;
    finding.lostHold = true;
    return finding;
  }
  finding.kind = Finding::Kind::released;
  finding.known = plan_.before > 0 && !plan_.lost;
  finding.booked = !finding.tooMany;
  return finding;
}

inline Relinquishment::Finding Relinquishment::reconciled(const ReconcileReply& reply) const {
  // The server may have dropped the hold by itself. Only a release that was sent while the hold was
  // certainly there may be given the credit for its being gone.
  const bool executed = reply.before >= plan_.before || reply.before > 0 || validWhenSent_;
  Finding finding;
  finding.kind = Finding::Kind::reconciled;
  finding.outcome = ReleaseFsm::Result::notOwner;
  if (plan_.before > 0 && executed && !plan_.all && !plan_.lost) {
    finding.outcome = reply.now > 0 ? ReleaseFsm::Result::stillHeld : ReleaseFsm::Result::released;
  }
  finding.remain = static_cast<int>(reply.now);
  if (reply.now > 0) {
    finding.lasts = reply.remaining;
  }
  finding.over = reply.over;
  finding.booked = true;
  finding.lostHold = finding.outcome == ReleaseFsm::Result::notOwner;
  return finding;
}

inline Relinquishment::Finding Relinquishment::failed(Error error, bool answered) const {
  Finding finding;
  if (reconciling_) {
    finding.kind = Finding::Kind::unreconciled;
    finding.error = doubtful(
        error, "whether it was released is not known; the release goes on in the background");
    return finding;
  }
  const Errc errc = error.errc();
  // A release that did not get through, or only to a server that takes nothing at the moment, must
  // go all the same. A refusal for another reason is the caller's to deal with, if there is one
  // that can.
  const bool passes = errc == Errc::connectionFailed || errc == Errc::readOnly ||
                      errc == Errc::notSynced ||
                      classifyError(error.serverMessage()).action == ErrorAction::retry;
  const bool refused = answered && !passes;
  // A release for which there was no memory has not begun, and says so by its error: then somebody
  // repeats it, and it must not go on besides.
  const bool repeated = mustGo_ && !nobodyAsks_ && !answered && errc == Errc::overloaded;
  const bool goesOn =
      errc != Errc::closed && !repeated && (mustGo_ ? errc != Errc::wrongType : !refused);
  if (goesOn && plan_.before > 0) {
    finding.kind = Finding::Kind::goesOn;
    finding.error = doubtful(error, "the release goes on in the background");
    return finding;
  }
  finding.kind = errc == Errc::wrongType ? Finding::Kind::otherData : Finding::Kind::notReleased;
  finding.booked = finding.kind == Finding::Kind::otherData;
  finding.lostHold = finding.booked;
  finding.error = std::move(error);
  return finding;
}

inline Relinquishment::Step Relinquishment::decide(ReleaseFsm& fsm, Finding finding) {
  switch (finding.kind) {
    case Finding::Kind::released:
      return fsm.released(finding.known, finding.remain, finding.tooMany);
    case Finding::Kind::notOwner:
      return fsm.notOwner();
    case Finding::Kind::reconciled:
      return fsm.reconciled(finding.outcome);
    case Finding::Kind::unreconciled:
      return fsm.reconcileFailed(std::move(*finding.error));
    case Finding::Kind::goesOn:
      return fsm.failedForGood(std::move(*finding.error));
    case Finding::Kind::otherData:
    case Finding::Kind::notReleased:
      return fsm.failed(std::move(*finding.error));
    case Finding::Kind::lost:
      return fsm.unknown();
  }
  return Step::none;
}

}  // namespace rlock::detail
