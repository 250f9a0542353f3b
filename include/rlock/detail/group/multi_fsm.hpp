// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/error.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace rlock::detail {

/// The course of one acquisition of several locks together, without clock, thread or connection: it
/// is told what happened and says what to do next.
///
/// **Thread safety:** One thread at a time.
///
/// The members are taken one after the other in an order that is the same for everybody, so that
/// those who wait for a member while they hold earlier ones never wait for each other in a circle.
/// Whatever ends the course without success, all that was taken is given back first.
class MultiFsm {
 public:
  enum class Step : std::uint8_t {
    none,         ///< wait for the next event
    take,         ///< take the member next()
    giveBack,     ///< give the first taken() members back
    finish,       ///< tell the caller result(); no event is expected after it
    finishEarly,  ///< tell the caller result(), then wait for the event that is still to come
    end           ///< the caller was told before; nothing is left to do
  };

  enum class Result : std::uint8_t { pending, granted, refused, failed };

  /// @param members     how many, at least 1
  /// @param oneAttempt  never wait for another holder
  MultiFsm(std::size_t members, bool oneAttempt) noexcept
      : members_(members), oneAttempt_(oneAttempt) {}

  [[nodiscard]] Result result() const noexcept { return result_; }
  /// Why it failed.
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }
  [[nodiscard]] std::size_t taken() const noexcept { return taken_; }
  [[nodiscard]] std::size_t next() const noexcept { return taken_; }
  [[nodiscard]] bool answered() const noexcept { return result_ != Result::pending; }

  Step start() noexcept { return stop_ ? conclude(true) : take(); }

  /// The member next() was taken.
  /// @param valid  it is still held now, and so are all before it
  Step granted(bool valid) noexcept {
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

  /// Another owner had the member next() for as long as it could be waited for.
  /// @param timeLeft  the caller would wait longer
  Step refused(bool timeLeft) noexcept {
    answers();
    if (!timeLeft) {
      verdict_ = Result::refused;
    }
    return giveBack();
  }

  /// The node of the member next() cannot be used now, and perhaps in a moment: should the caller's
  /// time be over before that member answers, this is why it failed.
  Step away(Error why) noexcept {
    away_ = std::move(why);
    awayMember_ = taken_;
    return giveBack();
  }

  /// There is no time left to ask for next().
  Step timeUp() noexcept {
    if (!answered()) {
      decideLate();
    }
    return giveBack();
  }

  /// A member taken before was lost, so waiting for next() was ended; it is not held.
  Step lost() noexcept { return again(); }

  /// Taking the member next() failed; it is not held.
  Step failed(Error error) noexcept {
    if (!answered() && !stop_) {
      verdict_ = Result::failed;
      error_ = std::move(error);
    }
    return giveBack();
  }

  /// Everything taken was given back, or as much of it as could be.
  Step givenBack(bool timeLeft) noexcept {
    taken_ = 0;
    return conclude(timeLeft);
  }

  /// The caller was stopped. What is under way ends by one of the events above.
  Step stopped(Error why) noexcept {
    if (!answered() && !stop_) {
      stop_ = std::move(why);
    }
    return Step::none;
  }

  /// The caller does not wait any longer.
  Step expired(Error late) noexcept {
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

 private:
  Step take() noexcept { return Step::take; }

  Step again() noexcept {
    if (oneAttempt_) {
      verdict_ = Result::refused;
    }
    return giveBack();
  }

  Step giveBack() noexcept { return taken_ > 0 ? Step::giveBack : conclude(true); }

  Step conclude(bool timeLeft) noexcept {
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
  Result verdict_ = Result::pending;  // of what is being given back; pending: try again
  Result result_ = Result::pending;
  std::optional<Error> error_;
  std::optional<Error> stop_;
  std::optional<Error> away_;
  std::size_t awayMember_ = 0;
};

}  // namespace rlock::detail
