// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/engine/hand_over.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/release_fsm.hpp>
#include <rlock/detail/engine/relinquishment.hpp>
#include <rlock/detail/engine/task.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace rlock::detail {

/// One release: Relinquishment decides, ReleaseFsm says what comes next, CallRunner carries it out.
/// This class joins them: it asks the engine for a plan when it has the gate, and books what the
/// release came to before it leaves the gate.
///
/// It is made by a holder's call, on the holder's thread, or by the engine on the loop thread for a
/// hold that is lost. A holder that does not ask what becomes of it starts it with startAhead():
/// then it must go, whatever fails.
///
/// **Thread safety:** `fsm_` is guarded by the mutex, because deadlines and closing meet there;
/// everything else belongs to the thread that drives.
class ReleaseTask final : public Task<ReleaseOutcome>, public FromBlockCache<ReleaseTask> {
 public:
  ReleaseTask(std::shared_ptr<LockEngine> engine,
              std::shared_ptr<const LockScripts> scripts,
              ReleaseTarget target)
      : Task(std::move(engine), std::move(scripts), target.owner),
        incarnation_(target.incarnation),
        release_(scripts_->traits) {
    deadline_ = began_ + engine_->callTimeout();
    if (target.mustGo) {
      release_.setMustGo();
    }
  }

  /// Releases in the background, for a holder to whom it is enough that the log says what went
  /// wrong.
  static void releaseQuietly(const std::shared_ptr<LockEngine>& engine,
                             const std::shared_ptr<const LockScripts>& scripts,
                             ReleaseTarget target);

  /// As startInBackground(), for a caller that does not ask what becomes of it: ahead of what the
  /// calling thread sends next. The handler is told when it is over, however long that takes.
  void startAhead(Handler handler);

 private:
  using Finding = Relinquishment::Finding;

  // CallRunner's hooks.
  Step prepare(Driver driver) override;
  Step gatePassed() override;
  Step gateRefused() override {
    // Closing gives the hold back.
    return tell([](ReleaseFsm& fsm) { return fsm.failed(closedError()); });
  }
  Step replied() override;
  Step failed(Outcome outcome) override;
  Step lost() override;
  Step leave(Leave why) override;
  Clock::time_point prepareReconciling(bool keep) override;
  Step withoutMemory(bool executed) override;
  bool aboutToSend(Clock::time_point now) override;
  bool leavesAtDeadline() const override { return !release_.nobodyAsks(); }
  Clock::time_point sendBefore(Driver driver) const override;
  Result<ReleaseOutcome> takeResult() override;

  // Requests.
  Step compose(const HoldKeeper::ReleasePlan& plan);
  void composeAttempt();
  void composeReconciling();
  void recompose(bool tombstone) override;
  [[nodiscard]] bool mayHandOver(const HoldKeeper::ReleasePlan& plan, bool guarded) const noexcept;
  void keepForAll();

  // Their outcomes.
  Step found(Finding finding);
  void noteReleased(const HoldKeeper::Released& released) noexcept;
  void noteReconciled(Finding::Kind kind, ReleaseFsm::Result outcome) noexcept;
  void tellUnreconciled(const Error& error);
  [[nodiscard]] Error notHeld() const;
  template <class Event>
  Step tell(Event event) {
    const MutexLock lock(mutex_);
    return event(fsm_);
  }

  const std::uint64_t incarnation_;  // ReleaseTarget::incarnation
  Relinquishment release_;
  ReleaseFsm fsm_ RLOCK_GUARDED_BY(mutex_);
  Clock::time_point sentAt_{};
  std::optional<Clock::time_point> lostAt_;  // when a reply was lost; empty once that is reconciled
  HandOver handOver_;                        // of the request at hand
};

inline void ReleaseTask::releaseQuietly(const std::shared_ptr<LockEngine>& engine,
                                        const std::shared_ptr<const LockScripts>& scripts,
                                        ReleaseTarget target) {
  if (engine->holds().isOver(*scripts, target.owner, target.incarnation)) {
    return;
  }
  makeIntrusive<ReleaseTask>(engine, scripts, target)
      ->startAhead([engine, target](const Result<ReleaseOutcome>& result) {
        // A release by incarnation that finds nothing is not logged: the loss was announced.
        const bool known = target.incarnation != 0;
        if (!result.has_value() && !(known && result.error().errc() == Errc::notOwner) &&
            engine->outages().tells(OutageLog::Event::release)) {
          engine->log().write(
              LogLevel::warning,
              std::string("a release in the background failed: ") + result.error().what());
        }
      });
}

inline void ReleaseTask::startAhead(Handler handler) {
  release_.setNobodyAsks();
  if (engine_->dispatcher().onLoopThread()) {
    startInBackground(std::move(handler));
    return;
  }
  handler_ = std::move(handler);
  goToBackground();
  // Its caller is no longer there to see to a gate that is held, so a want of memory is dealt with
  // here.
  guarded([this] {
    const Step step = prepare(Driver::caller);
    if (step == Step::attempt) {
      engine_->dispatcher().startAhead(Dispatcher::CallPtr(this), deadline_);
    } else {
      perform(step);
    }
  });
}

// Requests.

inline ReleaseTask::Step ReleaseTask::prepare(Driver driver) {
  HoldKeeper::ReleasePlan plan;
  sentAt_ = timeOfRequest(driver);
  const bool entered = enterGate(
      [&](Hold& hold) { plan = engine_->holds().releasingWithin(hold, incarnation_, sentAt_); });
  return entered ? compose(plan) : Step::none;
}

inline ReleaseTask::Step ReleaseTask::gatePassed() {
  sentAt_ = timeOfRequest(Driver::loop);
  return compose(engine_->holds().releasing(gate_.hold(), incarnation_, sentAt_));
}

inline ReleaseTask::Step ReleaseTask::compose(const HoldKeeper::ReleasePlan& plan) {
  if (plan.nothing) {
    return found({.kind = Finding::Kind::notOwner});
  }
  const bool guarded = release_.needsGuard() && engine_->dispatcher().needsTombstone();
  std::string tombstone = guarded ? newKey() : std::string();
  release_.beginAttempt({plan.all, plan.last, plan.lost, plan.before, plan.partIndex, plan.restore},
                        std::move(tombstone),
                        plan.valid);
  if (mayHandOver(plan, guarded)) {
    handOver_.offer(engine_->waiting(), *scripts_, sentAt_);
  }
  setPersistent(false);
  composeAttempt();
  return Step::attempt;
}

inline void ReleaseTask::composeAttempt() {
  if (handOver_.open()) {
    scripts_->composeHandOver(*this, release_.attempt(ownerField_), handOver_.next());
  } else {
    scripts_->composeRelease(*this, release_.attempt(ownerField_));
  }
  setLate(release_.late());
}

/// Only the last hold, which is certainly there. Where a lost request is not killed with its
/// connection, one tombstone would have to serve two owners.
inline bool ReleaseTask::mayHandOver(const HoldKeeper::ReleasePlan& plan,
                                     bool guarded) const noexcept {
  return scripts_->traits.handsOver && plan.before == 1 && plan.valid && !plan.all && !plan.lost &&
         !guarded && !engine_->closed();
}

/// Drops the hand-over: the waiter sends its own request, and the release frees the lock for all
/// clients.
inline void ReleaseTask::keepForAll() {
  handOver_.refused();
  composeAttempt();
}

/// A release that could not go out for a while is for everybody: its waiter may have left. But a
/// server that asks for the script's text gets it.
inline bool ReleaseTask::aboutToSend(Clock::time_point now) {
  constexpr std::chrono::milliseconds kAWhile{50};
  if (handOver_.open() && !sendsText() && now - sentAt_ > kAWhile) {
    keepForAll();
  }
  return true;
}

inline ReleaseTask::Clock::time_point ReleaseTask::prepareReconciling(bool /*keep*/) {
  release_.beginReconciling();
  {
    const MutexLock lock(mutex_);
    setPersistent(fsm_.reconcilesForGood());
  }
  return release_.reconcilesUntil(
      engine_->now(), engine_->holds().endOf(gate_.hold()), engine_->callTimeout());
}

inline void ReleaseTask::composeReconciling() {
  scripts_->composeReconcile(*this, release_.reconciling(ownerField_));
  setLate(release_.late());
}

inline void ReleaseTask::recompose(bool tombstone) {
  if (tombstone && !release_.hasTombstone()) {
    release_.setTombstone(newKey());
  }
  if (release_.reconciles()) {
    composeReconciling();
  } else {
    keepForAll();
  }
}

/// Past its deadline nobody waits for the answer, but the hold must still go.
inline ReleaseTask::Clock::time_point ReleaseTask::sendBefore(Driver driver) const {
  return driver == Driver::loop ? std::max(deadline_, engine_->now() + engine_->callTimeout())
                                : deadline_;
}

// Their outcomes.

inline ReleaseTask::Step ReleaseTask::replied() {
  if (release_.reconciles()) {
    const auto parsed = scripts_->parseReconcile(reply());
    return parsed ? found(release_.reconciled(*parsed))
                  : failed({.kind = Outcome::Kind::failed,
                            .error = Error(Errc::protocolError,
                                           "unexpected reply to a reconcile request"),
                            .answered = true});
  }
  const auto parsed = scripts_->parseRelease(reply());
  if (!parsed || (parsed->handedOver && !handOver_.toWaiter())) {
    // The server may have done it or not.
    handOver_.lost(*this);
    return failed({.kind = Outcome::Kind::failed,
                   .error = Error(Errc::protocolError, "unexpected reply to a release request"),
                   .answered = true});
  }
  Finding finding = release_.replied(*parsed);
  if (finding.kind == Finding::Kind::released && !parsed->publishError.empty()) {
    engine_->log().write(LogLevel::warning,
                         fmt::format("lock \"{}\" is free, but waiters could not be told: {}",
                                     escapeForDisplay(scripts_->title()),
                                     parsed->publishError));
  }
  const bool handedOver = parsed->handedOver;
  const auto receivers = parsed->receivers;
  const Step step = found(std::move(finding));
  if (handedOver) {
    handOver_.done(answeredAt());
  } else {
    handOver_.released(receivers);
  }
  return step;
}

inline ReleaseTask::Step ReleaseTask::failed(Outcome outcome) {
  handOver_.refused();
  const Step step = found(release_.failed(*outcome.error, outcome.answered));
  if (release_.reconciles() && step == Step::end) {
    tellUnreconciled(*outcome.error);
    engine_->holds().notReleased(
        gate_.hold(),
        release_.mustGo() ? HoldKeeper::GivenUp::forgotten : HoldKeeper::GivenUp::doubtful);
    leaveGate();
  }
  return step;
}

inline ReleaseTask::Step ReleaseTask::lost() {
  engine_->counters().lostReplies.fetch_add(1, std::memory_order_relaxed);
  lostAt_ = lostAt_ ? lostAt_ : engine_->now();
  // Each of the two owners reconciles its own count; neither can run before the request is dead.
  handOver_.lost(*this);
  return found({.kind = Finding::Kind::lost});
}

/// The ledger is told and the gate is left before the state machine is told: from then on the
/// caller may be gone, and may come with another call.
inline ReleaseTask::Step ReleaseTask::found(Finding finding) {
  if (finding.lasts) {
    // `lasts` counts from before the answered request was sent: the release, or its reconciliation.
    engine_->holds().limit(
        gate_.hold(), release_.reconciles() ? submittedAt() : sentAt_, *finding.lasts);
  }
  HoldKeeper::Released released;
  const bool tells = finding.booked && !finding.lostHold;
  if (finding.booked) {
    auto left = engine_->holds().released(
        gate_.hold(),
        {incarnation_, finding.remain, finding.lostHold, std::move(finding.over)},
        released);
    if (left) {
      gate_.leave(std::move(*left));
    }
  } else if (finding.kind == Finding::Kind::notReleased) {
    engine_->holds().notReleased(gate_.hold());
  }
  if (finding.leavesGate() && gate_.entered()) {
    leaveGate();
  }
  const auto kind = finding.kind;
  const auto outcome = finding.outcome;
  const Step step =
      tell([&](ReleaseFsm& fsm) { return Relinquishment::decide(fsm, std::move(finding)); });
  if (tells && !released.lost) {
    noteReleased(released);
  }
  if (lostAt_) {
    noteReconciled(kind, outcome);
  }
  return step;
}

inline void ReleaseTask::noteReleased(const HoldKeeper::Released& released) noexcept {
  const auto held = sentAt_ - released.since;
  if (released.remain == 0) {
    engine_->telemetry().noteHold(*scripts_, held);
  }
  if (engine_->telemetry().listens()) {
    engine_->telemetry().tell(
        ReleasedEvent{Telemetry::about(*scripts_, ownerField_, sentAt_), released.remain, held});
  }
}

inline void ReleaseTask::noteReconciled(Finding::Kind kind, ReleaseFsm::Result outcome) noexcept {
  if (kind != Finding::Kind::reconciled && kind != Finding::Kind::unreconciled) {
    return;
  }
  const auto since = *std::exchange(lostAt_, std::nullopt);
  if (engine_->telemetry().listens()) {
    const auto now = engine_->now();
    engine_->telemetry().tell(
        SettledEvent{Telemetry::about(*scripts_, ownerField_, now),
                     SettledEvent::Request::release,
                     kind == Finding::Kind::unreconciled       ? SettledEvent::Outcome::unknown
                     : outcome == ReleaseFsm::Result::notOwner ? SettledEvent::Outcome::notExecuted
                                                               : SettledEvent::Outcome::executed,
                     now - since});
  }
}

inline void ReleaseTask::tellUnreconciled(const Error& error) {
  if (engine_->outages().tells(OutageLog::Event::expiry)) {
    engine_->log().write(LogLevel::warning,
                         fmt::format("lock \"{}\": owner {}: a release could not be completed, "
                                     "the hold is left to expire: {}",
                                     escapeForDisplay(scripts_->title()),
                                     ownerField_.text(),
                                     error.what()));
  }
}

inline ReleaseTask::Step ReleaseTask::leave(Leave why) {
  return tell([&](ReleaseFsm& fsm) {
    return fsm.expired(
        why == Leave::stopped
            ? closedError()
            : Error(Errc::timedOut,
                    "the server did not answer in time; the release goes on in the background"));
  });
}

inline ReleaseTask::Step ReleaseTask::withoutMemory(bool executed) {
  if (executed) {
    handOver_.lost(*this);
  } else {
    handOver_.refused();
  }
  if (!executed && gate_.entered()) {
    engine_->holds().notReleased(gate_.hold());
  }
  return tell([&](ReleaseFsm& fsm) { return Relinquishment::withoutMemory(fsm, executed); });
}

inline Result<ReleaseOutcome> ReleaseTask::takeResult() {
  auto result = ReleaseFsm::Result::pending;
  std::optional<Error> error;
  {
    const MutexLock lock(mutex_);
    result = fsm_.result();
    error = fsm_.error();
  }
  switch (result) {
    case ReleaseFsm::Result::released:
      return ReleaseOutcome::released;
    case ReleaseFsm::Result::stillHeld:
      return ReleaseOutcome::stillHeld;
    case ReleaseFsm::Result::failed:
    case ReleaseFsm::Result::pending:
      return describe(error ? std::move(*error) : Error(Errc::serverError, "no outcome"));
    case ReleaseFsm::Result::notOwner:
      break;
  }
  // A client that closes gives back what is held, also while its threads release it.
  return describe(engine_->closed() ? closedError() : notHeld());
}

/// The error names another owner of this client that holds the lock: the caller may have meant that
/// one.
inline Error ReleaseTask::notHeld() const {
  std::string text = "not held by this owner, or no longer";
  if (const std::string ended = engine_->recentLosses().tell(
          scripts_->traits.holdKind, scripts_->name, owner_, engine_->now());
      !ended.empty()) {
    text += ": " + ended;
  }
  if (const auto other =
          incarnation_ == 0 ? engine_->holds().anotherHolder(*scripts_, owner_) : std::nullopt) {
    text += fmt::format(
        "; this client holds it for owner {}: another thread, which must release it itself, or a "
        "Lease, which has a release() of its own",
        engine_->ownerField(*other));
  }
  return Error(Errc::notOwner, text);
}

}  // namespace rlock::detail
