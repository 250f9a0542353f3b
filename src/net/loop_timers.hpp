// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/loop.hpp"
#include "net/loop_thread.hpp"
#include <rlock/detail/base/deadline_heap.hpp>

#include <uv.h>

#include <chrono>

namespace rlock::detail::net {

/// The Timers of a loop, which share one timer of libuv. Arming one takes no memory and cannot
/// fail. libuv's timer may be early, never late: it is moved only for a timer that is earlier than
/// all others.
///
/// **Thread safety:** the loop thread.
class LoopTimers {
 public:
  using SteadyClock = std::chrono::steady_clock;

  explicit LoopTimers(LoopThread& thread) noexcept : thread_(thread) {}

  void open(uv_loop_t* loop) noexcept;
  void arm(Timer& timer, SteadyClock::time_point due) noexcept;
  void disarm(Timer& timer) noexcept;
  void disarmAll() noexcept;
  [[nodiscard]] uv_timer_t& handle() noexcept { return timer_; }

 private:
  static void onTimer(uv_timer_t* handle) noexcept;
  void schedule() noexcept;
  void expire() noexcept;

  LoopThread& thread_;
  uv_timer_t timer_{};
  DeadlineHeap<Timer, &Timer::hook_> timers_;
  SteadyClock::time_point armedFor_ = SteadyClock::time_point::max();
  /// While timers expire: later than all that do.
  SteadyClock::time_point expiringAt_ = SteadyClock::time_point::min();
};

}  // namespace rlock::detail::net
