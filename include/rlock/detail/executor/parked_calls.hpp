// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/net/request.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace rlock::detail {

/// Calls that wait: for a pause to be over, for a connection, for a kill, or for memory. Each has a
/// time at which it waits no longer, but for the last, whose times their owner looks after. A call
/// is in one of these at most.
///
/// The calls are a list through the calls themselves, in the order in which they were parked: to go
/// through it needs no memory, because that happens in answers to events that nobody can refuse.
///
/// **Thread safety:** loop thread only.
class ParkedCalls {
 public:
  using Clock = std::chrono::steady_clock;
  using CallPtr = IntrusivePtr<Call>;
  using Wait = Call::Wait;

  /// @param due  called for a call whose time has come; it is parked no more then
  ParkedCalls(std::shared_ptr<Env> env, std::function<void(const CallPtr&)> due)
      : env_(std::move(env)), due_(std::move(due)) {}
  ParkedCalls(const ParkedCalls&) = delete;
  ParkedCalls& operator=(const ParkedCalls&) = delete;
  ~ParkedCalls();

  /// Throws std::bad_alloc; the call is not parked then.
  void park(const CallPtr& call, Clock::time_point until, Wait wait);
  /// It waits for memory, and takes none.
  void parkWithoutMemory(const CallPtr& call) noexcept { append(call, Wait::memory); }
  /// Returns whether the call was parked, here or elsewhere.
  static bool unpark(Call& call) noexcept;

  /// Calls `visit(const CallPtr&)` for each call that waits for this and was parked before. The
  /// visit may park and unpark calls, the visited one included.
  template <class Visit>
  void each(Wait wait, Visit visit);
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  /// One of them; there is one.
  [[nodiscard]] CallPtr last() const { return CallPtr(last_); }

 private:
  /// A walk through the list: where it goes on. Walks may be nested.
  struct Walk {
    Call* next;
    Walk* outer;
  };

  void append(const CallPtr& call, Wait wait) noexcept;
  void remove(Call& call) noexcept;

  const std::shared_ptr<Env> env_;
  const std::function<void(const CallPtr&)> due_;
  Call* first_ = nullptr;
  Call* last_ = nullptr;
  Walk* walk_ = nullptr;
  std::uint64_t parked_ = 0;
};

inline ParkedCalls::~ParkedCalls() {
  while (!empty()) {
    const CallPtr call = last();
    remove(*call);
  }
}

inline void ParkedCalls::park(const CallPtr& call, Clock::time_point until, Wait wait) {
  std::unique_ptr<Timer> timer = env_->makeTimer([this, raw = call.get()] {
    // With the timer goes this function and what it has captured.
    ParkedCalls& self = *this;
    const CallPtr parked(raw);
    self.remove(*parked);
    self.due_(parked);
  });
  timer->armAt(until);
  call->room_->timer = std::move(timer);
  append(call, wait);
}

inline void ParkedCalls::append(const CallPtr& call, Wait wait) noexcept {
  call->room_->waitsFor = wait;
  call->room_->parkedIn = this;
  call->room_->parkedSelf = call;
  call->room_->parkedNumber = parked_++;
  call->room_->parkedBefore = last_;
  call->room_->parkedAfter = nullptr;
  (last_ != nullptr ? last_->room_->parkedAfter : first_) = call.get();
  last_ = call.get();
}

inline bool ParkedCalls::unpark(Call& call) noexcept {
  if (!call.room_ || call.room_->parkedIn == nullptr) {
    return false;
  }
  call.room_->parkedIn->remove(call);
  return true;
}

inline void ParkedCalls::remove(Call& call) noexcept {
  const IntrusivePtr<net::Request> kept = std::move(call.room_->parkedSelf);
  for (Walk* walk = walk_; walk != nullptr; walk = walk->outer) {
    if (walk->next == &call) {
      walk->next = call.room_->parkedAfter;
    }
  }
  (call.room_->parkedBefore != nullptr ? call.room_->parkedBefore->room_->parkedAfter : first_) =
      call.room_->parkedAfter;
  (call.room_->parkedAfter != nullptr ? call.room_->parkedAfter->room_->parkedBefore : last_) =
      call.room_->parkedBefore;
  call.room_->parkedIn = nullptr;
  call.room_->timer.reset();
}

template <class Visit>
void ParkedCalls::each(Wait wait, Visit visit) {
  const std::uint64_t end = parked_;
  Walk walk{first_, walk_};
  walk_ = &walk;
  while (walk.next != nullptr && walk.next->room_->parkedNumber < end) {
    const CallPtr call(walk.next);
    walk.next = call->room_->parkedAfter;
    if (call->room_->waitsFor == wait) {
      visit(call);
    }
  }
  walk_ = walk.outer;
}

}  // namespace rlock::detail
