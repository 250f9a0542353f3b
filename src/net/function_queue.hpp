// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/block_cache.hpp>
#include <rlock/detail/base/unique_function.hpp>

#include <atomic>
#include <memory>
#include <utility>

namespace rlock::detail::net {

/// One function in a queue. Queueing takes no memory, so that what has been made can be queued
/// whatever happens.
struct QueuedFunction final : FromBlockCache<QueuedFunction> {
  QueuedFunction(UniqueFunction<void()> work, bool belongsToTask) noexcept
      : function(std::move(work)), ofTask(belongsToTask) {}

  /// False: it is queued already.
  bool enter() noexcept { return !queued.exchange(true, std::memory_order_acq_rel); }
  void leave() noexcept { queued.store(false, std::memory_order_release); }

  UniqueFunction<void()> function;
  QueuedFunction* next = nullptr;
  /// Owned by a LoopTask, and through it by `owner` while it is queued; else by the queue.
  const bool ofTask;
  std::shared_ptr<const void> owner{};
  Atomic<bool> queued{false};
};

/// First in, first out.
///
/// **Thread safety:** One thread at a time.
class FunctionQueue {
 public:
  FunctionQueue() noexcept = default;
  FunctionQueue(const FunctionQueue&) = delete;
  FunctionQueue& operator=(const FunctionQueue&) = delete;
  ~FunctionQueue() { clear(); }

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  void push(QueuedFunction* node) noexcept {
    node->next = nullptr;
    (last_ == nullptr ? first_ : last_->next) = node;
    last_ = node;
  }
  /// Null when empty.
  QueuedFunction* pop() noexcept;
  void swap(FunctionQueue& other) noexcept {
    std::swap(first_, other.first_);
    std::swap(last_, other.last_);
  }
  /// Takes all out and has `call` call each.
  /// @param call  gets the function and does not throw
  template <class Call>
  void run(Call call) noexcept;
  /// Drops what was not run.
  void clear() noexcept {
    while (QueuedFunction* const node = pop()) {
      drop(node);
    }
  }

 private:
  static void drop(QueuedFunction* node) noexcept {
    if (node->ofTask) {
      const std::shared_ptr<const void> owner = std::move(node->owner);
      node->leave();
    } else {
      delete node;
    }
  }

  QueuedFunction* first_ = nullptr;
  QueuedFunction* last_ = nullptr;
};

inline QueuedFunction* FunctionQueue::pop() noexcept {
  QueuedFunction* const node = first_;
  if (node != nullptr) {
    first_ = node->next;
    if (first_ == nullptr) {
      last_ = nullptr;
    }
  }
  return node;
}

template <class Call>
void FunctionQueue::run(Call call) noexcept {
  while (QueuedFunction* const node = pop()) {
    if (!node->ofTask) {
      const std::unique_ptr<QueuedFunction> owned(node);
      call(owned->function);
      continue;
    }
    const std::shared_ptr<const void> owner = std::move(node->owner);
    // Before it runs: whoever finds it queued may rely on being seen by it. An exchange, so that
    // it is ordered after all of them.
    static_cast<void>(node->queued.exchange(false, std::memory_order_acq_rel));
    call(node->function);
  }
}

}  // namespace rlock::detail::net
