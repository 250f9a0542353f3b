// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/lock_engine.hpp>

#include <chrono>
#include <memory>
#include <utility>

namespace rlock::detail {

/// One call's way through the gate of a hold: at most one request about a hold is under way, so
/// that the count known before a request says what the server must count after it.
///
/// **Thread safety:** limit() from any thread; the rest on the thread that drives the call.
class GatePass {
 public:
  using Clock = std::chrono::steady_clock;

  GatePass(LockEngine& engine, const std::shared_ptr<const LockScripts>& scripts, OwnerId owner)
      : engine_(engine), scripts_(scripts), owner_(owner) {}

  /// False: another call has it, and `waiter` will be told.
  /// @param inside  as in HoldGates::enter()
  template <class Inside>
  bool enter(GateWaiter& waiter, Inside inside);

  /// False: another call has it, or the client is closed.
  bool tryEnter() {
    auto gate = engine_.gates().tryEnter(scripts_, owner_);
    if (gate.entered) {
      hold_ = std::move(gate.hold);
      count_ = gate.count;
    }
    return gate.entered;
  }

  /// The gate is taken, and the call has no time limit of its own. An outage is the only thing that
  /// keeps another request of the same owner at the gate for long, so that the limit for outages
  /// holds here, too.
  void limitByOutage() noexcept {
    const auto now = engine_.now();
    const auto outage = engine_.options().outageTimeout;
    const bool ever = now > Clock::time_point::max() - outage;
    limit_.store(ever ? kNoLimit : (now + outage).time_since_epoch().count());
  }

  /// It was passed on to this call.
  void passedOn() {
    limit_.store(kNoLimit);
    hold_ = engine_.gates().entry(scripts_, owner_);
    count_ = engine_.gates().countOf(*hold_);
  }

  /// The gate was left with a booking.
  void leave(HoldGates::Left left) {
    maybeExecuted_ = false;
    hold_ = nullptr;
    engine_.gates().afterLeaving(std::move(left));
  }
  void leave() {
    maybeExecuted_ = false;
    if (const HoldPtr hold = std::exchange(hold_, nullptr)) {
      engine_.gates().leave(*hold);
    }
  }

  /// This call is inside.
  [[nodiscard]] bool entered() const noexcept { return hold_ != nullptr; }
  [[nodiscard]] Hold& hold() const noexcept { return *hold_; }
  /// How often it was held, as far as this client knows, when the gate was entered.
  [[nodiscard]] int count() const noexcept { return count_; }

  /// Whether the server may have the request at hand, which is about this hold.
  void setMaybeExecuted(bool maybe) noexcept { maybeExecuted_ = maybe; }
  [[nodiscard]] bool maybeExecuted() const noexcept { return hold_ && maybeExecuted_; }

  /// Until when a call without a time limit waits at the gate; time_point::max() while it does not.
  [[nodiscard]] Clock::time_point limit() const noexcept {
    return Clock::time_point(Clock::duration(limit_.load()));
  }

 private:
  static constexpr Clock::rep kNoLimit = Clock::time_point::max().time_since_epoch().count();

  LockEngine& engine_;
  const std::shared_ptr<const LockScripts>& scripts_;
  const OwnerId owner_;
  HoldPtr hold_;  // while this call is inside
  int count_ = 0;
  bool maybeExecuted_ = false;
  Atomic<Clock::rep> limit_{kNoLimit};
};

template <class Inside>
bool GatePass::enter(GateWaiter& waiter, Inside inside) {
  auto gate = engine_.gates().enter(scripts_, owner_, waiter, std::move(inside));
  if (gate.refused) {
    waiter.gateClosed();
  }
  if (!gate.entered) {
    return false;
  }
  hold_ = std::move(gate.hold);
  count_ = gate.count;
  return true;
}

}  // namespace rlock::detail
