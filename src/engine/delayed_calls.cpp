// SPDX-License-Identifier: Apache-2.0
#include "engine/delayed_calls.hpp"

#include <algorithm>
#include <utility>

namespace rlock::detail {

DelayedCalls::Added DelayedCalls::add(Clock::time_point when, Function& function) {
  const MutexLock lock(mutex_);
  if (closed_) {
    return Added::refused;
  }
  calls_.emplace(when, std::move(function));
  const bool next = when < armed_;
  armed_ = std::min(armed_, when);
  return next ? Added::next : Added::waits;
}

std::vector<DelayedCalls::Function> DelayedCalls::due() {
  std::vector<Function> now;
  Clock::time_point next{};
  {
    const MutexLock lock(mutex_);
    const auto last = calls_.upper_bound(closed_ ? Clock::time_point::max() : env_->now());
    for (auto call = calls_.begin(); call != last; ++call) {
      now.push_back(std::move(call->second));
    }
    calls_.erase(calls_.begin(), last);
    next = armed_ = calls_.empty() ? Clock::time_point::max() : calls_.begin()->first;
  }
  timer_->armAt(next);
  return now;
}

void DelayedCalls::close() {
  const MutexLock lock(mutex_);
  closed_ = true;
}

}  // namespace rlock::detail
