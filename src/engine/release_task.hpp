// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/task.hpp"
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/engine/hold_ledger.hpp>
#include <rlock/detail/engine/lock_engine.hpp>
#include <rlock/detail/engine/release_fsm.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace rlock::detail {

/// One release: performs what ReleaseFsm says.
class ReleaseTask final : public Task<ReleaseOutcome>, public GateWaiter {
 public:
  using TaskPtr = IntrusivePtr<ReleaseTask>;

  ReleaseTask(std::shared_ptr<LockEngine> engine,
              std::shared_ptr<const LockScripts> scripts,
              ReleaseTarget target);

  /// Releases in the background, for whom it is enough that the log says what went wrong.
  static void releaseQuietly(const std::shared_ptr<LockEngine>& engine,
                             const std::shared_ptr<const LockScripts>& scripts,
                             ReleaseTarget target);

  /// Releases on the calling thread.
  /// @throws std::bad_alloc  then the hold is as it was, or the release goes on in the background
  Result<ReleaseOutcome> run();
  /// Releases on the loop thread.
  void startInBackground(Handler handler);
  /// As startInBackground(), for a caller that does not ask what becomes of it: ahead of what the
  /// calling thread sends next. The handler is told when it is over, however long that takes.
  void startAhead(Handler handler);

 private:
  using Step = ReleaseFsm::Step;
  enum class Phase : std::uint8_t { attempt, settle };

  void finished(Outcome outcome) noexcept override;
  void recompose(bool tombstone) override;
  void gateOpened() noexcept override;
  void gateClosed() noexcept override;
  void gateAddRef() noexcept override { addRef(); }
  void gateDropRef() noexcept override { dropRef(); }
  void onDeadline();

  /// False: there is nothing to release. Call nothingToDo() then.
  bool compose();
  Step nothingToDo();
  void composeAttempt();
  void composeSettling();
  void guard();
  Step replied();
  Step repliedAttempt();
  Step repliedSettle();
  Step failed(Error error, bool answered = true);
  void book(int remain, bool lost, PartIndexes kept = {});
  void leaveGate();
  [[nodiscard]] Error lateError() const;
  Result<ReleaseOutcome> runHere();
  Result<ReleaseOutcome> takeResult();
  [[nodiscard]] Error notHeld() const;
  Result<ReleaseOutcome> waitForLoop();
  template <class Event>
  Step tell(Event event) {
    const MutexLock lock(mutex_);
    return event(fsm_);
  }

  void perform(Step step);
  void attemptOnLoop();
  void sendOnLoop();
  void settle();
  void end();

  const std::uint64_t incarnation_;  // ReleaseTarget::incarnation
  const Clock::time_point deadline_;
  ReleaseFsm fsm_ RLOCK_GUARDED_BY(mutex_);
  HoldPtr hold_;           // while the gate is held
  bool executed_ = false;  // the server may have the attempt at hand
  int before_ = 0;
  int partIndex_ = 0;
  bool all_ = false;   // ReleasePlan::all
  bool lost_ = false;  // ReleasePlan::lost
  Clock::time_point sentAt_{};
  bool validWhenSent_ = false;
  bool nobodyAsks_ = false;  // it would not be tried again if it failed
  Phase phase_ = Phase::attempt;
  std::chrono::milliseconds restore_{0};
  std::string tombstone_;
  std::int64_t settlings_ = 0;
  std::unique_ptr<Timer> deadlineTimer_;  // loop thread only
};

}  // namespace rlock::detail
