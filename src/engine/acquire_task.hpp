// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/task.hpp"
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/engine/acquire_fsm.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/waiter_hub.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

namespace rlock::detail {

/// One acquisition: performs what AcquireFsm says.
class AcquireTask final : public Task<LockBackend::Acquired>, public Waiter, public GateWaiter {
 public:
  using Acquired = LockBackend::Acquired;
  using TaskPtr = IntrusivePtr<AcquireTask>;

  /// @param params  already checked
  AcquireTask(std::shared_ptr<LockEngine> engine,
              std::shared_ptr<const LockScripts> scripts,
              AcquireParams params);

  [[nodiscard]] static constexpr bool mayBeRefused() noexcept { return true; }

  /// Acquires on the calling thread.
  /// @throws std::bad_alloc  then nothing is held, or what is comes back in the background
  Result<Acquired> run();
  /// Acquires on the loop thread.
  void startInBackground(Handler handler);

 private:
  using Step = AcquireFsm::Step;
  enum class Phase : std::uint8_t { attempt, settle };

  // Events.
  void finished(Outcome outcome) noexcept override;
  void recompose(bool tombstone) override;
  void turn() noexcept override;
  void shutDown() noexcept override;
  void gateOpened() noexcept override;
  void gateClosed() noexcept override;
  void waiterAddRef() noexcept override { addRef(); }
  void waiterDropRef() noexcept override { dropRef(); }
  void gateAddRef() noexcept override { addRef(); }
  void gateDropRef() noexcept override { dropRef(); }
  void takeTurn();
  void stopRequested() noexcept;
  void armDeadline(Clock::time_point when);
  void onDeadline();

  // Pieces of both ways.
  Step begin();
  void compose();
  void composeAttempt();
  void composeSettling();
  Step replied();
  Step repliedAttempt();
  Step repliedSettle();
  Step failed(Error error);
  Step notSent(Error error);
  Step granted(std::int64_t count);
  bool enterGate();
  void leaveGate();
  void leaveQueueEntry() noexcept;
  bool mustNotBegin() noexcept;
  Step sleepInQueue();
  void leaveQueue();
  void withdraw();
  [[nodiscard]] Clock::time_point gateLimit() const noexcept;
  [[nodiscard]] Clock::time_point limit() const noexcept;
  [[nodiscard]] Clock::time_point sendBefore() const;
  [[nodiscard]] bool tooLate() const;
  /// A request that runs late would leave something behind.
  [[nodiscard]] bool needsGuard() const noexcept {
    const LockTraits& traits = scripts_->traits;
    return traits.changesState && traits.settleWithin.count() == 0;
  }
  [[nodiscard]] bool keepsHold() const noexcept {
    return scripts_->traits.holdKind != HoldKind::none;
  }
  [[nodiscard]] std::string_view channel() const noexcept {
    return ownChannel_.empty() ? std::string_view(scripts_->channel) : ownChannel_;
  }
  [[nodiscard]] Error lateError() const;
  [[nodiscard]] Error stopError() const;
  Result<Acquired> takeResult();
  template <class Event>
  Step tell(Event event) {
    const MutexLock lock(mutex_);
    return event(fsm_);
  }

  // On the calling thread.
  Result<Acquired> runHere();
  void giveUp() noexcept;
  Step attemptHere();
  Step awaitHere();
  Step sleepHere();
  Result<Acquired> waitForLoop();
  Step leaveNow();
  void moveToLoop();
  void finishSleeper(bool onLoop);

  // On the loop thread.
  void handle(Outcome outcome);
  template <class Action>
  void guarded(Action action) noexcept;
  void perform(Step step);
  void attemptOnLoop();
  void sendOnLoop();
  void settle(bool keep);
  void conclude();
  void end();

  const AcquireParams params_;
  const std::chrono::milliseconds lease_;
  const Clock::time_point deadline_;
  const std::string ownChannel_;  // empty: the lock's
  const std::string queueEntry_;  // in the queue on the server; empty: there is none
  AcquireFsm fsm_ RLOCK_GUARDED_BY(mutex_);
  bool onLoop_ RLOCK_GUARDED_BY(mutex_) = false;  // the loop thread drives
  std::optional<WaiterHub::Mark> mark_;
  bool tried_ = false;
  bool enrolled_ = false;  // it may have an entry in the server's queue
  bool enrols_ = false;    // the attempt at hand would be the first to give it one
  bool dropsAll_ = false;  // the next settling leaves nothing of a hold unknown to this client
  bool dropped_ = false;   // that was done before
  int attempts_ = 0;
  std::chrono::milliseconds remaining_{-1};
  HoldPtr hold_;           // while the gate is held
  bool executed_ = false;  // the server may have the attempt at hand; while the gate is held
  // Until when a call without a time limit waits for the gate; time_point::max() while it does not.
  std::atomic<Clock::rep> gateLimit_{Clock::time_point::max().time_since_epoch().count()};
  int before_ = 0;
  Phase phase_ = Phase::attempt;
  Clock::time_point sentAt_{};
  // Later the server does not know any more; time_point::max(): it always does.
  Clock::time_point settleBefore_ = Clock::time_point::max();
  std::string tombstone_;
  bool keeps_ = false;                                         // what the settling at hand is for
  std::int64_t settlings_ = 0;                                 // of the request at hand
  std::optional<std::chrono::milliseconds> settledRemaining_;  // of what settling kept
  Grant grant_;
  PartIndexes kept_;                      // AcquireReply::kept
  std::unique_ptr<Timer> deadlineTimer_;  // loop thread only
  std::optional<std::stop_callback<std::function<void()>>> stopCallback_;
};

}  // namespace rlock::detail
