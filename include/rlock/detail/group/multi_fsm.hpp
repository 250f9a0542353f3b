// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace rlock::detail {

/// The state machine of one acquisition of several locks together. It has no clock, thread or
/// connection: MultiAcquire tells it what happened, and it returns the next step.
///
/// **Thread safety:** One thread at a time; MultiAcquire calls it under its mutex.
///
/// The members are taken one after the other in an order that is the same for every client. Two
/// callers that hold earlier members while they wait for a later one therefore never wait for each
/// other in a circle. Invariants: the first taken() members are held, and the caller is told a
/// result exactly once. An acquisition that ends without success gives all taken members back
/// first; finishEarly is the exception, for a caller that leaves earlier.
class MultiFsm {
 public:
  enum class Step : std::uint8_t {
    none,         ///< wait for the next event
    take,         ///< take the member next()
    giveBack,     ///< give the first taken() members back
    finish,       ///< tell the caller result(); no event is expected after it
    finishEarly,  ///< tell the caller result(), then wait for the event that is still to come
    end           ///< the caller has its result; nothing is left to do
  };

  enum class Result : std::uint8_t { pending, granted, refused, failed };

  /// @param members     how many, at least 1
  /// @param oneAttempt  do not wait for another holder and do not try again
  MultiFsm(std::size_t members, bool oneAttempt) noexcept
      : members_(members), oneAttempt_(oneAttempt) {}

  [[nodiscard]] Result result() const noexcept { return result_; }
  /// The reason of a failure.
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }
  [[nodiscard]] std::size_t taken() const noexcept { return taken_; }
  [[nodiscard]] std::size_t next() const noexcept { return taken_; }
  [[nodiscard]] bool answered() const noexcept { return result_ != Result::pending; }

  Step start() noexcept { return stop_ ? conclude(true) : take(); }

  /// Event: the member next() was taken.
  /// @param valid  this member and all before it are still held
  Step granted(bool valid) noexcept;

  /// Event: another owner held the member next() for the whole wait.
  /// @param timeLeft  the caller would wait longer
  Step refused(bool timeLeft) noexcept;

  /// Event: the node of the member next() cannot be used now, but perhaps in a moment. `why`
  /// becomes the reason of failure if the caller's time is over before that member answers.
  Step away(Error why) noexcept {
    away_ = std::move(why);
    awayMember_ = taken_;
    return giveBack();
  }

  /// Event: there is no time left to ask for next().
  Step timeUp() noexcept {
    if (!answered()) {
      decideLate();
    }
    return giveBack();
  }

  /// Event: a member taken earlier was lost, so the wait for next() was ended. next() is not held.
  Step lost() noexcept { return again(); }

  /// Event: taking the member next() failed. It is not held.
  Step failed(Error error) noexcept;

  /// Event: the taken members were given back, as far as that was possible.
  Step givenBack(bool timeLeft) noexcept {
    taken_ = 0;
    return conclude(timeLeft);
  }

  /// Event: the caller was stopped. The step under way still ends by one of the events above.
  Step stopped(Error why) noexcept {
    if (!answered() && !stop_) {
      stop_ = std::move(why);
    }
    return Step::none;
  }

  /// Event: the caller does not wait any longer.
  Step expired(Error late) noexcept;

 private:
  Step take() noexcept { return Step::take; }

  Step again() noexcept {
    if (oneAttempt_) {
      verdict_ = Result::refused;
    }
    return giveBack();
  }

  Step giveBack() noexcept { return taken_ > 0 ? Step::giveBack : conclude(true); }
  Step conclude(bool timeLeft) noexcept;

  /// The member next() has answered.
  void answers() noexcept {
    if (taken_ == awayMember_) {
      away_.reset();
    }
  }

  void decideLate() noexcept {
    verdict_ = away_ ? Result::failed : Result::refused;
    error_ = std::move(away_);
    away_.reset();
  }

  Step finish(Result result) noexcept {
    result_ = result;
    return Step::finish;
  }

  const std::size_t members_;
  const bool oneAttempt_;
  std::size_t taken_ = 0;
  Result verdict_ = Result::pending;  // the result once members are given back; pending: retry
  Result result_ = Result::pending;
  std::optional<Error> error_;
  std::optional<Error> stop_;
  std::optional<Error> away_;
  std::size_t awayMember_ = 0;
};

inline MultiFsm::Step MultiFsm::granted(bool valid) noexcept {
  answers();
  ++taken_;
  if (answered() || stop_) {
    return giveBack();
  }
  if (!valid) {
    return again();
  }
  return taken_ == members_ ? finish(Result::granted) : take();
}

inline MultiFsm::Step MultiFsm::refused(bool timeLeft) noexcept {
  answers();
  if (!timeLeft) {
    verdict_ = Result::refused;
  }
  return giveBack();
}

inline MultiFsm::Step MultiFsm::failed(Error error) noexcept {
  if (!answered() && !stop_) {
    verdict_ = Result::failed;
    error_ = std::move(error);
  }
  return giveBack();
}

inline MultiFsm::Step MultiFsm::expired(Error late) noexcept {
  if (answered()) {
    return Step::none;
  }
  if (stop_) {
    verdict_ = Result::failed;
    error_ = std::move(stop_);
  } else if (verdict_ == Result::pending) {
    verdict_ = Result::failed;
    error_ = std::move(late);
  }
  result_ = verdict_;
  return Step::finishEarly;
}

inline MultiFsm::Step MultiFsm::conclude(bool timeLeft) noexcept {
  if (answered()) {
    return Step::end;
  }
  if (stop_) {
    error_ = std::move(stop_);
    return finish(Result::failed);
  }
  if (verdict_ != Result::pending) {
    return finish(verdict_);
  }
  if (timeLeft && !oneAttempt_) {
    return take();
  }
  decideLate();
  return finish(verdict_);
}

}  // namespace rlock::detail
