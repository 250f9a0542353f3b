// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/env.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace rlock::detail {

/// One thread waits for the one thing that another has to say, by the clock of an Env.
///
/// **Thread safety:** put() from one thread, the rest from another. The caller of put() keeps the
/// object alive until it returns.
template <class T>
class OneShot {
 public:
  using Clock = std::chrono::steady_clock;

  explicit OneShot(std::shared_ptr<Env> env) noexcept : env_(std::move(env)) { env_->callBegins(); }

  void put(T value) {
    value_.emplace(std::move(value));
    there_.store(1, std::memory_order_release);
    env_->wakeOne(&there_.word());
  }

  /// False: it did not come in time. time_point::max() is without limit.
  bool waitUntil(Clock::time_point deadline);

  /// Waits for it, and takes it.
  T take() {
    waitUntil(Clock::time_point::max());
    return std::move(*value_);
  }

 private:
  const std::shared_ptr<Env> env_;
  std::optional<T> value_;  // put()'s until there_ is 1, and take()'s from then on
  Atomic<std::uint32_t> there_{0};
};

template <class T>
bool OneShot<T>::waitUntil(Clock::time_point deadline) {
  while (there_.load(std::memory_order_acquire) == 0) {
    if (deadline != Clock::time_point::max() && env_->now() >= deadline) {
      return false;
    }
    env_->sleep(there_.word(), 0, deadline);
  }
  return true;
}

}  // namespace rlock::detail
