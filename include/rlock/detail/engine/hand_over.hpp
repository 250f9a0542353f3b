// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/waiter.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>

#include <chrono>
#include <utility>

namespace rlock::detail {

/// The outcome of a hand-over, which the release tells the waiter: one of done(), refused() and
/// lost(), once. A release that ends without an outcome, because the loop has ended, tells nothing;
/// the waiter hears of the closing.
///
/// **Thread safety:** One thread at a time.
class HandOver {
 public:
  using Clock = std::chrono::steady_clock;

  HandOver() noexcept = default;
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;
  ~HandOver() { drop(); }

  /// Offers the lock to a waiter that has a turn for it.
  /// @param waiter  with a reference, which this keeps or drops; null: there is none
  /// @param sentAt  when the request is sent, or a moment before
  void offer(Waiter* waiter, Clock::time_point sentAt) noexcept {
    if (waiter != nullptr && waiter->offered(sentAt, next_)) {
      waiter_ = waiter;
    } else if (waiter != nullptr) {
      waiter->waiterDropRef();
    }
  }

  /// A waiter has been offered the lock and has not been told yet.
  [[nodiscard]] bool open() const noexcept { return waiter_ != nullptr; }
  [[nodiscard]] const HandOverRequest& next() const noexcept { return next_; }

  /// The server has done it.
  void done(Clock::time_point answeredAt) noexcept {
    if (waiter_ != nullptr) {
      waiter_->handedOver(answeredAt);
      drop();
    }
  }
  /// It has not, and will not.
  void refused() noexcept {
    if (waiter_ != nullptr) {
      waiter_->notHandedOver();
      drop();
    }
  }
  /// It may have. Loop thread.
  void lost(const Call& request) noexcept {
    if (waiter_ != nullptr) {
      waiter_->handOverLost(request);
      drop();
    }
  }

 private:
  void drop() noexcept {
    if (Waiter* const waiter = std::exchange(waiter_, nullptr)) {
      waiter->waiterDropRef();
    }
  }

  Waiter* waiter_ = nullptr;
  HandOverRequest next_{};
};

}  // namespace rlock::detail
