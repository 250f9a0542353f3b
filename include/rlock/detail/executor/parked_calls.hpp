// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/executor/call.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Calls that wait: for a pause to be over, for a connection, or for a kill. Each has a time at
/// which it waits no longer. A call is in one of these at most.
///
/// **Thread safety:** loop thread only.
class ParkedCalls {
 public:
  using Clock = std::chrono::steady_clock;
  using CallPtr = IntrusivePtr<Call>;

  /// @param due  called for a call whose time has come; it is parked no more then
  ParkedCalls(std::shared_ptr<Env> env, std::function<void(const CallPtr&)> due)
      : env_(std::move(env)), due_(std::move(due)) {}
  ParkedCalls(const ParkedCalls&) = delete;
  ParkedCalls& operator=(const ParkedCalls&) = delete;
  ~ParkedCalls() = default;

  void park(const CallPtr& call, Clock::time_point until, Call::Wait wait);
  /// Returns whether the call was parked, here or elsewhere.
  static bool unpark(Call& call) noexcept;

  [[nodiscard]] std::vector<CallPtr> waitingFor(Call::Wait wait) const;
  [[nodiscard]] bool empty() const noexcept { return calls_.empty(); }
  /// One of them; there is one.
  [[nodiscard]] CallPtr last() const { return calls_.back(); }

 private:
  void remove(Call& call) noexcept;

  const std::shared_ptr<Env> env_;
  const std::function<void(const CallPtr&)> due_;
  std::vector<CallPtr> calls_;
};

inline void ParkedCalls::park(const CallPtr& call, Clock::time_point until, Call::Wait wait) {
  call->waitsFor_ = wait;
  call->timer_ = env_->makeTimer([this, raw = call.get()] {
    // With the timer goes this function and what it has captured.
    ParkedCalls& self = *this;
    const CallPtr parked(raw);
    self.remove(*parked);
    self.due_(parked);
  });
  calls_.push_back(call);
  call->parkedIn_ = this;
  call->parkedAt_ = calls_.size() - 1;
  call->timer_->armAt(until);
}

inline bool ParkedCalls::unpark(Call& call) noexcept {
  if (call.parkedIn_ == nullptr) {
    return false;
  }
  call.parkedIn_->remove(call);
  return true;
}

inline void ParkedCalls::remove(Call& call) noexcept {
  const std::size_t index = call.parkedAt_;
  call.parkedIn_ = nullptr;
  call.timer_.reset();
  if (index + 1 != calls_.size()) {
    calls_[index] = std::move(calls_.back());
    calls_[index]->parkedAt_ = index;
  }
  calls_.pop_back();
}

inline std::vector<ParkedCalls::CallPtr> ParkedCalls::waitingFor(Call::Wait wait) const {
  std::vector<CallPtr> result;
  std::copy_if(
      calls_.begin(), calls_.end(), std::back_inserter(result), [wait](const CallPtr& call) {
        return call->waitsFor_ == wait;
      });
  return result;
}

}  // namespace rlock::detail
