// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/deadline_heap.hpp>
#include <rlock/detail/engine/waiter.hpp>

#include <chrono>
#include <memory>
#include <utility>

namespace rlock::detail {

/// The waiters that look again each by its own schedule (WakeRule::polling). They are in no line:
/// no message is for them, and nobody's turn depends on another's.
///
/// **Thread safety:** One thread at a time.
class PollingWaiters {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  [[nodiscard]] bool empty() const noexcept { return waiters_.empty(); }

  /// The waiter sleeps until `wake`. Returns whether it is new here.
  /// @throws std::bad_alloc  the first time; then nothing has changed
  bool queue(Waiter& waiter, TimePoint wake);
  void leave(Waiter& waiter) noexcept {
    waiter.alone_ = false;
    waiter.trying_ = false;
    alarms_.remove(*waiter.alarm_);
    waiters_.remove(waiter);
    waiter.waiterDropRef();
  }

  [[nodiscard]] TimePoint nextDue() const noexcept { return alarms_.nextDue(); }
  /// Gives a turn to those whose time has come.
  void poll(TimePoint now, WaiterTurns& turns) noexcept;
  /// Null when empty.
  [[nodiscard]] Waiter* front() const noexcept { return waiters_.front(); }

 private:
  WaiterChain<&Waiter::line_> waiters_;
  DeadlineHeap<WaiterAlarm, &WaiterAlarm::hook> alarms_;
};

inline bool PollingWaiters::queue(Waiter& waiter, TimePoint wake) {
  if (!waiter.alarm_) {
    waiter.alarm_ = std::make_unique<WaiterAlarm>(waiter);
  }
  const bool isNew = !waiter.queued_;
  if (isNew) {
    waiter.waiterAddRef();
    waiters_.pushBack(waiter);
    waiter.queued_ = true;
    waiter.alone_ = true;
  }
  waiter.trying_ = false;
  alarms_.schedule(*waiter.alarm_, wake);
  return isNew;
}

inline void PollingWaiters::poll(TimePoint now, WaiterTurns& turns) noexcept {
  while (!alarms_.empty() && alarms_.nextDue() <= now) {
    WaiterAlarm& alarm = alarms_.top();
    alarms_.remove(alarm);
    Waiter& waiter = alarm.waiter;
    waiter.trying_ = true;
    waiter.waiterAddRef();
    turns.pushBack(waiter);
  }
}

}  // namespace rlock::detail
