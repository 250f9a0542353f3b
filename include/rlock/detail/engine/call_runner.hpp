// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/engine/call_at_gate.hpp>
#include <rlock/detail/engine/calling_thread.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/step_performer.hpp>
#include <rlock/detail/engine/stepped_call.hpp>
#include <rlock/detail/executor/call.hpp>

#include <memory>
#include <stop_token>
#include <utility>

namespace rlock::detail {

/// A call that runs on its caller's thread while all goes well (CallingThread), and on the loop
/// thread otherwise (StepPerformer), by way of the gate of its hold (CallAtGate). This class is
/// what its subclasses use of them, and where events from elsewhere come in.
///
/// The subclass decides what comes next (SteppedCall) and knows what the call is about.
///
/// It guarantees that the caller is answered once, however the call ends: the loop may end, the
/// client close, and memory run out; and that what the server may have executed is reconciled, also
/// when its caller got an exception.
///
/// **Thread safety:** events come from any thread; the rest as in the parts.
class CallRunner : public SteppedCall {
 public:
  /// Where the handler runs. Before the start.
  void setHandlerPlace(HandlerPlace place) noexcept { handlerPlace_ = place; }

  /// Whether too much work is a reason not to begin it. A release must go on.
  [[nodiscard]] static constexpr bool mayBeRefused() noexcept { return false; }

 protected:
  CallRunner(std::shared_ptr<LockEngine> engine,
             std::shared_ptr<const LockScripts> scripts,
             OwnerId owner)
      : SteppedCall(std::move(engine), std::move(scripts), owner),
        performer_(*this),
        atGate_(*this, performer_) {
    engine_->operationBegins();
  }
  ~CallRunner() override {
    engine_->operationEnds();
    signals_.forgetStop();
  }

  // The caller's thread: CallingThread.
  bool runHere() { return CallingThread(*this, performer_).run(); }
  void giveUp() noexcept { CallingThread(*this, performer_).giveUp(); }

  // Other threads: StepPerformer.
  void startOnLoop() { performer_.start(); }
  void perform(Step step) { performer_.perform(step); }
  void leaveNow(Leave why) noexcept { performer_.leave(why); }
  void performSoon(Step step) noexcept { performer_.performSoon(step); }
  template <class Action>
  void soon(Action action) {
    performer_.soon(std::move(action));
  }
  void attemptOnLoop() { performer_.attempt(); }
  void attemptForSleeper() { performer_.attemptForSleeper(); }
  template <class Action>
  void guarded(Action action) noexcept {
    performer_.guarded(std::move(action));
  }

  // The gate: CallAtGate.
  bool enterGate() {
    return enterGate([](Hold& /*hold*/) {});
  }
  /// @param inside  as in HoldGates::enter()
  template <class Inside>
  bool enterGate(Inside inside) {
    return atGate_.enter(std::move(inside));
  }
  void leaveGate() { gate_.leave(); }

  // Reasons to leave.

  void watchStop(const std::stop_token& stop) {
    signals_.watchStop(stop, [this] { interruptCaller(Signals::kStopped); });
  }
  /// The caller is to leave, wherever it waits. Any thread. False: there is no memory to tell one
  /// that is no thread, which stays until its deadline.
  bool interruptCaller(Signals::Signal why) noexcept;

  HandlerPlace handlerPlace_ = HandlerPlace::application;

 private:
  void finished(Outcome outcome) noexcept override;
  GateWaiter& atGate() noexcept override { return atGate_; }

  StepPerformer performer_;
  CallAtGate atGate_;
};

inline bool CallRunner::interruptCaller(Signals::Signal why) noexcept {
  signals_.give(why);
  if (!background_) {
    interrupt(*engine_->env());
    return true;
  }
  // Race: the last owner may be deleting the call, whose destructor waits for this.
  if (!tryAddRef()) {
    return true;
  }
  // The loop has a reserve for what it is given, so that there is no use in a second try.
  return ifThereIsMemory([this] {
    engine_->dispatcher().post(
        [this, self = IntrusivePtr<CallRunner>::adopt(this)] { performer_.leave(Leave::stopped); });
  });
}

inline void CallRunner::finished(Outcome outcome) noexcept {
  if (!background_) {
    // Race: a caller that was interrupted has given its request up to the loop thread, but has not
    // said yet that it leaves. A turn that comes now must not send a request whose reply that
    // caller would have to take.
    moveToLoop();
  }
  guarded([&] {
    gate_.setMaybeExecuted(outcome.kind != Outcome::Kind::failed);
    switch (outcome.kind) {
      case Outcome::Kind::replied:
        noteRoundTrip();
        perform(replied());
        return;
      case Outcome::Kind::failed:
        perform(failed(std::move(outcome)));
        return;
      case Outcome::Kind::unknown:
        perform(lost());
        return;
    }
  });
}

}  // namespace rlock::detail
