// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/call_step.hpp>
#include <rlock/detail/engine/caller_signals.hpp>
#include <rlock/detail/engine/gate_pass.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/dispatcher.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/error.hpp>
#include <rlock/result.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace rlock::detail {

/// How long after its time is up a caller still waits for a reply that is on its way: nearly always
/// it comes at once, and then the answer is certain. Part of the 50 ms that every call may be late.
inline constexpr std::chrono::milliseconds kReplyGrace{25};

/// A call that runs on its caller's thread while all goes well, and on the loop thread otherwise.
///
/// One thread at a time *drives*: it composes requests, reads replies and performs steps. That is
/// the caller's thread until moveToLoop(), and the loop thread from then on; a call with a handler
/// begins on the loop. Another thread may drive for a caller that sleeps in a queue
/// (attemptForSleeper()), until the sleeper takes the reply. The caller that does not drive waits
/// for its answer and leaves at its deadline, when it is stopped, or when the client is closed;
/// leave() then decides between this answer and the one on its way, under the mutex of the
/// subclass.
///
/// The subclass says what comes next (the hooks below) and knows what the call is about. This class
/// knows no more than that there may be a gate to pass: at most one request about a hold is under
/// way, and who finds another there is told when the gate is passed on.
///
/// It guarantees that the caller is answered once, however the call ends: the loop may end, the
/// client close, and memory run out; and that what the server may have executed is reconciled, also
/// when its caller got an exception.
///
/// **Thread safety:** events come from any thread. The gate and the deadline's timer belong to the
/// thread that drives.
class CallRunner : public Call {
 public:
  using Clock = std::chrono::steady_clock;

  /// Where the handler runs. Before the start.
  void setHandlerPlace(HandlerPlace place) noexcept { handlerPlace_ = place; }

  /// Whether too much work is a reason not to begin it. A release must go on.
  [[nodiscard]] static constexpr bool mayBeRefused() noexcept { return false; }

 protected:
  using Step = CallStep;
  using Signals = CallerSignals;
  enum class Driver : std::uint8_t { caller, loop };
  enum class Leave : std::uint8_t { late, stopped };

  CallRunner(std::shared_ptr<LockEngine> engine,
             std::shared_ptr<const LockScripts> scripts,
             OwnerId owner)
      : engine_(std::move(engine)),
        scripts_(std::move(scripts)),
        owner_(owner),
        ownerField_(engine_->ownerField(owner)),
        began_(engine_->now()),
        signals_(*engine_->env()),
        gate_(*engine_, scripts_, owner_),
        atGate_(*this) {
    engine_->operationBegins();
  }
  ~CallRunner() override { engine_->operationEnds(); }

  ///@{
  /// The decisions of the subclass. On the thread that drives, unless a hook says otherwise.

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
  /// Fills in the request that reconciles the one before. Returns until when it may be sent.
  virtual Clock::time_point prepareReconciling(bool /*keep*/) { return {}; }
  /// There is no memory to go on with. Any thread that had something to do.
  /// @param executed  the server may have the request at hand
  virtual Step withoutMemory(bool executed) = 0;
  /// After the last step: no request is on its way.
  virtual void ended() {}
  /// Gives the answer to whoever waits.
  virtual void answerCaller() = 0;
  /// Until when the request at hand may be sent.
  [[nodiscard]] virtual Clock::time_point sendBefore(Driver /*driver*/) const { return deadline_; }
  ///@}

  // The caller's thread.

  /// Returns whether the caller makes its answer itself; the loop thread has left one otherwise.
  bool runHere();
  /// The caller gets an exception, and nothing else of this call.
  void giveUp() noexcept;

  // Another thread.

  /// The request goes out at once, and its sleeping thread wakes up while it is on the way.
  void attemptForSleeper();
  /// Does something for this call. A call that there is no memory for fails, and what it may have
  /// obtained is given back.
  template <class Action>
  void guarded(Action action) noexcept;
  /// Goes on in a while, on the loop thread.
  void performSoon(Step step) {
    engine_->dispatcher().post([self = IntrusivePtr<CallRunner>(this), step] {
      self->guarded([&] { self->perform(step); });
    });
  }

  // The loop thread.

  /// Starts there. Any thread. deadline_ is the end of the caller's time.
  void startOnLoop();
  void perform(Step step);
  void attemptOnLoop() { submit(prepare(Driver::loop)); }
  /// The loop thread drives from here on.
  void moveToLoop() {
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

  /// False: gatePassed() or gateRefused() will come.
  bool enterGate();
  void leaveGate() { gate_.leave(); }

  // The caller that waits.

  void watchStop(const std::stop_token& stop) {
    if (stop.stop_possible()) {
      stopCallback_.emplace(stop, [this] { interruptCaller(Signals::kStopped); });
    }
  }
  /// The caller is to leave, wherever it waits. Any thread.
  void interruptCaller(Signals::Signal why) noexcept;
  /// A handler waits, not a thread.
  [[nodiscard]] bool inBackground() const noexcept { return background_; }
  [[nodiscard]] Error describe(Error error) const {
    return engine_->describe(std::move(error), *scripts_, owner_, began_);
  }
  /// A fresh key for one request.
  [[nodiscard]] std::string newKey() const { return requestKey(scripts_->name, newRequestId()); }

  static Clock::time_point later(Clock::time_point when, Clock::duration by) noexcept {
    return when > Clock::time_point::max() - by ? Clock::time_point::max() : when + by;
  }

  const std::shared_ptr<LockEngine> engine_;
  const std::shared_ptr<const LockScripts> scripts_;
  const OwnerId owner_;
  const std::string ownerField_;
  const Clock::time_point began_;
  /// Constant once the subclass is constructed; time_point::max(): the caller has all the time.
  Clock::time_point deadline_ = Clock::time_point::max();
  AnnotatedMutex mutex_;
  bool background_ = false;
  HandlerPlace handlerPlace_ = HandlerPlace::application;
  CallerSignals signals_;
  GatePass gate_;

 private:
  /// Waits at the gate for this call.
  class AtGate final : public GateWaiter {
   public:
    explicit AtGate(CallRunner& runner) noexcept : runner_(runner) {}
    void gateOpened() noexcept override { runner_.gateOpened(); }
    void gateClosed() noexcept override { runner_.gateClosed(); }
    void gateAddRef() noexcept override { runner_.addRef(); }
    void gateDropRef() noexcept override { runner_.dropRef(); }

   private:
    CallRunner& runner_;
  };

  Step attemptHere();
  Step awaitHere();
  Step sleepHere();
  Step leaveHere();
  bool waitForLoop();
  [[nodiscard]] Clock::time_point limit() const noexcept {
    return std::min(later(deadline_, kReplyGrace), gate_.limit());
  }

  void finished(Outcome outcome) noexcept override;
  void gateOpened() noexcept;
  void gateClosed() noexcept;
  void submit(Step step);
  void reconcile(bool keep);
  void conclude();
  void end();
  void armDeadline(Clock::time_point when);
  void onDeadline();

  AtGate atGate_;
  bool onLoop_ RLOCK_GUARDED_BY(mutex_) = false;
  std::unique_ptr<Timer> deadlineTimer_;  // loop thread only
  std::optional<std::stop_callback<std::function<void()>>> stopCallback_;
};

// On the calling thread.

inline bool CallRunner::runHere() {
  Step step = begin();
  for (;;) {
    switch (step) {
      case Step::attempt:
        step = attemptHere();
        continue;
      case Step::queue:
        step = sleepHere();
        continue;
      case Step::finish:
      case Step::finishEarly:
        stopCallback_.reset();
        if (step == Step::finish) {
          ended();
        }
        return true;
      case Step::finishAndReconcileBack:
        // This thread has its answer; the loop, which may be ending, need not give it.
        moveToLoop();
        performSoon(Step::reconcileBack);
        stopCallback_.reset();
        return true;
      case Step::none:
        break;
      case Step::reconcileKeep:
      case Step::reconcileBack:
      case Step::end:
        moveToLoop();
        performSoon(step);
        break;
    }
    const bool answersItself = waitForLoop();
    stopCallback_.reset();
    return answersItself;
  }
}

inline CallRunner::Step CallRunner::attemptHere() {
  const Step step = prepare(Driver::caller);
  if (step != Step::attempt) {
    return step;
  }
  Dispatcher& dispatcher = engine_->dispatcher();
  if (dispatcher.direct(*this)) {
    return awaitHere();
  }
  moveToLoop();
  dispatcher.start(Dispatcher::CallPtr(this), sendBefore(Driver::caller));
  return Step::none;
}

inline CallRunner::Step CallRunner::awaitHere() {
  Dispatcher& dispatcher = engine_->dispatcher();
  gate_.setMaybeExecuted(true);
  switch (dispatcher.await(*this, later(deadline_, kReplyGrace))) {
    case Dispatcher::Direct::replied:
      return replied();
    case Dispatcher::Direct::failed:
      return failed(
          {.kind = Outcome::Kind::failed, .error = dispatcher.takeError(*this), .answered = true});
    case Dispatcher::Direct::trouble:
      moveToLoop();
      dispatcher.resume(Dispatcher::CallPtr(this), sendBefore(Driver::caller));
      return Step::none;
    case Dispatcher::Direct::timedOut:
    case Dispatcher::Direct::interrupted:
      break;
  }
  return leaveHere();
}

/// The caller does not wait any longer; the request under way goes on without it.
inline CallRunner::Step CallRunner::leaveHere() {
  moveToLoop();
  return leave(Signals::sayLeave(signals_.all()) || engine_->closed() ? Leave::stopped
                                                                      : Leave::late);
}

inline CallRunner::Step CallRunner::sleepHere() {
  if (const Step step = enqueue(); step != Step::none) {
    return step;
  }
  bool leaving = false;
  for (;;) {
    const std::uint32_t seen = signals_.all();
    if ((seen & Signals::kSent) != 0) {
      signals_.take(Signals::kSent);
      return awaitHere();
    }
    if ((seen & Signals::kMoved) != 0) {
      return Step::none;
    }
    if (!leaving && (Signals::sayLeave(seen) || engine_->now() >= deadline_)) {
      const Step step = leaveQueued(Signals::sayLeave(seen) ? Leave::stopped : Leave::late);
      if (step != Step::none) {
        return step;
      }
      // A turn came at this moment: somebody is just sending on this thread's behalf, and will say
      // so.
      leaving = true;
      continue;
    }
    signals_.sleep(seen, leaving ? Clock::time_point::max() : deadline_);
  }
}

inline bool CallRunner::waitForLoop() {
  bool leaving = false;
  for (;;) {
    const std::uint32_t seen = signals_.all();
    if ((seen & Signals::kAnswered) != 0) {
      return false;
    }
    const auto until = limit();
    if (!leaving && (Signals::sayLeave(seen) || engine_->closed() || engine_->now() >= until)) {
      const Step step = leaveHere();
      if (step == Step::finish) {
        ended();
      }
      if (step == Step::finish || step == Step::finishEarly) {
        return true;
      }
      // The loop was quicker, and its answer is on the way.
      leaving = true;
      continue;
    }
    // Looks from time to time whether the client was closed: then the loop may have ended before it
    // could answer.
    const auto wake = engine_->now() + std::chrono::milliseconds(100);
    signals_.sleep(seen, leaving ? wake : std::min(until, wake));
  }
}

inline void CallRunner::giveUp() noexcept {
  stopCallback_.reset();
  try {
    const Step step = withoutMemory(gate_.maybeExecuted());
    if (step == Step::reconcileBack || step == Step::finishAndReconcileBack) {
      moveToLoop();
      performSoon(Step::reconcileBack);
      return;
    }
    leaveGate();
  } catch (const std::exception& failure) {
    engine_->log().write(LogLevel::error, failure.what());
  }
}

// Events from elsewhere.

template <class Action>
void CallRunner::guarded(Action action) noexcept {
  try {
    action();
    return;
  } catch (const std::bad_alloc&) {
  }
  try {
    wakeToWait();
    const bool reconciles = gate_.maybeExecuted();
    const Step step = withoutMemory(reconciles);
    if (!reconciles) {
      leaveGate();
    }
    if (background_ && !engine_->dispatcher().onLoopThread()) {
      // The deadline's timer belongs to the loop thread.
      performSoon(step);
    } else {
      perform(step);
    }
  } catch (const std::exception& failure) {
    engine_->log().write(LogLevel::error, failure.what());
  }
}

inline void CallRunner::attemptForSleeper() {
  const Step step = prepare(Driver::caller);
  Dispatcher& dispatcher = engine_->dispatcher();
  if (step == Step::attempt && dispatcher.direct(*this)) {
    signals_.give(Signals::kSent);
    return;
  }
  wakeToWait();
  if (step == Step::attempt) {
    dispatcher.start(Dispatcher::CallPtr(this), sendBefore(Driver::caller));
  } else {
    // Not later on the loop thread: a client that is being closed may stop its loop before, and the
    // sleeping thread takes the word of the state machine that its answer is on its way.
    perform(step);
  }
}

inline void CallRunner::interruptCaller(Signals::Signal why) noexcept {
  signals_.give(why);
  if (background_) {
    engine_->dispatcher().post([self = IntrusivePtr<CallRunner>(this)] {
      self->guarded([&] { self->perform(self->leave(Leave::stopped)); });
    });
  } else {
    interrupt();
  }
}

inline void CallRunner::gateOpened() noexcept {
  engine_->dispatcher().post([self = IntrusivePtr<CallRunner>(this)] {
    self->wakeToWait();
    self->guarded([&] {
      self->gate_.passedOn();
      self->submit(self->gatePassed());
    });
  });
}

inline void CallRunner::gateClosed() noexcept {
  engine_->dispatcher().post([self = IntrusivePtr<CallRunner>(this)] {
    self->wakeToWait();
    self->guarded([&] { self->perform(self->gateRefused()); });
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

inline bool CallRunner::enterGate() {
  const bool endless = deadline_ == Clock::time_point::max();
  if (gate_.enter(atGate_, endless)) {
    return true;
  }
  if (endless && background_) {
    armDeadline(gate_.limit());
  }
  return false;
}

// On the loop thread.

inline void CallRunner::startOnLoop() {
  background_ = true;
  engine_->dispatcher().post([self = IntrusivePtr<CallRunner>(this)] {
    self->guarded([&] {
      if (self->deadline_ != Clock::time_point::max()) {
        self->armDeadline(self->deadline_);
      }
      self->perform(self->begin());
    });
  });
}

inline void CallRunner::armDeadline(Clock::time_point when) {
  if (!deadlineTimer_) {
    deadlineTimer_ = engine_->env()->makeTimer([this] { onDeadline(); });
  }
  deadlineTimer_->armAt(when);
}

inline void CallRunner::onDeadline() {
  const IntrusivePtr<CallRunner> self(this);
  const auto until = queued() ? deadline_ : limit();
  if (engine_->now() < until) {
    deadlineTimer_->armAt(until);
    return;
  }
  guarded([this] { perform(leave(Leave::late)); });
}

inline void CallRunner::perform(Step step) {
  switch (step) {
    case Step::none:
      return;
    case Step::attempt:
      attemptOnLoop();
      return;
    case Step::queue:
      perform(enqueue());
      return;
    case Step::reconcileKeep:
      reconcile(true);
      return;
    case Step::reconcileBack:
      reconcile(false);
      return;
    case Step::finish:
      conclude();
      end();
      return;
    case Step::finishEarly:
      conclude();
      return;
    case Step::finishAndReconcileBack:
      conclude();
      reconcile(false);
      return;
    case Step::end:
      end();
      return;
  }
}

inline void CallRunner::submit(Step step) {
  if (step == Step::attempt) {
    engine_->dispatcher().start(Dispatcher::CallPtr(this), sendBefore(Driver::loop));
  } else {
    perform(step);
  }
}

inline void CallRunner::reconcile(bool keep) {
  const auto until = prepareReconciling(keep);
  engine_->dispatcher().start(Dispatcher::CallPtr(this), until);
}

inline void CallRunner::conclude() {
  deadlineTimer_.reset();
  if (background_ || !signals_.has(Signals::kAnswered)) {
    answerCaller();
  }
}

inline void CallRunner::end() {
  leaveGate();
  ended();
  deadlineTimer_.reset();
  if (background_) {
    stopCallback_.reset();
  }
}

}  // namespace rlock::detail
