// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/late_mutex.hpp>
#include <rlock/detail/engine/call_step.hpp>
#include <rlock/detail/engine/caller_signals.hpp>
#include <rlock/detail/engine/gate_pass.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/owner_field.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace rlock::detail {

/// A call that is carried out in steps: what it is about, who drives it, and the decisions (the
/// virtual functions), which say after each event which step comes next. The parts of CallRunner
/// carry the steps out.
///
/// One thread at a time *drives*: it composes requests, reads replies and performs steps. That is
/// the caller's thread until moveToLoop(), and the loop thread from then on; a call with a handler
/// (`background_`) begins on the loop. There is no way back. Another thread may drive for a caller
/// that sleeps in a queue, until the sleeper takes the reply. The caller that does not drive waits
/// for its answer and leaves at its deadline, when it is stopped, or when the client is closed;
/// leave() then decides between this answer and the one on its way, under the mutex.
///
/// **Thread safety:** the thread that drives, unless a function says otherwise.
class SteppedCall : public Call {
 public:
  using Clock = std::chrono::steady_clock;
  using Step = CallStep;
  using Signals = CallerSignals;
  enum class Driver : std::uint8_t { caller, loop };
  enum class Leave : std::uint8_t { late, stopped };

 protected:
  SteppedCall(std::shared_ptr<LockEngine> engine,
              std::shared_ptr<const LockScripts> scripts,
              OwnerId owner)
      : engine_(std::move(engine)),
        scripts_(std::move(scripts)),
        owner_(owner),
        ownerField_(engine_->clientId(), owner),
        began_(engine_->now()),
        signals_(*engine_->env()),
        gate_(*engine_, scripts_, owner_) {}

  ///@{
  /// The decisions.

  /// The first step.
  virtual Step begin() { return Step::attempt; }
  /// Passes the gate and fills in the request. Step::attempt: it is to be sent. Step::none: it
  /// waits at the gate. Otherwise there is nothing to send, and this comes instead.
  virtual Step prepare(Driver /*driver*/) { return Step::attempt; }
  /// As prepare(), when the gate was passed on to this call. Loop thread.
  virtual Step gatePassed() { return Step::none; }
  /// The client was closed before the gate was passed on. Loop thread.
  virtual Step gateRefused() { return Step::none; }
  /// There is a reply.
  virtual Step replied() = 0;
  /// The request was not executed.
  virtual Step failed(Outcome outcome) = 0;
  /// The request may have been executed.
  virtual Step lost() = 0;
  /// The caller does not wait any longer. A step that is not an answer: the answer is on its way.
  /// On the caller's thread, whoever drives, or on the loop thread.
  virtual Step leave(Leave why) = 0;
  /// To the end of the queue, or back to the place there; nothing is to be done if that works.
  virtual Step enqueue() { return Step::none; }
  /// As leave(), but only if it sleeps in the queue. On the caller's thread.
  virtual Step leaveQueued(Leave /*why*/) { return Step::none; }
  /// It sleeps in the queue, where it leaves at its deadline without grace.
  virtual bool queued() { return false; }
  /// It stands in the queue, but another call's request is about it, too.
  virtual bool takingOver() { return false; }
  /// Asks for the acknowledgements of what was granted. Loop thread.
  virtual void askForAcks() {}
  /// The next request, which recompose() fills in, reconciles the one before. Returns until when it
  /// may be sent.
  virtual Clock::time_point prepareReconciling(bool /*keep*/) { return {}; }
  /// There is no memory to go on with. Any thread that had something to do.
  /// @param executed  the server may have the request at hand
  virtual Step withoutMemory(bool executed) = 0;
  /// No request is on its way, and none will be. The answer and the end of the gate may follow.
  virtual void ended() {}
  /// Gives the answer to whoever waits.
  virtual void answerCaller() = 0;
  /// Where the call waits at a gate.
  virtual GateWaiter& atGate() noexcept = 0;
  /// Whether its caller leaves at the deadline. A call that must go on whatever fails needs no
  /// memory for that.
  [[nodiscard]] virtual bool leavesAtDeadline() const { return true; }
  /// Until when the request at hand may be sent.
  [[nodiscard]] virtual Clock::time_point sendBefore(Driver /*driver*/) const { return deadline_; }
  ///@}

  // Taking and giving up the right to drive. Any thread.

  /// The loop thread drives from here on.
  void moveToLoop() {
    mutex_.share();
    const MutexLock lock(mutex_);
    onLoop_ = true;
  }
  /// Its thread may be asleep until a request has been sent for it: it waits for the answer
  /// instead.
  void wakeToWait() {
    if (!background_) {
      moveToLoop();
      signals_.give(Signals::kMoved);
    }
  }
  [[nodiscard]] bool drivenByLoop() const RLOCK_REQUIRES(mutex_) { return background_ || onLoop_; }

  /// The call goes on without its caller's thread, for a handler. Before that.
  void goToBackground() noexcept {
    mutex_.share();
    background_ = true;
    justBegun_ = false;
  }

  // The time. The thread that drives.

  /// For a request that is about to be sent: the beginning of the call if that is just now.
  [[nodiscard]] Clock::time_point timeOfRequest(Driver driver) noexcept {
    const bool justBegun = std::exchange(justBegun_, false) && driver == Driver::caller;
    composedAt_ = justBegun ? began_ : engine_->now();
    return composedAt_;
  }
  /// The call is about to wait for something.
  void willWait() noexcept { justBegun_ = false; }

  /// There is a reply to the request at hand.
  void noteRoundTrip() noexcept {
    engine_->telemetry().durations().roundTrips.add(answeredAt() - submittedAt());
  }

  // How long its caller waits. Any thread.

  /// For a reply that is on its way.
  [[nodiscard]] Clock::time_point replyLimit() const noexcept {
    return deadline_ > Clock::time_point::max() - kReplyGrace ? Clock::time_point::max()
                                                              : deadline_ + kReplyGrace;
  }
  /// For anything.
  [[nodiscard]] Clock::time_point limit() const noexcept {
    return std::min(replyLimit(), gate_.limit());
  }

  // For the subclass.

  [[nodiscard]] Error describe(Error error) const {
    return engine_->describe(std::move(error), *scripts_, owner_, began_);
  }
  /// It stands in a queue: what only a request needs is given back until the next one.
  void restInQueue() noexcept {
    rest();
    ownerField_.rest();
  }
  /// A fresh key for one request.
  [[nodiscard]] std::string newKey() const { return requestKey(scripts_->name, newRequestId()); }

  const std::shared_ptr<LockEngine> engine_;
  const std::shared_ptr<const LockScripts> scripts_;
  const OwnerId owner_;
  OwnerField ownerField_;
  const Clock::time_point began_;
  /// Constant once the subclass is constructed; time_point::max(): the caller has all the time.
  Clock::time_point deadline_ = Clock::time_point::max();
  /// For what several threads may want at once. The caller's thread has the call for itself until
  /// it stands in a queue or at a gate, or the loop thread has it.
  LateMutex mutex_;
  /// A handler waits, not a thread. Constant once the call runs.
  bool background_ = false;
  CallerSignals signals_;
  GatePass gate_;

 private:
  friend class CallAtGate;
  friend class CallingThread;
  friend class StepPerformer;

  bool justBegun_ = true;
  Step putOff_ = Step::none;        // until the loop thread calls as for a gate
  Clock::time_point composedAt_{};  // of the request at hand, if anybody asked
  bool onLoop_ RLOCK_GUARDED_BY(mutex_) = false;
};

}  // namespace rlock::detail
