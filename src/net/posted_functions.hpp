// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/function_queue.hpp"
#include "net/loop_thread.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/unique_function.hpp>

#include <uv.h>

#include <memory>

namespace rlock::detail::net {

/// The functions that other threads have given to the loop thread, and the handle that wakes it for
/// them. A function runs once or is destroyed unrun, in the order of the queue, and never under the
/// mutex. Queueing a LoopTask takes no memory and cannot fail; any other function uses up a small
/// reserve before it fails.
///
/// **Thread safety:** post(), wake() and close() from any thread, the rest on the loop thread.
class PostedFunctions {
 public:
  explicit PostedFunctions(LoopThread& thread) noexcept : thread_(thread) {}

  /// The loop wakes up by `async`, which has been initialised.
  void open(uv_async_t& async) noexcept;
  /// @throws std::bad_alloc
  void post(UniqueFunction<void()> function);
  void post(QueuedFunction& task, std::shared_ptr<const void> owner) noexcept;
  /// The loop thread is to run() even if nothing is queued.
  void wake() noexcept;
  /// The loop is to end. A function that is queued by then will run, and so will one that comes
  /// before end() if the loop has a thread; else it is destroyed unrun. Wakes the loop.
  void close() noexcept;
  /// Runs what was queued when it began. Returns whether they are closed.
  bool run() noexcept;
  /// Whether nothing is queued. Of use when they are closed.
  [[nodiscard]] bool idle() noexcept;
  /// From here on all functions are destroyed unrun, as is what is queued.
  void end() noexcept;

 private:
  /// A call that ends with the loop may have something left to do on it: were that refused, a
  /// caller would never be answered. Race: another thread hands a call on to a loop that is closed
  /// and late. Refused there, the call would be destroyed on that thread while the loop has its
  /// timer.
  [[nodiscard]] bool accepts() noexcept RLOCK_REQUIRES(mutex_) {
    return !ended_ && (accepting_ || thread_.known());
  }
  void wakeLoop() noexcept RLOCK_REQUIRES(mutex_);
  void fillReserve() noexcept RLOCK_REQUIRES(mutex_);

  static constexpr int kReserve = 64;

  LoopThread& thread_;
  uv_async_t* async_ = nullptr;
  AnnotatedMutex mutex_;
  FunctionQueue queue_ RLOCK_GUARDED_BY(mutex_);
  /// For those who cannot do without: nodes without a function.
  FunctionQueue reserve_ RLOCK_GUARDED_BY(mutex_);
  int reserved_ RLOCK_GUARDED_BY(mutex_) = 0;
  bool signalled_ RLOCK_GUARDED_BY(mutex_) = false;
  bool accepting_ RLOCK_GUARDED_BY(mutex_) = true;
  bool ended_ RLOCK_GUARDED_BY(mutex_) = false;
  FunctionQueue running_;  // loop thread only
};

/// The functions that run at the end of a pass of the loop, before it polls again. They do not wake
/// an idle loop.
///
/// **Thread safety:** the loop thread.
class PassEndFunctions {
 public:
  PassEndFunctions(LoopThread& thread, PostedFunctions& posted) noexcept
      : thread_(thread), posted_(posted) {}

  void open(uv_loop_t* loop) noexcept;
  void add(UniqueFunction<void()> function);
  void add(QueuedFunction& task, std::shared_ptr<const void> owner) noexcept;
  void run() noexcept;
  /// Drops what was not run.
  void clear() noexcept { queue_.clear(); }
  [[nodiscard]] uv_prepare_t& handle() noexcept { return prepare_; }

 private:
  static void onPrepare(uv_prepare_t* handle) noexcept;
  void push(QueuedFunction* node) noexcept;

  LoopThread& thread_;
  PostedFunctions& posted_;
  uv_prepare_t prepare_{};
  FunctionQueue queue_;
  FunctionQueue running_;
};

}  // namespace rlock::detail::net
