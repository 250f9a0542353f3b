// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/unique_function.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

namespace rlock::detail {

/// Calls a function once at a point in time.
///
/// **Thread safety:** loop thread only. May be re-armed, disarmed or destroyed in its own callback.
class Timer {
 public:
  using Clock = std::chrono::steady_clock;

  Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;
  /// Disarms.
  virtual ~Timer() = default;

  /// Sets the point in time, replacing an earlier one. The timer expires at `due` or a little
  /// later, never earlier; timers with the same `due` expire in the order they were armed.
  /// time_point::max() is never.
  virtual void armAt(Clock::time_point due) noexcept = 0;
  virtual void disarm() noexcept = 0;
  [[nodiscard]] virtual bool armed() const noexcept = 0;
};

/// A function that is made once and then queued as often as needed, without allocating memory. When
/// it is queued twice before it runs, it runs once.
///
/// **Thread safety:** post() from any thread; the function runs on the loop thread.
class ReadyTask {
 public:
  ReadyTask() = default;
  ReadyTask(const ReadyTask&) = delete;
  ReadyTask& operator=(const ReadyTask&) = delete;
  virtual ~ReadyTask() = default;

  /// As Env::post(). `owner`, which must own this task, is kept alive until the function has run.
  virtual void post(std::shared_ptr<const void> owner) noexcept = 0;
};

/// The environment of a client, apart from its connections: time, the loop that runs its background
/// work, and sleeping. All layers above the connections get these services here and nowhere else,
/// so that a simulation can take the place of the real environment. A client belongs to one Env.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
class Env {
 public:
  using Clock = std::chrono::steady_clock;

  Env() = default;
  Env(const Env&) = delete;
  Env& operator=(const Env&) = delete;
  virtual ~Env() = default;

  [[nodiscard]] virtual Clock::time_point now() const noexcept = 0;
  /// Call it on the loop thread, or before the loop runs.
  [[nodiscard]] virtual std::unique_ptr<Timer> makeTimer(UniqueFunction<void()> onExpiry) = 0;

  /// Runs a function on the loop thread, first in, first out, and never inside this call. After the
  /// loop was stopped, the function is destroyed without being run.
  /// @throws std::bad_alloc
  virtual void post(UniqueFunction<void()> function) = 0;
  [[nodiscard]] virtual std::unique_ptr<ReadyTask> makeTask(UniqueFunction<void()> function) = 0;
  [[nodiscard]] virtual bool onLoopThread() const noexcept = 0;
  /// Runs a function on some other thread, also when there is no loop any more.
  virtual void runElsewhere(UniqueFunction<void()> function) = 0;

  /// Sleeps while `word` is `expected`, at most until `deadline` (time_point::max(): no limit). May
  /// return early for no reason.
  virtual void sleep(const std::atomic<std::uint32_t>& word,
                     std::uint32_t expected,
                     Clock::time_point deadline) noexcept = 0;
  /// Wakes one thread that sleeps on `word`. The word may be gone already: then no thread is woken.
  virtual void wakeOne(const std::atomic<std::uint32_t>* word) noexcept = 0;

  /// Whether now() goes on by itself. Otherwise nobody may have to wait for a moment that no call
  /// asks for.
  [[nodiscard]] virtual bool timePasses() const noexcept { return true; }
  /// This thread begins a call that may wait for what others do. For an Env whose time does not
  /// pass by itself, as the next one.
  virtual void callBegins() noexcept {}
  /// The client is being closed: from here on a thread that sleeps waits for the loop, and not for
  /// what other clients do.
  virtual void closing() noexcept {}
  /// Runs the functions that are queued until then and ends the loop. On a thread other than the
  /// loop thread it waits for the end, at most until `deadline`.
  virtual void stop(Clock::time_point deadline) noexcept = 0;
  /// Keeps the client alive until its loop has ended, and destroys it on the loop thread if nobody
  /// else refers to it then. stop() may return before that end, and whatever has a timer may not be
  /// destroyed beside it. An Env whose timers may be destroyed on any thread has nothing to do.
  virtual void keepToTheEnd(std::shared_ptr<const void> /*client*/) noexcept {}
  /// Called in the child after fork(): every later call does nothing. The object leaks by
  /// intention.
  virtual void abandonInChild() noexcept = 0;
  [[nodiscard]] virtual bool abandoned() const noexcept = 0;
};

}  // namespace rlock::detail
