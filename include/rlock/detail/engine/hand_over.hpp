// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/waiter.hpp>
#include <rlock/detail/engine/waiting_room.hpp>
#include <rlock/detail/executor/lock_scripts.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace rlock::detail {

/// The fate of a lock that a release gives up while owners of the same client wait for it: it is
/// handed over to the first of them, or, when a chain of hand-overs ends, released for everybody
/// with the question who hears of it. The release tells the outcome: one of done(), released(),
/// refused() and lost(), once. A release that ends without an outcome, because the loop has ended,
/// tells nothing; the waiters hear of the closing.
///
/// **Thread safety:** One thread at a time.
class HandOver {
 public:
  using Clock = std::chrono::steady_clock;

  HandOver() noexcept = default;
  HandOver(const HandOver&) = delete;
  HandOver& operator=(const HandOver&) = delete;
  ~HandOver() { drop(); }

  /// Offers the lock to the first waiter.
  /// @param room    of the waiters; must stay, as must `lock`
  /// @param sentAt  when the request is sent, or a moment before
  void offer(WaitingRoom& room, const LockScripts& lock, Clock::time_point sentAt) noexcept;

  /// The outcome is to be told.
  [[nodiscard]] bool open() const noexcept { return waiter_ != nullptr || pause_ != 0; }
  /// A waiter has been offered the lock and has not been told yet.
  [[nodiscard]] bool toWaiter() const noexcept { return waiter_ != nullptr; }
  [[nodiscard]] const HandOverRequest& next() const noexcept { return next_; }

  /// The server has done it.
  void done(Clock::time_point answeredAt) noexcept {
    if (waiter_ != nullptr) {
      waiter_->handedOver(answeredAt);
      drop();
    }
  }
  /// The server has not handed it over.
  /// @param receivers  how many clients were told that the lock is free; empty: not known, or the
  ///                   lock is not
  void released(std::optional<std::int64_t> receivers) noexcept {
    if (waiter_ != nullptr) {
      waiter_->notHandedOver();
      drop();
    }
    endPause(receivers);
  }
  /// It has not, and will not.
  void refused() noexcept { released(std::nullopt); }
  /// It may have. Loop thread.
  void lost(const Call& request) noexcept {
    if (waiter_ != nullptr) {
      waiter_->handOverLost(request);
      drop();
    }
    endPause(std::nullopt);
  }

 private:
  void drop() noexcept {
    if (Waiter* const waiter = std::exchange(waiter_, nullptr)) {
      waiter->waiterDropRef();
    }
  }

  void endPause(std::optional<std::int64_t> receivers) noexcept {
    if (const auto pause = std::exchange(pause_, 0)) {
      room_->releasedForAll(lock_->channel, lock_->traits.wakeupQueue, pause, receivers);
    }
  }

  Waiter* waiter_ = nullptr;
  HandOverRequest next_{};
  WaitingRoom* room_ = nullptr;
  const LockScripts* lock_ = nullptr;
  std::uint64_t pause_ = 0;  // Succession::pause
};

inline void HandOver::offer(WaitingRoom& room,
                            const LockScripts& lock,
                            Clock::time_point sentAt) noexcept {
  const auto [waiter, pause] =
      room.takeSuccessor(lock.channel, lock.traits.wakeupQueue, lock.name, sentAt);
  if (waiter != nullptr && waiter->offered(sentAt, next_)) {
    waiter_ = waiter;
  } else if (waiter != nullptr) {
    waiter->waiterDropRef();
  } else if (pause != 0) {
    next_ = {};
    room_ = &room;
    lock_ = &lock;
    pause_ = pause;
  }
}

}  // namespace rlock::detail
