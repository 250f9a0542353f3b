// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>

#include <atomic>

namespace rlock::detail {

/// The mutex of an object that begins its life known to one thread, and in most cases ends it so:
/// until share() is called, locking it costs nothing.
///
/// share() is called before another thread can learn of the object, or by that thread before it
/// locks the mutex for the first time; and never while the mutex is locked. So each thread that
/// knows of the object has seen it shared, by what told it of the object.
class RLOCK_CAPABILITY("mutex") LateMutex {
 public:
  /// From here on several threads may lock it.
  void share() noexcept { shared_.store(true, std::memory_order_relaxed); }

  void lock() RLOCK_ACQUIRE() RLOCK_NO_THREAD_SAFETY_ANALYSIS {
    if (shared_.load(std::memory_order_relaxed)) {
      mutex_.lock();
    }
  }
  void unlock() RLOCK_RELEASE() RLOCK_NO_THREAD_SAFETY_ANALYSIS {
    if (shared_.load(std::memory_order_relaxed)) {
      mutex_.unlock();
    }
  }

 private:
  std::atomic<bool> shared_{false};
  AnnotatedMutex mutex_;
};

}  // namespace rlock::detail
