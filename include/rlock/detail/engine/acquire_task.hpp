// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/engine/acquire_fsm.hpp>
#include <rlock/detail/engine/acquire_report.hpp>
#include <rlock/detail/engine/acquisition.hpp>
#include <rlock/detail/engine/acquisition_finding.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/queued_task.hpp>
#include <rlock/detail/engine/server_queue_entry.hpp>
#include <rlock/detail/executor/ack_lane.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// One acquisition: Acquisition decides, AcquireFsm says what comes next, CallRunner carries it
/// out, AcquireReport tells of it, and QueuedTask waits for it. This class joins them: it composes
/// the requests, turns replies into findings, books a grant with the engine, and stands in the
/// server's queue, where a kind has one (ServerQueueEntry).
///
/// It is made and run by an object's call, on the caller's thread or in the background.
///
/// **Thread safety:** as QueuedTask.
class AcquireTask final : public QueuedTask, public FromBlockCache<AcquireTask> {
 public:
  using Acquired = LockBackend::Acquired;

  /// @param params  already checked
  AcquireTask(std::shared_ptr<LockEngine> engine,
              std::shared_ptr<const LockScripts> scripts,
              AcquireParams&& params);

  [[nodiscard]] static constexpr bool mayBeRefused() noexcept { return true; }

 private:
  // CallRunner's hooks.
  Step begin() override;
  Step prepare(Driver driver) override { return enterGate() ? compose(driver) : Step::none; }
  Step gatePassed() override { return compose(Driver::loop); }
  Step gateRefused() override { return found(acquisition_.turnedAway(closedError())); }
  Step replied() override;
  Step failed(Outcome outcome) override;
  Step lost() override;
  Step leave(Leave why) override;
  void askForAcks() override;
  Clock::time_point prepareReconciling(bool keep) override;
  Step withoutMemory(bool executed) override;
  void ended() override;
  Clock::time_point sendBefore(Driver driver) const override;
  Result<Acquired> takeResult() override;

  // Requests.
  Step compose(Driver driver);
  void composeAttempt();
  void composeReconciling();
  void recompose(bool tombstone) override;
  bool aboutToSend(Clock::time_point now) override;

  // Their outcomes.
  void noteLosses(bool hasToken);
  Step found(Finding finding) override;
  void book(int count, bool leavesGate);
  Step acksCame(Acks acks);
  [[nodiscard]] std::string_view label() const noexcept {
    return label_ ? std::string_view(*label_) : std::string_view();
  }

  // The part of its AcquireParams that is needed beside the terms.
  const std::stop_token stop_;
  const std::unique_ptr<const std::string> label_;  // null: none
  const Duration maxHold_;                          // zero: without end
  const int afresh_;
  const bool wantsHandle_;
  const std::unique_ptr<ServerQueueEntry> queueEntry_;  // null: the kind has none
  Grant grant_;
};

inline AcquireTask::AcquireTask(std::shared_ptr<LockEngine> engine,
                                std::shared_ptr<const LockScripts> scripts,
                                AcquireParams&& params)
    : QueuedTask(std::move(engine), std::move(scripts), params),
      stop_(std::move(params.stop)),
      label_(params.label.empty() ? nullptr
                                  : std::make_unique<const std::string>(std::move(params.label))),
      maxHold_(params.maxHold.value_or(Duration::zero())),
      afresh_(params.afresh),
      wantsHandle_(params.wantsHandle),
      queueEntry_(scripts_->traits.queuesOnServer
                      ? std::make_unique<ServerQueueEntry>(engine_, scripts_, ownerField_)
                      : nullptr) {}

// The beginning, and requests.

inline AcquireTask::Step AcquireTask::begin() {
  watchStop(stop_);
  if (stop_.stop_requested()) {
    return tell([this](AcquireFsm& fsm) { return fsm.stopped(stopError()); });
  }
  const bool othersWait = standsBehindOthers();
  return tell([&](AcquireFsm& fsm) { return fsm.start(othersWait); });
}

inline AcquireTask::Step AcquireTask::compose(Driver driver) {
  // The caller may have left while the loop thread waited at the gate, or got here.
  if (driver == Driver::loop && tell([](AcquireFsm& fsm) { return fsm.answered(); })) {
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

/// The connection may have been missing for longer than the lease since the attempt was composed.
/// A reconciliation leaves the time alone: it counts from the attempt that was lost.
inline bool AcquireTask::aboutToSend(Clock::time_point now) {
  if (!acquisition_.reconciles()) {
    acquisition_.sentAt(now);
  }
  return true;
}

inline void AcquireTask::composeAttempt() {
  scripts_->composeAcquire(*this, acquisition_.attempt(ownerField_));
  setLate(acquisition_.late());
}

inline AcquireTask::Clock::time_point AcquireTask::prepareReconciling(bool keep) {
  const Options& options = engine_->options();
  const auto until = acquisition_.beginReconciling(
      keep, engine_->now(), engine_->callTimeout(), options.outageTimeout);
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
    engine_->outages().untold(*scripts_, parsed->publishError);
    noteLosses(parsed->token.has_value());
    const bool answered = tell([](AcquireFsm& fsm) {
      return fsm.answered() || fsm.state() == AcquireFsm::State::undoing;
    });
    return found(acquisition_.reconciled(*parsed, answered, answeredAt()));
  }
  const auto parsed = scripts_->parseAcquire(reply());
  if (!parsed) {
    return failed({.kind = Outcome::Kind::failed,
                   .error = Error(Errc::protocolError, "unexpected reply to an acquire request")});
  }
  engine_->outages().untold(*scripts_, parsed->publishError);
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
    if (finding.lasts) {
      // A hold from before may have been ended by force, and what is left be from another request.
      engine_->holds().limit(gate_.hold(), submittedAt(), *finding.lasts);
    }
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
  if (obtained.lasts) {
    // It may be left over from an earlier request, with less time than this one has asked for.
    terms.sentAt = std::min(terms.sentAt, submittedAt() + *obtained.lasts - lease());
  }
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
  terms.sync = acks_.policy();
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
  AckTicket ticket = acks_.ticket(engine_->now(), deadline_);
  ticket.done = [self = IntrusivePtr<AcquireTask>(this)](Acks acks) {
    self->guarded([&] { self->perform(self->acksCame(std::move(acks))); });
  };
  ticket.abandoned = [this] {
    return tell([](AcquireFsm& fsm) { return fsm.state() != AcquireFsm::State::syncing; });
  };
  Dispatcher::acknowledge(*this, std::move(ticket));
}

inline AcquireTask::Step AcquireTask::acksCame(Acks acks) {
  if (tell([](AcquireFsm& fsm) { return fsm.state() != AcquireFsm::State::syncing; })) {
    // Race: its caller has left meanwhile, and what was granted is on its way back.
    return Step::none;
  }
  if (acks.met) {
    grant_.acknowledged = acks.replicas;
    setAnsweredAt(engine_->now());
    return found(acquisition_.acknowledged(answeredAt()));
  }
  const Step step = found({.kind = Finding::Kind::unsynced, .error = acks_.notMet(acks)});
  if (step == Step::reconcileBack) {
    acks_.limitUndoing(*engine_->env(), engine_->now() + kReplyGrace, [this] {
      const IntrusivePtr<AcquireTask> self(this);
      leaveNow(Leave::late);
    });
  }
  return step;
}

// The end.

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
  AcquireReport::End end{result, contended, began_};
  // Only for a grant. Race: when the caller has left, the loop thread may be storing the time of a
  // late reply at this moment.
  if (result == AcquireFsm::Result::granted && !contended) {
    end.answeredAt = answeredAt();
    end.owner = ownerField_.atHand();
  }
  report_.ended(end, grant_, label());
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
    syncing = fsm.state() == AcquireFsm::State::syncing;
    if (why == Leave::stopped) {
      return fsm.stopped(stopError());
    }
    return fsm.expired(syncing ? Error(Errc::notSynced, "the acknowledgements did not come in time")
                               : lateError());
  });
  if (syncing) {
    // It is given back at once.
    // Without memory for that it is given back when the question is over.
    ifThereIsMemory([this] { soon([this] { perform(acksCame({})); }); });
  }
  return step;
}

inline AcquireTask::Step AcquireTask::withoutMemory(bool executed) {
  const Step step =
      tell([&](AcquireFsm& fsm) { return AcquisitionDecision::withoutMemory(fsm, executed); });
  leaveQueue(false);
  if (!executed && acquisition_.takeQueueEntry()) {
    // An entry that an earlier request took is still there.
    if (acquisition_.enrols()) {
      queueEntry_->gone();
    } else {
      queueEntry_->withdraw();
    }
  }
  return step;
}

inline void AcquireTask::ended() {
  // After everything else: nothing is on its way that could take the entry again.
  if (acquisition_.takeQueueEntry()) {
    queueEntry_->withdraw();
  }
  acks_.ended();
}

}  // namespace rlock::detail
