// SPDX-License-Identifier: Apache-2.0
#include "net/loop_core.hpp"

#include "net/blocked_signals.hpp"
#include <rlock/error.hpp>

#include <exception>
#include <pthread.h>
#include <utility>

namespace rlock::detail::net {

void throwCannot(const char* what, const char* why) {
  throw Error(Errc::connectionFailed, std::string("cannot ") + what + ": " + why);
}

// The beginning.

void LoopCore::open(uv_loop_t* adopted) {
  owned_ = adopted == nullptr;
  loop_ = owned_ ? &ownLoop_ : adopted;
  loopThread_.open(loop_, owned_);
  if (owned_) {
    if (const int status = uv_loop_init(loop_); status != 0) {
      throwCannot("create an event loop", uv_strerror(status));
    }
  }
  if (const int status = uv_async_init(loop_, &async_, &LoopCore::onAsync); status != 0) {
    if (owned_) {
      uv_loop_close(loop_);
    }
    throwCannot("create a wake-up handle", uv_strerror(status));
  }
  async_.data = this;
  passEnd_.open(loop_);
  timers_.open(loop_);
  openHandles_ = 3;
  self_ = shared_from_this();
  posted_.open(async_);
}

void LoopCore::startThread(std::string name) {
  try {
    // A signal of the application is to be handled by one of its own threads.
    const BlockedSignals blocked;
    // Race: the new thread may come to stop(), which takes thread_, before it is assigned.
    const MutexLock lock(mutex_);
    thread_ = std::thread(
        [core = shared_from_this(), name = std::move(name)]() noexcept { core->runThread(name); });
  } catch (const std::exception& error) {
    // Handles can only be closed by a loop that runs, so this thread runs it once.
    posted_.close();
    closeAll();
    uv_run(loop_, UV_RUN_DEFAULT);
    uv_loop_close(loop_);
    throwCannot("start the loop thread", error.what());
  }
}

void LoopCore::runThread(const std::string& name) noexcept {
  loopThread_.begin();
  char shortName[16] = {};  // Linux allows no longer ones
  name.copy(shortName, sizeof(shortName) - 1);
  pthread_setname_np(pthread_self(), shortName);
  uv_run(loop_, UV_RUN_DEFAULT);
  if (loopThread_.abandoned()) {
    return;
  }
  if (const int status = uv_loop_close(loop_); status != 0) {
    loopThread_.report("the event loop ended with open handles");
  }
  markFinished();
}

void LoopCore::onAsync(uv_async_t* handle) noexcept {
  auto* const core = static_cast<LoopCore*>(handle->data);
  if (core->loopThread_.abandoned()) {
    // In a child. The functions are the parent's, and so was whoever held their mutex.
    return;
  }
  core->loopThread_.enter();
  if (core->posted_.run()) {
    core->closeAll();
  }
}

// The end.

bool LoopCore::stop(SteadyClock::time_point deadline) {
  if (loopThread_.abandoned()) {
    return true;
  }
  posted_.close();
  std::thread thread;
  bool finished = false;
  {
    const MutexLock lock(mutex_);
    const bool onLoop = loopThread_.onIt();
    if (onLoop) {
      // A callback ends its own loop: it cannot wait for itself. The loop ends when it returns.
      finished = true;
    } else if (loopThread_.nobodyYet()) {
      // Nobody but this thread could run the loop: waiting would only use up the time.
      finished = finished_;
    } else {
      finished = finishedChanged_.wait_until(
          mutex_, deadline, [this]() RLOCK_REQUIRES(mutex_) { return finished_; });
    }
    thread = std::move(thread_);
    // A thread cannot join itself, and one that is late must not keep the caller for longer.
    if (thread.joinable() && (onLoop || !finished)) {
      thread.detach();
    }
  }
  if (thread.joinable()) {
    thread.join();
  }
  return finished;
}

void LoopCore::keepToTheEnd(std::shared_ptr<const void> object) noexcept {
  const MutexLock lock(mutex_);
  if (!disarmed_) {
    // The one that is replaced is destroyed with the parameter, without the mutex.
    kept_.swap(object);
  }
}

void LoopCore::closeAll() noexcept {
  if (!loopThread_.usable()) {
    return;
  }
  runLast();
  loopThread_.setClosing();
  passEnd_.clear();
  timers_.disarmAll();
  polls_.stopAll();
  // A function that is refused from here on is destroyed on the thread that queued it, with all
  // Timers and Polls that it has.
  posted_.end();
  close(reinterpret_cast<uv_handle_t*>(&async_));
  close(reinterpret_cast<uv_handle_t*>(&passEnd_.handle()));
  close(reinterpret_cast<uv_handle_t*>(&timers_.handle()));
  std::shared_ptr<const void> kept;
  const MutexLock lock(mutex_);
  disarmed_ = true;
  kept_.swap(kept);
}

/// Runs what is left, and what that leaves: the end of a request is told in steps.
void LoopCore::runLast() noexcept {
  for (int pass = 0; pass < kLastPasses; ++pass) {
    passEnd_.run();
    if (posted_.idle() || !loopThread_.usable()) {
      break;
    }
    posted_.run();
  }
}

void LoopCore::close(uv_handle_t* handle) noexcept {
  handle->data = this;
  uv_close(handle, &LoopCore::onClosed);
}

void LoopCore::onClosed(uv_handle_t* handle) noexcept {
  static_cast<LoopCore*>(handle->data)->handleClosed();
}

void LoopCore::handleClosed() noexcept {
  if (--openHandles_ > 0) {
    return;
  }
  // The handles were in this object: it lives until libuv has let go of the last one.
  const std::shared_ptr<LoopCore> keep = std::move(self_);
  // Of a loop of its own the thread says so, when it has closed that, too.
  if (!owned_) {
    markFinished();
  }
}

void LoopCore::markFinished() noexcept {
  const MutexLock lock(mutex_);
  finished_ = true;
  finishedChanged_.notify_all();
}

}  // namespace rlock::detail::net
