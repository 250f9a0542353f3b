// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/engine/acquire_fsm.hpp>
#include <rlock/detail/engine/acquire_report.hpp>
#include <rlock/detail/engine/acquisition.hpp>
#include <rlock/detail/engine/acquisition_finding.hpp>
#include <rlock/detail/engine/acquisition_terms.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/server_queue_entry.hpp>
#include <rlock/detail/engine/task.hpp>
#include <rlock/detail/engine/waiting_place.hpp>
#include <rlock/detail/executor/ack_lane.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// One acquisition: Acquisition decides, AcquireFsm says what comes next, CallRunner carries it
/// out, AcquireReport tells of it. This class joins them: it turns replies into findings, books a
/// grant with the engine, and stands in the two queues, the one of this client's waiters
/// (WaitingPlace) and the server's, where a kind has one (ServerQueueEntry).
///
/// It is made and run by an object's call, on the caller's thread or in the background. Its turn in
/// the queue may come on any thread: the caller sleeps then, and that thread drives for it until
/// the request is on its way.
///
/// **Thread safety:** `fsm_` is guarded by the mutex, because turns, deadlines and stops meet
/// there; everything else belongs to the thread that drives.
class AcquireTask final : public Task<LockBackend::Acquired>, public FromBlockCache<AcquireTask> {
 public:
  using Acquired = LockBackend::Acquired;

  /// @param params  already checked
  AcquireTask(std::shared_ptr<LockEngine> engine,
              std::shared_ptr<const LockScripts> scripts,
              AcquireParams params)
      : Task(std::move(engine), std::move(scripts), params.owner),
        stop_(std::move(params.stop)),
        label_(params.label.empty() ? nullptr
                                    : std::make_unique<const std::string>(std::move(params.label))),
        maxHold_(params.maxHold.value_or(Duration::zero())),
        afresh_(params.afresh),
        wantsHandle_(params.wantsHandle),
        place_(*scripts_, ownerField_),
        queueEntry_(scripts_->traits.queuesOnServer
                        ? std::make_unique<ServerQueueEntry>(engine_, scripts_, ownerField_)
                        : nullptr),
        // A call that makes one attempt has no `wait`; Options::callTimeout limits it instead.
        acquisition_(AcquisitionTerms(
            scripts_->traits,
            params,
            params.lease ? params.lease->ceilMilliseconds() : engine_->options().watchdogTimeout,
            params.wait.isPositive() ? params.wait.deadlineFrom(began_)
                                     : began_ + engine_->callTimeout())),
        report_(engine_, scripts_, owner_),
        sync_(!scripts_->traits.changesState ? SyncPolicy()
              : params.sync                  ? *params.sync
                                             : engine_->options().sync),
        fsm_(!acquisition_.terms().waits(), sync_.any()),
        seat_(*this) {
    deadline_ = acquisition_.terms().deadline();
  }

  [[nodiscard]] static constexpr bool mayBeRefused() noexcept { return true; }

 private:
  using Finding = Acquisition::Finding;

  /// Its place among the waiters of this client.
  class Seat final : public Waiter {
   public:
    explicit Seat(AcquireTask& task) noexcept : task_(task) {}
    void turn() noexcept override { task_.turn(); }
    void shutDown() noexcept override { task_.interruptCaller(Signals::kClosed); }
    bool offered(Clock::time_point sentAt, HandOverRequest& next) noexcept override {
      return task_.offered(sentAt, next);
    }
    void handedOver(Clock::time_point answeredAt) noexcept override {
      task_.tookOver([answeredAt](AcquireTask& task) {
        task.setAnsweredAt(answeredAt);
        return task.found(task.acquisition_.replied({.granted = true}, answeredAt));
      });
    }
    void notHandedOver() noexcept override {
      task_.tookOver([](AcquireTask& task) { return task.tryInstead(); });
    }
    void handOverLost(const Call& request) noexcept override {
      task_.tookOver([&request](AcquireTask& task) {
        task.shareLoss(request, Late::adds);
        return task.lost();
      });
    }
    void waiterAddRef() noexcept override { task_.addRef(); }
    void waiterDropRef() noexcept override { task_.dropRef(); }
    using Waiter::happened;

   private:
    AcquireTask& task_;
  };

  // CallRunner's hooks.
  Step begin() override;
  Step prepare(Driver driver) override { return enterGate() ? compose(driver) : Step::none; }
  Step gatePassed() override { return compose(Driver::loop); }
  Step gateRefused() override { return found(acquisition_.turnedAway(closedError())); }
  Step replied() override;
  Step failed(Outcome outcome) override;
  Step lost() override;
  Step leave(Leave why) override;
  Step leaveQueued(Leave why) override;
  bool queued() override;
  bool takingOver() override;
  void askForAcks() override;
  Step enqueue() override;
  Clock::time_point prepareReconciling(bool keep) override;
  Step withoutMemory(bool executed) override;
  void ended() override {
    // After everything else: nothing is on its way that could take the entry again.
    if (acquisition_.takeQueueEntry()) {
      queueEntry_->withdraw();
    }
    // Only the loop thread may touch undoTimer_. An acquisition that has one ends on the loop
    // thread.
    if (undoTimer_) {
      undoTimer_.reset();
    }
  }
  Clock::time_point sendBefore(Driver driver) const override;
  Result<Acquired> takeResult() override;

  // Requests.
  Step compose(Driver driver);
  void composeAttempt();
  void composeReconciling();
  void recompose(bool tombstone) override;

  // Their outcomes.
  void noteLosses(bool hasToken);
  Step found(Finding finding);
  void book(int count, bool leavesGate);
  Step acksCame(Acks acks);
  [[nodiscard]] Error lateError() const;
  [[nodiscard]] Error stopError() const;
  template <class Event>
  auto tell(Event event) {
    const MutexLock lock(mutex_);
    return event(fsm_);
  }

  // The queues.
  void turn() noexcept {
    guarded([this] { takeTurn(); });
  }
  void takeTurn();
  bool offered(Clock::time_point sentAt, HandOverRequest& next) noexcept;
  Step tryInstead();
  template <class Decide>
  void tookOver(Decide decide) noexcept;
  [[nodiscard]] bool takesOver() const noexcept;
  [[nodiscard]] std::chrono::milliseconds lease() const noexcept {
    return acquisition_.terms().lease();
  }
  [[nodiscard]] std::string_view label() const noexcept {
    return label_ ? std::string_view(*label_) : std::string_view();
  }
  void leaveQueue(bool obtained) noexcept {
    // A hold that nobody renews may end without a message.
    engine_->waiting().leave(
        seat_,
        obtained,
        acquisition_.terms().hasLease() ? lease() : std::chrono::milliseconds::zero());
  }

  // The part of its AcquireParams that is needed beside the terms.
  const std::stop_token stop_;
  const std::unique_ptr<const std::string> label_;  // null: none
  const Duration maxHold_;                          // zero: without end
  const int afresh_;
  const bool wantsHandle_;
  WaitingPlace place_;
  const std::unique_ptr<ServerQueueEntry> queueEntry_;  // null: the kind has none
  Acquisition acquisition_;
  AcquireReport report_;
  const SyncPolicy sync_;
  AcquireFsm fsm_ RLOCK_GUARDED_BY(mutex_);
  Seat seat_;
  Grant grant_;
  std::unique_ptr<Timer> undoTimer_;
};

// The beginning, and requests.

inline AcquireTask::Step AcquireTask::begin() {
  watchStop(stop_);
  if (stop_.stop_requested()) {
    return tell([this](AcquireFsm& fsm) { return fsm.stopped(stopError()); });
  }
  // A waiting owner that holds the lock already would wait for itself.
  const bool othersWait = place_.look(*engine_, *scripts_, seat_) &&
                          acquisition_.terms().queuesBehindOthers() &&
                          !engine_->holds().holds(scripts_->name, owner_);
  if (othersWait) {
    WaitingPlace::standBehind(seat_);
  }
  return tell([&](AcquireFsm& fsm) { return fsm.start(othersWait); });
}

inline AcquireTask::Step AcquireTask::compose(Driver driver) {
  // The caller may have left while the loop thread waited at the gate, or got here.
  if (driver == Driver::loop &&
      tell([](AcquireFsm& fsm) { return fsm.answered() ? Step::end : Step::none; }) == Step::end) {
    return found(acquisition_.turnedAway(lateError()));
  }
  // Race: a closing client counts the gates that are held and waits for those only. So closed() is
  // asked while this task holds its gate: either close() has counted it, or it sees here that it is
  // too late.
  if (engine_->closed()) {
    return found(acquisition_.turnedAway(closedError()));
  }
  const bool guarded = acquisition_.terms().needsGuard() && engine_->dispatcher().needsTombstone();
  acquisition_.beginAttempt(gate_.count(), guarded ? newKey() : std::string());
  setPersistent(false);
  composeAttempt();
  if (acquisition_.enrols()) {
    queueEntry_->taken();
  }
  acquisition_.sentAt(timeOfRequest(driver));
  return Step::attempt;
}

inline void AcquireTask::composeAttempt() {
  scripts_->composeAcquire(*this, acquisition_.attempt(ownerField_));
  setLate(acquisition_.late());
}

inline AcquireTask::Clock::time_point AcquireTask::prepareReconciling(bool keep) {
  const Options& options = engine_->options();
  const auto until = acquisition_.beginReconciling(
      keep, engine_->now(), engine_->callTimeout(), options.outageTimeout);
  composeReconciling();
  // For a hold that is to be kept a caller waits, which is to be told what keeps it from its
  // answer.
  setPersistent(!acquisition_.keeps());
  return until;
}

inline void AcquireTask::composeReconciling() {
  scripts_->composeReconcile(*this, acquisition_.reconciling(ownerField_));
  setLate(acquisition_.late());
}

inline void AcquireTask::recompose(bool tombstone) {
  if (tombstone && !acquisition_.hasTombstone()) {
    acquisition_.setTombstone(newKey());
  }
  if (acquisition_.reconciles()) {
    composeReconciling();
  } else {
    composeAttempt();
  }
}

inline AcquireTask::Clock::time_point AcquireTask::sendBefore(Driver /*driver*/) const {
  const AcquisitionTerms& terms = acquisition_.terms();
  return terms.limitedByOutage()
             ? terms.sendBefore(engine_->now(), engine_->options().outageTimeout)
             : deadline_;
}

// Their outcomes.

inline AcquireTask::Step AcquireTask::replied() {
  if (acquisition_.reconciles()) {
    const auto parsed = scripts_->parseReconcile(reply());
    if (!parsed) {
      return failed(
          {.kind = Outcome::Kind::failed,
           .error = Error(Errc::protocolError, "unexpected reply to a reconcile request")});
    }
    noteLosses(parsed->token.has_value());
    const bool answered = tell([](AcquireFsm& fsm) {
                            return fsm.answered() || fsm.undoing() ? Step::end : Step::none;
                          }) == Step::end;
    return found(acquisition_.reconciled(*parsed, answered, answeredAt()));
  }
  const auto parsed = scripts_->parseAcquire(reply());
  if (!parsed) {
    return failed({.kind = Outcome::Kind::failed,
                   .error = Error(Errc::protocolError, "unexpected reply to an acquire request")});
  }
  noteLosses(parsed->token.has_value());
  return found(acquisition_.replied(*parsed, answeredAt()));
}

/// A grant with a token is a re-entry only if the holds before it were not lost meanwhile.
inline void AcquireTask::noteLosses(bool hasToken) {
  if (hasToken && acquisition_.before() > 0 && gate_.entered()) {
    acquisition_.heldStill(engine_->gates().countOf(gate_.hold()));
  }
}

inline AcquireTask::Step AcquireTask::failed(Outcome outcome) {
  if (acquisition_.reconciles()) {
    report_.notReconciled(*outcome.error);
  }
  return found(outcome.noTimeLeft ? acquisition_.notSent(std::move(*outcome.error))
                                  : acquisition_.failed(std::move(*outcome.error)));
}

inline AcquireTask::Step AcquireTask::lost() {
  Finding finding = acquisition_.lost();
  if (finding.kind == Finding::Kind::lost) {
    report_.doubtful();
  }
  return found(std::move(finding));
}

/// The gate and the queue entry are left before the state machine is told, unless the request at
/// hand is not over: from then on the caller may be gone, and may come with another call.
inline AcquireTask::Step AcquireTask::found(Finding finding) {
  const auto kind = finding.kind;
  if (finding.leavesQueueEntry && acquisition_.takeQueueEntry()) {
    queueEntry_->gone();
  }
  if (finding.left && gate_.entered()) {
    engine_->holds().counted(gate_.hold(), *finding.left);
  }
  if (finding.leavesGate()) {
    leaveGate();
  }
  if (finding.undone) {
    report_.undone();
  }
  const int count = finding.count;
  const bool held = finding.held;
  const bool undone = finding.undone;
  const auto decision = tell([&](AcquireFsm& fsm) {
    return AcquisitionDecision::decide(fsm, std::move(finding), engine_->closed());
  });
  if (decision.obtains()) {
    book(count, decision.leavesGate());
  } else if (decision.leavesGate()) {
    leaveGate();
  }
  report_.found(kind, held, undone, decision);
  return decision.step();
}

/// @param leavesGate  the gate is left, in the step that books the grant if that is all
inline void AcquireTask::book(int count, bool leavesGate) {
  const Acquisition::Obtained& obtained = acquisition_.obtained();
  grant_.token = obtained.token;
  if (!acquisition_.terms().keepsHold() || !gate_.entered()) {
    report_.obtained();
    if (leavesGate) {
      leaveGate();
    }
    return;
  }
  HoldKeeper::GrantTerms terms;
  terms.sentAt = acquisition_.validFrom();
  terms.now = answeredAt();
  terms.lease = lease();
  terms.watched = !acquisition_.terms().hasLease();
  if (maxHold_.isPositive()) {
    terms.maxHold = maxHold_.nanoseconds();
  }
  terms.wantsHandle = wantsHandle_;
  terms.afresh = afresh_;
  terms.label = label();
  terms.fenced = grant_.token.has_value();
  terms.kept = obtained.kept;
  terms.sync = sync_;
  terms.mayLeaveGate = leavesGate && !obtained.remaining;
  HoldKeeper::Granted granted =
      engine_->holds().granted(gate_.hold(), acquisition_.before(), count, terms);
  grant_.hold = std::move(granted.handle);
  grant_.count = count;
  if (granted.left) {
    gate_.leave(std::move(*granted.left));
    return;
  }
  if (obtained.remaining) {
    engine_->holds().limit(gate_.hold(), submittedAt(), *obtained.remaining);
  }
  if (leavesGate) {
    leaveGate();
  }
}

// Acknowledgements.

/// The gate stays closed meanwhile: the count before this request is what a grant that is undone
/// goes back to.
inline void AcquireTask::askForAcks() {
  AckTicket ticket;
  ticket.policy = sync_;
  ticket.since = engine_->now();
  ticket.until = std::min(deadline_, AcquisitionTerms::later(ticket.since, sync_.limit));
  ticket.done = [self = IntrusivePtr<AcquireTask>(this)](Acks acks) {
    self->guarded([&] { self->perform(self->acksCame(std::move(acks))); });
  };
  ticket.abandoned = [this] {
    const MutexLock lock(mutex_);
    return !fsm_.syncing();
  };
  Dispatcher::acknowledge(*this, std::move(ticket));
}

inline AcquireTask::Step AcquireTask::acksCame(Acks acks) {
  {
    const MutexLock lock(mutex_);
    if (!fsm_.syncing()) {
      // Its caller left, and what was granted is on its way back.
      return Step::none;
    }
  }
  if (acks.met) {
    grant_.acknowledged = acks.replicas;
    setAnsweredAt(engine_->now());
    return found(acquisition_.acknowledged(answeredAt()));
  }
  const Step step = found({.kind = Finding::Kind::unsynced,
                           .error = Error(Errc::notSynced,
                                          fmt::format("it was granted, not acknowledged as its "
                                                      "SyncPolicy ({}) asks, and is undone: {}",
                                                      toString(sync_),
                                                      acks.why))});
  if (step == Step::reconcileBack) {
    // A caller does not wait for long until it is undone.
    undoTimer_ = engine_->env()->makeTimer([this] {
      const IntrusivePtr<AcquireTask> self(this);
      leaveNow(Leave::late);
    });
    undoTimer_->armAt(engine_->now() + kReplyGrace);
  }
  return step;
}

inline Result<AcquireTask::Acquired> AcquireTask::takeResult() {
  auto result = AcquireFsm::Result::pending;
  bool contended = false;
  std::optional<Error> error;
  {
    const MutexLock lock(mutex_);
    result = fsm_.result();
    contended = fsm_.contended();
    if (result == AcquireFsm::Result::failed) {
      error = fsm_.error();
    }
  }
  leaveQueue(result == AcquireFsm::Result::granted);
  // answeredAt() is read only for a grant. Race: when the caller has left, the loop thread may be
  // storing the time of a late reply at this moment.
  const bool answered = result == AcquireFsm::Result::granted && !contended;
  report_.ended(
      {result, contended, began_, answered ? answeredAt() : Clock::time_point()}, grant_, label());
  switch (result) {
    case AcquireFsm::Result::granted:
      return Acquired(std::move(grant_));
    case AcquireFsm::Result::refused:
      return Acquired();
    case AcquireFsm::Result::failed:
    case AcquireFsm::Result::pending:
      break;
  }
  return describe(error ? std::move(*error) : Error(Errc::serverError, "no outcome"));
}

inline AcquireTask::Step AcquireTask::leave(Leave why) {
  bool syncing = false;
  const Step step = tell([&](AcquireFsm& fsm) {
    syncing = fsm.syncing();
    if (why == Leave::stopped) {
      return fsm.stopped(stopError());
    }
    return fsm.expired(syncing ? Error(Errc::notSynced, "the acknowledgements did not come in time")
                               : lateError());
  });
  if (syncing) {
    // It is given back at once.
    soon([this] { perform(acksCame({})); });
  }
  return step;
}

inline AcquireTask::Step AcquireTask::leaveQueued(Leave why) {
  return tell([&](AcquireFsm& fsm) {
    if (!fsm.queued()) {
      return Step::none;
    }
    return why == Leave::stopped ? fsm.stopped(stopError()) : fsm.expired(lateError());
  });
}

inline bool AcquireTask::queued() {
  const MutexLock lock(mutex_);
  return fsm_.queued();
}

inline AcquireTask::Step AcquireTask::withoutMemory(bool executed) {
  const Step step =
      tell([&](AcquireFsm& fsm) { return AcquisitionDecision::withoutMemory(fsm, executed); });
  leaveQueue(false);
  if (!executed && acquisition_.takeQueueEntry()) {
    queueEntry_->gone();
  }
  return step;
}

inline bool AcquireTask::takingOver() {
  const MutexLock lock(mutex_);
  return fsm_.takingOver();
}

inline Error AcquireTask::lateError() const {
  if (engine_->now() >= gate_.limit()) {
    return Error(Errc::connectionFailed,
                 "an earlier request of this owner could not be reconciled in time");
  }
  return Error(Errc::timedOut,
               "the server did not answer in time; if it granted the lock, it is given back");
}

inline Error AcquireTask::stopError() const {
  return signals_.has(Signals::kClosed) || engine_->closed()
             ? closedError()
             : Error(Errc::cancelled, "a stop was requested");
}

// The queue of this client.

/// Says what to do if it cannot wait.
inline AcquireTask::Step AcquireTask::enqueue() {
  willWait();
  // Turns come on other threads from here on.
  mutex_.share();
  restInQueue();
  acquisition_.rest();
  try {
    place_.enter(*engine_, *scripts_, seat_, acquisition_, takesOver());
  } catch (const std::bad_alloc&) {
    return tell([](AcquireFsm& fsm) {
      return fsm.stopped(Error(Errc::connectionFailed, "there is no memory left to wait with"));
    });
  }
  // Race: the caller may have left between the refusal and here, when there was no place in the
  // queue yet to give up. Nobody else would, and the turn that this call gets would go on to
  // nobody.
  auto result = AcquireFsm::Result::pending;
  {
    const MutexLock lock(mutex_);
    result = fsm_.result();
  }
  if (result != AcquireFsm::Result::pending) {
    leaveQueue(result == AcquireFsm::Result::granted);
  }
  return Step::none;
}

inline void AcquireTask::takeTurn() {
  bool onLoop = false;
  const bool nothingToTry = seat_.happened();
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

// The lock from the hands of its holder, by the holder's release.

/// Acknowledgements are asked for the request that an acquisition has sent itself.
inline bool AcquireTask::takesOver() const noexcept {
  return scripts_->traits.handsOver && !sync_.any();
}

/// The thread that offers drives for this call, as in a turn, until it has told the outcome: the
/// caller's thread sleeps, or waits as for the loop thread.
inline bool AcquireTask::offered(Clock::time_point sentAt, HandOverRequest& next) noexcept {
  {
    const MutexLock lock(mutex_);
    if (!fsm_.offered()) {
      return false;
    }
  }
  bool taken = false;
  guarded([&] {
    if (!gate_.tryEnter() || gate_.count() != 0) {
      // Another request of this owner is under way.
      tookOver([](AcquireTask& task) { return task.tryInstead(); });
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

inline AcquireTask::Step AcquireTask::tryInstead() {
  leaveGate();
  return tell([](AcquireFsm& fsm) { return fsm.notHandedOver(); });
}

/// @param decide  says what comes next, on the thread that drives
template <class Decide>
void AcquireTask::tookOver(Decide decide) noexcept {
  guarded([&] {
    if (!background_) {
      moveToLoop();
    }
    const Step step = decide(*this);
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
