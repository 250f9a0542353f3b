// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/call_step.hpp>
#include <rlock/error.hpp>

#include <cstdint>
#include <optional>
#include <utility>

namespace rlock::detail {

/// The course of one acquisition, without clock, thread or connection: it is told what happened and
/// says what to do next. Acquisition reads replies and failures for it; AcquireTask tells it and
/// performs its steps.
///
/// When the caller leaves (its time is up, it was stopped) while a request is on its way, its
/// answer is due at once, and the course goes on until it is certain that nothing is held that
/// nobody knows of. From then on the result does not change any more, and no event leads to another
/// answer.
///
/// **Thread safety:** One thread at a time. Its events come from several threads, so that the task
/// has a mutex for it.
class AcquireFsm {
 public:
  using Step = CallStep;

  enum class Result : std::uint8_t { pending, granted, refused, failed };
  enum class State : std::uint8_t {
    ready,
    attempting,   ///< a request is on its way
    queued,       ///< it waits for its turn
    takingOver,   ///< the holder's release takes the lock for it
    reconciling,  ///< it finds out what became of a request, for a caller that waits
    syncing,      ///< it waits for acknowledgements
    undoing,      ///< there were too few, and what was granted is on its way back
    givingBack,   ///< what may be held is on its way back, and the caller has its answer
    ended
  };

  /// @param oneAttempt  never wait for another holder
  /// @param syncs       a grant is one when others have acknowledged it
  explicit AcquireFsm(bool oneAttempt, bool syncs = false) noexcept
      : oneAttempt_(oneAttempt), syncs_(syncs) {}

  [[nodiscard]] State state() const noexcept { return state_; }
  [[nodiscard]] Result result() const noexcept { return result_; }
  /// The caller has its answer, whatever is still going on.
  [[nodiscard]] bool answered() const noexcept { return result_ != Result::pending; }
  /// Why it failed.
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }
  /// Other owners held it at least once.
  [[nodiscard]] bool contended() const noexcept { return contended_; }

  /// @param othersWait  waiters of this client are queued for the same lock, so do not overtake
  /// them
  Step start(bool othersWait) noexcept;
  /// The request was granted.
  /// @param tooMany  the server counts more holds than this owner knows of
  Step granted(bool tooMany) noexcept;
  /// All have it who must have it.
  Step acknowledged() noexcept;
  /// They do not. The caller gets its answer when the grant is undone, or when it leaves before.
  Step notAcknowledged(Error why) noexcept;
  /// The grant could not be booked, and the caller has not been told of it.
  Step notBooked(Error why) noexcept;
  /// Another owner holds the lock.
  Step refused() noexcept;
  /// The request was certainly not executed and will not be.
  Step failed(Error error) noexcept;
  /// The caller's time was up before the request was sent.
  /// @param why  the answer if a reconciliation has seen that no other owner had it
  Step notSent(Error why) noexcept;
  /// The request may have been executed.
  Step unknown() noexcept;
  /// A reconcile step came back.
  /// @param held  one hold more than before is there
  Step reconciled(bool held) noexcept;
  /// A reconcile step could not be done in its time.
  Step reconcileFailed(Error error) noexcept;
  /// It is this waiter's turn to try.
  Step turn() noexcept { return state_ == State::queued ? attempt() : Step::none; }
  /// It is this waiter's turn, and the holder's release takes the lock for it: the outcome is one
  /// of granted(), unknown() and notHandedOver(). False: it does not wait any longer.
  bool offered() noexcept;
  /// The release did not take the lock for it, so that it is its turn to try.
  Step notHandedOver() noexcept { return answered() ? end() : attempt(); }
  /// The event that it waits for has come while it slept, so there is nothing left to try.
  Step happened() noexcept {
    return state_ == State::queued ? finish(Result::granted) : Step::none;
  }
  /// The caller's time is up.
  Step expired(Error late) noexcept;
  /// The caller was stopped, or the client closed.
  Step stopped(Error why) noexcept;

 private:
  Step attempt() noexcept {
    state_ = State::attempting;
    return Step::attempt;
  }
  Step finish(Result result) noexcept {
    result_ = result;
    state_ = State::ended;
    return Step::finish;
  }
  Step fail(Error error) noexcept {
    error_ = std::move(error);
    return finish(Result::failed);
  }
  Step leave(Error why) noexcept;
  Step undone() noexcept { return answered() ? end() : finish(Result::failed); }
  Step end() noexcept {
    state_ = State::ended;
    return Step::end;
  }

  const bool oneAttempt_;
  const bool syncs_;
  bool contended_ = false;
  bool seenFree_ = false;  // a reconciliation found that nobody had it
  State state_ = State::ready;
  Result result_ = Result::pending;
  std::optional<Error> error_;
};

inline AcquireFsm::Step AcquireFsm::start(bool othersWait) noexcept {
  if (othersWait && !oneAttempt_) {
    contended_ = true;
    state_ = State::queued;
    return Step::queue;
  }
  return attempt();
}

inline AcquireFsm::Step AcquireFsm::granted(bool tooMany) noexcept {
  if (answered()) {
    state_ = State::givingBack;
    return Step::reconcileBack;
  }
  if (tooMany) {
    state_ = State::reconciling;
    return Step::reconcileKeep;
  }
  if (syncs_) {
    state_ = State::syncing;
    return Step::acknowledge;
  }
  return finish(Result::granted);
}

inline AcquireFsm::Step AcquireFsm::acknowledged() noexcept {
  if (state_ != State::syncing) {
    return Step::none;
  }
  if (answered()) {
    state_ = State::givingBack;
    return Step::reconcileBack;
  }
  return finish(Result::granted);
}

inline AcquireFsm::Step AcquireFsm::notAcknowledged(Error why) noexcept {
  if (state_ != State::syncing) {
    return Step::none;
  }
  if (answered()) {
    state_ = State::givingBack;
    return Step::reconcileBack;
  }
  error_ = std::move(why);
  state_ = State::undoing;
  return Step::reconcileBack;
}

inline AcquireFsm::Step AcquireFsm::notBooked(Error why) noexcept {
  result_ = Result::failed;
  error_ = std::move(why);
  state_ = State::givingBack;
  return Step::finishAndReconcileBack;
}

inline AcquireFsm::Step AcquireFsm::refused() noexcept {
  contended_ = true;
  if (answered()) {
    return end();
  }
  if (oneAttempt_) {
    return finish(Result::refused);
  }
  state_ = State::queued;
  return Step::queue;
}

inline AcquireFsm::Step AcquireFsm::failed(Error error) noexcept {
  if (answered()) {
    return end();
  }
  return fail(std::move(error));
}

inline AcquireFsm::Step AcquireFsm::notSent(Error why) noexcept {
  if (answered()) {
    return end();
  }
  return seenFree_ && !contended_ ? fail(std::move(why)) : finish(Result::refused);
}

inline AcquireFsm::Step AcquireFsm::unknown() noexcept {
  if (answered()) {
    state_ = State::givingBack;
    return Step::reconcileBack;
  }
  if (state_ == State::undoing) {
    return Step::reconcileBack;
  }
  state_ = State::reconciling;
  return Step::reconcileKeep;
}

inline AcquireFsm::Step AcquireFsm::reconciled(bool held) noexcept {
  if (state_ == State::givingBack) {
    return end();
  }
  if (state_ == State::undoing) {
    return undone();
  }
  if (answered()) {
    if (!held) {
      return end();
    }
    state_ = State::givingBack;
    return Step::reconcileBack;
  }
  seenFree_ = true;
  return held ? finish(Result::granted) : attempt();
}

inline AcquireFsm::Step AcquireFsm::reconcileFailed(Error error) noexcept {
  if (state_ == State::givingBack) {
    return end();
  }
  if (state_ == State::undoing) {
    return undone();
  }
  state_ = State::givingBack;
  if (answered()) {
    return Step::reconcileBack;
  }
  result_ = Result::failed;
  error_ = std::move(error);
  return Step::finishAndReconcileBack;
}

inline bool AcquireFsm::offered() noexcept {
  if (state_ != State::queued) {
    return false;
  }
  state_ = State::takingOver;
  return true;
}

inline AcquireFsm::Step AcquireFsm::expired(Error late) noexcept {
  if (answered()) {
    return Step::none;
  }
  if (state_ == State::queued) {
    return finish(Result::refused);
  }
  return leave(std::move(late));
}

inline AcquireFsm::Step AcquireFsm::stopped(Error why) noexcept {
  if (answered()) {
    return Step::none;
  }
  if (state_ == State::queued || state_ == State::ready) {
    return fail(std::move(why));
  }
  return leave(std::move(why));
}

inline AcquireFsm::Step AcquireFsm::leave(Error why) noexcept {
  result_ = Result::failed;
  if (state_ != State::undoing) {
    error_ = std::move(why);
  }
  return Step::finishEarly;
}

}  // namespace rlock::detail
