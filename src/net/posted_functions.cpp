// SPDX-License-Identifier: Apache-2.0
#include "net/posted_functions.hpp"

#include <new>
#include <utility>

namespace rlock::detail::net {

void PostedFunctions::open(uv_async_t& async) noexcept {
  async_ = &async;
  const MutexLock lock(mutex_);
  fillReserve();
}

void PostedFunctions::post(UniqueFunction<void()> function) {
  if (thread_.abandoned()) {
    return;
  }
  // Both outlive the lock, so a refused function is destroyed without it.
  std::unique_ptr<QueuedFunction> node(new (std::nothrow) QueuedFunction(nullptr, false));
  const MutexLock lock(mutex_);
  if (!accepts()) {
    return;
  }
  // Without memory a node of the reserve is used: the loop fills it up again when it wakes.
  if (!node) {
    node.reset(reserve_.pop());
    --reserved_;
  }
  if (!node) {
    reserved_ = 0;
    throw std::bad_alloc();
  }
  node->function = std::move(function);
  queue_.push(node.release());
  wakeLoop();
}

void PostedFunctions::post(QueuedFunction& task, std::shared_ptr<const void> owner) noexcept {
  if (thread_.abandoned() || !task.enter()) {
    return;
  }
  const MutexLock lock(mutex_);
  if (accepts()) {
    task.owner = std::move(owner);
    queue_.push(&task);
    wakeLoop();
  } else {
    // Race: the loop was closed after enter(). The task may be queued elsewhere again.
    task.leave();
  }
}

/// One wake-up is enough until run(): uv_async_send() costs a system call. The handle is still
/// open, because it is closed after end(), which takes the same mutex and refuses what comes later.
void PostedFunctions::wakeLoop() noexcept {
  if (!signalled_) {
    signalled_ = true;
    uv_async_send(async_);
  }
}

void PostedFunctions::wake() noexcept {
  const MutexLock lock(mutex_);
  wakeLoop();
}

void PostedFunctions::close() noexcept {
  const MutexLock lock(mutex_);
  if (accepting_) {
    accepting_ = false;
    wakeLoop();
  }
}

bool PostedFunctions::idle() noexcept {
  const MutexLock lock(mutex_);
  return queue_.empty();
}

void PostedFunctions::end() noexcept {
  // An object that a function owns may be destroyed with it, and queue more in vain.
  FunctionQueue dropped;
  const MutexLock lock(mutex_);
  accepting_ = false;
  ended_ = true;
  dropped.swap(queue_);
}

void PostedFunctions::fillReserve() noexcept {
  while (reserved_ < kReserve) {
    auto* const node = new (std::nothrow) QueuedFunction(nullptr, false);
    if (node == nullptr) {
      return;
    }
    reserve_.push(node);
    ++reserved_;
  }
}

bool PostedFunctions::run() noexcept {
  bool closed = false;
  {
    const MutexLock lock(mutex_);
    running_.swap(queue_);
    // Before the functions run: what is queued from here on needs another wake-up.
    signalled_ = false;
    closed = !accepting_;
    fillReserve();
  }
  running_.run([this](UniqueFunction<void()>& function) { thread_.run(function); });
  return closed;
}

void PassEndFunctions::open(uv_loop_t* loop) noexcept {
  // It cannot fail.
  uv_prepare_init(loop, &prepare_);
  prepare_.data = this;
}

void PassEndFunctions::add(UniqueFunction<void()> function) {
  if (thread_.usable()) {
    push(std::make_unique<QueuedFunction>(std::move(function), false).release());
  }
}

void PassEndFunctions::add(QueuedFunction& task, std::shared_ptr<const void> owner) noexcept {
  if (thread_.usable() && task.enter()) {
    task.owner = std::move(owner);
    push(&task);
  }
}

void PassEndFunctions::push(QueuedFunction* node) noexcept {
  if (queue_.empty()) {
    uv_prepare_start(&prepare_, &PassEndFunctions::onPrepare);
  }
  queue_.push(node);
}

void PassEndFunctions::onPrepare(uv_prepare_t* handle) noexcept {
  auto* const self = static_cast<PassEndFunctions*>(handle->data);
  if (self->thread_.abandoned()) {
    return;
  }
  self->thread_.enter();
  self->run();
}

void PassEndFunctions::run() noexcept {
  running_.swap(queue_);
  uv_prepare_stop(&prepare_);
  running_.run([this](UniqueFunction<void()>& function) { thread_.run(function); });
  if (!queue_.empty() && !thread_.abandoned()) {
    // Asked for by one of those just run: without a wake-up it would wait for the next event.
    posted_.wake();
  }
}

}  // namespace rlock::detail::net
