// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/call_step.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>

namespace rlock::detail {

/// The decisions of one call that may be repeated: what its caller hears of a failure, and whether
/// the call goes on without the caller.
///
/// Three sorts of calls: a question, which changes nothing; a change that is safe to repeat as it
/// is; and a change that goes on (Call::goesOn()), which ends when it is certain, not when its
/// caller leaves.
///
/// Invariant: the caller is not told that a change took no effect once a reply to it was lost.
///
/// **Thread safety:** One thread at a time, but what is const from any.
class Repetition {
 public:
  using Clock = std::chrono::steady_clock;

  /// The step after a failure.
  enum class Next : std::uint8_t {
    over,     ///< nothing
    repeat,   ///< the call again, after a pause
    prepare,  ///< make a lost change fit to be asked for again
    giveUp    ///< a change that was to take effect does not, or nobody will know
  };
  struct Verdict {
    std::optional<Error> answer{};  ///< for the caller, if it has none yet
    Next next = Next::over;
    Next nextIfLeft = Next::over;  ///< if the caller had its answer before, or left
  };

  /// @param changes  it is no question
  Repetition(bool changes, bool goesOn, Clock::time_point deadline) noexcept
      : changes_(changes), goesOn_(goesOn), deadline_(deadline) {}

  [[nodiscard]] bool changes() const noexcept { return changes_; }
  [[nodiscard]] Clock::time_point deadline() const noexcept { return deadline_; }
  [[nodiscard]] bool wasLost() const noexcept { return wasLost_; }

  /// A reply was lost.
  void lost() noexcept { wasLost_ = true; }

  /// The caller's time is up, or the client is closed.
  [[nodiscard]] Error late(bool closed) const;

  /// Not executed, this time.
  /// @param lapsed  the server knows nothing of the idempotency key
  [[nodiscard]] Verdict failed(const Error& error, bool lapsed, Clock::time_point now) const;

  /// A lost change was to be prepared, and that came to nothing.
  /// @param trustedUntil  from then on the key may have lapsed
  [[nodiscard]] Next notPrepared(Errc errc,
                                 Clock::time_point now,
                                 Clock::time_point trustedUntil) const noexcept {
    return now < trustedUntil && mayPass(errc) ? Next::prepare : Next::giveUp;
  }

  /// Until when it may be sent once more.
  [[nodiscard]] Clock::time_point sendBefore(Clock::time_point now) const noexcept {
    return now < deadline_ ? deadline_ : now + std::chrono::hours(1);
  }

  /// Whether there is another try when the client is closed: pauses are over at once then, so that
  /// there is one, and failures without end otherwise.
  [[nodiscard]] bool takeLastTry() noexcept { return !std::exchange(closing_, true); }
  /// Counts the pauses.
  [[nodiscard]] int nextPause() noexcept { return pauses_++; }

  /// Without an answer nobody knows what became of a change.
  [[nodiscard]] Error uncertain(const Error& error) const {
    return changes_ ? doubtful(error, "whether it took effect is not known") : error;
  }

 private:
  static Error goingOn(const Error& error) {
    return doubtful(error, "it goes on in the background and takes effect once");
  }
  static bool isUnanswered(Errc errc) noexcept {
    return errc == Errc::timedOut || errc == Errc::connectionFailed || errc == Errc::closed;
  }
  /// Whether it may be otherwise in a moment.
  static bool mayPass(Errc errc) noexcept;

  const bool changes_;
  const bool goesOn_;
  const Clock::time_point deadline_;
  bool wasLost_ = false;
  int pauses_ = 0;
  bool closing_ = false;
};

inline Error Repetition::late(bool closed) const {
  if (closed) {
    return uncertain(closedError());
  }
  const Error error(Errc::timedOut, "the server did not answer in time");
  return goesOn_ ? goingOn(error) : uncertain(error);
}

inline Repetition::Verdict Repetition::failed(const Error& error,
                                              bool lapsed,
                                              Clock::time_point now) const {
  if (!goesOn_) {
    const bool open = wasLost_ || isUnanswered(error.errc());
    return {open ? uncertain(error) : error, Next::over, Next::over};
  }
  if (lapsed) {
    // The key cannot have lapsed, so the server has lost what it wrote last.
    return {std::nullopt, Next::prepare, Next::prepare};
  }
  const Error known = wasLost_ ? uncertain(error) : error;
  if (!mayPass(error.errc())) {
    return {known, error.errc() == Errc::closed ? Next::giveUp : Next::over, Next::giveUp};
  }
  if (now >= deadline_) {
    return {goingOn(error), Next::repeat, Next::repeat};
  }
  if (wasLost_) {
    return {std::nullopt, Next::repeat, Next::repeat};
  }
  // A certain failure is the caller's to repeat, as long as there is a caller.
  return {known, Next::over, Next::repeat};
}

inline bool Repetition::mayPass(Errc errc) noexcept {
  switch (errc) {
    case Errc::connectionFailed:
    case Errc::timedOut:
    case Errc::authenticationFailed:
    case Errc::denied:
    case Errc::outOfMemory:
    case Errc::readOnly:
    case Errc::notSynced:
    case Errc::serverError:
    case Errc::overloaded:
      return true;
    default:
      return false;
  }
}

}  // namespace rlock::detail
