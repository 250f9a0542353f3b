// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/fork.hpp>

#include <uv.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>

namespace rlock::detail::net {

/// The thread that runs a loop's callbacks, and whether it may run more of them. Every callback of
/// libuv enter()s first and calls the code of others by run() only, which nothing thrown leaves.
///
/// In a child after fork() the loop's descriptors are the parent's, so every function that would
/// touch them asks usable(), abandoned() or leftInChild() first.
///
/// **Thread safety:** onIt(), known(), nobodyYet(), abandon(), abandoned(), setErrorHook() and
/// report() from any thread, the rest on the loop thread.
class LoopThread {
 public:
  /// @param owned  the loop has a thread of its own; else it is whichever last ran a callback
  void open(uv_loop_t* loop, bool owned) noexcept;
  /// The calling thread is the owned one.
  void begin() noexcept;
  /// A callback of libuv begins.
  void enter() noexcept;
  [[nodiscard]] bool onIt() const noexcept;
  /// The loop has a thread: its own, or one that has run a callback.
  [[nodiscard]] bool known() const noexcept;
  /// The loop is adopted, the calling thread has adopted it, and it has run no callback yet.
  [[nodiscard]] bool nobodyYet() const noexcept;

  /// The handles are being closed: nothing new begins.
  void setClosing() noexcept { closing_ = true; }
  [[nodiscard]] bool closing() const noexcept { return closing_; }
  void abandon() noexcept { abandoned_.store(true, std::memory_order_relaxed); }
  [[nodiscard]] bool abandoned() const noexcept {
    return forkGeneration() != forkGeneration_ || abandoned_.load(std::memory_order_relaxed);
  }
  [[nodiscard]] bool usable() const noexcept { return !closing_ && !abandoned(); }

  /// Calls a function of others.
  template <class F>
  void run(F&& function) noexcept;
  void setErrorHook(std::function<void(const char*)> hook);
  void report(const char* text) noexcept;

 private:
  bool leftInChild() noexcept;

  uv_loop_t* loop_ = nullptr;
  bool owned_ = false;
  bool closing_ = false;  // loop thread only
  std::uint64_t adopter_ = 0;
  std::atomic<std::uint64_t> thread_{0};
  std::atomic<bool> abandoned_{false};
  const std::uint32_t forkGeneration_ = forkGeneration();
  AnnotatedMutex mutex_;
  std::function<void(const char*)> errorHook_ RLOCK_GUARDED_BY(mutex_);
};

template <class F>
void LoopThread::run(F&& function) noexcept {
  if (leftInChild()) {
    return;
  }
  try {
    function();
  } catch (const std::exception& error) {
    report(error.what());
  } catch (...) {
    report("exception of unknown type");
  }
  static_cast<void>(leftInChild());
}

}  // namespace rlock::detail::net
