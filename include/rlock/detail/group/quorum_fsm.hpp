// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/group/quorum.hpp>
#include <rlock/error.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The state machine of one acquisition of a majority of independent locks. It has no clock, thread
/// or connection: QuorumAcquire tells it what happened, and it returns the next step.
///
/// **Thread safety:** One thread at a time; QuorumAcquire calls it under its mutex.
///
/// All members are asked at once. An attempt ends as soon as its outcome is certain: a majority has
/// granted, or no majority is possible any more. The holds of an unsuccessful attempt are given
/// back before a pause and the next attempt. Invariants: each member counts with one answer per
/// attempt, and the caller is told a result exactly once. QuorumAcquire does not report answers
/// that come after the end of their attempt.
class QuorumFsm {
 public:
  enum class Step : std::uint8_t {
    none,         ///< wait for the next event
    attempt,      ///< ask every member
    giveBack,     ///< stop asking, give back what was granted
    pause,        ///< wait for a moment of random length
    finish,       ///< tell the caller result(); no event is expected after it
    finishEarly,  ///< tell the caller result(), then wait for the event that is still to come
    end           ///< the caller has its result; nothing is left to do
  };

  enum class Result : std::uint8_t { pending, granted, refused, failed };

  /// @param members     how many, at least 1
  /// @param oneAttempt  do not try again
  QuorumFsm(std::size_t members, bool oneAttempt)
      : need_(Quorum::majority(members)), oneAttempt_(oneAttempt), asked_(members) {}

  [[nodiscard]] Result result() const noexcept { return result_; }
  /// The reason of a failure.
  [[nodiscard]] const std::optional<Error>& error() const noexcept { return error_; }
  [[nodiscard]] bool answered() const noexcept { return result_ != Result::pending; }
  /// True while members are being asked and the outcome is open.
  [[nodiscard]] bool asking() const noexcept { return state_ == State::asking; }
  [[nodiscard]] bool givingBack() const noexcept { return state_ == State::givingBack; }
  [[nodiscard]] bool pausing() const noexcept { return state_ == State::pausing; }
  /// True when so many members could not be asked in the last attempt that no majority was
  /// possible.
  [[nodiscard]] bool outOfReach() const noexcept { return outOfReach_; }
  [[nodiscard]] int attempts() const noexcept { return attempts_; }

  Step start() { return stop_ ? conclude() : attempt(); }

  /// Event: a member has granted.
  /// @param valid  if a majority has granted: that majority is still valid now
  Step granted(std::size_t member, bool valid);

  /// Event: another owner holds the member.
  Step refused(std::size_t member) {
    return answers(member, Answer::refused) ? judge() : Step::none;
  }

  /// Event: the member could not be asked.
  Step failed(std::size_t member, const Error& error);

  /// Event: the time for answers is over. Members that have not answered count as unreachable.
  /// @param early  the caller's time is over, but not yet the members'
  Step limitReached(bool early);

  /// Event: the granted members were given back, as far as that was possible.
  /// @param timeLeft  the caller would wait longer
  Step givenBack(bool timeLeft);

  Step pauseOver(bool timeLeft) {
    if (!pausing()) {
      return Step::none;
    }
    return timeLeft ? attempt() : conclude();
  }

  /// Event: the caller was stopped.
  Step stopped(Error why);

  /// Event: the caller does not wait any longer. When it returns giveBack, call it again once
  /// giving back has begun: the second call tells the caller.
  Step expired();

 private:
  enum class State : std::uint8_t { ready, asking, givingBack, pausing, over };
  enum class Answer : std::uint8_t { pending, granted, refused, unreachable, rejected };

  /// True for errors that another attempt would meet again.
  static bool isPermanent(Errc errc) noexcept;

  [[nodiscard]] std::size_t count(Answer answer) const noexcept {
    return static_cast<std::size_t>(std::count(asked_.begin(), asked_.end(), answer));
  }
  bool answers(std::size_t member, Answer answer) noexcept;
  Step attempt();
  /// Ends the attempt when no majority is possible any more.
  Step judge();

  Step giveBack() {
    state_ = State::givingBack;
    return Step::giveBack;
  }

  void decide();
  Step conclude() {
    state_ = State::over;
    decide();
    return Step::finish;
  }
  Step finish(Result result) {
    result_ = result;
    return Step::finish;
  }

  const std::size_t need_;
  const bool oneAttempt_;
  std::vector<Answer> asked_;
  State state_ = State::ready;
  int attempts_ = 0;
  bool outOfReach_ = false;
  std::size_t reached_ = 0;
  Result verdict_ = Result::pending;
  Result result_ = Result::pending;
  std::optional<Error> error_;
  std::optional<Error> lastError_;
  std::optional<Error> stop_;
};

inline QuorumFsm::Step QuorumFsm::granted(std::size_t member, bool valid) {
  if (!answers(member, Answer::granted)) {
    return Step::none;
  }
  if (count(Answer::granted) < need_) {
    return judge();
  }
  if (valid) {
    state_ = State::over;
    outOfReach_ = false;
    return finish(Result::granted);
  }
  outOfReach_ = false;
  return giveBack();
}

inline QuorumFsm::Step QuorumFsm::failed(std::size_t member, const Error& error) {
  if (!answers(member, isPermanent(error.errc()) ? Answer::rejected : Answer::unreachable)) {
    return Step::none;
  }
  lastError_ = error;
  if (asked_.size() - count(Answer::rejected) < need_) {
    verdict_ = Result::failed;
    error_ = error;
    return giveBack();
  }
  return judge();
}

inline QuorumFsm::Step QuorumFsm::limitReached(bool early) {
  if (!asking()) {
    return Step::none;
  }
  if (early && attempts_ > 1) {
    // A shortened attempt says nothing about the members, so the finding of the attempt before it
    // stands.
    return giveBack();
  }
  for (Answer& answer : asked_) {
    if (answer == Answer::pending) {
      answer = Answer::unreachable;
    }
  }
  return judge();
}

inline QuorumFsm::Step QuorumFsm::givenBack(bool timeLeft) {
  if (!givingBack()) {
    return Step::none;
  }
  if (answered()) {
    state_ = State::over;
    return Step::end;
  }
  if (stop_ || verdict_ == Result::failed || oneAttempt_ || !timeLeft) {
    return conclude();
  }
  state_ = State::pausing;
  return Step::pause;
}

inline QuorumFsm::Step QuorumFsm::stopped(Error why) {
  if (answered() || stop_) {
    return Step::none;
  }
  stop_ = std::move(why);
  switch (state_) {
    case State::asking:
      return giveBack();
    case State::pausing:
      return conclude();
    default:
      return Step::none;
  }
}

inline QuorumFsm::Step QuorumFsm::expired() {
  if (answered()) {
    return Step::none;
  }
  switch (state_) {
    case State::asking:
      return limitReached(true);
    case State::givingBack:
      decide();
      return Step::finishEarly;
    default:
      return conclude();
  }
}

inline bool QuorumFsm::isPermanent(Errc errc) noexcept {
  switch (errc) {
    case Errc::authenticationFailed:
    case Errc::denied:
    case Errc::wrongType:
    case Errc::invalidArgument:
    case Errc::closed:
    case Errc::forked:
    case Errc::reentry:
    case Errc::wouldDeadlock:
    case Errc::protocolError:
      return true;
    default:
      return false;
  }
}

inline bool QuorumFsm::answers(std::size_t member, Answer answer) noexcept {
  if (!asking() || asked_[member] != Answer::pending) {
    return false;
  }
  asked_[member] = answer;
  return true;
}

inline QuorumFsm::Step QuorumFsm::attempt() {
  ++attempts_;
  std::fill(asked_.begin(), asked_.end(), Answer::pending);
  lastError_.reset();
  state_ = State::asking;
  return Step::attempt;
}

inline QuorumFsm::Step QuorumFsm::judge() {
  if (count(Answer::granted) + count(Answer::pending) >= need_) {
    return Step::none;
  }
  reached_ = count(Answer::granted) + count(Answer::refused) + count(Answer::pending);
  outOfReach_ = reached_ < need_;
  return giveBack();
}

inline void QuorumFsm::decide() {
  if (stop_) {
    result_ = Result::failed;
    error_ = std::move(stop_);
  } else if (verdict_ == Result::failed) {
    result_ = Result::failed;
  } else if (outOfReach_) {
    result_ = Result::failed;
    std::string text = "of " + std::to_string(asked_.size()) + " nodes only " +
                       std::to_string(reached_) + " answered";
    if (lastError_) {
      text += "; one said: ";
      text += lastError_->message();
    }
    error_ = Error(Errc::noQuorum, text);
  } else {
    result_ = Result::refused;
  }
}

}  // namespace rlock::detail
