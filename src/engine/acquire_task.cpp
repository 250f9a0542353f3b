// SPDX-License-Identifier: Apache-2.0
#include "engine/acquire_task.hpp"

#include <rlock/detail/executor/naming.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace rlock::detail {

namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point deadlineOf(const AcquireParams& params,
                             const LockEngine& engine,
                             Clock::time_point now) {
  // One attempt has no time limit of its own, so the one of all such calls holds.
  return params.wait.isPositive() ? params.wait.deadlineFrom(now) : now + engine.callTimeout();
}

}  // namespace

AcquireTask::AcquireTask(std::shared_ptr<LockEngine> engine,
                         std::shared_ptr<const LockKeys> keys,
                         AcquireParams params)
    : Task(std::move(engine), std::move(keys), params.owner, Clock::now()),
      params_(std::move(params)),
      lease_(params_.lease ? params_.lease->ceilMilliseconds()
                           : engine_->options().watchdogTimeout),
      deadline_(deadlineOf(params_, *engine_, began_)),
      fsm_(!params_.wait.isPositive()) {}

// Both ways.

AcquireTask::Step AcquireTask::begin() {
  if (params_.stop.stop_requested()) {
    return tell([this](AcquireFsm& fsm) { return fsm.stopped(stopError()); });
  }
  mark_ = engine_->mark(keys_->channel);
  // A waiting owner that holds the lock already would wait for itself.
  const bool othersWait = mark_->othersWait && !engine_->holds(keys_->name, owner_);
  if (othersWait) {
    mark_.reset();
  }
  return tell([&](AcquireFsm& fsm) { return fsm.start(othersWait); });
}

void AcquireTask::compose() {
  phase_ = Phase::attempt;
  tried_ = true;
  tombstone_ = engine_->executor().needsTombstone() ? requestKey(keys_->name, newRequestId())
                                                    : std::string();
  composeAcquire(*this, *keys_, ownerField_, lease_, tombstone_);
  sentAt_ = Clock::now();
}

AcquireTask::Clock::time_point AcquireTask::sendBefore() const {
  if (deadline_ != Clock::time_point::max()) {
    return deadline_;
  }
  return Clock::now() + engine_->options().outageTimeout;
}

bool AcquireTask::tooLate() const {
  return Clock::now() >= sentAt_ + lease_ - Watchdog::allowance(lease_) &&
         lease_ > std::chrono::milliseconds(10);
}

Error AcquireTask::lateError() const {
  return Error(Errc::timedOut,
               "the server did not answer in time; if it granted the lock, it is given back");
}

Error AcquireTask::stopError() const {
  return (signals() & kClosed) != 0 || engine_->closed()
             ? closedError()
             : Error(Errc::cancelled, "a stop was requested");
}

void AcquireTask::leaveGate() {
  const HoldPtr hold = std::exchange(hold_, nullptr);
  if (hold) {
    engine_->leave(*hold);
  }
}

AcquireTask::Step AcquireTask::failed(Error error) {
  if (phase_ == Phase::settle) {
    engine_->log().write(LogLevel::warning,
                         fmt::format("lock \"{}\": owner {}: a request whose reply was lost could "
                                     "not be settled: {}",
                                     escapeForDisplay(keys_->name),
                                     ownerField_,
                                     error.what()));
    return tell([&](AcquireFsm& fsm) { return fsm.settleFailed(std::move(error)); });
  }
  leaveGate();
  return tell([&](AcquireFsm& fsm) { return fsm.failed(std::move(error)); });
}

AcquireTask::Step AcquireTask::replied() {
  return phase_ == Phase::attempt ? repliedAttempt() : repliedSettle();
}

AcquireTask::Step AcquireTask::repliedAttempt() {
  const auto parsed = parseAcquire(reply());
  if (!parsed) {
    return failed(Error(Errc::protocolError, "unexpected reply to an acquire request"));
  }
  if (parsed->granted) {
    return granted(parsed->count);
  }
  leaveGate();
  remaining_ = parsed->remaining;
  return tell([](AcquireFsm& fsm) { return fsm.refused(); });
}

AcquireTask::Step AcquireTask::granted(std::int64_t count) {
  if (tooLate()) {
    // The lease ran out on the way here. What may be left of it on the server counts as nothing:
    // the next attempt finds it and settles.
    leaveGate();
    remaining_ = std::chrono::milliseconds::zero();
    return tell([](AcquireFsm& fsm) { return fsm.refused(); });
  }
  const bool tooMany = count > before_ + 1;
  const Step step = tell([&](AcquireFsm& fsm) {
    if (engine_->closed() && fsm.stopped(closedError()) != Step::none) {
      static_cast<void>(fsm.granted(tooMany));
      return Step::finishAndSettleBack;
    }
    return fsm.granted(tooMany);
  });
  if (step == Step::finish) {
    LockEngine::GrantTerms terms;
    terms.sentAt = sentAt_;
    terms.lease = lease_;
    terms.watched = !params_.lease;
    if (params_.maxHold) {
      terms.maxHold = params_.maxHold->nanoseconds();
    }
    terms.wantsHandle = params_.wantsHandle;
    terms.label = params_.label;
    auto handle = engine_->granted(*hold_, before_, static_cast<int>(count), terms);
    if (params_.wantsHandle) {
      grant_.hold = std::move(handle);
    }
    leaveGate();
  }
  return step;
}

AcquireTask::Step AcquireTask::repliedSettle() {
  const auto parsed = parseSettle(reply());
  if (!parsed) {
    return failed(Error(Errc::protocolError, "unexpected reply to a settle request"));
  }
  const bool held = parsed->now > before_;
  if (held && !tooLate()) {
    const bool answered =
        tell([](AcquireFsm& fsm) { return fsm.answered() ? Step::end : Step::none; }) == Step::end;
    if (!answered) {
      return granted(parsed->now);
    }
  }
  if (parsed->before > parsed->now) {
    engine_->counters().undone.fetch_add(1, std::memory_order_relaxed);
  }
  const Step step = tell([&](AcquireFsm& fsm) { return fsm.settled(held && !tooLate()); });
  if (step != Step::settleBack) {
    leaveGate();
  }
  return step;
}

Result<AcquireTask::Acquired> AcquireTask::takeResult() {
  const std::lock_guard lock(mutex_);
  LockEngine::Counters& counters = engine_->counters();
  if (fsm_.contended()) {
    counters.contended.fetch_add(1, std::memory_order_relaxed);
  }
  switch (fsm_.result()) {
    case AcquireFsm::Result::granted:
      return Acquired(std::move(grant_));
    case AcquireFsm::Result::refused:
      counters.refused.fetch_add(1, std::memory_order_relaxed);
      return Acquired();
    case AcquireFsm::Result::failed:
    case AcquireFsm::Result::pending:
      break;
  }
  return describe(fsm_.error() ? *fsm_.error() : Error(Errc::serverError, "no outcome"));
}

// On the calling thread.

Result<AcquireTask::Acquired> AcquireTask::run() {
  if (params_.stop.stop_possible()) {
    stopCallback_.emplace(params_.stop, [this] { stopRequested(); });
  }
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
        engine_->leaveQueue(*this, fsm_.result() == AcquireFsm::Result::granted);
        return takeResult();
      case Step::none:
        break;
      case Step::finishAndSettleBack:
        // This thread has its answer; the loop, which may be ending, need not give it.
        moveToLoop();
        engine_->executor().post([self = TaskPtr(this)] { self->perform(Step::settleBack); });
        stopCallback_.reset();
        engine_->leaveQueue(*this, false);
        return takeResult();
      case Step::settleKeep:
      case Step::settleBack:
      case Step::end:
        moveToLoop();
        engine_->executor().post([self = TaskPtr(this), step] { self->perform(step); });
        break;
    }
    Result<Acquired> result = waitForLoop();
    stopCallback_.reset();
    return result;
  }
}

AcquireTask::Step AcquireTask::attemptHere() {
  auto gate = engine_->enter(keys_, owner_, *this);
  if (!gate.entered) {
    return Step::none;
  }
  hold_ = std::move(gate.hold);
  before_ = gate.count;
  compose();
  Executor& executor = engine_->executor();
  if (executor.direct(*this)) {
    return awaitHere();
  }
  moveToLoop();
  executor.start(Executor::CallPtr(this), sendBefore());
  return Step::none;
}

AcquireTask::Step AcquireTask::awaitHere() {
  Executor& executor = engine_->executor();
  switch (executor.await(*this, later(deadline_, kReplyGrace))) {
    case Executor::Direct::replied:
      return replied();
    case Executor::Direct::failed:
      return failed(executor.takeError(*this));
    case Executor::Direct::trouble:
      moveToLoop();
      executor.resume(Executor::CallPtr(this), sendBefore());
      return Step::none;
    case Executor::Direct::timedOut:
    case Executor::Direct::interrupted:
      break;
  }
  return leaveNow();
}

/// The caller does not wait any longer; what is under way goes on without it.
AcquireTask::Step AcquireTask::leaveNow() {
  const bool stopped = (signals() & (kStopped | kClosed)) != 0 || engine_->closed();
  const Step step = tell([&](AcquireFsm& fsm) {
    onLoop_ = true;
    return stopped ? fsm.stopped(stopError()) : fsm.expired(lateError());
  });
  // None: the loop was quicker, its answer is on the way.
  return step;
}

AcquireTask::Step AcquireTask::sleepHere() {
  engine_->queue(*this,
                 keys_->channel,
                 std::exchange(mark_, std::nullopt),
                 std::exchange(tried_, false),
                 remaining_);
  bool leaving = false;
  for (;;) {
    const std::uint32_t seen = signals();
    if ((seen & kSent) != 0) {
      clear(kSent);
      return awaitHere();
    }
    if ((seen & kMoved) != 0) {
      return Step::none;
    }
    const bool stopped = (seen & (kStopped | kClosed)) != 0;
    if (!leaving && (stopped || Clock::now() >= deadline_)) {
      const Step step = tell([&](AcquireFsm& fsm) {
        if (!fsm.queued()) {
          return Step::none;
        }
        return stopped ? fsm.stopped(stopError()) : fsm.expired(lateError());
      });
      if (step != Step::none) {
        return step;
      }
      // Somebody is just sending on this thread's behalf and will say so.
      leaving = true;
      continue;
    }
    sleep(seen, leaving ? Clock::time_point::max() : deadline_);
  }
}

Result<AcquireTask::Acquired> AcquireTask::waitForLoop() {
  bool leaving = false;
  const auto limit = later(deadline_, kReplyGrace);
  for (;;) {
    const std::uint32_t seen = signals();
    if ((seen & kAnswered) != 0) {
      return std::move(*result_);
    }
    const bool stopped = (seen & (kStopped | kClosed)) != 0 || engine_->closed();
    if (!leaving && (stopped || Clock::now() >= limit)) {
      const Step step = leaveNow();
      if (step == Step::finish || step == Step::finishEarly) {
        engine_->leaveQueue(*this, false);
        return takeResult();
      }
      leaving = true;
      continue;
    }
    sleepOrClose(seen, leaving ? Clock::time_point::max() : limit);
  }
}

// Events from elsewhere.

void AcquireTask::stopRequested() noexcept {
  signal(kStopped);
  if (!inBackground()) {
    interrupt();
    return;
  }
  engine_->executor().post([self = TaskPtr(this)] {
    self->perform(self->tell([&](AcquireFsm& fsm) { return fsm.stopped(self->stopError()); }));
  });
}

void AcquireTask::shutDown() noexcept {
  signal(kClosed);
  if (!inBackground()) {
    interrupt();
    return;
  }
  engine_->executor().post([self = TaskPtr(this)] {
    self->perform(self->tell([&](AcquireFsm& fsm) { return fsm.stopped(self->closedError()); }));
  });
}

void AcquireTask::turn() noexcept {
  bool onLoop = false;
  const Step step = tell([&](AcquireFsm& fsm) {
    onLoop = onLoop_;
    return fsm.turn();
  });
  if (step != Step::attempt) {
    return;
  }
  if (onLoop) {
    if (engine_->executor().onLoopThread()) {
      attemptOnLoop();
    } else {
      engine_->executor().post([self = TaskPtr(this)] { self->attemptOnLoop(); });
    }
    return;
  }
  // The request goes out at once, and its thread wakes up while it is on the way.
  auto gate = engine_->enter(keys_, owner_, *this);
  if (gate.entered) {
    hold_ = std::move(gate.hold);
    before_ = gate.count;
    compose();
    if (engine_->executor().direct(*this)) {
      signal(kSent);
      return;
    }
  }
  moveToLoop();
  if (gate.entered) {
    engine_->executor().start(Executor::CallPtr(this), sendBefore());
  }
  signal(kMoved);
}

void AcquireTask::moveToLoop() {
  const std::lock_guard lock(mutex_);
  onLoop_ = true;
}

void AcquireTask::gateOpened() noexcept {
  engine_->executor().post([self = TaskPtr(this)] {
    self->moveToLoop();
    self->signal(kMoved);
    self->sendOnLoop();
  });
}

void AcquireTask::finished(Outcome outcome) noexcept {
  switch (outcome.kind) {
    case Outcome::Kind::replied:
      perform(replied());
      return;
    case Outcome::Kind::failed:
      perform(failed(std::move(*outcome.error)));
      return;
    case Outcome::Kind::unknown:
      break;
  }
  engine_->counters().lostReplies.fetch_add(1, std::memory_order_relaxed);
  lostSession_ = session();
  perform(tell([](AcquireFsm& fsm) { return fsm.unknown(); }));
}

// On the loop thread.

void AcquireTask::startInBackground(Handler handler) {
  handler_ = std::move(handler);
  background_ = true;
  onLoop_ = true;
  engine_->executor().post([self = TaskPtr(this)] {
    if (self->params_.stop.stop_possible()) {
      self->stopCallback_.emplace(self->params_.stop, [raw = self.get()] { raw->stopRequested(); });
    }
    if (self->deadline_ != Clock::time_point::max()) {
      self->deadlineTimer_ = std::make_unique<Timer>(self->engine_->executor().loop(),
                                                     [raw = self.get()] { raw->onDeadline(); });
      self->deadlineTimer_->armAt(self->deadline_);
    }
    self->perform(self->begin());
  });
}

void AcquireTask::onDeadline() {
  const TaskPtr self(this);
  const auto limit = later(deadline_, kReplyGrace);
  const bool queued =
      tell([](AcquireFsm& fsm) { return fsm.queued() ? Step::queue : Step::none; }) == Step::queue;
  if (!queued && Clock::now() < limit) {
    deadlineTimer_->armAt(limit);
    return;
  }
  perform(tell([this](AcquireFsm& fsm) { return fsm.expired(lateError()); }));
}

void AcquireTask::perform(Step step) {
  switch (step) {
    case Step::none:
      return;
    case Step::attempt:
      attemptOnLoop();
      return;
    case Step::queue:
      engine_->queue(*this,
                     keys_->channel,
                     std::exchange(mark_, std::nullopt),
                     std::exchange(tried_, false),
                     remaining_);
      return;
    case Step::settleKeep:
      settle(true);
      return;
    case Step::settleBack:
      settle(false);
      return;
    case Step::finish:
      conclude();
      end();
      return;
    case Step::finishEarly:
      conclude();
      return;
    case Step::finishAndSettleBack:
      conclude();
      settle(false);
      return;
    case Step::end:
      end();
      return;
  }
}

void AcquireTask::attemptOnLoop() {
  auto gate = engine_->enter(keys_, owner_, *this);
  if (!gate.entered) {
    return;
  }
  hold_ = std::move(gate.hold);
  sendOnLoop();
}

void AcquireTask::sendOnLoop() {
  if (!hold_) {
    // The gate was passed on to this task while it waited there.
    hold_ = engine_->entry(keys_, owner_);
  }
  const bool wanted =
      tell([](AcquireFsm& fsm) { return fsm.answered() ? Step::end : Step::none; }) == Step::none;
  if (!wanted) {
    leaveGate();
    perform(tell([this](AcquireFsm& fsm) { return fsm.failed(lateError()); }));
    return;
  }
  before_ = engine_->countOf(*hold_);
  compose();
  engine_->executor().start(Executor::CallPtr(this), sendBefore());
}

void AcquireTask::settle(bool keep) {
  phase_ = Phase::settle;
  composeSettle(*this, *keys_, ownerField_, before_ + (keep ? 1 : 0), tombstone_);
  // Once the lease is over there is nothing left to settle.
  const auto before = keep ? sendBefore() : Clock::now() + lease_ + engine_->callTimeout();
  engine_->executor().startFenced(Executor::CallPtr(this), lostSession_, before);
}

void AcquireTask::conclude() {
  if (background_ || (signals() & kAnswered) == 0) {
    engine_->leaveQueue(*this, fsm_.result() == AcquireFsm::Result::granted);
    answer(takeResult());
  }
}

void AcquireTask::end() {
  leaveGate();
  deadlineTimer_.reset();
  if (background_) {
    stopCallback_.reset();
  }
}

}  // namespace rlock::detail
