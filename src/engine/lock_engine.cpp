// SPDX-License-Identifier: Apache-2.0
#include "engine/lock_engine.hpp"

#include "executor/permit_scripts.hpp"
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/executor/naming.hpp>
#include <rlock/duration.hpp>

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <thread>
#include <utility>

namespace rlock::detail {

/// A request about it may obtain something that must not stay behind.
bool LockEngine::mayObtain(const Hold& hold) noexcept {
  return scriptsOf(hold).traits.changesState;
}

LockEngine::LockEngine(std::string clientId,
                       const Options& options,
                       std::shared_ptr<const Logger> log,
                       std::shared_ptr<net::Loop> loop)
    : clientId_(std::move(clientId)),
      clientChannel_(clientChannel(clientId_)),
      options_(options),
      log_(std::move(log)),
      forkGeneration_(forkGeneration()),
      executor_(std::make_shared<Executor>(
          std::move(loop), options_, log_, static_cast<ExecutorEvents&>(*this))),
      // Longer than any request is repeated or settled.
      markers_(
          std::make_shared<MarkerPool>(kMarkerLife + callTimeout() + 2 * options_.commandTimeout)),
      watchdog_(options_.watchdogTimeout),
      hub_(options_.safetyPoll, options_.subscriptionLinger),
      watchdogTimer_(executor_->loop(), [this] { serveWatchdog(); }),
      hubTimer_(executor_->loop(), [this] { serveHub(); }),
      listenTimer_(executor_->loop(), [this] { serveListening(); }),
      delayed_(executor_->loop(), [this] { serveCalls(); }) {}

LockEngine::~LockEngine() = default;

void LockEngine::open(UniqueFunction<void(Result<void>)> ready) {
  addThreadEndListener(weak_from_this());
  executor_->open(std::move(ready));
}

std::string LockEngine::ownerField(OwnerId owner) const {
  std::string field;
  field.reserve(clientId_.size() + 21);
  field += clientId_;
  field += ':';
  field += std::to_string(owner.value);
  return field;
}

std::chrono::milliseconds LockEngine::callTimeout() const noexcept {
  return options_.callTimeout.count() > 0 ? options_.callTimeout : 2 * options_.commandTimeout;
}

std::optional<Error> LockEngine::refuse(bool blocking) const {
  if (forkGeneration() != forkGeneration_) {
    return Error(Errc::forked);
  }
  if (closed()) {
    return Error(Errc::closed, "the client was closed");
  }
  if (blocking && executor_->onLoopThread()) {
    return Error(Errc::wouldDeadlock,
                 "a blocking call on the loop thread would wait for itself; use its async twin");
  }
  return std::nullopt;
}

std::optional<Error> LockEngine::tooMany() const {
  if (operations_.load(std::memory_order_relaxed) <= options_.maxOperations) {
    return std::nullopt;
  }
  return Error(Errc::overloaded,
               "as many operations as maxOperations allows (" +
                   std::to_string(options_.maxOperations) + ") are under way");
}

Error LockEngine::describe(Error error,
                           const LockScripts& scripts,
                           OwnerId owner,
                           Clock::time_point since) const {
  ErrorContext context;
  context.key = scripts.name;
  context.kind = scripts.noun();
  if (scripts.traits.holdKind != HoldKind::none) {
    context.owner = ownerField(owner);
  }
  context.node = executor_->node();
  context.elapsed = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - since);
  return error.withContext(context);
}

Stats LockEngine::stats() const {
  const auto read = [](const std::atomic<std::uint64_t>& counter) {
    return counter.load(std::memory_order_relaxed);
  };
  Stats stats;
  stats.acquired = read(counters_.acquired);
  stats.contended = read(counters_.contended);
  stats.refused = read(counters_.refused);
  stats.released = read(counters_.released);
  stats.renewals = read(counters_.renewals);
  stats.renewalFailures = read(counters_.renewalFailures);
  stats.lost = read(counters_.lost);
  stats.lostReplies = read(counters_.lostReplies);
  stats.undone = read(counters_.undone);
  stats.messages = read(counters_.messages);
  stats.wakeUps = read(counters_.wakeUps);
  stats.safetyPolls = read(counters_.safetyPolls);
  stats.handlerFailures = read(counters_.handlerFailures);
  const Executor::Counters sent = executor_->counters();
  stats.commands = sent.commands;
  stats.reconnects = sent.reconnects;
  stats.scriptsLoaded = sent.scriptsLoaded;
  {
    const MutexLock lock(holdsMutex_);
    stats.holds = watchdog_.size();
  }
  const MutexLock lock(hubMutex_);
  stats.waiters = hub_.waiting();
  stats.channels = hub_.channels();
  return stats;
}

// Holds.

LockEngine::Gate LockEngine::enter(const std::shared_ptr<const LockScripts>& scripts,
                                   OwnerId owner,
                                   GateWaiter& waiter) {
  const MutexLock lock(holdsMutex_);
  Gate gate;
  gate.hold = ledger_.find(scripts, scripts->traits.holdKind, scripts->name, owner);
  gate.entered = HoldLedger::enter(*gate.hold, waiter);
  if (gate.entered && mayObtain(*gate.hold)) {
    ++unsettled_;
  }
  gate.count = gate.hold->lost ? 0 : gate.hold->count;
  return gate;
}

HoldPtr LockEngine::entry(const std::shared_ptr<const LockScripts>& scripts, OwnerId owner) {
  const MutexLock lock(holdsMutex_);
  return ledger_.find(scripts, scripts->traits.holdKind, scripts->name, owner);
}

int LockEngine::countOf(const Hold& hold) const {
  const MutexLock lock(holdsMutex_);
  return hold.lost ? 0 : hold.count;
}

void LockEngine::leave(Hold& hold) {
  GateWaiter* next = nullptr;
  bool lastUnsettled = false;
  {
    const MutexLock lock(holdsMutex_);
    const bool unsettled = mayObtain(hold);
    next = ledger_.leave(hold);
    if (unsettled && next == nullptr) {
      lastUnsettled = --unsettled_ == 0 && closed();
    }
  }
  if (lastUnsettled) {
    executor_->post([self = shared_from_this()] { self->endClosing(true); });
  }
  if (next != nullptr) {
    next->gateOpened();
    next->gateDropRef();
  }
}

bool LockEngine::withdraw(Hold& hold, GateWaiter& waiter) noexcept {
  const MutexLock lock(holdsMutex_);
  return HoldLedger::withdraw(hold, waiter);
}

namespace {

/// The kinds of holds that shut others out of a name.
constexpr std::array kLockKinds{HoldKind::lock, HoldKind::read, HoldKind::write, HoldKind::simple};

}  // namespace

bool LockEngine::holds(std::string_view name, OwnerId owner) const {
  const MutexLock lock(holdsMutex_);
  for (const HoldKind kind : kLockKinds) {
    const HoldPtr hold = ledger_.peek(kind, name, owner);
    if (hold && hold->count > 0) {
      return true;
    }
  }
  return false;
}

std::optional<OwnerId> LockEngine::anotherHolder(const LockScripts& scripts, OwnerId owner) const {
  const MutexLock lock(holdsMutex_);
  for (const HoldPtr& hold : ledger_.named(scripts.name)) {
    if (hold->kind == scripts.traits.holdKind && hold->owner != owner && hold->count > 0 &&
        !hold->lost) {
      return hold->owner;
    }
  }
  return std::nullopt;
}

bool LockEngine::keeps(const LockScripts& scripts, OwnerId owner) const {
  const bool reads = scripts.traits.holdKind == HoldKind::read;
  const MutexLock lock(holdsMutex_);
  for (const HoldKind kind : kLockKinds) {
    if (reads && kind == HoldKind::read) {
      continue;
    }
    const HoldPtr hold = ledger_.peek(kind, scripts.name, owner);
    if (hold && hold->count > 0 && hold->watched && !hold->lost &&
        hold->maxHoldUntil == Clock::time_point::max()) {
      return true;
    }
  }
  return false;
}

IntrusivePtr<HoldHandle> LockEngine::granted(Hold& hold,
                                             int before,
                                             int count,
                                             const GrantTerms& terms) {
  IntrusivePtr<HoldHandle> handle;
  // Made before anything is booked.
  IntrusivePtr<HoldHandle> fresh =
      terms.wantsHandle ? makeIntrusive<HoldHandle>() : IntrusivePtr<HoldHandle>();
  bool needsLoop = false;
  std::vector<Watchdog::Lost> vanished;
  std::vector<Watchdog::Lost> ended;
  std::vector<Doubt> unsure;
  counters_.acquired.fetch_add(1, std::memory_order_relaxed);
  {
    const MutexLock lock(holdsMutex_);
    // Read holds end each for itself, so some may be over while others stay.
    const bool alone = hold.kind == HoldKind::read ? count == 1 : count <= before;
    if (hold.kind == HoldKind::read) {
      // Each has a lease of its own, so those before it go on or end each for itself.
      keepParts(hold, before > 0 ? terms.kept : HoldPlaces(std::in_place), count - 1, vanished);
      hold.line = ++lines_;
      HoldPart& part = hold.parts.emplace_back();
      part.line = hold.line;
      part.label = terms.label;
      if (fresh) {
        fresh->setLine(part.line);
        part.handle = fresh;
      }
      handle = part.handle;
      count = static_cast<int>(hold.parts.size());
    } else if (before > 0 && alone && !hold.lost) {
      // The server had dropped the holds that came before this one. Whoever hears of this grant
      // must not take them for valid.
      vanished.push_back(Watchdog::lose(hold, LossReason::refused));
    }
    if (hold.parts.empty() && (before == 0 || alone || hold.lost)) {
      // What was lost, also while this request was under way, is not counted: the release of this
      // one finds more than it expects, and ends it.
      count = alone ? count : std::max(count - before, 1);
      hold.line = ++lines_;
      hold.handle = nullptr;
    }
    if (before <= terms.afresh) {
      hold.maxHoldUntil = Clock::time_point::max();
    }
    hold.count = count;
    hold.grantedAt = Clock::now();
    hold.label = terms.label;
    const auto maxHoldUntil = terms.maxHold ? Duration(*terms.maxHold).deadlineFrom(Clock::now())
                                            : Clock::time_point::max();
    watchdog_.granted(hold, terms.sentAt, terms.lease, terms.watched, maxHoldUntil);
    if (fresh && !hold.handle && hold.parts.empty()) {
      fresh->setLine(hold.line);
      hold.handle = fresh;
      hold.handle->setValidUntil(std::min(hold.validUntil, hold.maxHoldUntil));
    }
    if (hold.parts.empty()) {
      handle = terms.wantsHandle ? hold.handle : nullptr;
    }
    if (closed()) {
      // What is held was counted before: this is given back by itself.
      Watchdog::loseAll(hold, LossReason::clientClosed, ended);
      watchdog_.retire(hold);
      hold.count = 0;
      late_.emplace_back(&hold);
    } else if (threadHasEnded(hold.owner)) {
      // Its threadEnded() was called before, or comes when this is booked.
      Watchdog::loseAll(hold, LossReason::threadEnded, ended);
      hold.leftToExpire = true;
      watchdog_.linger(hold);
    } else if (hold.doubtedAt >= terms.sentAt) {
      unsure.push_back({HoldPtr(&hold), hold.grantedAt});
    }
    needsLoop = watchdogNeedsLoop();
    needsLoop = needsToListen() || needsLoop;
  }
  if (needsLoop) {
    wakeWatchdog();
  }
  if (!ended.empty() && closed()) {
    executor_->post([self = shared_from_this()] { self->endClosing(true); });
  }
  announceOnLoop(std::move(ended));
  if (!terms.label.empty()) {
    noteLabel(hold, std::string(terms.label), terms.lease);
  }
  announceOnLoop(std::move(vanished));
  check(std::move(unsure));
  return handle;
}

LockEngine::ReleasePlan LockEngine::releasing(Hold& hold, std::uint64_t line) {
  const MutexLock lock(holdsMutex_);
  ReleasePlan plan;
  if (line != 0) {
    // The decision is made here, where no other request about the hold is under way.
    plan.nothing = hold.line != line || hold.count == 0;
    plan.all = hold.lost;
    plan.lost = hold.lost;
  }
  if (line != 0 && !hold.parts.empty()) {
    const auto part = partOf(hold, line);
    plan.nothing = part == hold.parts.end() || hold.count == 0;
    plan.lost = hold.lost || (!plan.nothing && part->lost);
    plan.place = plan.nothing ? 0 : static_cast<int>(part - hold.parts.begin()) + 1;
  }
  plan.before = hold.count;
  plan.restore = hold.watched ? options_.watchdogTimeout : std::chrono::milliseconds::zero();
  if (!plan.nothing && (plan.all || hold.count <= 1)) {
    watchdog_.retire(hold);
  }
  return plan;
}

bool LockEngine::isOver(const LockScripts& scripts, OwnerId owner, std::uint64_t line) const {
  const MutexLock lock(holdsMutex_);
  const HoldPtr hold = ledger_.peek(scripts.traits.holdKind, scripts.name, owner);
  if (hold && !hold->parts.empty()) {
    return line != 0 && (partOf(*hold, line) == hold->parts.end() || hold->count == 0);
  }
  return line != 0 && (!hold || hold->line != line || hold->count == 0);
}

std::vector<HoldPart>::iterator LockEngine::partOf(Hold& hold, std::uint64_t line) {
  return std::find_if(hold.parts.begin(), hold.parts.end(), [&](const HoldPart& part) {
    return part.line == line;
  });
}

/// @param places  of those that are left
/// @param count   of those that are left, if their places are not known: then the first to expire
///                are the ones that are over
void LockEngine::keepParts(Hold& hold,
                           const HoldPlaces& places,
                           int count,
                           std::vector<Watchdog::Lost>& losses) {
  std::vector<bool> kept(hold.parts.size(), !places);
  if (places) {
    for (const int place : *places) {
      if (static_cast<std::size_t>(place) <= kept.size()) {
        kept[static_cast<std::size_t>(place) - 1] = true;
      }
    }
  } else {
    for (std::size_t left = kept.size(); left > static_cast<std::size_t>(std::max(count, 0));
         --left) {
      std::size_t first = kept.size();
      for (std::size_t i = 0; i < kept.size(); ++i) {
        if (kept[i] &&
            (first == kept.size() || hold.parts[i].validUntil < hold.parts[first].validUntil)) {
          first = i;
        }
      }
      kept[first] = false;
    }
  }
  const auto now = Clock::now();
  std::vector<HoldPart> left;
  for (std::size_t i = 0; i < kept.size(); ++i) {
    HoldPart& part = hold.parts[i];
    if (kept[i]) {
      left.push_back(std::move(part));
    } else if (const bool over = now >= part.validUntil; !part.lost && (part.handle || !over)) {
      losses.push_back(
          Watchdog::lose(hold, part, over ? LossReason::expired : LossReason::refused));
    }
  }
  hold.parts = std::move(left);
}

/// One of several holds that have a lease each was released. Returns how many are left.
int LockEngine::partReleased(Hold& hold,
                             const Release& release,
                             std::vector<Watchdog::Lost>& losses) {
  const auto part =
      release.line == 0 && !hold.parts.empty() ? hold.parts.end() - 1 : partOf(hold, release.line);
  if (part != hold.parts.end()) {
    if (part->lost) {
      // Its holder knows.
    } else if (release.lost) {
      losses.push_back(Watchdog::lose(hold, *part, LossReason::refused));
    } else if (part->handle) {
      part->handle->setReleased();
    }
    part->lost = true;
    if (!release.places) {
      hold.parts.erase(part);
    }
  }
  keepParts(hold, release.places, release.remain, losses);
  watchdog_.partsEnded(hold);
  const bool left = std::any_of(
      hold.parts.begin(), hold.parts.end(), [](const HoldPart& each) { return !each.lost; });
  hold.lost = hold.lost || (!left && !hold.parts.empty());
  return static_cast<int>(hold.parts.size());
}

void LockEngine::notReleased(Hold& hold) {
  bool needsLoop = false;
  {
    const MutexLock lock(holdsMutex_);
    if (hold.count == 1) {
      // Its owner wants to be rid of it: let it run out.
      hold.watched = false;
    }
    watchdog_.resume(hold);
    needsLoop = watchdogNeedsLoop();
  }
  if (needsLoop) {
    wakeWatchdog();
  }
}

void LockEngine::released(Hold& hold, const Release& release) {
  int remain = release.remain;
  const bool lost = release.lost;
  std::string label;
  bool needsLoop = false;
  std::vector<Watchdog::Lost> found;
  {
    const MutexLock lock(holdsMutex_);
    label = hold.label;
    if (!hold.parts.empty()) {
      remain = partReleased(hold, release, found);
    } else if (lost && remain == 0 && hold.count > 0 && !hold.lost) {
      found.push_back(Watchdog::lose(hold, LossReason::refused));
    }
    hold.count = remain;
    if (remain == 0) {
      watchdog_.retire(hold);
      if (const auto handle = std::exchange(hold.handle, nullptr); handle && !lost) {
        handle->setReleased();
      }
    } else {
      watchdog_.resume(hold);
      needsLoop = watchdogNeedsLoop();
    }
  }
  if (needsLoop) {
    wakeWatchdog();
  }
  if (lost) {
    announceOnLoop(std::move(found));
    return;
  }
  counters_.released.fetch_add(1, std::memory_order_relaxed);
  if (remain == 0 && !label.empty()) {
    noteLabel(hold, {}, std::chrono::milliseconds::zero());
  }
}

void LockEngine::limit(Hold& hold, Clock::time_point sentAt, std::chrono::milliseconds remaining) {
  bool needsLoop = false;
  {
    const MutexLock lock(holdsMutex_);
    watchdog_.limit(hold, sentAt + remaining - Watchdog::allowance(remaining));
    needsLoop = watchdogNeedsLoop();
  }
  if (needsLoop) {
    wakeWatchdog();
  }
}

bool LockEngine::wasValidAt(const Hold& hold, Clock::time_point when) const {
  const MutexLock lock(holdsMutex_);
  return hold.count > 0 && when < hold.validUntil;
}

LockEngine::Clock::time_point LockEngine::endOf(const Hold& hold) const {
  const MutexLock lock(holdsMutex_);
  // A renewal whose answer did not come may have been executed.
  const auto renewed = hold.watched ? options_.watchdogTimeout : std::chrono::milliseconds::zero();
  return std::max(hold.validUntil, Clock::now() + renewed) + Watchdog::allowance(hold.lease);
}

HoldPtr LockEngine::changingLease(std::string_view semaphore,
                                  std::string_view id,
                                  Clock::time_point sentAt,
                                  std::chrono::milliseconds lease,
                                  bool watched) {
  HoldPtr hold;
  bool needsLoop = false;
  {
    const MutexLock lock(holdsMutex_);
    const std::vector<HoldPtr> permits = ledger_.named(semaphore);
    const auto held = std::find_if(permits.begin(), permits.end(), [&](const HoldPtr& each) {
      return each->kind == HoldKind::permit && each->count > 0 &&
             static_cast<const PermitScripts&>(scriptsOf(*each)).isFor(id);
    });
    if (held != permits.end()) {
      hold = *held;
      watchdog_.changeLease(*hold, sentAt, lease, watched);
      needsLoop = watchdogNeedsLoop();
    }
  }
  if (needsLoop) {
    wakeWatchdog();
  }
  return hold;
}

void LockEngine::leaseChanged(Hold& hold,
                              Clock::time_point sentAt,
                              std::chrono::milliseconds lease,
                              bool taken) {
  bool needsLoop = false;
  std::vector<Watchdog::Lost> lost;
  {
    const MutexLock lock(holdsMutex_);
    if (taken) {
      watchdog_.leaseChanged(hold, sentAt, lease);
    } else if (hold.count > 0 && !hold.lost) {
      watchdog_.retire(hold);
      lost.push_back(Watchdog::lose(hold, LossReason::refused));
      hold.count = 0;
      ledger_.forgetIfUnused(hold);
    }
    needsLoop = watchdogNeedsLoop();
  }
  if (needsLoop) {
    wakeWatchdog();
  }
  announceOnLoop(std::move(lost));
}

void LockEngine::forced(const LockScripts& scripts, Clock::time_point sentAt) {
  std::vector<Watchdog::Lost> lost;
  std::vector<Doubt> unsure;
  {
    const MutexLock lock(holdsMutex_);
    for (const HoldPtr& hold : ledger_.named(scripts.name)) {
      if (!scripts.forceReleaseEnds(hold->kind)) {
        continue;
      }
      if (hold->busy) {
        hold->doubtedAt = Clock::now();
      }
      if (hold->count > 0) {
        if (hold->grantedAt >= sentAt) {
          // It may be of the time after, when the lock was free for it.
          unsure.push_back({hold, hold->grantedAt});
          continue;
        }
        watchdog_.retire(*hold);
        Watchdog::loseAll(*hold, LossReason::forced, lost);
        hold->count = 0;
        ledger_.forgetIfUnused(*hold);
      }
    }
  }
  announceOnLoop(std::move(lost));
  check(std::move(unsure));
}

void LockEngine::announceOnLoop(std::vector<Watchdog::Lost> lost) {
  if (!lost.empty()) {
    executor_->post([self = shared_from_this(), lost = std::move(lost)]() mutable {
      self->announce(std::move(lost));
    });
  }
}

void LockEngine::threadEnded(OwnerId owner) noexcept {
  // A closing client gives back what it holds, also that of a thread which ends because of it.
  if (forkGeneration() != forkGeneration_ || closed()) {
    return;
  }
  std::vector<Watchdog::Lost> lost;
  {
    const MutexLock lock(holdsMutex_);
    for (const HoldPtr& hold : ledger_.ownedBy(owner)) {
      if (hold->count > 0 && !hold->lost) {
        // Left to expire: the work it protects may go on elsewhere.
        Watchdog::loseAll(*hold, LossReason::threadEnded, lost);
        hold->leftToExpire = true;
        watchdog_.linger(*hold);
      }
    }
  }
  announceOnLoop(std::move(lost));
}

// Callbacks.

void LockEngine::runGuarded(UniqueFunction<void()>& function) noexcept {
  const char* what = "unknown exception";
  try {
    function();
    return;
  } catch (const std::exception& failure) {
    counters_.handlerFailures.fetch_add(1, std::memory_order_relaxed);
    log_->write(LogLevel::error, std::string("a callback threw: ") + failure.what());
    return;
  } catch (...) {
    counters_.handlerFailures.fetch_add(1, std::memory_order_relaxed);
  }
  log_->write(LogLevel::error, std::string("a callback threw: ") + what);
}

void LockEngine::deliver(UniqueFunction<void()> function, HandlerPlace place) noexcept {
  if (options_.executor && place == HandlerPlace::application) {
    auto shared = std::make_shared<UniqueFunction<void()>>(std::move(function));
    UniqueFunction<void()> submit([self = shared_from_this(), shared] {
      self->options_.executor([self, shared] { self->runGuarded(*shared); });
    });
    runGuarded(submit);
    return;
  }
  if (executor_->onLoopThread()) {
    runGuarded(function);
    return;
  }
  executor_->post([self = shared_from_this(), function = std::move(function)]() mutable {
    self->runGuarded(function);
  });
}

void LockEngine::reject(UniqueFunction<void()> function, HandlerPlace place) noexcept {
  if (!closed() && forkGeneration() == forkGeneration_) {
    executor_->post([self = shared_from_this(), function = std::move(function), place]() mutable {
      self->deliver(std::move(function), place);
    });
    return;
  }
  // There may be no loop any more, and neither the handler nor an executor that calls it at once
  // may run inside the call that starts it.
  const bool submits = options_.executor && place == HandlerPlace::application;
  UniqueFunction<void()> start([self = shared_from_this(), &function, place, submits] {
    std::thread([self, function = std::move(function), place, submits]() mutable {
      if (submits) {
        self->deliver(std::move(function), place);
      } else {
        self->runGuarded(function);
      }
    }).detach();
  });
  runGuarded(start);
}

// Calls at a time.

void LockEngine::callAt(Clock::time_point when, UniqueFunction<void()> function) {
  switch (delayed_.add(when, function)) {
    case DelayedCalls::Added::refused:
      reject(std::move(function), HandlerPlace::loop);
      return;
    case DelayedCalls::Added::waits:
      return;
    case DelayedCalls::Added::next:
      executor_->post([self = shared_from_this()] { self->serveCalls(); });
      return;
  }
}

void LockEngine::serveCalls() {
  for (UniqueFunction<void()>& function : delayed_.due()) {
    runGuarded(function);
  }
}

// Lines in the log.

bool LockEngine::tells(OutageLog::Event event, std::size_t times) noexcept {
  const OutageLog::Noted noted = outage_.note(event, times, Clock::now());
  if (noted.summariseAt) {
    try {
      summariseOutage(*noted.summariseAt);
    } catch (const std::bad_alloc&) {
      // The counts are told when the outage is over.
    }
  }
  return noted.first;
}

void LockEngine::summariseOutage(Clock::time_point when) {
  if (closed()) {
    outage_.summarise(*log_, Clock::now());
    return;
  }
  callAt(when, [self = shared_from_this()] {
    if (const auto again = self->outage_.summarise(*self->log_, Clock::now())) {
      self->summariseOutage(*again);
    }
  });
}

}  // namespace rlock::detail
