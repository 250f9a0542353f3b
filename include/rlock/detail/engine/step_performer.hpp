// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/stepped_call.hpp>
#include <rlock/detail/executor/dispatcher.hpp>

#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <utility>

namespace rlock::detail {

/// Performs the steps of a call whose caller does not drive it: on the loop thread, to which every
/// call moves that meets trouble, or on a thread that has a turn for a caller that sleeps.
///
/// It guarantees that the caller is answered once, also when memory runs out; that the gate is left
/// at the end, and only then; and that the call lives until what was queued for it has run.
///
/// **Thread safety:** start(), soon(), performSoon() and guarded() from any thread,
/// attemptForSleeper() on the thread that has the turn. The rest belongs to the thread that drives,
/// and the deadline's timer to the loop thread.
class StepPerformer {
 public:
  using Clock = SteppedCall::Clock;
  using Step = SteppedCall::Step;

  explicit StepPerformer(SteppedCall& call) noexcept : call_(call) {}

  /// The call begins on the loop thread. Its deadline is the end of the caller's time.
  void start();
  void perform(Step step);
  /// Sends the request if that is what preparing it came to.
  void submit(Step prepared);
  void attempt() { submit(call_.prepare(SteppedCall::Driver::loop)); }
  /// The request goes out at once, and its sleeping thread wakes up while it is on the way.
  void attemptForSleeper();
  /// Goes on in a while, on the loop thread. Without memory it goes the way of the gates.
  void performSoon(Step step) noexcept;
  /// The step for which the loop thread calls as for a gate; Step::none: it is for the gate.
  [[nodiscard]] Step takePutOff() noexcept { return std::exchange(call_.putOff_, Step::none); }
  /// As guarded(), on the loop thread.
  template <class Action>
  void soon(Action action);
  /// Does something for the call. A call that there is no memory for fails, and what it may have
  /// obtained is given back.
  template <class Action>
  void guarded(Action action) noexcept;
  /// A caller that is no thread leaves then.
  void armDeadline(Clock::time_point when);
  /// The caller does not wait any longer.
  void leave(SteppedCall::Leave why) noexcept;

 private:
  void reconcile(bool keep);
  void conclude();
  void leaveGate();
  void failWithoutMemory();
  void onDeadline();

  SteppedCall& call_;
  std::unique_ptr<Timer> deadlineTimer_;
};

// To the loop thread.

template <class Action>
void StepPerformer::soon(Action action) {
  call_.engine_->dispatcher().post(
      [this, action, self = IntrusivePtr<SteppedCall>(&call_)] { guarded(action); });
}

inline void StepPerformer::performSoon(Step step) noexcept {
  if (!ifThereIsMemory([&] { soon([this, step] { perform(step); }); }) && step != Step::none) {
    call_.addRef();
    call_.putOff_ = step;
    call_.engine_->gates().tellSoon(call_.atGate());
  }
}

inline void StepPerformer::start() {
  call_.goToBackground();
  soon([this] {
    if (call_.deadline_ != Clock::time_point::max() && call_.leavesAtDeadline()) {
      armDeadline(call_.deadline_);
    }
    perform(call_.begin());
  });
}

// On whichever thread.

template <class Action>
void StepPerformer::guarded(Action action) noexcept {
  try {
    action();
    return;
  } catch (const std::bad_alloc&) {
  }
  try {
    failWithoutMemory();
  } catch (const std::exception& failure) {
    call_.engine_->log().write(LogLevel::error, failure.what());
    // The caller has its answer. A hold that it may have obtained ends with its lease.
    call_.gate_.leave();
  }
}

inline void StepPerformer::failWithoutMemory() {
  call_.wakeToWait();
  const bool reconciles = call_.gate_.maybeExecuted();
  Step step = call_.withoutMemory(reconciles);
  if (!reconciles) {
    call_.gate_.leave();
    // Nothing is under way, whatever the state machine waits for.
    step = step == Step::none ? Step::end : step == Step::finishEarly ? Step::finish : step;
  }
  if (call_.background_ && !call_.engine_->dispatcher().onLoopThread()) {
    // The deadline's timer belongs to the loop thread.
    performSoon(step);
  } else {
    perform(step);
  }
}

inline void StepPerformer::attemptForSleeper() {
  const Step step = call_.prepare(SteppedCall::Driver::caller);
  Dispatcher& dispatcher = call_.engine_->dispatcher();
  if (step == Step::attempt && dispatcher.direct(call_, Dispatcher::Mode::awaited)) {
    call_.signals_.give(CallerSignals::kSent);
    return;
  }
  call_.wakeToWait();
  if (step == Step::attempt) {
    dispatcher.start(Dispatcher::CallPtr(&call_), call_.sendBefore(SteppedCall::Driver::caller));
  } else {
    // Not later on the loop thread: a client that is being closed may stop its loop before, and the
    // sleeping thread takes the word of the state machine that its answer is on its way.
    perform(step);
  }
}

// The steps.

inline void StepPerformer::perform(Step step) {
  switch (step) {
    case Step::none:
      return;
    case Step::attempt:
      attempt();
      return;
    case Step::queue:
      perform(call_.enqueue());
      return;
    case Step::reconcileKeep:
      reconcile(true);
      return;
    case Step::reconcileBack:
      reconcile(false);
      return;
    case Step::acknowledge:
      call_.askForAcks();
      return;
    case Step::finish:
      // First what the server is to hear: the caller may ask it for something as soon as there is
      // an answer.
      call_.ended();
      conclude();
      leaveGate();
      return;
    case Step::finishEarly:
      conclude();
      return;
    case Step::finishAndReconcileBack:
      conclude();
      reconcile(false);
      return;
    case Step::end:
      call_.ended();
      leaveGate();
      return;
  }
}

inline void StepPerformer::submit(Step prepared) {
  if (prepared == Step::attempt) {
    call_.engine_->dispatcher().start(Dispatcher::CallPtr(&call_),
                                      call_.sendBefore(SteppedCall::Driver::loop));
  } else {
    perform(prepared);
  }
}

/// Nothing fails here where there was a request to be reconciled: its sender could not be told, and
/// the gate would stay closed.
inline void StepPerformer::reconcile(bool keep) {
  Dispatcher& dispatcher = call_.engine_->dispatcher();
  if (!dispatcher.onLoopThread()) {
    performSoon(keep ? Step::reconcileKeep : Step::reconcileBack);
    return;
  }
  const auto until = call_.prepareReconciling(keep);
  if (call_.argv().empty()) {
    // The request was another call's, that of a hand-over.
    call_.recompose(false);
    dispatcher.start(Dispatcher::CallPtr(&call_), until);
  } else {
    dispatcher.startNext(Dispatcher::CallPtr(&call_), until);
  }
}

inline void StepPerformer::conclude() {
  deadlineTimer_.reset();
  if (call_.background_ || !call_.signals_.has(CallerSignals::kAnswered)) {
    call_.answerCaller();
  }
}

inline void StepPerformer::leaveGate() {
  call_.gate_.leave();
  deadlineTimer_.reset();
  if (call_.background_) {
    call_.signals_.forgetStop();
  }
}

// The deadline of a caller that is no thread.

inline void StepPerformer::armDeadline(Clock::time_point when) {
  if (!deadlineTimer_) {
    deadlineTimer_ = call_.engine_->env()->makeTimer([this] { onDeadline(); });
  }
  deadlineTimer_->armAt(when);
}

inline void StepPerformer::onDeadline() {
  const IntrusivePtr<SteppedCall> self(&call_);
  const auto until = call_.queued() ? call_.deadline_ : call_.limit();
  if (call_.engine_->now() < until) {
    deadlineTimer_->armAt(until);
    return;
  }
  leave(SteppedCall::Leave::late);
}

/// Without memory for the answer the caller stays, until the next turn of the loop: the request at
/// hand may be under way, and its reply must find the call as it is.
inline void StepPerformer::leave(SteppedCall::Leave why) noexcept {
  guarded([this, why] {
    Step step = Step::none;
    try {
      step = call_.leave(why);
    } catch (const std::bad_alloc&) {
      call_.engine_->dispatcher().post(
          [this, why, self = IntrusivePtr<SteppedCall>(&call_)] { leave(why); });
      return;
    }
    perform(step);
  });
}

}  // namespace rlock::detail
