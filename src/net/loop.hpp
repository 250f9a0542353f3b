// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/deadline_heap.hpp>
#include <rlock/detail/base/unique_function.hpp>

#include <uv.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace rlock::detail::net {

class LoopCore;
struct PollHandle;
struct QueuedFunction;

/// One libuv event loop, with a thread of its own or run by the caller.
///
/// **Thread safety:** post(), onLoopThread(), stop(), keepToTheEnd() and setErrorHook() from any
/// thread; everything else, and every Timer and Poll, on the loop thread only.
///
/// Nothing a callback throws leaves it: it is reported to the error hook and the loop goes on.
class Loop : public std::enable_shared_from_this<Loop> {
 public:
  /// Starts a thread that blocks all signals and is named by the first 15 bytes of `threadName`.
  /// @throws rlock::Error  connectionFailed when the process has no descriptors or threads left
  static std::shared_ptr<Loop> createOwned(std::string threadName);

  /// Uses the caller's loop, which the caller runs and which must outlive stop(). Call it on that
  /// loop's thread, or before it runs. Until stop() our handles keep uv_run() from returning.
  /// @throws rlock::Error  connectionFailed, as createOwned()
  static std::shared_ptr<Loop> adopt(uv_loop_t* loop);

  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  /// Stops, and waits at most one second for it.
  ~Loop();

  /// Queues a function: first in, first out, never called inside post(). One pass runs only what
  /// was queued when it began. When the loop has ended the function is destroyed unrun. For want of
  /// memory it uses up a small reserve before it fails.
  void post(UniqueFunction<void()> function);

  /// True on the owned thread. For an adopted loop: true on the thread that last ran a callback of
  /// ours, so false everywhere until there was one.
  [[nodiscard]] bool onLoopThread() const noexcept;

  [[nodiscard]] uv_loop_t* raw() noexcept;

  /// Runs once after the current batch of callbacks, before the loop polls again. Does not wake an
  /// idle loop by itself.
  void atPassEnd(UniqueFunction<void()> function);

  /// Runs what is queued, what that queues in turn and what other threads queue meanwhile, then
  /// closes all handles, Polls included, and disarms all Timers. A loop that nobody has ever run
  /// takes nothing more from here on; what comes to one that is run no more waits until it is.
  ///
  /// On the loop thread it only marks the end, and the next pass does the rest. Elsewhere it waits
  /// for that, at most until `deadline`; past it the loop finishes on its own.
  ///
  /// @returns false when the deadline came first, or when nobody has ever run the adopted loop
  bool stop(std::chrono::steady_clock::time_point deadline) noexcept;

  /// Keeps one object, the latest that was given, until all Timers are disarmed and all Polls are
  /// stopped. From then on the Timers and Polls that it has may be destroyed on any thread, and
  /// nothing is kept any more.
  void keepToTheEnd(std::shared_ptr<const void> object) noexcept;

  /// Told of exceptions out of callbacks and of handles left open at the end. Called on the loop
  /// thread; must not throw.
  void setErrorHook(std::function<void(const char*)> hook);

  /// In the child after fork(): forgets the thread and the loop without touching either. Every
  /// later call does nothing. Leaks by intention.
  void abandonInChild() noexcept;
  [[nodiscard]] bool abandoned() const noexcept;

 private:
  friend class LoopTask;
  friend class Timer;
  friend class Poll;

  explicit Loop(std::shared_ptr<LoopCore> core) noexcept;

  std::shared_ptr<LoopCore> core_;
};

/// A function that is made once and then queued as often as needed, without memory: for what must
/// be possible whatever happens. Queued twice before it runs, it runs once.
///
/// **Thread safety:** post() from any thread, the rest on the loop thread. May be destroyed in its
/// own function.
class LoopTask {
 public:
  LoopTask(Loop& loop, UniqueFunction<void()> function);
  LoopTask(const LoopTask&) = delete;
  LoopTask& operator=(const LoopTask&) = delete;
  ~LoopTask();

  /// As Loop::post(). `owner`, which must own this task, is kept alive until the function has run.
  void post(std::shared_ptr<const void> owner) noexcept;
  /// As Loop::atPassEnd(). A task is used with this or with post(), never with both.
  void atPassEnd(std::shared_ptr<const void> owner) noexcept;

 private:
  std::shared_ptr<LoopCore> core_;
  std::unique_ptr<QueuedFunction> node_;
};

/// Calls a function once at a point in time. All timers of a loop share one libuv timer.
///
/// **Thread safety:** loop thread only. May be re-armed, disarmed or destroyed in its own callback.
class Timer {
 public:
  Timer(Loop& loop, UniqueFunction<void()> onExpiry);
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  /// Disarms.
  ~Timer();

  /// Replaces an earlier point in time. Expires at `due` or up to a millisecond later, never
  /// earlier; timers with the same `due` expire in the order they were armed. time_point::max() is
  /// never. Does nothing after the loop was stopped.
  void armAt(std::chrono::steady_clock::time_point due) noexcept;
  void disarm() noexcept;
  [[nodiscard]] bool armed() const noexcept { return hook_.linked(); }
  /// time_point::max() when not armed.
  [[nodiscard]] std::chrono::steady_clock::time_point due() const noexcept { return hook_.due(); }

 private:
  friend class LoopTimers;

  std::shared_ptr<LoopCore> core_;
  UniqueFunction<void()> onExpiry_;
  DeadlineHook hook_;
  bool* destroyed_ = nullptr;
};

/// Watches a descriptor that somebody else owns.
///
/// **Thread safety:** loop thread only. May be restarted, stopped or destroyed in its own callback.
class Poll {
 public:
  /// Gets zero or an error of libuv, and the events that have happened. libuv 1.44 reports a socket
  /// in error state as UV_EBADF without events; read or write it then to learn why.
  using Callback = UniqueFunction<void(int status, int events)>;

  Poll(Loop& loop, int fd);
  Poll(const Poll&) = delete;
  Poll& operator=(const Poll&) = delete;
  /// Stops.
  ~Poll();

  /// Watches for `uvEvents` (UV_READABLE, UV_WRITABLE, ...) until stop(); replaces an earlier
  /// start(). The first start() sets O_NONBLOCK on the descriptor. Does nothing after the loop was
  /// stopped.
  /// @throws rlock::Error  connectionFailed when libuv refuses the descriptor
  void start(int uvEvents, Callback callback);
  /// Changes the events and keeps the callback; start() must have been called.
  void setEvents(int uvEvents);
  /// From here on the descriptor is not touched, so it may be closed.
  void stop() noexcept;
  [[nodiscard]] bool active() const noexcept { return handle_ != nullptr; }

 private:
  friend class LoopPolls;

  std::shared_ptr<LoopCore> core_;
  int fd_;
  PollHandle* handle_ = nullptr;
};

}  // namespace rlock::detail::net
