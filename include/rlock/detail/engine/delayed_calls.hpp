// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/unique_function.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace rlock::detail {

/// Functions that wait for their time. The owner of this runs them.
///
/// **Thread safety:** Safe to call concurrently from any thread, unless a method says otherwise.
class DelayedCalls {
 public:
  using Clock = std::chrono::steady_clock;
  using Function = UniqueFunction<void()>;
  using Calls = std::multimap<Clock::time_point, Function>;

  enum class Added : std::uint8_t {
    refused,  ///< closed; the function was left alone
    waits,    ///< others come first
    next      ///< the loop thread has to call due() to arm the timer for it
  };

  /// @param isTime  runs on the loop thread when due() has something to give. Loop thread.
  DelayedCalls(std::shared_ptr<Env> env, Function isTime)
      : env_(std::move(env)), timer_(env_->makeTimer(std::move(isTime))) {}

  Added add(Clock::time_point when, Function& function);
  /// Takes what is due, or everything once closed, in the order of their times. It cannot fail:
  /// nobody else would run them, or arm the timer for the others. Loop thread.
  [[nodiscard]] Calls due() noexcept;
  /// Nothing is added from here on; due() gives what there is.
  void close();

 private:
  const std::shared_ptr<Env> env_;
  AnnotatedMutex mutex_;
  Calls calls_ RLOCK_GUARDED_BY(mutex_);
  Clock::time_point armed_ RLOCK_GUARDED_BY(mutex_) = Clock::time_point::max();
  bool closed_ RLOCK_GUARDED_BY(mutex_) = false;
  const std::unique_ptr<Timer> timer_;  // loop thread only
};

inline DelayedCalls::Added DelayedCalls::add(Clock::time_point when, Function& function) {
  const MutexLock lock(mutex_);
  if (closed_) {
    return Added::refused;
  }
  calls_.emplace(when, std::move(function));
  const bool next = when < armed_;
  armed_ = std::min(armed_, when);
  return next ? Added::next : Added::waits;
}

inline DelayedCalls::Calls DelayedCalls::due() noexcept {
  Calls now;
  Clock::time_point next{};
  {
    const MutexLock lock(mutex_);
    const auto last = calls_.upper_bound(closed_ ? Clock::time_point::max() : env_->now());
    while (calls_.begin() != last) {
      now.insert(now.end(), calls_.extract(calls_.begin()));
    }
    next = armed_ = calls_.empty() ? Clock::time_point::max() : calls_.begin()->first;
  }
  timer_->armAt(next);
  return now;
}

inline void DelayedCalls::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
}

}  // namespace rlock::detail
