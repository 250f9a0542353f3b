// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/caller_signals.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/step_performer.hpp>
#include <rlock/detail/engine/stepped_call.hpp>
#include <rlock/detail/executor/dispatcher.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>

namespace rlock::detail {

/// The thread of a caller that waits for its answer: it drives the call while all goes well, sleeps
/// where it has to wait, and leaves when its time is up, when it is stopped, or when the client is
/// closed. With the first trouble it hands the call to the loop thread, by StepPerformer, and is an
/// onlooker from then on.
///
/// It guarantees that the thread comes back with an answer, whether the loop runs on or has ended:
/// it leaves one that is on its way alone only for as long as somebody is certain to give it.
///
/// **Thread safety:** the caller's thread.
class CallingThread {
 public:
  using Step = SteppedCall::Step;

  CallingThread(SteppedCall& call, StepPerformer& performer) noexcept
      : call_(call), performer_(performer) {}

  /// Returns whether the caller makes its answer itself; the loop thread has left one otherwise.
  bool run();
  /// The caller gets an exception, and nothing else of this call.
  void giveUp() noexcept;

 private:
  Step attempt();
  Step await();
  Step sleepInQueue();
  /// Without memory for the answer, none: the caller stays for a while.
  std::optional<Step> leave();
  bool waitForLoop();

  /// How often a thread looks whether the client was closed, and whether there is memory again.
  static constexpr std::chrono::milliseconds kBetweenLooks{100};

  SteppedCall& call_;
  StepPerformer& performer_;
};

inline bool CallingThread::run() {
  call_.engine_->env()->callBegins();
  Step step = call_.begin();
  for (;;) {
    switch (step) {
      case Step::attempt:
        step = attempt();
        continue;
      case Step::queue:
        step = sleepInQueue();
        continue;
      case Step::finish:
      case Step::finishEarly:
        call_.signals_.forgetStop();
        if (step == Step::finish) {
          call_.ended();
        }
        return true;
      case Step::finishAndReconcileBack:
        // This thread has its answer; the loop, which may be ending, need not give it.
        call_.moveToLoop();
        performer_.performSoon(Step::reconcileBack);
        call_.signals_.forgetStop();
        return true;
      case Step::none:
        break;
      case Step::acknowledge:
      case Step::reconcileKeep:
      case Step::reconcileBack:
      case Step::end:
        call_.moveToLoop();
        performer_.performSoon(step);
        break;
    }
    const bool answersItself = waitForLoop();
    call_.signals_.forgetStop();
    return answersItself;
  }
}

inline CallingThread::Step CallingThread::attempt() {
  const Step step = call_.prepare(SteppedCall::Driver::caller);
  if (step != Step::attempt) {
    return step;
  }
  Dispatcher& dispatcher = call_.engine_->dispatcher();
  if (dispatcher.direct(call_, Dispatcher::Mode::awaitedAtOnce, call_.composedAt_)) {
    return await();
  }
  call_.moveToLoop();
  dispatcher.start(Dispatcher::CallPtr(&call_), call_.sendBefore(SteppedCall::Driver::caller));
  return Step::none;
}

inline CallingThread::Step CallingThread::await() {
  Dispatcher& dispatcher = call_.engine_->dispatcher();
  call_.gate_.setMaybeExecuted(true);
  switch (dispatcher.await(call_, call_.replyLimit())) {
    case Dispatcher::Direct::replied:
      call_.noteRoundTrip();
      return call_.replied();
    case Dispatcher::Direct::failed:
      return call_.failed(
          {.kind = Outcome::Kind::failed, .error = dispatcher.takeError(call_), .answered = true});
    case Dispatcher::Direct::trouble:
      call_.moveToLoop();
      dispatcher.resume(Dispatcher::CallPtr(&call_), call_.sendBefore(SteppedCall::Driver::caller));
      return Step::none;
    case Dispatcher::Direct::timedOut:
    case Dispatcher::Direct::interrupted:
      break;
  }
  return leave().value_or(Step::none);
}

/// The caller does not wait any longer; the request under way goes on without it. The request may
/// still be there, so that an exception must not get out: nothing about this call could be sent.
inline std::optional<CallingThread::Step> CallingThread::leave() {
  call_.moveToLoop();
  try {
    return call_.leave(CallerSignals::sayLeave(call_.signals_.all()) || call_.engine_->closed()
                           ? SteppedCall::Leave::stopped
                           : SteppedCall::Leave::late);
  } catch (const std::bad_alloc&) {
    return std::nullopt;
  }
}

inline CallingThread::Step CallingThread::sleepInQueue() {
  if (const Step step = call_.enqueue(); step != Step::none) {
    return step;
  }
  bool leaving = false;
  for (;;) {
    const std::uint32_t seen = call_.signals_.all();
    if ((seen & CallerSignals::kSent) != 0) {
      call_.signals_.take(CallerSignals::kSent);
      return await();
    }
    if ((seen & (CallerSignals::kMoved | CallerSignals::kAnswered)) != 0) {
      return Step::none;
    }
    const bool told = CallerSignals::sayLeave(seen);
    if (!leaving && (told || call_.engine_->now() >= call_.deadline_)) {
      Step step = Step::none;
      try {
        step = call_.leaveQueued(told ? SteppedCall::Leave::stopped : SteppedCall::Leave::late);
      } catch (const std::bad_alloc&) {
        // Race: another thread may be sending on this one's behalf, so that an exception must not
        // get out.
        call_.signals_.sleep(seen, call_.engine_->now() + kBetweenLooks);
        continue;
      }
      if (step != Step::none) {
        return step;
      }
      if (call_.takingOver()) {
        // The answer is another call's matter, which may take longer than this caller waits.
        call_.moveToLoop();
        return Step::none;
      }
      // A turn came at this moment: somebody is just sending on this thread's behalf, and will say
      // so.
      leaving = true;
      continue;
    }
    call_.signals_.sleep(seen, leaving ? SteppedCall::Clock::time_point::max() : call_.deadline_);
  }
}

inline bool CallingThread::waitForLoop() {
  bool leaving = false;
  for (;;) {
    const std::uint32_t seen = call_.signals_.all();
    if ((seen & CallerSignals::kAnswered) != 0) {
      return false;
    }
    const LockEngine& engine = *call_.engine_;
    const auto until = call_.limit();
    bool stays = leaving;
    if (!leaving && (CallerSignals::sayLeave(seen) || engine.closed() || engine.now() >= until)) {
      if (const std::optional<Step> step = leave()) {
        if (step == Step::finish) {
          call_.ended();
        }
        if (step == Step::finish || step == Step::finishEarly) {
          return true;
        }
        // The loop was quicker, and its answer is on the way.
        leaving = true;
        continue;
      }
      stays = true;
    }
    // Looks from time to time whether the client was closed: then the loop may have ended before it
    // could answer.
    const auto wake = engine.now() + kBetweenLooks;
    call_.signals_.sleep(seen, stays ? wake : std::min(until, wake));
  }
}

inline void CallingThread::giveUp() noexcept {
  call_.signals_.forgetStop();
  try {
    const Step step = call_.withoutMemory(call_.gate_.maybeExecuted());
    if (step == Step::reconcileBack || step == Step::finishAndReconcileBack) {
      call_.moveToLoop();
      performer_.performSoon(Step::reconcileBack);
      return;
    }
    call_.gate_.leave();
  } catch (const std::exception& failure) {
    call_.engine_->log().write(LogLevel::error, failure.what());
  }
}

}  // namespace rlock::detail
