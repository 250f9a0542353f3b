// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/call_step.hpp>
#include <rlock/error.hpp>

#include <cstdint>
#include <optional>
#include <utility>

namespace rlock::detail {

/// The course of one release, without clock, thread or connection. Relinquishment reads replies and
/// failures for it; ReleaseTask tells it and performs its steps.
///
/// As with AcquireFsm, the caller may get its answer before the course ends. A hold that its owner
/// wants to be rid of must go, so that a release does not end before the hold is gone or has
/// expired.
///
/// **Thread safety:** One thread at a time. Its events come from several threads, so that the task
/// has a mutex for it.
class ReleaseFsm {
 public:
  using Step = CallStep;

  enum class Result : std::uint8_t { pending, released, stillHeld, notOwner, failed };

  [[nodiscard]] Result result() const noexcept { return result_; }
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }
  [[nodiscard]] bool answered() const noexcept { return result_ != Result::pending; }

  Step start() noexcept { return Step::attempt; }

  /// The server counted one hold less.
  /// @param known    this owner knew of the hold
  /// @param remain   holds that are left, as this owner knows
  /// @param tooMany  the server counts more than that
  Step released(bool known, int remain, bool tooMany) noexcept;

  /// The server knows of no hold.
  Step notOwner() noexcept {
    outcome_ = Result::notOwner;
    return conclude();
  }

  /// The release was certainly not executed.
  Step failed(Error error) noexcept;

  /// As failed(), but the hold must not stay: the caller will not ask again.
  Step failedForGood(Error error) noexcept;

  /// The release may have been executed.
  Step unknown() noexcept { return reconcile(); }

  /// A reconcile step came back: the hold count is what it must be.
  /// @param outcome  what the release amounts to, unless that is known already
  Step reconciled(Result outcome) noexcept {
    if (outcome_ == Result::pending) {
      outcome_ = outcome;
    }
    return conclude();
  }

  /// A reconcile step could not be done: not in the caller's time, or, once the caller was told,
  /// not before the hold was over anyway.
  Step reconcileFailed(Error error) noexcept;

  /// Nobody waited for the latest reconcile step when it began, so it is not to end before the hold
  /// does.
  [[nodiscard]] bool reconcilesForGood() const noexcept { return forGood_; }

  /// The caller's time is up, or the client was closed.
  Step expired(Error late) noexcept;

 private:
  Step reconcile() noexcept {
    forGood_ = answered();
    return Step::reconcileBack;
  }
  Step conclude() noexcept;

  bool forGood_ = false;
  Result outcome_ = Result::pending;
  Result result_ = Result::pending;
  std::optional<Error> error_;
};

inline ReleaseFsm::Step ReleaseFsm::released(bool known, int remain, bool tooMany) noexcept {
  outcome_ = !known ? Result::notOwner : remain > 0 ? Result::stillHeld : Result::released;
  if (tooMany) {
    return reconcile();
  }
  return conclude();
}

inline ReleaseFsm::Step ReleaseFsm::failed(Error error) noexcept {
  if (answered()) {
    return Step::end;
  }
  result_ = Result::failed;
  error_ = std::move(error);
  return Step::finish;
}

inline ReleaseFsm::Step ReleaseFsm::failedForGood(Error error) noexcept {
  if (answered()) {
    return reconcile();
  }
  result_ = Result::failed;
  error_ = std::move(error);
  forGood_ = true;
  return Step::finishAndReconcileBack;
}

inline ReleaseFsm::Step ReleaseFsm::reconcileFailed(Error error) noexcept {
  if (answered()) {
    return forGood_ ? Step::end : reconcile();
  }
  result_ = Result::failed;
  error_ = std::move(error);
  forGood_ = true;
  return Step::finishAndReconcileBack;
}

inline ReleaseFsm::Step ReleaseFsm::expired(Error late) noexcept {
  if (answered()) {
    return Step::none;
  }
  result_ = Result::failed;
  error_ = std::move(late);
  return Step::finishEarly;
}

inline ReleaseFsm::Step ReleaseFsm::conclude() noexcept {
  if (answered()) {
    return Step::end;
  }
  result_ = outcome_;
  return Step::finish;
}

}  // namespace rlock::detail
