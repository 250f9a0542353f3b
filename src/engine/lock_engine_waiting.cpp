// SPDX-License-Identifier: Apache-2.0

// How LockEngine lets callers wait: the hub of waiters, its timer and its subscriptions.

#include "engine/lock_engine.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {

void LockEngine::giveTurns(const WaiterHub::Turns& turns) noexcept {
  for (Waiter* waiter : turns) {
    waiter->turn();
    waiter->waiterDropRef();
  }
}

WaiterHub::Mark LockEngine::mark(std::string_view channel, std::uint8_t lane) const {
  // A stale answer only costs a try too many.
  if (hubIdle_.load(std::memory_order_acquire)) {
    return {};
  }
  const std::lock_guard lock(hubMutex_);
  return hub_.mark(channel, lane);
}

WaiterHub::Mark LockEngine::expect(std::string_view channel, std::uint8_t lane) {
  if (hubIdle_.load(std::memory_order_acquire)) {
    return {};
  }
  WaiterHub::Mark result;
  bool needsLoop = false;
  {
    const std::lock_guard lock(hubMutex_);
    result = hub_.expect(channel, lane);
    needsLoop = hubNeedsLoop();
  }
  if (needsLoop) {
    executor_->post([self = shared_from_this()] { self->serveHub(); });
  }
  return result;
}

bool LockEngine::hubNeedsLoop() {
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
    const std::lock_guard lock(hubMutex_);
    turns = hub_.queue(waiter, terms, mark, tried, remaining, Clock::now());
    needsLoop = hubNeedsLoop();
  }
  if (closed()) {
    // It may have come after the others were told.
    waiter.shutDown();
  }
  if (needsLoop) {
    executor_->post([self = shared_from_this()] { self->serveHub(); });
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
    const std::lock_guard lock(hubMutex_);
    turns = hub_.leave(waiter, obtained, Clock::now(), lease);
    needsLoop = hubNeedsLoop();
  }
  if (needsLoop) {
    executor_->post([self = shared_from_this()] { self->serveHub(); });
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
    const std::lock_guard lock(hubMutex_);
    const auto now = Clock::now();
    turns = hub_.poll(now);
    hub_.expireLingering(now);
    changes = hub_.takeChanges();
    hubChangesPosted_ = false;
    due = hubArmed_ = hub_.nextDue();
    hubIdle_.store(hub_.idle(), std::memory_order_release);
  }
  hubTimer_.armAt(due);
  for (const WaiterHub::Change& change : changes) {
    if (change.subscribe) {
      executor_->subscribe(change.channel);
    } else {
      executor_->unsubscribe(change.channel);
    }
  }
  counters_.safetyPolls.fetch_add(turns.size(), std::memory_order_relaxed);
  giveTurns(turns);
}

void LockEngine::channelConfirmed(const std::string& channel) {
  WaiterHub::Turns turns;
  bool needsLoop = false;
  {
    const std::lock_guard lock(hubMutex_);
    turns = hub_.subscribed(channel);
    needsLoop = hubNeedsLoop();
  }
  if (needsLoop) {
    executor_->post([self = shared_from_this()] { self->serveHub(); });
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
    const std::lock_guard lock(hubMutex_);
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
    const std::lock_guard lock(hubMutex_);
    isNew = hub_.refused(channel);
  }
  log_->write(
      isNew ? LogLevel::warning : LogLevel::debug,
      fmt::format(
          "cannot subscribe to {}, its waiters poll: {}", escapeForDisplay(channel), error.what()));
}

void LockEngine::channelsLost() {
  const std::lock_guard lock(hubMutex_);
  hub_.disconnected();
}

}  // namespace rlock::detail
