// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/waiter.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <utility>

namespace rlock::detail {

/// Says who may pass the first waiter of a wake-up queue whose waiters need different amounts
/// (WakeRule::bestFit): permits that are too few for the first must not lie idle, and the first
/// must not wait for ever.
///
/// Invariants: every waiter of the queue is in here once, under what it needs, in the order of
/// arrival. Nobody tries who needs as much as was refused since the first waiter last tried, for
/// within that time others only take. When the first is passed for the first time, time is divided
/// into spans as long as the safety poll: in the first span others pass, in the second nobody does,
/// so that what becomes free can add up, and so on in turns.
///
/// WakeupQueue is its only caller and gives the turns; this class decides and reads no clock.
///
/// **Thread safety:** One thread at a time, together with the other wake-up queues of the client.
class BestFitOrder {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// Takes the memory that add() needs.
  void makeRoom(int need) { needs_.try_emplace(need); }
  /// A new waiter is the last of those that need as much.
  void add(Waiter& waiter, int need) noexcept {
    waiter.need_ = need;
    waiter.number_ = ++arrivals_;
    needs_.find(need)->second.pushBack(waiter);
  }
  void remove(Waiter& waiter) noexcept;

  /// The first waiter tries, or there is none any more: whatever was refused before says nothing.
  void firstTries() noexcept { refused_ = kNothing; }
  /// Another waiter is the first, which nobody has passed yet.
  void firstHasLeft() noexcept { passing_ = false; }
  void refused(const Waiter& waiter) noexcept { refused_ = std::min(refused_, waiter.need_); }

  /// The waiter that passes the first now: of those that have no turn and need less than was
  /// refused, the one that came first. Null: there is none, or the present span is the first
  /// waiter's own.
  /// @param span     the length of a span, more than zero
  /// @param hasTurn  `bool(const Waiter&)`: it tries already
  template <class HasTurn>
  [[nodiscard]] Waiter* pass(TimePoint now,
                             std::chrono::milliseconds span,
                             HasTurn hasTurn) noexcept;

 private:
  static constexpr int kNothing = std::numeric_limits<int>::max();

  using Fellows = WaiterChain<&Waiter::fellows_>;

  std::map<int, Fellows> needs_;
  std::uint64_t arrivals_ = 0;
  int refused_ = kNothing;   // the least that was refused since the first waiter last tried
  bool passing_ = false;     // the present first waiter was passed
  TimePoint passedSince_{};  // for the first time
};

inline void BestFitOrder::remove(Waiter& waiter) noexcept {
  const auto found = needs_.find(waiter.need_);
  found->second.remove(waiter);
  if (found->second.empty()) {
    needs_.erase(found);
  }
}

template <class HasTurn>
Waiter* BestFitOrder::pass(TimePoint now,
                           std::chrono::milliseconds span,
                           HasTurn hasTurn) noexcept {
  if (passing_ && (now - passedSince_) / span % 2 != 0) {
    return nullptr;
  }
  Waiter* next = nullptr;
  for (const auto& [need, fellows] : needs_) {
    if (need >= refused_) {
      break;
    }
    Waiter* asleep = fellows.front();
    while (asleep != nullptr && hasTurn(*asleep)) {
      asleep = Fellows::after(*asleep);
    }
    if (asleep != nullptr && (next == nullptr || asleep->number_ < next->number_)) {
      next = asleep;
    }
  }
  if (next != nullptr && !std::exchange(passing_, true)) {
    passedSince_ = now;
  }
  return next;
}

}  // namespace rlock::detail
