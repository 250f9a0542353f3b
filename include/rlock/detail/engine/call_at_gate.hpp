// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/hold_gates.hpp>
#include <rlock/detail/engine/step_performer.hpp>
#include <rlock/detail/engine/stepped_call.hpp>

namespace rlock::detail {

/// A call before the gate of its hold: at most one request about a hold is under way, and who finds
/// another there is told when the gate is passed on, or that it never will be.
///
/// The thread that leaves the gate, or closes it, tells the next call; that call continues on the
/// loop thread, which drives it from then on.
///
/// **Thread safety:** enter() on the thread that drives, the rest from any.
class CallAtGate final : public GateWaiter {
 public:
  CallAtGate(SteppedCall& call, StepPerformer& performer) noexcept
      : call_(call), performer_(performer) {}

  /// False: SteppedCall::gatePassed() or gateRefused() will come.
  bool enter() {
    const bool endless = call_.deadline_ == SteppedCall::Clock::time_point::max();
    if (call_.gate_.enter(*this, endless)) {
      return true;
    }
    if (endless && call_.background_) {
      performer_.armDeadline(call_.gate_.limit());
    }
    return false;
  }

  void gateOpened() noexcept override {
    performer_.soon([this] {
      call_.wakeToWait();
      call_.gate_.passedOn();
      performer_.submit(call_.gatePassed());
    });
  }
  void gateClosed() noexcept override {
    performer_.soon([this] {
      call_.wakeToWait();
      performer_.perform(call_.gateRefused());
    });
  }
  void gateAddRef() noexcept override { call_.addRef(); }
  void gateDropRef() noexcept override { call_.dropRef(); }

 private:
  SteppedCall& call_;
  StepPerformer& performer_;
};

}  // namespace rlock::detail
