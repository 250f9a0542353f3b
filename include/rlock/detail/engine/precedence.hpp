// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/backoff.hpp>

#include <chrono>
#include <cstdint>

namespace rlock::detail {

/// Lets other clients go first when a lock has been handed over in this client as often as the
/// limits allow. All clients hear of the release that ends the chain at the same moment, but this
/// one's waiters ask sooner: the lock is wanted here all the time, the connection is warm, and a
/// client in another language takes several times as long. So they stand back for a pause, until it
/// is over or a second message says that another client has had the lock.
///
/// Nothing is given away where nobody else waits. The server says how many clients heard the
/// release; if it was this one only, its waiter tries at its message. But some of those that hear
/// it do not wait any more, and a server that does not count everybody tells nothing; a pause in
/// which nobody took the lock is therefore followed by a time without pauses, twice as long each
/// time.
///
/// The wake-up queue reports what happens and asks whether its first waiter gets a turn. Each pause
/// has a number, so that an answer that comes late is not taken for that of the next.
///
/// **Thread safety:** One thread at a time.
class Precedence {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  /// So long others may take to ask.
  static constexpr std::chrono::milliseconds kPause{5};
  ///@{
  /// Times without pauses, after one that nobody used.
  static constexpr std::chrono::milliseconds kShortest{10};
  static constexpr std::chrono::milliseconds kLongest{200};
  ///@}

  /// A chain of hand-overs ends; the lock is about to be released for everybody. Returns the number
  /// of the pause, which answered() must end or confirm; 0: none this time.
  [[nodiscard]] std::uint64_t begin(TimePoint now) noexcept;

  enum class Answer {
    nothing,  ///< the pause is over already, or its message will end it
    turn,     ///< the first waiter tries
    pause,    ///< the first waiter tries after kPause
  };
  /// The release has been answered, or has failed.
  /// @param thisOne  this client hears of it, or has
  /// @param others   other clients do
  [[nodiscard]] Answer answered(std::uint64_t number, bool thisOne, bool others) noexcept;

  /// A message came. In a pause the first one is that of this client's own release, the second that
  /// of somebody who has had the lock since. The first one begins the pause: the answer to the
  /// release may be lost.
  [[nodiscard]] Answer message() noexcept;

  /// The first waiter has a turn, because the pause is over or for another reason.
  void tries() noexcept { state_ = state_ == State::paused ? State::tried : State::none; }
  /// It has come back from its turn without the lock.
  void refused() noexcept {
    if (state_ == State::tried) {
      used();
    }
  }
  /// It has left with the lock: nobody has taken it in the pause.
  void granted(TimePoint now) noexcept {
    if (state_ == State::tried) {
      notBefore_ = now + without_.next();
    }
    end();
  }
  /// Nobody is left to stand back.
  void end() noexcept { state_ = State::none; }

 private:
  enum class State : std::uint8_t {
    none,
    asked,   // the release is under way
    paused,  // the first waiter stands back
    tried,   // the pause is over; the attempt will show whether it was used
  };

  [[nodiscard]] bool active() const noexcept {
    return state_ == State::asked || state_ == State::paused;
  }
  void used() noexcept {
    without_.reset();
    end();
  }

  State state_ = State::none;
  int messages_ = 0;
  std::uint64_t number_ = 0;
  DoublingPause without_{kShortest, kLongest};
  TimePoint notBefore_{};
};

inline std::uint64_t Precedence::begin(TimePoint now) noexcept {
  if (now < notBefore_) {
    end();
    return 0;
  }
  state_ = State::asked;
  messages_ = 0;
  return ++number_;
}

inline Precedence::Answer Precedence::answered(std::uint64_t number,
                                               bool thisOne,
                                               bool others) noexcept {
  if (state_ != State::asked || number != number_) {
    return Answer::nothing;
  }
  if (others) {
    const bool began = messages_ > 0;
    state_ = State::paused;
    return began ? Answer::nothing : Answer::pause;
  }
  // A turn before the message would be followed by one for the next waiter, which has nothing to
  // look for.
  state_ = State::none;
  return thisOne && messages_ == 0 ? Answer::nothing : Answer::turn;
}

inline Precedence::Answer Precedence::message() noexcept {
  if (!active()) {
    return Answer::turn;
  }
  if (++messages_ > 1) {
    used();
    return Answer::turn;
  }
  return state_ == State::asked ? Answer::pause : Answer::nothing;
}

}  // namespace rlock::detail
