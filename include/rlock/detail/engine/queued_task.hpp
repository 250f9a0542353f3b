// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/engine/acquire_fsm.hpp>
#include <rlock/detail/engine/acquire_report.hpp>
#include <rlock/detail/engine/acquisition.hpp>
#include <rlock/detail/engine/acquisition_acks.hpp>
#include <rlock/detail/engine/acquisition_terms.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/task.hpp>
#include <rlock/detail/engine/waiter.hpp>
#include <rlock/detail/engine/waiting_place.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/error.hpp>

#include <chrono>
#include <memory>
#include <new>
#include <utility>

namespace rlock::detail {

/// An acquisition as a waiter of its client: the course that it takes (AcquireFsm), its turns in
/// the wake-up queue, and the lock from the hands of its holder, by the holder's release.
/// AcquireTask composes its requests, and says what the replies mean.
///
/// A turn may come on any thread. If the caller's thread sleeps, the thread that gives the turn
/// drives for it until the request is on its way. A thread that offers the lock drives, too, until
/// it has told the outcome of its release: the caller's thread sleeps meanwhile, or waits as for
/// the loop thread.
///
/// It guarantees that a turn is used or passed on, also when the caller leaves at that moment, and
/// that an offer that was taken ends in one of found(), lost() and a try of its own.
///
/// **Thread safety:** `fsm_` is guarded by the mutex, because turns, deadlines and stops meet
/// there; everything else belongs to the thread that drives. The functions of Waiter come from any
/// thread.
class QueuedTask : public Task<LockBackend::Acquired>, private Waiter {
 protected:
  using Finding = Acquisition::Finding;

  /// @param params  already checked
  QueuedTask(std::shared_ptr<LockEngine> engine,
             std::shared_ptr<const LockScripts> scripts,
             const AcquireParams& params);

  /// Books a finding about the request at hand, and says what comes next.
  virtual Step found(Finding finding) = 0;
  /// Puts an event to the state machine.
  template <class Event>
  auto tell(Event event) {
    const MutexLock lock(mutex_);
    return event(fsm_);
  }

  /// Before the first request. True: waiters of this client come first.
  bool standsBehindOthers();
  void leaveQueue(bool obtained) noexcept;
  [[nodiscard]] std::chrono::milliseconds lease() const noexcept {
    return acquisition_.terms().lease();
  }
  /// The answer of a caller whose time is up.
  [[nodiscard]] Error lateError() const;
  /// The answer of a caller that was stopped, or whose client is closed.
  [[nodiscard]] Error stopError() const;

  Acquisition acquisition_;
  AcquireReport report_;
  AcquisitionAcks acks_;
  AcquireFsm fsm_ RLOCK_GUARDED_BY(mutex_);

 private:
  using State = AcquireFsm::State;

  // CallRunner's hooks.
  Step enqueue() final;
  Step leaveQueued(Leave why) final;
  bool queued() final;
  bool takingOver() final;

  // The wake-up queue's calls.
  void turn() noexcept final {
    guarded([this] { takeTurn(); });
  }
  bool shutDown() noexcept final { return interruptCaller(Signals::kClosed); }
  void shutDownOnLoop() noexcept final { leaveNow(Leave::stopped); }
  bool offered(Clock::time_point sentAt, HandOverRequest& next) noexcept final;
  void handedOver(Clock::time_point answeredAt) noexcept final;
  void notHandedOver() noexcept final;
  void handOverLost(const Call& request) noexcept final;
  void waiterAddRef() noexcept final { addRef(); }
  void waiterDropRef() noexcept final { dropRef(); }

  void takeTurn();
  Step tryInstead();
  template <class Decide>
  void tookOver(Decide decide) noexcept;
  [[nodiscard]] bool takesOver() const noexcept;

  WaitingPlace place_;  // the channel where it waits; its place in the line is the Waiter
};

inline QueuedTask::QueuedTask(std::shared_ptr<LockEngine> engine,
                              std::shared_ptr<const LockScripts> scripts,
                              const AcquireParams& params)
    : Task(std::move(engine), std::move(scripts), params.owner),
      // A call that makes one attempt has no `wait`; Options::callTimeout limits it instead.
      acquisition_(AcquisitionTerms(
          scripts_->traits,
          params,
          params.lease ? params.lease->ceilMilliseconds() : engine_->options().watchdogTimeout,
          params.wait.isPositive() ? params.wait.deadlineFrom(began_)
                                   : began_ + engine_->callTimeout())),
      report_(engine_, scripts_, owner_),
      acks_(!scripts_->traits.changesState ? SyncPolicy()
            : params.sync                  ? *params.sync
                                           : engine_->options().sync),
      fsm_(!acquisition_.terms().waits(), acks_.wanted()),
      place_(*scripts_, ownerField_) {
  deadline_ = acquisition_.terms().deadline();
}

// Coming to the queue and leaving it.

inline bool QueuedTask::standsBehindOthers() {
  // A waiting owner that holds the lock already would wait for itself.
  const bool othersWait = place_.look(*engine_, *scripts_, *this) &&
                          acquisition_.terms().queuesBehindOthers() &&
                          !engine_->holds().holds(scripts_->name, owner_);
  if (othersWait) {
    WaitingPlace::standBehind(*this);
  }
  return othersWait;
}

/// Says what to do if it cannot wait.
inline QueuedTask::Step QueuedTask::enqueue() {
  willWait();
  // Turns come on other threads from here on.
  mutex_.share();
  restInQueue();
  acquisition_.rest();
  try {
    place_.enter(*engine_, *scripts_, *this, acquisition_, takesOver());
  } catch (const std::bad_alloc&) {
    return tell([](AcquireFsm& fsm) {
      return fsm.stopped(Error(Errc::connectionFailed, "there is no memory left to wait with"));
    });
  }
  // Race: the caller may have left between the refusal and here, when there was no place in the
  // queue yet to give up. Nobody else would, and the turn that this call gets would go on to
  // nobody.
  const auto result = tell([](AcquireFsm& fsm) { return fsm.result(); });
  if (result != AcquireFsm::Result::pending) {
    leaveQueue(result == AcquireFsm::Result::granted);
  }
  return Step::none;
}

inline void QueuedTask::leaveQueue(bool obtained) noexcept {
  // A hold that nobody renews may end without a message.
  engine_->waiting().leave(
      *this,
      obtained,
      acquisition_.terms().hasLease() ? lease() : std::chrono::milliseconds::zero());
}

inline QueuedTask::Step QueuedTask::leaveQueued(Leave why) {
  return tell([&](AcquireFsm& fsm) {
    if (fsm.state() != State::queued) {
      return Step::none;
    }
    return why == Leave::stopped ? fsm.stopped(stopError()) : fsm.expired(lateError());
  });
}

inline bool QueuedTask::queued() {
  const MutexLock lock(mutex_);
  return fsm_.state() == State::queued;
}

inline bool QueuedTask::takingOver() {
  const MutexLock lock(mutex_);
  return fsm_.state() == State::takingOver;
}

inline Error QueuedTask::lateError() const {
  if (engine_->now() >= gate_.limit()) {
    return Error(Errc::connectionFailed,
                 "an earlier request of this owner could not be reconciled in time");
  }
  return Error(Errc::timedOut,
               "the server did not answer in time; if it granted the lock, it is given back");
}

inline Error QueuedTask::stopError() const {
  return signals_.has(Signals::kClosed) || engine_->closed()
             ? closedError()
             : Error(Errc::cancelled, "a stop was requested");
}

// Turns.

inline void QueuedTask::takeTurn() {
  bool onLoop = false;
  const bool nothingToTry = happened();
  Step step = Step::none;
  {
    const MutexLock lock(mutex_);
    onLoop = drivenByLoop();
    step = nothingToTry ? fsm_.happened() : fsm_.turn();
  }
  if (step == Step::finish) {
    // The wait is over without another request.
    report_.obtained();
  }
  if (step == Step::finish && !background_) {
    // At once: the loop of a client that is being closed may stop before it could do it.
    wakeToWait();
    perform(step);
  } else if (step == Step::attempt && !onLoop) {
    attemptForSleeper();
  } else if (step == Step::attempt && engine_->dispatcher().onLoopThread()) {
    attemptOnLoop();
  } else if (step != Step::none) {
    // Posted and not performed here: the application's handler could block, and the waiters behind
    // this one would not get their turns.
    performSoon(step);
  }
}

// The lock from the hands of its holder.

/// Acknowledgements are asked for the request that an acquisition has sent itself.
inline bool QueuedTask::takesOver() const noexcept {
  return scripts_->traits.handsOver && !acks_.wanted();
}

inline bool QueuedTask::offered(Clock::time_point sentAt, HandOverRequest& next) noexcept {
  if (!tell([](AcquireFsm& fsm) { return fsm.offered(); })) {
    return false;
  }
  bool taken = false;
  guarded([&] {
    if (!gate_.tryEnter() || gate_.count() != 0) {
      // Another request of this owner is under way.
      notHandedOver();
      return;
    }
    acquisition_.beginAttempt(0, {});
    acquisition_.sentAt(sentAt);
    next = {ownerField_.text(), lease()};
    // Nothing fails from here on.
    gate_.setMaybeExecuted(true);
    taken = true;
  });
  return taken;
}

inline void QueuedTask::handedOver(Clock::time_point answeredAt) noexcept {
  tookOver([this, answeredAt] {
    setAnsweredAt(answeredAt);
    return found(acquisition_.replied({.granted = true}, answeredAt));
  });
}

inline void QueuedTask::notHandedOver() noexcept {
  tookOver([this] { return tryInstead(); });
}

inline void QueuedTask::handOverLost(const Call& request) noexcept {
  tookOver([this, &request] {
    shareLoss(request, Late::adds);
    return lost();
  });
}

inline QueuedTask::Step QueuedTask::tryInstead() {
  leaveGate();
  return tell([](AcquireFsm& fsm) { return fsm.notHandedOver(); });
}

/// @param decide  says what comes next, on the thread that drives
template <class Decide>
void QueuedTask::tookOver(Decide decide) noexcept {
  guarded([&] {
    if (!background_) {
      moveToLoop();
    }
    const Step step = decide();
    if (!background_ && step == Step::finish) {
      // At once, so that the caller's thread wakes up only for its answer.
      perform(step);
      return;
    }
    wakeToWait();
    performSoon(step);
  });
}

}  // namespace rlock::detail
