// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/engine/hold_gates.hpp>
#include <rlock/detail/engine/step_performer.hpp>
#include <rlock/detail/engine/stepped_call.hpp>

#include <utility>

namespace rlock::detail {

/// A call before the gate of its hold: at most one request about a hold is under way, and who finds
/// another there is told when the gate is passed on, or that it never will be.
///
/// The loop thread tells the next call, and drives it from then on.
///
/// **Thread safety:** enter() on the thread that drives, the rest from any.
class CallAtGate final : public GateWaiter {
 public:
  CallAtGate(SteppedCall& call, StepPerformer& performer) noexcept
      : call_(call), performer_(performer) {}

  /// False: SteppedCall::gatePassed() or gateRefused() will come.
  /// @param inside  as in HoldGates::enter()
  template <class Inside>
  bool enter(Inside inside);

  void gateShut() noexcept override {
    call_.addRef();
    // The loop thread may go on with the call from here on.
    call_.mutex_.share();
    if (endless()) {
      call_.gate_.limitByOutage();
    }
  }
  void gateOpened() noexcept override {
    performer_.guarded([this] {
      if (const CallStep step = performer_.takePutOff(); step != CallStep::none) {
        performer_.perform(step);
        return;
      }
      call_.wakeToWait();
      call_.gate_.passedOn();
      performer_.submit(call_.gatePassed());
    });
  }
  void gateClosed() noexcept override {
    call_.mutex_.share();
    const auto refused = [this] {
      call_.wakeToWait();
      performer_.perform(call_.gateRefused());
    };
    // All calls at all gates are told at once, more than the loop has a reserve for.
    if (!ifThereIsMemory([&] { performer_.soon(refused); })) {
      performer_.guarded(refused);
    }
  }
  void gateDropRef() noexcept override { call_.dropRef(); }

 private:
  [[nodiscard]] bool endless() const noexcept {
    return call_.deadline_ == SteppedCall::Clock::time_point::max();
  }

  SteppedCall& call_;
  StepPerformer& performer_;
};

template <class Inside>
bool CallAtGate::enter(Inside inside) {
  if (call_.gate_.enter(*this, std::move(inside))) {
    return true;
  }
  if (endless() && call_.background_) {
    performer_.armDeadline(call_.gate_.limit());
  }
  return false;
}

}  // namespace rlock::detail
