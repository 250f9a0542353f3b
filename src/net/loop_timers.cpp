// SPDX-License-Identifier: Apache-2.0
#include "net/loop_timers.hpp"

#include "net/loop_core.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace rlock::detail::net {

void LoopTimers::open(uv_loop_t* loop) noexcept {
  // It cannot fail.
  uv_timer_init(loop, &timer_);
  timer_.data = this;
}

void LoopTimers::arm(Timer& timer, SteadyClock::time_point due) noexcept {
  if (!thread_.usable()) {
    return;
  }
  disarm(timer);
  if (due == SteadyClock::time_point::max()) {
    return;
  }
  // Armed for the past by an expiring timer: later than all that expire in this pass, so that a
  // timer that does so always cannot keep the others waiting.
  timers_.schedule(timer, std::max(due, expiringAt_));
  if (expiringAt_ == SteadyClock::time_point::min()) {
    schedule();
  }
}

void LoopTimers::disarm(Timer& timer) noexcept {
  // libuv's timer is left alone: one early wake-up costs less than moving it each time.
  if (timer.armed() && !thread_.abandoned()) {
    timers_.remove(timer);
  }
}

void LoopTimers::disarmAll() noexcept {
  while (!timers_.empty()) {
    timers_.remove(timers_.top());
  }
}

void LoopTimers::schedule() noexcept {
  if (timers_.nextDue() >= armedFor_) {
    return;
  }
  armedFor_ = timers_.nextDue();
  uv_update_time(timer_.loop);
  const auto now = SteadyClock::now();
  std::uint64_t milliseconds = 0;
  if (armedFor_ > now) {
    // libuv counts from the last whole millisecond of the same clock.
    constexpr std::uint64_t kPerMillisecond = 1'000'000;
    const std::uint64_t fraction = uv_hrtime() % kPerMillisecond;
    const auto left = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(armedFor_ - now).count());
    milliseconds = (left + fraction + kPerMillisecond - 1) / kPerMillisecond;
  }
  if (expiringAt_ != SteadyClock::time_point::min()) {
    // libuv runs what is due at once in the same pass, before it polls.
    milliseconds = std::max<std::uint64_t>(milliseconds, 1);
  }
  uv_timer_start(&timer_, &LoopTimers::onTimer, milliseconds, 0);
}

void LoopTimers::onTimer(uv_timer_t* handle) noexcept {
  auto* const self = static_cast<LoopTimers*>(handle->data);
  self->thread_.enter();
  self->expire();
}

void LoopTimers::expire() noexcept {
  armedFor_ = SteadyClock::time_point::max();
  const auto now = SteadyClock::now();
  expiringAt_ = now + SteadyClock::duration(1);
  while (!thread_.abandoned() && timers_.nextDue() <= now) {
    Timer& timer = timers_.top();
    disarm(timer);
    UniqueFunction<void()> onExpiry = std::move(timer.onExpiry_);
    bool destroyed = false;
    timer.destroyed_ = &destroyed;
    thread_.run(onExpiry);
    if (!destroyed) {
      timer.destroyed_ = nullptr;
      timer.onExpiry_ = std::move(onExpiry);
    }
  }
  if (thread_.usable()) {
    schedule();
  }
  expiringAt_ = SteadyClock::time_point::min();
}

Timer::Timer(Loop& loop, UniqueFunction<void()> onExpiry)
    : core_(loop.core_), onExpiry_(std::move(onExpiry)) {}

Timer::~Timer() {
  disarm();
  if (destroyed_ != nullptr) {
    *destroyed_ = true;
  }
}

void Timer::armAt(std::chrono::steady_clock::time_point due) noexcept {
  core_->timers().arm(*this, due);
}

void Timer::disarm() noexcept {
  core_->timers().disarm(*this);
}

}  // namespace rlock::detail::net
