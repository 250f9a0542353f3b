// SPDX-License-Identifier: Apache-2.0

// How LockEngine lets callers wait: the hub of waiters, its timer and its subscriptions.

#include "engine/lock_engine.hpp"

#include <fmt/format.h>

#include <new>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Turns that one thread is handing out for one client.
struct LockEngine::Handout {
  LockEngine* engine;
  WaiterHub::Turns turns;
  Handout* outer;
};

/// Turns on their way to the loop thread. If there is no memory to send them they are given where
/// they are. What the loop does not take any more is dropped: the client is closed, and everybody
/// who waits is told of that.
class LockEngine::PassedTurns {
 public:
  PassedTurns(std::shared_ptr<LockEngine> engine, WaiterHub::Turns& turns) noexcept
      : engine_(std::move(engine)), turns_(std::exchange(turns, {})) {}
  PassedTurns(PassedTurns&& other) noexcept
      : engine_(std::move(other.engine_)), turns_(std::exchange(other.turns_, {})) {}
  PassedTurns(const PassedTurns&) = delete;
  PassedTurns& operator=(const PassedTurns&) = delete;
  PassedTurns& operator=(PassedTurns&&) = delete;
  ~PassedTurns() {
    if (!turns_.empty() && !engine_->closed()) {
      give();
    }
    while (Waiter* const waiter = turns_.popFront()) {
      waiter->waiterDropRef();
    }
  }

  void give() noexcept { engine_->giveTurns(std::exchange(turns_, {})); }

 private:
  std::shared_ptr<LockEngine> engine_;
  WaiterHub::Turns turns_;
};

namespace {

/// So many turns one thread hands out at once. Each is a request on its way, so whoever wakes many
/// leaves the others to the loop thread, which does its other work in between.
constexpr std::size_t kTurnsAtOnce = 256;

}  // namespace

/// A turn may come to its end at once, when there is no server or no time, and hand itself on. So
/// turns that are given within a turn wait until that one is over: any number of waiters needs the
/// stack of one.
void LockEngine::giveTurns(WaiterHub::Turns turns) noexcept {
  if (turns.empty()) {
    return;
  }
  thread_local Handout* innermost = nullptr;
  for (Handout* handout = innermost; handout != nullptr; handout = handout->outer) {
    if (handout->engine == this) {
      handout->turns.append(turns);
      return;
    }
  }
  Handout here{this, turns, innermost};
  innermost = &here;
  std::size_t given = 0;
  while (Waiter* const waiter = here.turns.popFront()) {
    waiter->turn();
    waiter->waiterDropRef();
    if (++given % kTurnsAtOnce == 0 && !here.turns.empty()) {
      passToLoop(here.turns);
    }
  }
  innermost = here.outer;
}

/// Leaves in `turns` what cannot be passed on.
void LockEngine::passToLoop(WaiterHub::Turns& turns) noexcept {
  try {
    dispatcher_->post(
        [passed = PassedTurns(shared_from_this(), turns)]() mutable { passed.give(); });
  } catch (const std::bad_alloc&) {
    // The turns have come back.
  }
}

void LockEngine::wakeHub() noexcept {
  try {
    dispatcher_->post([self = shared_from_this()] { self->serveHub(); });
  } catch (const std::bad_alloc&) {
    // The next one who comes or leaves tries again.
    const MutexLock lock(hubMutex_);
    hubChangesPosted_ = false;
    hubArmed_ = Clock::time_point::max();
  }
}

WaiterHub::Mark LockEngine::mark(std::string_view channel, std::uint8_t lane) const {
  // A stale answer only costs a try too many.
  if (hubIdle_.load(std::memory_order_acquire)) {
    return {};
  }
  const MutexLock lock(hubMutex_);
  return hub_.mark(channel, lane);
}

WaiterHub::Mark LockEngine::expect(std::string_view channel, std::uint8_t lane) {
  if (hubIdle_.load(std::memory_order_acquire)) {
    return {};
  }
  WaiterHub::Mark result;
  bool needsLoop = false;
  {
    const MutexLock lock(hubMutex_);
    result = hub_.expect(channel, lane);
    needsLoop = hubNeedsLoop();
  }
  if (needsLoop) {
    wakeHub();
  }
  return result;
}

bool LockEngine::hubNeedsLoop() noexcept {
  hubIdle_.store(hub_.idle(), std::memory_order_release);
  bool needed = false;
  if (hub_.hasChanges() && !hubChangesPosted_) {
    hubChangesPosted_ = true;
    needed = true;
  }
  const auto due = hub_.nextDue();
  if (due < hubArmed_) {
    hubArmed_ = due;
    needed = true;
  }
  return needed;
}

void LockEngine::queue(Waiter& waiter,
                       const WaitTerms& terms,
                       std::optional<WaiterHub::Mark> mark,
                       bool tried,
                       std::chrono::milliseconds remaining) {
  WaiterHub::Turns turns;
  bool needsLoop = false;
  {
    const MutexLock lock(hubMutex_);
    turns = hub_.queue(waiter, terms, mark, tried, remaining, now());
    needsLoop = hubNeedsLoop();
  }
  if (closed()) {
    // It may have come after the others were told.
    waiter.shutDown();
  }
  if (needsLoop) {
    wakeHub();
  }
  giveTurns(turns);
}

void LockEngine::leaveQueue(Waiter& waiter,
                            bool obtained,
                            std::chrono::milliseconds lease) noexcept {
  if (hubIdle_.load(std::memory_order_acquire)) {
    return;
  }
  WaiterHub::Turns turns;
  bool needsLoop = false;
  {
    const MutexLock lock(hubMutex_);
    try {
      turns = hub_.leave(waiter, obtained, now(), lease);
      needsLoop = hubNeedsLoop();
    } catch (const std::bad_alloc&) {
      // Without memory nobody is told; the others look again at the next safety poll.
      needsLoop = true;
    }
  }
  if (needsLoop) {
    wakeHub();
  }
  giveTurns(turns);
}

void LockEngine::serveHub() {
  if (closed()) {
    return;
  }
  WaiterHub::Turns turns;
  std::vector<WaiterHub::Change> changes;
  Clock::time_point due{};
  {
    const MutexLock lock(hubMutex_);
    hubChangesPosted_ = false;
    hubArmed_ = Clock::time_point::max();
    const auto now = this->now();
    turns = hub_.poll(now);
    try {
      hub_.expireLingering(now);
    } catch (const std::bad_alloc&) {
      // What is left is forgotten next time.
    }
    changes = hub_.takeChanges();
    due = hubArmed_ = hub_.nextDue();
    hubIdle_.store(hub_.idle(), std::memory_order_release);
  }
  counters_.safetyPolls.fetch_add(turns.size(), std::memory_order_relaxed);
  giveTurns(turns);
  hubTimer_->armAt(due);
  for (const WaiterHub::Change& change : changes) {
    if (change.subscribe) {
      dispatcher_->subscribe(change.channel);
    } else {
      dispatcher_->unsubscribe(change.channel);
    }
  }
}

void LockEngine::channelConfirmed(const std::string& channel) {
  WaiterHub::Turns turns;
  bool needsLoop = false;
  {
    const MutexLock lock(hubMutex_);
    turns = hub_.subscribed(channel);
    needsLoop = hubNeedsLoop();
  }
  if (needsLoop) {
    wakeHub();
  }
  giveTurns(turns);
}

void LockEngine::channelMessage(const std::string& channel, std::string_view payload) {
  if (channel == clientChannel_) {
    heardOfForce(payload);
    return;
  }
  // Whatever was said: something may have changed.
  counters_.messages.fetch_add(1, std::memory_order_relaxed);
  WaiterHub::Turns turns;
  {
    const MutexLock lock(hubMutex_);
    turns = hub_.message(channel, payload);
  }
  counters_.wakeUps.fetch_add(turns.size(), std::memory_order_relaxed);
  giveTurns(turns);
}

void LockEngine::channelRefused(const std::string& channel, const Error& error) {
  if (channel == clientChannel_) {
    log_->write(LogLevel::debug,
                std::string("forced releases by other clients are noticed at the next renewal: ") +
                    error.what());
    return;
  }
  bool isNew = false;
  {
    const MutexLock lock(hubMutex_);
    isNew = hub_.refused(channel);
  }
  log_->write(
      isNew ? LogLevel::warning : LogLevel::debug,
      fmt::format(
          "cannot subscribe to {}, its waiters poll: {}", escapeForDisplay(channel), error.what()));
}

void LockEngine::channelsLost() {
  const MutexLock lock(hubMutex_);
  hub_.disconnected();
}

}  // namespace rlock::detail
