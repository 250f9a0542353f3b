// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

namespace rlock::detail {

/// One thread waits for the one thing that another has to say.
///
/// **Thread safety:** put() from one thread, the rest from another.
template <class T>
class OneShot {
 public:
  using Clock = std::chrono::steady_clock;

  void put(T value) {
    // Told under the mutex: once it is free the waiting thread may destroy this object.
    const std::lock_guard lock(mutex_);
    value_.emplace(std::move(value));
    changed_.notify_all();
  }

  /// False: it did not come in time. time_point::max() is without limit.
  bool waitUntil(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    const auto there = [this] { return value_.has_value(); };
    if (deadline == Clock::time_point::max()) {
      changed_.wait(lock, there);
      return true;
    }
    return changed_.wait_until(lock, deadline, there);
  }

  /// Waits for it, and takes it.
  T take() {
    waitUntil(Clock::time_point::max());
    return std::move(*value_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<T> value_;
};

}  // namespace rlock::detail
