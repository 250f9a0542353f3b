// SPDX-License-Identifier: Apache-2.0

// How LockEngine keeps what is held: renewals, and what it hears of forced releases by others.

#include "engine/lock_engine.hpp"
#include "engine/release_task.hpp"
#include <rlock/detail/executor/inspection_scripts.hpp>
#include <rlock/detail/executor/naming.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <new>
#include <utility>

namespace rlock::detail {

namespace {

/// A renewal is not kept for later: by then its hold may be over. The watchdog comes again.
constexpr std::chrono::milliseconds kRenewalPatience{5};

/// Renewals under way at once. After a reconnection all holds are due together, and the requests of
/// the application must not stand behind all of them.
constexpr int kRenewalsAtOnce = 16;

/// Holds shorter than this need not hear that they were ended by force.
constexpr std::chrono::milliseconds kListenAfter{100};

/// What the server says of a whole request although it may mean one key of many.
bool mayBeOneKeys(const Error& error) noexcept {
  switch (error.errc()) {
    case Errc::denied:
    case Errc::wrongType:
    case Errc::invalidArgument:
    case Errc::serverError:
      return true;
    default:
      return false;
  }
}

}  // namespace

/// One request that renews several holds.
class LockEngine::RenewalBatch final : public Call {
 public:
  RenewalBatch(std::shared_ptr<LockEngine> engine, std::vector<HoldPtr> holds)
      : engine_(std::move(engine)), holds_(std::move(holds)) {
    owners_.reserve(holds_.size());
    std::vector<RenewalRequest> renewals;
    renewals.reserve(holds_.size());
    for (const HoldPtr& hold : holds_) {
      renewals.push_back({&scriptsOf(*hold),
                          owners_.emplace_back(engine_->ownerField(hold->owner)),
                          engine_->options_.watchdogTimeout});
    }
    scriptsOf(*holds_.front()).renewals()(*this, renewals);
    setFollowsUp(true);
  }

  [[nodiscard]] const std::vector<HoldPtr>& holds() const noexcept { return holds_; }

 private:
  void finished(Outcome outcome) noexcept override {
    engine_->renewalDone(*this, std::move(outcome));
    engine_->renewalEnded();
  }

  const std::shared_ptr<LockEngine> engine_;
  const std::vector<HoldPtr> holds_;
  std::vector<std::string> owners_;
};

/// Asks whether one hold is still there. What a renewal of a millisecond answers: it never
/// shortens.
class LockEngine::HoldCheck final : public Call {
 public:
  HoldCheck(std::shared_ptr<LockEngine> engine, Doubt doubt)
      : engine_(std::move(engine)),
        doubt_(std::move(doubt)),
        owner_(engine_->ownerField(doubt_.hold->owner)) {
    const LockScripts& scripts = scriptsOf(*doubt_.hold);
    const RenewalRequest request{&scripts, owner_, std::chrono::milliseconds(1)};
    scripts.renewals()(*this, std::span(&request, 1));
    setRepeatable(true);
  }

 private:
  void finished(Outcome outcome) noexcept override {
    if (outcome.kind == Outcome::Kind::replied && reply().isArray() &&
        reply().elements.size() == 1 && reply().elements[0].isInteger() &&
        reply().elements[0].integer == 0) {
      engine_->holdIsGone(doubt_);
    }
  }

  const std::shared_ptr<LockEngine> engine_;
  const Doubt doubt_;
  const std::string owner_;
};

/// Notes the labels of holds, or takes them away. Nobody waits for it: they are only shown.
class LockEngine::LabelCall final : public Call {
 public:
  LabelCall(std::shared_ptr<LockEngine> engine, std::vector<LabelNote> notes)
      : engine_(std::move(engine)), notes_(std::move(notes)) {
    composeLabels(*this, notes_, keys_);
  }

 private:
  void finished(Outcome outcome) noexcept override {
    if (outcome.kind == Outcome::Kind::failed && mayBeOneKeys(*outcome.error) &&
        notes_.size() > 1) {
      const auto half = notes_.begin() + static_cast<std::ptrdiff_t>(notes_.size() / 2);
      engine_->noteLabels({half, notes_.end()});
      engine_->noteLabels({notes_.begin(), half});
    }
  }

  const std::shared_ptr<LockEngine> engine_;
  const std::vector<LabelNote> notes_;
  std::vector<std::string> keys_;
};

void LockEngine::noteLabel(const Hold& hold,
                           const std::string& label,
                           std::chrono::milliseconds atLeast) {
  noteLabels({{std::string(hold.name), ownerField(hold.owner), label, atLeast}});
}

void LockEngine::noteLabels(std::vector<LabelNote> notes) {
  dispatcher_->start(makeIntrusive<LabelCall>(shared_from_this(), std::move(notes)),
                     now() + callTimeout());
}

// Renewal.

bool LockEngine::watchdogNeedsLoop() {
  const auto due = watchdog_.nextDue();
  if (due >= watchdogArmed_) {
    return false;
  }
  watchdogArmed_ = due;
  return true;
}

void LockEngine::wakeWatchdog() {
  dispatcher_->post([self = shared_from_this()] {
    if (self->closed()) {
      return;
    }
    if (!self->listenTimer_->armed()) {
      self->acquiredBefore_ = self->counters_.acquired.load(std::memory_order_relaxed);
      self->listenTimer_->armAt(self->now() + kListenAfter);
    }
    Clock::time_point due{};
    {
      const MutexLock lock(self->holdsMutex_);
      due = self->watchdogArmed_ = self->watchdog_.nextDue();
    }
    self->watchdogTimer_->armAt(due);
  });
}

// Other clients' forced releases. A client that holds something listens on a channel of its own:
// one for all of its locks, so that it costs nothing per lock.

bool LockEngine::needsToListen() {
  return !std::exchange(listening_, true);
}

void LockEngine::serveListening() {
  if (closed()) {
    return;
  }
  const std::uint64_t acquired = counters_.acquired.load(std::memory_order_relaxed);
  const Clock::duration linger = options_.subscriptionLinger;
  const auto now = this->now();
  bool wanted = acquired != std::exchange(acquiredBefore_, acquired);
  {
    const MutexLock lock(holdsMutex_);
    if (wanted || watchdog_.size() > 0) {
      heldLast_ = now;
    }
    wanted = heldLast_ == now || (subscribedToSelf_ && now - heldLast_ < linger);
    listening_ = wanted;
  }
  if (wanted) {
    // Looking four times as often as needed keeps the end of the linger within a quarter of it.
    listenTimer_->armAt(
        std::max(std::min(now + linger / 4, heldLast_ + linger), now + kListenAfter));
  }
  if (wanted != std::exchange(subscribedToSelf_, wanted)) {
    if (wanted) {
      dispatcher_->subscribe(clientChannel_);
    } else {
      dispatcher_->unsubscribe(clientChannel_);
    }
  }
}

void LockEngine::heardOfForce(std::string_view name) {
  std::vector<Doubt> holds;
  {
    const MutexLock lock(holdsMutex_);
    for (const HoldPtr& hold : ledger_.named(name)) {
      if (hold->busy) {
        hold->doubtedAt = now();
      }
      if (hold->count > 0 && !hold->lost) {
        holds.push_back({hold, hold->grantedAt});
      }
    }
  }
  // The message may be older than the hold.
  check(std::move(holds));
}

void LockEngine::check(std::vector<Doubt> holds) {
  for (Doubt& doubt : holds) {
    try {
      dispatcher_->start(makeIntrusive<HoldCheck>(shared_from_this(), std::move(doubt)),
                         now() + callTimeout());
    } catch (const std::bad_alloc&) {
      // What was booked stays right, and the next renewal finds out, or the end of the lease.
      return;
    }
  }
}

void LockEngine::holdIsGone(Doubt doubt) {
  Hold& hold = *doubt.hold;
  bool unsure = false;
  std::vector<Watchdog::Lost> lost;
  {
    const MutexLock lock(holdsMutex_);
    if (hold.count == 0 || hold.lost) {
      return;
    }
    // What was granted since was not asked about: a thread that waits for its own reply may book it
    // before the loop comes to an earlier one. A request under way may have been executed before
    // the hold was ended, or after.
    unsure = hold.busy || hold.grantedAt != doubt.grantedAt;
    if (hold.busy) {
      hold.doubtedAt = now();
    }
    if (!unsure) {
      Watchdog::loseAll(hold, LossReason::forced, lost);
      watchdog_.retire(hold);
      hold.count = 0;
      ledger_.forgetIfUnused(hold);
    }
    doubt.grantedAt = hold.grantedAt;
  }
  if (!unsure) {
    announce(std::move(lost));
  } else if (doubt.repeats-- > 0) {
    check({doubt});
  }
}

void LockEngine::serveWatchdog() {
  if (closed()) {
    return;
  }
  Watchdog::Work work;
  Clock::time_point due{};
  {
    const MutexLock lock(holdsMutex_);
    work = watchdog_.collect(now());
    for (const HoldPtr& hold : work.gone) {
      hold->count = 0;
      ledger_.forgetIfUnused(*hold);
    }
    due = watchdogArmed_ = watchdog_.nextDue();
  }
  watchdogTimer_->armAt(due);
  announce(std::move(work.lost));
  renew(std::move(work.renew));
}

void LockEngine::renew(std::vector<HoldPtr> holds) {
  const auto batchSize = static_cast<std::size_t>(options_.watchdogBatchSize);
  // Holds of different forms need different requests; each keeps its order.
  std::stable_sort(holds.begin(), holds.end(), [](const HoldPtr& a, const HoldPtr& b) {
    return std::less<>()(scriptsOf(*a).renewals(), scriptsOf(*b).renewals());
  });
  for (std::size_t first = 0, last = 0; first < holds.size(); first = last) {
    const ComposeRenewals form = scriptsOf(*holds[first]).renewals();
    while (last < holds.size() && last - first < batchSize &&
           scriptsOf(*holds[last]).renewals() == form &&
           (last == first || !(holds[last]->renewedAlone || holds[first]->renewedAlone))) {
      ++last;
    }
    std::vector<HoldPtr> batch(
        std::make_move_iterator(holds.begin() + static_cast<std::ptrdiff_t>(first)),
        std::make_move_iterator(holds.begin() + static_cast<std::ptrdiff_t>(last)));
    startRenewal(makeIntrusive<RenewalBatch>(shared_from_this(), std::move(batch)));
  }
}

void LockEngine::startRenewal(IntrusivePtr<RenewalBatch> batch) {
  renewals_.push(std::move(batch));
  serveRenewals();
}

void LockEngine::renewalEnded() {
  --renewalsUnderWay_;
  serveRenewals();
}

void LockEngine::serveRenewals() {
  // One that fails at once ends inside this.
  if (std::exchange(servingRenewals_, true)) {
    return;
  }
  while (renewalsUnderWay_ < kRenewalsAtOnce && !renewals_.empty()) {
    const auto next = renewals_.pop();
    if (!closed()) {
      ++renewalsUnderWay_;
      sendRenewal(IntrusivePtr<RenewalBatch>(static_cast<RenewalBatch*>(next.get())));
    }
  }
  servingRenewals_ = false;
}

void LockEngine::sendRenewal(IntrusivePtr<RenewalBatch> batch) {
  dispatcher_->start(std::move(batch), now() + kRenewalPatience);
}

/// The server refused a batch, perhaps for one of its keys: the others are renewed without it.
bool LockEngine::splitRenewal(const RenewalBatch& batch, const Outcome& outcome) {
  if (outcome.kind != Outcome::Kind::failed || !mayBeOneKeys(*outcome.error) || closed()) {
    return false;
  }
  std::vector<HoldPtr> due;
  {
    const MutexLock lock(holdsMutex_);
    for (const HoldPtr& hold : batch.holds()) {
      if (hold->renewing) {
        hold->renewedAlone = batch.holds().size() == 1;
        due.push_back(hold);
      }
    }
  }
  if (due.size() < 2) {
    return false;
  }
  const auto half = due.begin() + static_cast<std::ptrdiff_t>(due.size() / 2);
  renew({half, due.end()});
  renew({due.begin(), half});
  return true;
}

void LockEngine::renewalDone(RenewalBatch& batch, Outcome outcome) {
  if (splitRenewal(batch, outcome)) {
    return;
  }
  const auto now = this->now();
  const bool answered = outcome.kind == Outcome::Kind::replied && batch.reply().isArray() &&
                        batch.reply().elements.size() == batch.holds().size();
  std::vector<Watchdog::Lost> lost;
  std::vector<LabelNote> labelled;
  std::string refusal;
  Clock::time_point due{};
  {
    const MutexLock lock(holdsMutex_);
    for (std::size_t i = 0; i < batch.holds().size(); ++i) {
      const HoldPtr& hold = batch.holds()[i];
      if (!hold->renewing) {
        continue;
      }
      const Reply* reply = answered ? &batch.reply().elements[i] : nullptr;
      if (reply == nullptr || !reply->isInteger()) {
        counters_.renewalFailures.fetch_add(1, std::memory_order_relaxed);
        watchdog_.renewalFailed(*hold, now);
        if (reply != nullptr) {
          refusal = reply->text;
        }
      } else if (reply->integer == 1) {
        counters_.renewals.fetch_add(1, std::memory_order_relaxed);
        watchdog_.renewed(*hold, batch.submittedAt(), now);
        hold->renewedAlone = false;
        if (!hold->label.empty()) {
          labelled.push_back({std::string(hold->name),
                              ownerField(hold->owner),
                              hold->label,
                              options_.watchdogTimeout});
        }
      } else {
        watchdog_.retire(*hold);
        Watchdog::loseAll(*hold, LossReason::refused, lost);
        hold->count = 0;
        ledger_.forgetIfUnused(*hold);
      }
    }
    due = watchdogArmed_ = watchdog_.nextDue();
  }
  if (!closed()) {
    watchdogTimer_->armAt(due);
  }
  if (!labelled.empty()) {
    noteLabels(std::move(labelled));
  }
  if (answered && refusal.empty()) {
    outage_.over(*log_, now);
  } else if (tells(OutageLog::Event::renewal, batch.holds().size())) {
    log_->write(LogLevel::warning,
                fmt::format("{} holds not renewed, trying again: {}",
                            batch.holds().size(),
                            outcome.error      ? outcome.error->what()
                            : !refusal.empty() ? refusal.c_str()
                                               : "the reply was lost"));
  }
  announce(std::move(lost));
}

void LockEngine::announce(std::vector<Watchdog::Lost> lost) {
  for (const Watchdog::Lost& entry : lost) {
    tellLost(entry);
    giveBack(entry);
  }
}

void LockEngine::giveBack(const Watchdog::Lost& lost) {
  // Where the server has said so, there is nothing left; a lease that ran out is over in a moment;
  // and what a thread has left is left to expire.
  const bool left = lost.reason == LossReason::maxHold || lost.reason == LossReason::unreachable;
  if (left && !refuse(false)) {
    ReleaseTask::releaseQuietly(shared_from_this(),
                                std::static_pointer_cast<const LockScripts>(lost.hold->keepAlive),
                                {lost.hold->owner, lost.line});
  }
}

void LockEngine::tellLost(const Watchdog::Lost& lost) {
  const Hold& hold = *lost.hold;
  const std::string& label = lost.label;
  const LossReason reason = lost.reason;
  counters_.lost.fetch_add(1, std::memory_order_relaxed);
  if (lost.handle) {
    lost.handle->signalLoss();
  }
  const LogLevel level = reason == LossReason::clientClosed ? LogLevel::info
                         : reason == LossReason::expired    ? LogLevel::warning
                                                            : LogLevel::error;
  if (reason != LossReason::unreachable || tells(OutageLog::Event::loss)) {
    log_->write(level,
                fmt::format("lock \"{}\": owner {}{}{} lost its hold: {}",
                            escapeForDisplay(hold.name),
                            ownerField(hold.owner),
                            label.empty() ? "" : ", ",
                            escapeForDisplay(label),
                            toString(reason)));
  }
  if (options_.onLost) {
    deliver([self = shared_from_this(),
             told = LostHold{std::string(hold.name), ownerField(hold.owner), reason}] {
      self->options_.onLost(told);
    });
  }
}

void LockEngine::reconnected() {
  if (closed()) {
    return;
  }
  {
    const MutexLock lock(holdsMutex_);
    watchdog_.renewAll(now());
  }
  serveWatchdog();
}

}  // namespace rlock::detail
