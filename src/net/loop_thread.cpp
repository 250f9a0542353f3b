// SPDX-License-Identifier: Apache-2.0
#include "net/loop_thread.hpp"

#include <utility>

namespace rlock::detail::net {

namespace {

/// Never given twice in a process, unlike the system's numbers and addresses of threads.
std::uint64_t thisThread() noexcept {
  static std::atomic<std::uint64_t> last{0};
  thread_local std::uint64_t id = 0;
  if (id == 0) {
    id = last.fetch_add(1, std::memory_order_relaxed) + 1;
  }
  return id;
}
constexpr std::uint64_t kNoThread = 0;

}  // namespace

void LoopThread::open(uv_loop_t* loop, bool owned) noexcept {
  loop_ = loop;
  owned_ = owned;
  adopter_ = thisThread();
}

void LoopThread::begin() noexcept {
  thread_.store(thisThread(), std::memory_order_relaxed);
}

void LoopThread::enter() noexcept {
  if (!owned_) {
    thread_.store(thisThread(), std::memory_order_relaxed);
  }
}

bool LoopThread::onIt() const noexcept {
  return thread_.load(std::memory_order_relaxed) == thisThread();
}

bool LoopThread::known() const noexcept {
  return owned_ || thread_.load(std::memory_order_relaxed) != kNoThread;
}

bool LoopThread::nobodyYet() const noexcept {
  return !known() && adopter_ == thisThread();
}

/// True in a child that was forked in a callback. The descriptors it polls are the
/// parent's: it runs nothing more and ends with the callback. An adopted one is its owner's to
/// leave alone.
bool LoopThread::leftInChild() noexcept {
  if (forkGeneration() == forkGeneration_) {
    return false;
  }
  if (owned_) {
    uv_stop(loop_);
  }
  return true;
}

void LoopThread::report(const char* text) noexcept {
  try {
    std::function<void(const char*)> hook;
    {
      const MutexLock lock(mutex_);
      hook = errorHook_;
    }
    if (hook) {
      hook(text);
    }
  } catch (...) {
    // There is nobody left to tell.
  }
}

void LoopThread::setErrorHook(std::function<void(const char*)> hook) {
  if (abandoned()) {
    return;
  }
  const MutexLock lock(mutex_);
  errorHook_.swap(hook);
}

}  // namespace rlock::detail::net
