// SPDX-License-Identifier: Apache-2.0
#include "engine/acquire_task.hpp"

#include <rlock/detail/executor/naming.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>
#include <string_view>
#include <utility>

namespace rlock::detail {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kNoMemory = "this process has no memory for it";

Clock::time_point deadlineOf(const AcquireParams& params,
                             const LockEngine& engine,
                             Clock::time_point now) {
  // One attempt has no time limit of its own, so the one of all such calls holds.
  return params.wait.isPositive() ? params.wait.deadlineFrom(now) : now + engine.callTimeout();
}

/// Tells the server that a waiter gives up its entry in the queue.
class Withdrawal final : public Call {
 public:
  /// @param until  later than that the entry has lapsed by itself
  Withdrawal(std::shared_ptr<LockEngine> engine,
             std::shared_ptr<const LockScripts> scripts,
             std::string owner,
             Clock::time_point until)
      : engine_(std::move(engine)),
        scripts_(std::move(scripts)),
        owner_(std::move(owner)),
        until_(until) {
    scripts_->composeWithdraw(*this, owner_);
  }

 private:
  void finished(Outcome outcome) noexcept override {
    // What was sent on a caller's thread is not sent again when it is lost after the caller left.
    if (outcome.kind != Outcome::Kind::replied && !std::exchange(again_, true)) {
      engine_->dispatcher().start(Dispatcher::CallPtr(this), until_);
      return;
    }
    engine_->closing().entryLeft();
  }

  const std::shared_ptr<LockEngine> engine_;
  const std::shared_ptr<const LockScripts> scripts_;
  const std::string owner_;
  const Clock::time_point until_;
  bool again_ = false;
};

}  // namespace

AcquireTask::AcquireTask(std::shared_ptr<LockEngine> engine,
                         std::shared_ptr<const LockScripts> scripts,
                         AcquireParams params)
    : Task(std::move(engine), std::move(scripts), params.owner),
      params_(std::move(params)),
      lease_(params_.lease ? params_.lease->ceilMilliseconds()
                           : engine_->options().watchdogTimeout),
      deadline_(deadlineOf(params_, *engine_, began_)),
      ownChannel_(scripts_->traits.channelPerOwner ? scripts_->channelOf(ownerField_)
                                                   : std::string()),
      queueEntry_(scripts_->traits.queuesOnServer ? scripts_->channel + ':' + ownerField_
                                                  : std::string()),
      fsm_(!params_.wait.isPositive()) {}

/// On the loop: a call that there is no memory for fails, and what it may have obtained is given
/// back.
template <class Action>
void AcquireTask::guarded(Action action) noexcept {
  try {
    action();
    return;
  } catch (const std::bad_alloc&) {
  }
  try {
    if (!background_) {
      // Its thread may be asleep until a request has been sent for it.
      moveToLoop();
      signal(kMoved);
    }
    const Step step =
        tell([](AcquireFsm& fsm) { return fsm.stopped(Error(Errc::overloaded, kNoMemory)); });
    if (hold_ && executed_) {
      if (step != Step::none) {
        conclude();
      }
      perform(tell([](AcquireFsm& fsm) { return fsm.unknown(); }));
      return;
    }
    leaveQueueEntry();
    leaveGate();
    perform(step);
  } catch (const std::exception& failure) {
    engine_->log().write(LogLevel::error, failure.what());
  }
}

// Both ways.

AcquireTask::Step AcquireTask::begin() {
  if (params_.stop.stop_requested()) {
    return tell([this](AcquireFsm& fsm) { return fsm.stopped(stopError()); });
  }
  const LockTraits& traits = scripts_->traits;
  mark_ = traits.opensOn.empty() ? engine_->waiting().mark(channel(), traits.lane)
                                 : engine_->waiting().expect(channel(), traits.lane);
  // A waiting owner that holds the lock already would wait for itself.
  const WakeRule rule = scripts_->traits.wakeRule;
  // Those who all get in together do not overtake one another.
  const bool inLine = rule == WakeRule::one || rule == WakeRule::fitting;
  const bool othersWait =
      mark_->othersWait && inLine && !engine_->holds().holds(scripts_->name, owner_);
  if (othersWait) {
    mark_.reset();
  }
  return tell([&](AcquireFsm& fsm) { return fsm.start(othersWait); });
}

AcquireTask::Step AcquireTask::notSent(Error error) {
  if (phase_ == Phase::settle || deadline_ == Clock::time_point::max() ||
      !params_.wait.isPositive()) {
    return failed(std::move(error));
  }
  // The wait is over, as it would be if it had ended between two attempts.
  if (std::exchange(enrols_, false)) {
    leaveQueueEntry();
  }
  leaveGate();
  return tell([](AcquireFsm& fsm) { return fsm.notSent(); });
}

void AcquireTask::compose() {
  phase_ = Phase::attempt;
  setPersistent(false);
  settledRemaining_.reset();
  tried_ = true;
  ++attempts_;
  tombstone_.clear();
  settlings_ = 0;
  if (needsGuard() && engine_->dispatcher().needsTombstone()) {
    tombstone_ = requestKey(scripts_->name, newRequestId());
  }
  enrols_ = params_.wait.isPositive() && scripts_->traits.queuesOnServer && !enrolled_;
  composeAttempt();
  if (enrols_) {
    engine_->closing().entryTaken(queueEntry_);
    enrolled_ = true;
  }
  sentAt_ = engine_->now();
}

void AcquireTask::composeAttempt() {
  const bool waits = params_.wait.isPositive();
  const bool enrolledBefore = enrolled_ && !enrols_;
  scripts_->composeAcquire(*this,
                           {ownerField_, lease_, tombstone_, waits, enrolledBefore, before_ > 0});
  setLate(needsGuard() && tombstone_.empty() ? Late::adds : Late::harmless);
}

void AcquireTask::composeSettling() {
  scripts_->composeSettle(
      *this, {ownerField_, before_ + (keeps_ ? 1 : 0), tombstone_, ++settlings_, keeps_});
  const bool guarded = needsGuard() && !scripts_->traits.ownIds;
  setLate(guarded && tombstone_.empty() ? Late::takes : Late::harmless);
}

void AcquireTask::recompose(bool tombstone) {
  if (tombstone && tombstone_.empty()) {
    tombstone_ = requestKey(scripts_->name, newRequestId());
  }
  if (phase_ == Phase::settle) {
    composeSettling();
  } else {
    composeAttempt();
  }
}

AcquireTask::Clock::time_point AcquireTask::sendBefore() const {
  if (deadline_ != Clock::time_point::max() && !params_.forEver) {
    return deadline_;
  }
  return std::min(deadline_, later(engine_->now(), engine_->options().outageTimeout));
}

bool AcquireTask::tooLate() const {
  const bool hasLease = keepsHold() || params_.lease;
  return hasLease && engine_->now() >= sentAt_ + lease_ - Watchdog::allowance(lease_) &&
         lease_ > std::chrono::milliseconds(10);
}

Error AcquireTask::lateError() const {
  if (engine_->now() >= gateLimit()) {
    return Error(Errc::connectionFailed,
                 "an earlier request of this owner could not be settled in time");
  }
  return Error(Errc::timedOut,
               "the server did not answer in time; if it granted the lock, it is given back");
}

Error AcquireTask::stopError() const {
  return (signals() & kClosed) != 0 || engine_->closed()
             ? closedError()
             : Error(Errc::cancelled, "a stop was requested");
}

/// False: gateOpened() will come. An outage is the only thing that keeps another request of the
/// same owner at the gate for long, so the limit for outages holds here, too.
bool AcquireTask::enterGate() {
  if (deadline_ == Clock::time_point::max()) {
    gateLimit_.store(
        later(engine_->now(), engine_->options().outageTimeout).time_since_epoch().count());
  }
  auto gate = engine_->gates().enter(scripts_, owner_, *this);
  if (!gate.entered) {
    return false;
  }
  gateLimit_.store(Clock::time_point::max().time_since_epoch().count());
  hold_ = std::move(gate.hold);
  before_ = gate.count;
  return true;
}

/// A closing client does not wait for requests that come after it has counted them, and what they
/// obtain would be lost. Asked when the gate is held, by which they are counted.
bool AcquireTask::mustNotBegin() noexcept {
  if (!engine_->closed()) {
    return false;
  }
  phase_ = Phase::attempt;
  return true;
}

AcquireTask::Clock::time_point AcquireTask::gateLimit() const noexcept {
  return Clock::time_point(Clock::duration(gateLimit_.load()));
}

/// Until when the caller waits for whatever is under way.
AcquireTask::Clock::time_point AcquireTask::limit() const noexcept {
  return std::min(later(deadline_, kReplyGrace), gateLimit());
}

void AcquireTask::leaveGate() {
  executed_ = false;
  const HoldPtr hold = std::exchange(hold_, nullptr);
  if (hold) {
    engine_->gates().leave(*hold);
  }
}

AcquireTask::Step AcquireTask::failed(Error error) {
  if (phase_ == Phase::settle) {
    if (engine_->outages().tells(OutageLog::Event::settling)) {
      engine_->log().write(LogLevel::warning,
                           fmt::format("{} \"{}\": owner {}: a request whose reply was lost could "
                                       "not be settled: {}",
                                       scripts_->noun(),
                                       escapeForDisplay(scripts_->name),
                                       ownerField_,
                                       error.what()));
    }
    const Step step = tell([&](AcquireFsm& fsm) {
      return fsm.settleFailed(
          doubtful(error, "whether it was obtained is not known; if it was, it is given back"));
    });
    if (step == Step::end) {
      leaveGate();
    }
    return step;
  }
  if (error.errc() == Errc::reentry && before_ == 0 && !std::exchange(dropped_, true)) {
    // What the server has is a hold that came too late or counts as lost: away with it.
    dropsAll_ = true;
    return tell([](AcquireFsm& fsm) { return fsm.unknown(); });
  }
  leaveGate();
  if (error.errc() == Errc::wouldDeadlock && !params_.wait.isPositive() && !params_.willRetry) {
    // Whoever does not wait for itself is just refused.
    return tell([](AcquireFsm& fsm) { return fsm.refused(); });
  }
  return tell([&](AcquireFsm& fsm) { return fsm.failed(std::move(error)); });
}

/// To the end of the line, or back to its place there. Says what to do if that is not possible.
AcquireTask::Step AcquireTask::sleepInQueue() {
  const LockTraits& traits = scripts_->traits;
  WaitTerms terms;
  terms.channel = channel();
  terms.rule = traits.wakeRule;
  terms.lane = traits.lane;
  terms.need = traits.need;
  terms.opensOn = traits.opensOn;
  terms.poll = scripts_->pollAfter(attempts_);
  // Nobody but this owner can use a channel of its own.
  terms.lingers = !traits.channelPerOwner;
  try {
    engine_->waiting().queue(
        *this, terms, std::exchange(mark_, std::nullopt), std::exchange(tried_, false), remaining_);
  } catch (const std::bad_alloc&) {
    return tell([](AcquireFsm& fsm) {
      return fsm.stopped(Error(Errc::connectionFailed, "there is no memory left to wait with"));
    });
  }
  return Step::none;
}

void AcquireTask::leaveQueue() {
  bool obtained = false;
  {
    const MutexLock lock(mutex_);
    obtained = fsm_.result() == AcquireFsm::Result::granted;
  }
  // A hold that nobody renews may end without a message.
  engine_->waiting().leave(
      *this, obtained, params_.lease ? lease_ : std::chrono::milliseconds::zero());
}

/// There is no entry in the server's queue, or none any more.
void AcquireTask::leaveQueueEntry() noexcept {
  if (std::exchange(enrolled_, false)) {
    static_cast<void>(engine_->closing().entryAbandoned(queueEntry_));
    engine_->closing().entryLeft();
  }
}

/// Gives up the entry in the server's queue, after everything else: nothing is on its way that
/// could take it again.
void AcquireTask::withdraw() {
  if (!std::exchange(enrolled_, false)) {
    return;
  }
  if (!engine_->closing().entryAbandoned(queueEntry_)) {
    // It is still needed by another call of this owner.
    engine_->closing().entryLeft();
    return;
  }
  const auto sendBefore = engine_->now() + engine_->options().fairWaiterLease;
  auto call = makeIntrusive<Withdrawal>(engine_, scripts_, ownerField_, sendBefore);
  Dispatcher& dispatcher = engine_->dispatcher();
  if (dispatcher.onLoopThread() || !dispatcher.direct(*call)) {
    dispatcher.start(call, sendBefore);
    return;
  }
  // The caller may try again at once, and must not meet its own ghost.
  switch (dispatcher.await(*call, engine_->now() + kReplyGrace)) {
    case Dispatcher::Direct::replied:
    case Dispatcher::Direct::failed:
      engine_->closing().entryLeft();
      return;
    case Dispatcher::Direct::trouble:
      dispatcher.resume(call, sendBefore);
      return;
    case Dispatcher::Direct::timedOut:
    case Dispatcher::Direct::interrupted:
      return;
  }
}

AcquireTask::Step AcquireTask::replied() {
  return phase_ == Phase::attempt ? repliedAttempt() : repliedSettle();
}

AcquireTask::Step AcquireTask::repliedAttempt() {
  const auto parsed = scripts_->parseAcquire(reply());
  if (!parsed) {
    return failed(Error(Errc::protocolError, "unexpected reply to an acquire request"));
  }
  if (parsed->granted) {
    grant_.token = parsed->token;
    kept_ = parsed->kept;
    return granted(parsed->count);
  }
  leaveGate();
  remaining_ = parsed->remaining;
  return tell([](AcquireFsm& fsm) { return fsm.refused(); });
}

AcquireTask::Step AcquireTask::granted(std::int64_t count) {
  leaveQueueEntry();
  if (tooLate()) {
    // The lease ran out on the way here. What may be left of it on the server counts as nothing:
    // the next attempt finds it and settles.
    leaveGate();
    remaining_ = std::chrono::milliseconds::zero();
    return tell([](AcquireFsm& fsm) { return fsm.refused(); });
  }
  if (!scripts_->traits.changesState) {
    // Nothing to give back if the caller has left.
    leaveGate();
    const Step step =
        tell([](AcquireFsm& fsm) { return fsm.answered() ? fsm.refused() : fsm.granted(false); });
    if (step == Step::finish) {
      engine_->counters().acquired.fetch_add(1, std::memory_order_relaxed);
    }
    return step;
  }
  const bool tooMany = count > before_ + 1;
  if (tooMany && before_ == 0 && grant_.token && !std::exchange(dropped_, true)) {
    // A hold that was lost is still there, and its token: what is taken anew has one of its own.
    dropsAll_ = true;
    return tell([](AcquireFsm& fsm) { return fsm.unknown(); });
  }
  const Step step = tell([&](AcquireFsm& fsm) {
    if (engine_->closed() && fsm.stopped(closedError()) != Step::none) {
      static_cast<void>(fsm.granted(tooMany));
      return Step::finishAndSettleBack;
    }
    return fsm.granted(tooMany);
  });
  if (step == Step::finish && !keepsHold()) {
    engine_->counters().acquired.fetch_add(1, std::memory_order_relaxed);
    leaveGate();
  } else if (step == Step::finish) {
    HoldKeeper::GrantTerms terms;
    terms.sentAt = sentAt_;
    terms.lease = lease_;
    terms.watched = !params_.lease;
    if (params_.maxHold) {
      terms.maxHold = params_.maxHold->nanoseconds();
    }
    terms.wantsHandle = params_.wantsHandle;
    terms.afresh = params_.afresh;
    terms.label = params_.label;
    terms.kept = kept_;
    grant_.hold = engine_->holds().granted(*hold_, before_, static_cast<int>(count), terms);
    grant_.count = static_cast<int>(count);
    if (settledRemaining_) {
      // What settling found may be left over from an earlier request.
      engine_->holds().limit(*hold_, submittedAt(), *settledRemaining_);
    }
    leaveGate();
  }
  return step;
}

AcquireTask::Step AcquireTask::repliedSettle() {
  const auto parsed = scripts_->parseSettle(reply());
  if (!parsed) {
    return failed(Error(Errc::protocolError, "unexpected reply to a settle request"));
  }
  const bool held = parsed->now > before_;
  if (held && !tooLate()) {
    const bool answered =
        tell([](AcquireFsm& fsm) { return fsm.answered() ? Step::end : Step::none; }) == Step::end;
    if (!answered) {
      grant_.token = parsed->token;
      kept_.reset();
      settledRemaining_ = parsed->remaining;
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
  const MutexLock lock(mutex_);
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
  try {
    return runHere();
  } catch (const std::bad_alloc&) {
    giveUp();
    throw;
  }
}

/// The caller gets the exception, and nothing else of this call.
void AcquireTask::giveUp() noexcept {
  stopCallback_.reset();
  const auto error = [] { return Error(Errc::overloaded, kNoMemory); };
  try {
    static_cast<void>(tell([&](AcquireFsm& fsm) { return fsm.stopped(error()); }));
    leaveQueue();
    if (hold_ && executed_) {
      // What it may have obtained is given back as if the reply had been lost.
      moveToLoop();
      engine_->dispatcher().post(
          [self = TaskPtr(this)] { self->finished({Outcome::Kind::unknown}); });
      return;
    }
    leaveQueueEntry();
    leaveGate();
  } catch (const std::exception& failure) {
    engine_->log().write(LogLevel::error, failure.what());
  }
}

Result<AcquireTask::Acquired> AcquireTask::runHere() {
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
        stopCallback_.reset();
        withdraw();
        leaveQueue();
        return takeResult();
      case Step::finishEarly:
        stopCallback_.reset();
        leaveQueue();
        return takeResult();
      case Step::none:
        break;
      case Step::finishAndSettleBack:
        // This thread has its answer; the loop, which may be ending, need not give it.
        moveToLoop();
        engine_->dispatcher().post([self = TaskPtr(this)] { self->perform(Step::settleBack); });
        stopCallback_.reset();
        leaveQueue();
        return takeResult();
      case Step::settleKeep:
      case Step::settleBack:
      case Step::end:
        moveToLoop();
        engine_->dispatcher().post([self = TaskPtr(this), step] { self->perform(step); });
        break;
    }
    Result<Acquired> result = waitForLoop();
    stopCallback_.reset();
    return result;
  }
}

AcquireTask::Step AcquireTask::attemptHere() {
  if (!enterGate()) {
    return Step::none;
  }
  if (mustNotBegin()) {
    return failed(closedError());
  }
  compose();
  Dispatcher& dispatcher = engine_->dispatcher();
  if (dispatcher.direct(*this)) {
    return awaitHere();
  }
  moveToLoop();
  dispatcher.start(Dispatcher::CallPtr(this), sendBefore());
  return Step::none;
}

AcquireTask::Step AcquireTask::awaitHere() {
  Dispatcher& dispatcher = engine_->dispatcher();
  executed_ = true;
  switch (dispatcher.await(*this, later(deadline_, kReplyGrace))) {
    case Dispatcher::Direct::replied:
      return replied();
    case Dispatcher::Direct::failed:
      return failed(dispatcher.takeError(*this));
    case Dispatcher::Direct::trouble:
      moveToLoop();
      dispatcher.resume(Dispatcher::CallPtr(this), sendBefore());
      return Step::none;
    case Dispatcher::Direct::timedOut:
    case Dispatcher::Direct::interrupted:
      break;
  }
  return leaveNow();
}

/// The caller does not wait any longer; what is under way goes on without it.
AcquireTask::Step AcquireTask::leaveNow() {
  const bool stopped = (signals() & (kStopped | kClosed)) != 0 || engine_->closed();
  const MutexLock lock(mutex_);
  onLoop_ = true;
  // None: the loop was quicker, its answer is on the way.
  return stopped ? fsm_.stopped(stopError()) : fsm_.expired(lateError());
}

AcquireTask::Step AcquireTask::sleepHere() {
  if (const Step step = sleepInQueue(); step != Step::none) {
    return step;
  }
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
    if (!leaving && (stopped || engine_->now() >= deadline_)) {
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
  for (;;) {
    const std::uint32_t seen = signals();
    if ((seen & kAnswered) != 0) {
      return std::move(*result_);
    }
    const auto until = limit();
    const bool stopped = (seen & (kStopped | kClosed)) != 0 || engine_->closed();
    if (!leaving && (stopped || engine_->now() >= until)) {
      const Step step = leaveNow();
      if (step == Step::finish || step == Step::finishEarly) {
        if (step == Step::finish) {
          withdraw();
        }
        leaveQueue();
        return takeResult();
      }
      leaving = true;
      continue;
    }
    sleepOrClose(seen, leaving ? Clock::time_point::max() : until);
  }
}

// Events from elsewhere.

void AcquireTask::stopRequested() noexcept {
  signal(kStopped);
  if (!inBackground()) {
    interrupt();
    return;
  }
  engine_->dispatcher().post([self = TaskPtr(this)] {
    self->perform(self->tell([&](AcquireFsm& fsm) { return fsm.stopped(self->stopError()); }));
  });
}

void AcquireTask::shutDown() noexcept {
  signal(kClosed);
  if (!inBackground()) {
    interrupt();
    return;
  }
  engine_->dispatcher().post([self = TaskPtr(this)] {
    self->perform(self->tell([&](AcquireFsm& fsm) { return fsm.stopped(self->closedError()); }));
  });
}

void AcquireTask::turn() noexcept {
  guarded([this] { takeTurn(); });
}

void AcquireTask::takeTurn() {
  bool onLoop = false;
  const bool nothingToTry = happened();
  Step step = Step::none;
  {
    const MutexLock lock(mutex_);
    onLoop = onLoop_;
    step = nothingToTry ? fsm_.happened() : fsm_.turn();
  }
  if (step == Step::finish) {
    engine_->counters().acquired.fetch_add(1, std::memory_order_relaxed);
    finishSleeper(onLoop);
    return;
  }
  if (step != Step::attempt) {
    return;
  }
  if (onLoop) {
    if (engine_->dispatcher().onLoopThread()) {
      attemptOnLoop();
    } else {
      engine_->dispatcher().post(
          [self = TaskPtr(this)] { self->guarded([&] { self->attemptOnLoop(); }); });
    }
    return;
  }
  // The request goes out at once, and its thread wakes up while it is on the way.
  const bool entered = enterGate();
  if (entered && mustNotBegin()) {
    moveToLoop();
    engine_->dispatcher().post(
        [self = TaskPtr(this)] { self->perform(self->failed(self->closedError())); });
    signal(kMoved);
    return;
  }
  if (entered) {
    compose();
    if (engine_->dispatcher().direct(*this)) {
      signal(kSent);
      return;
    }
  }
  moveToLoop();
  if (entered) {
    engine_->dispatcher().start(Dispatcher::CallPtr(this), sendBefore());
  }
  signal(kMoved);
}

/// The wait is over without another request.
void AcquireTask::finishSleeper(bool onLoop) {
  if (!onLoop) {
    moveToLoop();
    leaveQueue();
    answer(takeResult());
    signal(kMoved);
  } else {
    // Not from here: its handler must not keep the others from their turns.
    engine_->dispatcher().post([self = TaskPtr(this)] { self->perform(Step::finish); });
  }
}

void AcquireTask::moveToLoop() {
  const MutexLock lock(mutex_);
  onLoop_ = true;
}

void AcquireTask::gateOpened() noexcept {
  engine_->dispatcher().post([self = TaskPtr(this)] {
    self->moveToLoop();
    self->signal(kMoved);
    self->guarded([&] { self->sendOnLoop(); });
  });
}

void AcquireTask::gateClosed() noexcept {
  engine_->dispatcher().post([self = TaskPtr(this)] {
    self->moveToLoop();
    self->signal(kMoved);
    self->phase_ = Phase::attempt;
    self->perform(self->failed(self->closedError()));
  });
}

void AcquireTask::finished(Outcome outcome) noexcept {
  guarded([&] {
    executed_ = hold_ && outcome.kind != Outcome::Kind::failed;
    handle(std::move(outcome));
  });
}

void AcquireTask::handle(Outcome outcome) {
  switch (outcome.kind) {
    case Outcome::Kind::replied:
      perform(replied());
      return;
    case Outcome::Kind::failed:
      perform(outcome.noTimeLeft ? notSent(std::move(*outcome.error))
                                 : failed(std::move(*outcome.error)));
      return;
    case Outcome::Kind::unknown:
      break;
  }
  if (!scripts_->traits.changesState) {
    // Nothing was left behind, whether it was executed or not.
    perform(failed(Error(Errc::connectionFailed, "no node answered")));
    return;
  }
  engine_->counters().lostReplies.fetch_add(1, std::memory_order_relaxed);
  perform(tell([](AcquireFsm& fsm) { return fsm.unknown(); }));
}

// On the loop thread.

void AcquireTask::startInBackground(Handler handler) {
  handler_ = std::move(handler);
  background_ = true;
  moveToLoop();
  engine_->dispatcher().post([self = TaskPtr(this)] {
    self->guarded([&] {
      if (self->params_.stop.stop_possible()) {
        self->stopCallback_.emplace(self->params_.stop,
                                    [raw = self.get()] { raw->stopRequested(); });
      }
      if (self->deadline_ != Clock::time_point::max()) {
        self->armDeadline(self->deadline_);
      }
      self->perform(self->begin());
    });
  });
}

void AcquireTask::armDeadline(Clock::time_point when) {
  if (!deadlineTimer_) {
    deadlineTimer_ = engine_->env()->makeTimer([this] { onDeadline(); });
  }
  deadlineTimer_->armAt(when);
}

void AcquireTask::onDeadline() {
  const TaskPtr self(this);
  const auto until = limit();
  const bool queued =
      tell([](AcquireFsm& fsm) { return fsm.queued() ? Step::queue : Step::none; }) == Step::queue;
  if (engine_->now() < (queued ? deadline_ : until)) {
    deadlineTimer_->armAt(queued ? deadline_ : until);
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
      perform(sleepInQueue());
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
  if (enterGate()) {
    sendOnLoop();
  } else if (background_ && deadline_ == Clock::time_point::max()) {
    armDeadline(gateLimit());
  }
}

void AcquireTask::sendOnLoop() {
  gateLimit_.store(Clock::time_point::max().time_since_epoch().count());
  if (!hold_) {
    // The gate was passed on to this task while it waited there.
    hold_ = engine_->gates().entry(scripts_, owner_);
  }
  const bool wanted =
      tell([](AcquireFsm& fsm) { return fsm.answered() ? Step::end : Step::none; }) == Step::none;
  if (!wanted) {
    leaveGate();
    perform(tell([this](AcquireFsm& fsm) { return fsm.failed(lateError()); }));
    return;
  }
  if (mustNotBegin()) {
    perform(failed(closedError()));
    return;
  }
  before_ = engine_->gates().countOf(*hold_);
  compose();
  engine_->dispatcher().start(Dispatcher::CallPtr(this), sendBefore());
}

void AcquireTask::settle(bool keep) {
  const bool limited = scripts_->traits.settleWithin.count() > 0;
  if (phase_ == Phase::attempt && limited) {
    settleBefore_ = engine_->now() + scripts_->traits.settleWithin;
  }
  phase_ = Phase::settle;
  keep = keep && !std::exchange(dropsAll_, false);
  keeps_ = keep;
  composeSettling();
  // For what is to be kept a caller waits, who is to be told what keeps it from its answer.
  setPersistent(!keep);
  // Once the lease is over there is nothing left to settle. What has none must not be left behind.
  const bool endless = !keepsHold() && !params_.lease;
  const auto leaseOver =
      limited || endless ? settleBefore_ : engine_->now() + lease_ + engine_->callTimeout();
  const auto before = keep ? std::min(sendBefore(), settleBefore_) : leaseOver;
  engine_->dispatcher().start(Dispatcher::CallPtr(this), before);
}

void AcquireTask::conclude() {
  if (background_ || (signals() & kAnswered) == 0) {
    leaveQueue();
    answer(takeResult());
  }
}

void AcquireTask::end() {
  leaveGate();
  withdraw();
  deadlineTimer_.reset();
  if (background_) {
    stopCallback_.reset();
  }
}

}  // namespace rlock::detail
