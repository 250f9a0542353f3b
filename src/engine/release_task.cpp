// SPDX-License-Identifier: Apache-2.0
#include "engine/release_task.hpp"

#include <rlock/detail/executor/naming.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

namespace rlock::detail {

ReleaseTask::ReleaseTask(std::shared_ptr<LockEngine> engine,
                         std::shared_ptr<const LockScripts> scripts,
                         ReleaseTarget target)
    : Task(std::move(engine), std::move(scripts), target.owner),
      incarnation_(target.incarnation),
      deadline_(began_ + engine_->callTimeout()) {}

void ReleaseTask::releaseQuietly(const std::shared_ptr<LockEngine>& engine,
                                 const std::shared_ptr<const LockScripts>& scripts,
                                 ReleaseTarget target) {
  if (engine->holds().isOver(*scripts, target.owner, target.incarnation)) {
    return;
  }
  makeIntrusive<ReleaseTask>(engine, scripts, target)
      ->startAhead([engine, target](const Result<ReleaseOutcome>& result) {
        // That a certain hold is over was told when it was lost.
        const bool known = target.incarnation != 0;
        if (!result.has_value() && !(known && result.error().errc() == Errc::notOwner) &&
            engine->outages().tells(OutageLog::Event::release)) {
          engine->log().write(
              LogLevel::warning,
              std::string("a release in the background failed: ") + result.error().what());
        }
      });
}

bool ReleaseTask::compose() {
  const HoldKeeper::ReleasePlan plan = engine_->holds().releasing(*hold_, incarnation_);
  if (plan.nothing) {
    return false;
  }
  phase_ = Phase::attempt;
  before_ = plan.before;
  all_ = plan.all;
  lost_ = plan.lost;
  partIndex_ = plan.partIndex;
  restore_ = plan.restore;
  setPersistent(false);
  tombstone_.clear();
  settlings_ = 0;
  if (!scripts_->traits.ownIds && engine_->dispatcher().needsTombstone()) {
    tombstone_ = requestKey(scripts_->name, newRequestId());
  }
  sentAt_ = engine_->now();
  validWhenSent_ = engine_->holds().wasValidAt(*hold_, sentAt_);
  composeAttempt();
  return true;
}

ReleaseTask::Step ReleaseTask::nothingToDo() {
  leaveGate();
  return tell([](ReleaseFsm& fsm) { return fsm.notOwner(); });
}

void ReleaseTask::composeAttempt() {
  scripts_->composeRelease(*this, {ownerField_, restore_, tombstone_, partIndex_});
  guard();
}

void ReleaseTask::composeSettling() {
  SettleRequest request{ownerField_, all_ ? 0 : std::max(before_ - 1, 0), tombstone_};
  request.number = ++settlings_;
  request.partIndex = all_ ? 0 : partIndex_;
  request.before = before_;
  scripts_->composeSettle(*this, request);
  guard();
}

/// Late, it would take a later hold of the same owner.
void ReleaseTask::guard() {
  setLate(scripts_->traits.ownIds || !tombstone_.empty() ? Late::harmless : Late::takes);
}

void ReleaseTask::recompose(bool tombstone) {
  if (tombstone && tombstone_.empty()) {
    tombstone_ = requestKey(scripts_->name, newRequestId());
  }
  if (phase_ == Phase::settle) {
    composeSettling();
  } else {
    composeAttempt();
  }
}

Error ReleaseTask::lateError() const {
  return Error(Errc::timedOut,
               "the server did not answer in time; the release goes on in the background");
}

void ReleaseTask::leaveGate() {
  const HoldPtr hold = std::exchange(hold_, nullptr);
  if (hold) {
    engine_->gates().leave(*hold);
  }
}

void ReleaseTask::book(int remain, bool lost, PartIndexes kept) {
  engine_->holds().released(*hold_, {incarnation_, remain, lost, std::move(kept)});
  leaveGate();
}

ReleaseTask::Step ReleaseTask::failed(Error error, bool answered) {
  const Errc errc = error.errc();
  if (phase_ == Phase::settle) {
    const Step step = tell([&](ReleaseFsm& fsm) {
      return fsm.settleFailed(doubtful(
          error, "whether it was released is not known; the release goes on in the background"));
    });
    if (step == Step::end) {
      if (engine_->outages().tells(OutageLog::Event::expiry)) {
        engine_->log().write(LogLevel::warning,
                             fmt::format("lock \"{}\": owner {}: a release could not be completed, "
                                         "the hold is left to expire: {}",
                                         escapeForDisplay(scripts_->name),
                                         ownerField_,
                                         error.what()));
      }
      engine_->holds().notReleased(*hold_);
      leaveGate();
    }
    return step;
  }
  // What did not get through, or only to a server that takes nothing at the moment, must go all the
  // same.
  const bool refused = answered && errc != Errc::connectionFailed && errc != Errc::readOnly &&
                       errc != Errc::notSynced;
  const bool goesOn = errc != Errc::closed && (nobodyAsks_ ? errc != Errc::wrongType : !refused);
  if (goesOn && before_ > 0) {
    return tell([&](ReleaseFsm& fsm) {
      return fsm.failedForGood(doubtful(error, "the release goes on in the background"));
    });
  }
  if (errc == Errc::wrongType) {
    // Other data stands where the lock was.
    book(0, true);
  } else {
    engine_->holds().notReleased(*hold_);
    leaveGate();
  }
  return tell([&](ReleaseFsm& fsm) { return fsm.failed(std::move(error)); });
}

ReleaseTask::Step ReleaseTask::replied() {
  return phase_ == Phase::attempt ? repliedAttempt() : repliedSettle();
}

ReleaseTask::Step ReleaseTask::repliedAttempt() {
  const auto parsed = scripts_->parseRelease(reply());
  if (!parsed) {
    return failed(Error(Errc::protocolError, "unexpected reply to a release request"));
  }
  const std::int64_t expected = all_ ? 0 : std::max(before_ - 1, 0);
  const int remain = static_cast<int>(std::min(parsed->remain, expected));
  if (parsed->remaining && remain > 0) {
    engine_->holds().limit(*hold_, sentAt_, *parsed->remaining);
  }
  const bool tooMany = parsed->remain > expected;
  if (!parsed->owned || (lost_ && !tooMany)) {
    book(remain, true, parsed->kept);
    return tell([](ReleaseFsm& fsm) { return fsm.notOwner(); });
  }
  if (!parsed->publishError.empty()) {
    engine_->log().write(LogLevel::warning,
                         fmt::format("lock \"{}\" is free, but waiters could not be told: {}",
                                     escapeForDisplay(scripts_->name),
                                     parsed->publishError));
  }
  if (tooMany) {
    // It was released; what is there besides is unknown.
    partIndex_ = 0;
  } else {
    book(remain, false, parsed->kept);
  }
  return tell(
      [&](ReleaseFsm& fsm) { return fsm.released(before_ > 0 && !lost_, remain, tooMany); });
}

ReleaseTask::Step ReleaseTask::repliedSettle() {
  const auto parsed = scripts_->parseSettle(reply());
  if (!parsed) {
    return failed(Error(Errc::protocolError, "unexpected reply to a settle request"));
  }
  // The server may have dropped the hold by itself. Only a release that was sent while the hold was
  // certainly there may be given the credit for its being gone.
  const bool executed = parsed->before >= before_ || parsed->before > 0 || validWhenSent_;
  auto outcome = ReleaseFsm::Result::notOwner;
  if (before_ > 0 && executed && !all_ && !lost_) {
    outcome = parsed->now > 0 ? ReleaseFsm::Result::stillHeld : ReleaseFsm::Result::released;
  }
  if (parsed->remaining && parsed->now > 0) {
    engine_->holds().limit(*hold_, submittedAt(), *parsed->remaining);
  }
  book(static_cast<int>(parsed->now), outcome == ReleaseFsm::Result::notOwner);
  return tell([&](ReleaseFsm& fsm) { return fsm.settled(outcome); });
}

Result<ReleaseOutcome> ReleaseTask::takeResult() {
  {
    const MutexLock lock(mutex_);
    switch (fsm_.result()) {
      case ReleaseFsm::Result::released:
        return ReleaseOutcome::released;
      case ReleaseFsm::Result::stillHeld:
        return ReleaseOutcome::stillHeld;
      case ReleaseFsm::Result::failed:
      case ReleaseFsm::Result::pending:
        return describe(fsm_.error() ? *fsm_.error() : Error(Errc::serverError, "no outcome"));
      case ReleaseFsm::Result::notOwner:
        break;
    }
  }
  // A client that closes gives back what is held, also while its threads release it.
  return describe(engine_->closed() ? closedError() : notHeld());
}

/// Not held by the owner that was given, but perhaps by the one that was meant.
Error ReleaseTask::notHeld() const {
  std::string text = "not held by this owner, or no longer";
  if (const auto other =
          incarnation_ == 0 ? engine_->holds().anotherHolder(*scripts_, owner_) : std::nullopt) {
    text += fmt::format(
        "; this client holds it for owner {}: another thread, which must release it itself, or a "
        "Lease, which has a release() of its own",
        engine_->ownerField(*other));
  }
  return Error(Errc::notOwner, text);
}

// On the calling thread.

Result<ReleaseOutcome> ReleaseTask::run() {
  try {
    return runHere();
  } catch (const std::bad_alloc&) {
    if (hold_ && executed_) {
      // Completed in the background, as if the reply had been lost.
      engine_->dispatcher().post(
          [self = TaskPtr(this)] { self->finished({Outcome::Kind::unknown}); });
    } else if (hold_) {
      engine_->holds().notReleased(*hold_);
      leaveGate();
    }
    throw;
  }
}

Result<ReleaseOutcome> ReleaseTask::runHere() {
  auto gate = engine_->gates().enter(scripts_, owner_, *this);
  if (!gate.entered) {
    return waitForLoop();
  }
  hold_ = std::move(gate.hold);
  if (!compose()) {
    nothingToDo();
    return takeResult();
  }
  Dispatcher& dispatcher = engine_->dispatcher();
  if (!dispatcher.direct(*this)) {
    dispatcher.start(Dispatcher::CallPtr(this), deadline_);
    return waitForLoop();
  }
  executed_ = true;
  Step step = Step::none;
  switch (dispatcher.await(*this, later(deadline_, kReplyGrace))) {
    case Dispatcher::Direct::replied:
      step = replied();
      break;
    case Dispatcher::Direct::failed:
      step = failed(dispatcher.takeError(*this));
      break;
    case Dispatcher::Direct::trouble:
      dispatcher.resume(Dispatcher::CallPtr(this), deadline_);
      return waitForLoop();
    case Dispatcher::Direct::timedOut:
    case Dispatcher::Direct::interrupted:
      return waitForLoop();
  }
  if (step == Step::finish) {
    return takeResult();
  }
  if (step == Step::finishAndSettle) {
    // This thread has its answer; the loop, which may be ending, need not give it.
    dispatcher.post([self = TaskPtr(this)] { self->perform(Step::settle); });
    return takeResult();
  }
  dispatcher.post([self = TaskPtr(this), step] { self->perform(step); });
  return waitForLoop();
}

Result<ReleaseOutcome> ReleaseTask::waitForLoop() {
  bool leaving = false;
  const auto limit = later(deadline_, kReplyGrace);
  for (;;) {
    const std::uint32_t seen = signals();
    if ((seen & kAnswered) != 0) {
      return std::move(*result_);
    }
    const bool closed = engine_->closed();
    if (!leaving && (closed || engine_->now() >= limit)) {
      const Step step =
          tell([&](ReleaseFsm& fsm) { return fsm.expired(closed ? closedError() : lateError()); });
      if (step == Step::finishEarly) {
        return takeResult();
      }
      leaving = true;
    }
    sleepOrClose(seen, leaving ? Clock::time_point::max() : limit);
  }
}

// On the loop thread.

void ReleaseTask::startInBackground(Handler handler) {
  handler_ = std::move(handler);
  background_ = true;
  engine_->dispatcher().post([self = TaskPtr(this)] {
    self->deadlineTimer_ =
        self->engine_->env()->makeTimer([raw = self.get()] { raw->onDeadline(); });
    self->deadlineTimer_->armAt(later(self->deadline_, kReplyGrace));
    self->attemptOnLoop();
  });
}

void ReleaseTask::startAhead(Handler handler) {
  if (engine_->dispatcher().onLoopThread()) {
    nobodyAsks_ = true;
    startInBackground(std::move(handler));
    return;
  }
  handler_ = std::move(handler);
  background_ = true;
  nobodyAsks_ = true;
  auto gate = engine_->gates().enter(scripts_, owner_, *this);
  if (!gate.entered) {
    return;
  }
  hold_ = std::move(gate.hold);
  if (!compose()) {
    perform(nothingToDo());
    return;
  }
  engine_->dispatcher().startAhead(Dispatcher::CallPtr(this), deadline_);
}

void ReleaseTask::onDeadline() {
  const TaskPtr self(this);
  perform(tell([this](ReleaseFsm& fsm) { return fsm.expired(lateError()); }));
}

void ReleaseTask::gateOpened() noexcept {
  engine_->dispatcher().post([self = TaskPtr(this)] { self->sendOnLoop(); });
}

void ReleaseTask::gateClosed() noexcept {
  // Closing gives the hold back.
  engine_->dispatcher().post([self = TaskPtr(this)] {
    self->perform(self->tell([&](ReleaseFsm& fsm) { return fsm.failed(self->closedError()); }));
  });
}

void ReleaseTask::attemptOnLoop() {
  auto gate = engine_->gates().enter(scripts_, owner_, *this);
  if (!gate.entered) {
    return;
  }
  hold_ = std::move(gate.hold);
  sendOnLoop();
}

void ReleaseTask::sendOnLoop() {
  if (!hold_) {
    hold_ = engine_->gates().entry(scripts_, owner_);
  }
  if (!compose()) {
    perform(nothingToDo());
    return;
  }
  // Past its deadline nobody waits for the answer, but the hold must still go.
  engine_->dispatcher().start(Dispatcher::CallPtr(this),
                              std::max(deadline_, engine_->now() + engine_->callTimeout()));
}

void ReleaseTask::finished(Outcome outcome) noexcept {
  switch (outcome.kind) {
    case Outcome::Kind::replied:
      perform(replied());
      return;
    case Outcome::Kind::failed:
      perform(failed(std::move(*outcome.error), outcome.answered));
      return;
    case Outcome::Kind::unknown:
      break;
  }
  engine_->counters().lostReplies.fetch_add(1, std::memory_order_relaxed);
  perform(tell([](ReleaseFsm& fsm) { return fsm.unknown(); }));
}

void ReleaseTask::perform(Step step) {
  switch (step) {
    case Step::none:
      return;
    case Step::attempt:
      attemptOnLoop();
      return;
    case Step::settle:
      settle();
      return;
    case Step::finish:
      answer(takeResult());
      end();
      return;
    case Step::finishEarly:
      answer(takeResult());
      return;
    case Step::finishAndSettle:
      answer(takeResult());
      settle();
      return;
    case Step::end:
      end();
      return;
  }
}

void ReleaseTask::settle() {
  phase_ = Phase::settle;
  composeSettling();
  {
    const MutexLock lock(mutex_);
    setPersistent(fsm_.settlesForGood());
  }
  // As long as the hold can live: then it is gone by itself.
  const auto until = engine_->holds().endOf(*hold_) + engine_->callTimeout();
  engine_->dispatcher().start(Dispatcher::CallPtr(this), until);
}

void ReleaseTask::end() {
  leaveGate();
  deadlineTimer_.reset();
}

/// Here, because the task is built on the engine.
void LockEngine::giveBack(const std::shared_ptr<const LockScripts>& scripts, ReleaseTarget target) {
  ReleaseTask::releaseQuietly(sharing(*this), scripts, target);
}

}  // namespace rlock::detail
