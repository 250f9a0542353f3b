// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/acquire_fsm.hpp>
#include <rlock/detail/engine/call_step.hpp>
#include <rlock/error.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace rlock::detail {

/// The meaning of an event in the life of an acquisition.
struct AcquisitionFinding {
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
  int count = 0;         ///< granted: holds now
  bool tooMany = false;  ///< granted: more than this owner knows of
  bool held = false;     ///< resolved: a good hold is there
  bool undone = false;   ///< resolved: a hold was taken back
  /// resolved or refused: so many holds from before the request are left; empty: nothing was heard
  /// of them.
  std::optional<int> left{};
  /// resolved: how long what is left lasts; empty: nothing is left, or it is not known.
  std::optional<std::chrono::milliseconds> lasts{};
  bool leavesQueueEntry = false;  ///< the entry in the server's queue is used up, or never was
  std::optional<Error> error{};

  /// The request at hand is over for certain, whatever comes next: the next one of this owner may
  /// go.
  [[nodiscard]] bool leavesGate() const noexcept;
};

/// The consequences of a finding, once the state machine knows of it.
///
/// AcquireTask makes one for each event, under the mutex of its state machine, and acts on it when
/// that is free: books the grant, leaves the gate, takes the next step. Invariant: a grant that
/// obtains() is booked before the gate is left, and one that does not is given back or left in
/// doubt, never forgotten.
///
/// **Thread safety:** A value. decide() and withoutMemory() need the mutex of the state machine.
class AcquisitionDecision {
 public:
  using Kind = AcquisitionFinding::Kind;

  /// @param step  says the state machine
  AcquisitionDecision(Kind kind, CallStep step) noexcept : kind_(kind), step_(step) {}

  /// Tells the state machine.
  /// @param closed  the client is closed
  static AcquisitionDecision decide(AcquireFsm& fsm, AcquisitionFinding finding, bool closed) {
    const auto kind = finding.kind;
    return {kind, tell(fsm, std::move(finding), closed)};
  }
  /// There is no memory to go on with.
  /// @param executed  the server may have the request at hand
  static CallStep withoutMemory(AcquireFsm& fsm, bool executed);

  [[nodiscard]] CallStep step() const noexcept { return step_; }
  /// Whether the caller has it, so that it is to be booked before the gate is left.
  [[nodiscard]] bool obtains() const noexcept;
  /// As AcquisitionFinding::leavesGate(), where that depends on what comes next.
  [[nodiscard]] bool leavesGate() const noexcept;
  /// A request that may have been executed is followed by another, which will tell.
  [[nodiscard]] bool leavesDoubt() const noexcept {
    return step_ == CallStep::reconcileBack || step_ == CallStep::reconcileKeep ||
           step_ == CallStep::finishAndReconcileBack || step_ == CallStep::acknowledge;
  }

 private:
  static CallStep tell(AcquireFsm& fsm, AcquisitionFinding finding, bool closed);

  Kind kind_;
  CallStep step_;
};

inline bool AcquisitionFinding::leavesGate() const noexcept {
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

inline bool AcquisitionDecision::obtains() const noexcept {
  return step_ == CallStep::finish &&
         (kind_ == Kind::granted || kind_ == Kind::acknowledged || kind_ == Kind::happened);
}

inline bool AcquisitionDecision::leavesGate() const noexcept {
  return ((kind_ == Kind::granted || kind_ == Kind::acknowledged) && step_ == CallStep::finish) ||
         (kind_ == Kind::resolved && step_ != CallStep::reconcileBack) ||
         (kind_ == Kind::unresolved && (step_ == CallStep::end || step_ == CallStep::finish));
}

inline CallStep AcquisitionDecision::tell(AcquireFsm& fsm,
                                          AcquisitionFinding finding,
                                          bool closed) {
  switch (finding.kind) {
    case Kind::refused:
    case Kind::tooLate:
      return fsm.refused();
    case Kind::happened:
      // There is nothing to give back if the caller has left.
      return fsm.answered() ? fsm.refused() : fsm.granted(false);
    case Kind::granted:
      // A closing client has counted what it gives back: a grant that comes after that is given
      // back here, and the caller hears of the closing.
      if (closed && fsm.stopped(closedError()) != CallStep::none) {
        static_cast<void>(fsm.granted(finding.tooMany));
        return CallStep::finishAndReconcileBack;
      }
      return fsm.granted(finding.tooMany);
    case Kind::acknowledged:
      if (closed && fsm.stopped(closedError()) != CallStep::none) {
        static_cast<void>(fsm.acknowledged());
        return CallStep::finishAndReconcileBack;
      }
      return fsm.acknowledged();
    case Kind::unsynced:
      if (closed && fsm.stopped(closedError()) != CallStep::none) {
        static_cast<void>(fsm.notAcknowledged(std::move(*finding.error)));
        return CallStep::finishAndReconcileBack;
      }
      return fsm.notAcknowledged(std::move(*finding.error));
    case Kind::leftover:
    case Kind::lost:
      return fsm.unknown();
    case Kind::resolved:
      return fsm.reconciled(finding.held);
    case Kind::unresolved:
      return fsm.reconcileFailed(std::move(*finding.error));
    case Kind::notSent:
      return fsm.notSent(std::move(*finding.error));
    case Kind::failed:
      return fsm.failed(std::move(*finding.error));
  }
  return CallStep::none;
}

inline CallStep AcquisitionDecision::withoutMemory(AcquireFsm& fsm, bool executed) {
  if (executed && fsm.result() == AcquireFsm::Result::granted) {
    // A grant leaves the gate before the caller is told of it, so that nobody knows of this one.
    return fsm.notBooked(memoryError());
  }
  const CallStep step = fsm.stopped(memoryError());
  if (!executed) {
    return step;
  }
  // A hold that it may have obtained is given back as if the reply had been lost.
  static_cast<void>(fsm.unknown());
  return step == CallStep::none ? CallStep::reconcileBack : CallStep::finishAndReconcileBack;
}

}  // namespace rlock::detail
