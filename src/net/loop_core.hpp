// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/loop_polls.hpp"
#include "net/loop_thread.hpp"
#include "net/loop_timers.hpp"
#include "net/posted_functions.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>

#include <uv.h>

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <string>
#include <thread>

namespace rlock::detail::net {

/// The part of a Loop that outlives it: the loop from open() to its end, and the queues, timers and
/// polls that the loop thread works on. libuv gives handles back only after another pass, so this
/// object holds itself (self_) from open() until the last handle is closed, whoever lets go of the
/// Loop.
///
/// **Thread safety:** thread() and posted() say for themselves; stop() and keepToTheEnd() from any
/// thread; everything else on the loop thread, which for an adopted loop is the one that runs its
/// callbacks.
class LoopCore : public std::enable_shared_from_this<LoopCore> {
 public:
  using SteadyClock = std::chrono::steady_clock;

  LoopCore() = default;
  LoopCore(const LoopCore&) = delete;
  LoopCore& operator=(const LoopCore&) = delete;

  /// @param adopted  null: the loop is its own
  void open(uv_loop_t* adopted);
  void startThread(std::string name);
  /// As Loop::stop().
  bool stop(SteadyClock::time_point deadline);
  /// As Loop::keepToTheEnd().
  void keepToTheEnd(std::shared_ptr<const void> object) noexcept;

  [[nodiscard]] uv_loop_t* raw() noexcept { return loop_; }
  /// Whether the loop is the application's.
  [[nodiscard]] bool adopted() const noexcept { return !owned_; }
  [[nodiscard]] LoopThread& thread() noexcept { return loopThread_; }
  [[nodiscard]] PostedFunctions& posted() noexcept { return posted_; }
  [[nodiscard]] PassEndFunctions& passEnd() noexcept { return passEnd_; }
  [[nodiscard]] LoopTimers& timers() noexcept { return timers_; }
  [[nodiscard]] LoopPolls& polls() noexcept { return polls_; }

  ///@{
  /// Counts the handles that libuv has.
  void handleOpened() noexcept { ++openHandles_; }
  void handleClosed() noexcept;
  ///@}

 private:
  static void onAsync(uv_async_t* handle) noexcept;
  static void onClosed(uv_handle_t* handle) noexcept;

  void runThread(const std::string& name) noexcept;
  void closeAll() noexcept;
  void runLast() noexcept;
  void close(uv_handle_t* handle) noexcept;
  void markFinished() noexcept;

  /// Far more than the end of anything takes. A function that queues itself for ever is dropped
  /// then.
  static constexpr int kLastPasses = 64;

  uv_loop_t ownLoop_{};
  uv_loop_t* loop_ = nullptr;
  bool owned_ = false;
  uv_async_t async_{};
  std::size_t openHandles_ = 0;
  /// Held while libuv has handles that live in this object.
  std::shared_ptr<LoopCore> self_;

  LoopThread loopThread_;
  PostedFunctions posted_{loopThread_};
  PassEndFunctions passEnd_{loopThread_, posted_};
  LoopTimers timers_{loopThread_};
  LoopPolls polls_{loopThread_, *this};

  AnnotatedMutex mutex_;
  std::condition_variable_any finishedChanged_;
  bool finished_ RLOCK_GUARDED_BY(mutex_) = false;
  std::thread thread_ RLOCK_GUARDED_BY(mutex_);
  bool disarmed_ RLOCK_GUARDED_BY(mutex_) = false;  // no timer or poll is touched any more
  std::shared_ptr<const void> kept_ RLOCK_GUARDED_BY(mutex_);
};

/// @throws rlock::Error  connectionFailed
[[noreturn]] void throwCannot(const char* what, const char* why);

}  // namespace rlock::detail::net
