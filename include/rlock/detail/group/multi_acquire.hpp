// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/engine/task.hpp>
#include <rlock/detail/group/group_hold.hpp>
#include <rlock/detail/group/group_lock.hpp>
#include <rlock/detail/group/multi_fsm.hpp>
#include <rlock/error.hpp>
#include <rlock/result.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

namespace rlock::detail {

/// Pauses between rounds in which no member could be waited for.
inline constexpr std::chrono::milliseconds kShortestMultiPause{5};
inline constexpr std::chrono::milliseconds kLongestMultiPause{50};

/// True for errors that may pass: the node of a member cannot be used now, but perhaps in a moment.
inline bool isPassing(Errc errc) noexcept {
  return errc == Errc::connectionFailed || errc == Errc::timedOut || errc == Errc::readOnly;
}

/// One acquisition of a MultiLock: performs the steps of MultiFsm. begin() runs on the caller's
/// thread; answers, timers and losses come on the loop threads of the members' clients, stop
/// requests on any thread. mutex_ guards the state machine; a step is performed after mutex_ has
/// been released, because it calls members and the application.
///
/// A *round* is one pass over the members from the first. round_ is the stop source of the present
/// round: it ends the wait for the next member when a member that is held is lost (lostOne()) or
/// the caller leaves (endRound()). Members that were taken in a failed round are given back before
/// the next one, so nothing is held when a call fails.
class MultiAcquire final : public GroupAcquire {
 public:
  MultiAcquire(std::shared_ptr<GroupLock> group, AcquireParams params, Done done)
      : GroupAcquire(std::move(group), std::move(params), std::move(done)),
        outageTimeout_(group_->members().longest(&LockLimits::outageTimeout)),
        fsm_(group_->members().size(), oneAttempt()) {}

 private:
  using Step = MultiFsm::Step;

  void begin() override {
    perform(tell([](MultiFsm& fsm) { return fsm.start(); }));
  }

  void stopped() override {
    perform(tell([](MultiFsm& fsm) { return fsm.stopped(stopError()); }));
    endRound();
    endPause();
  }
  void expired() override {
    perform(tell([](MultiFsm& fsm) { return fsm.expired(lateError()); }));
    endRound();
  }
  MemberGrants abandon() noexcept override;

  template <class Event>
  Step tell(Event event) {
    const MutexLock lock(mutex_);
    return over_ ? Step::none : event(fsm_);
  }

  [[nodiscard]] std::shared_ptr<MultiAcquire> self() {
    return std::static_pointer_cast<MultiAcquire>(shared_from_this());
  }
  [[nodiscard]] bool timeLeft() const { return !oneAttempt() && group_->now() < deadline_; }

  void perform(Step step);

  /// How long a member is waited for.
  struct Patience {
    Duration wait = Duration::zero();
    bool cut = false;  ///< shorter than the caller would wait
  };

  /// How long to wait for the next member. While other members are held for a limited time, at most
  /// half of that time may be spent on waiting, or the caller would get a hold that is nearly over.
  [[nodiscard]] Patience patience() RLOCK_REQUIRES(mutex_);

  // Asking the next member.
  void take();
  /// Goes on after a pause, unless somebody has.
  void endPause();
  void takeNow();

  // Its answer.
  Step answered(std::size_t member, const Result<Acquired>& result, const Patience& patience);
  Step granted(std::size_t member, const Grant& grant);
  /// None: it comes too late.
  std::optional<Step> book(std::size_t member, const Grant& grant);
  Step failed(std::size_t member, const Error& error, const Patience& patience);
  /// The member's node is there.
  void answers(std::size_t member) noexcept RLOCK_REQUIRES(mutex_) {
    if (member == outMember_) {
      outSince_ = Clock::time_point::max();
    }
  }

  /// Ends the wait for further members when a member that is held is lost.
  void hearOfLoss(const HoldHandle& handle);
  void lostOne(std::uint64_t round);
  /// True when a node has been away for the outage timeout, which ends a call without a time limit.
  [[nodiscard]] bool outTooLong(std::size_t member) RLOCK_REQUIRES(mutex_);

  void giveBack();
  /// The caller has left: ends the wait for a member.
  void endRound();
  void tellCaller();

  const std::chrono::milliseconds outageTimeout_;
  MultiFsm fsm_ RLOCK_GUARDED_BY(mutex_);
  MemberGrants grants_ RLOCK_GUARDED_BY(mutex_);  // the members taken in this round
  std::stop_source round_ RLOCK_GUARDED_BY(mutex_);
  bool ended_ RLOCK_GUARDED_BY(mutex_) = false;  // the caller has left
  bool lostOne_ RLOCK_GUARDED_BY(mutex_) = false;
  bool hurried_ RLOCK_GUARDED_BY(mutex_) = false;
  bool pausing_ RLOCK_GUARDED_BY(mutex_) = false;   // between two rounds
  bool restless_ RLOCK_GUARDED_BY(mutex_) = false;  // no wait in this round: pause before the next
  int pauses_ RLOCK_GUARDED_BY(mutex_) = 0;
  std::uint64_t rounds_ RLOCK_GUARDED_BY(mutex_) = 0;
  Clock::time_point heldSince_ RLOCK_GUARDED_BY(mutex_){};  // when the round's first was taken
  Clock::time_point asked_ RLOCK_GUARDED_BY(mutex_){};      // when next() was asked
  std::size_t outMember_ RLOCK_GUARDED_BY(mutex_) = 0;      // the member whose node is away
  Clock::time_point outSince_ RLOCK_GUARDED_BY(mutex_) = Clock::time_point::max();
  std::list<StopListener> listeners_ RLOCK_GUARDED_BY(mutex_);
  IntrusivePtr<GroupHold> hold_ RLOCK_GUARDED_BY(mutex_);
};

inline void MultiAcquire::perform(Step step) {
  switch (step) {
    case Step::none:
    case Step::end:
      return;
    case Step::take:
      take();
      return;
    case Step::giveBack:
      giveBack();
      return;
    case Step::finish:
    case Step::finishEarly:
      tellCaller();
      return;
  }
}

inline MultiAcquire::Patience MultiAcquire::patience() {
  Patience result;
  if (oneAttempt()) {
    return result;
  }
  const auto now = group_->now();
  result.wait = endless() ? Duration::max() : Duration(deadline_ - now);
  if (grants_.empty()) {
    return result;
  }
  auto budget = std::chrono::nanoseconds::max();
  if (params_.maxHold && !params_.maxHold->isInfinite()) {
    budget = heldSince_ + params_.maxHold->nanoseconds() / 2 - now;
  }
  if (params_.lease) {
    auto until = Clock::time_point::max();
    for (const Grant& grant : grants_) {
      until = std::min(until, grant.hold->validUntil());
    }
    budget = std::min(budget, until - now - params_.lease->nanoseconds() / 2);
  }
  if (hurried_ || budget < kReplyGrace) {
    budget = std::chrono::nanoseconds::zero();
  }
  if (Duration(budget) < result.wait) {
    result = {Duration(budget), true};
  }
  return result;
}

inline void MultiAcquire::take() {
  std::optional<Clock::duration> pause;
  {
    const MutexLock lock(mutex_);
    // Race: a stop request that has come since the round ended would end no later pause.
    if (fsm_.next() == 0 && std::exchange(restless_, false) && !ended_) {
      pause = backoffPause(
          kShortestMultiPause,
          kLongestMultiPause,
          pauses_++,
          spreadBits(rounds_) ^ static_cast<std::uint32_t>(params_.owner.value * 40503U));
      pausing_ = true;
    }
  }
  if (pause) {
    // During the pause only this timer keeps the object alive.
    group_->callAt(std::min(group_->now() + *pause, deadline_),
                   [self = self()] { self->guarded([&] { self->endPause(); }); });
  } else {
    takeNow();
  }
}

inline void MultiAcquire::endPause() {
  {
    const MutexLock lock(mutex_);
    if (!std::exchange(pausing_, false)) {
      return;
    }
  }
  takeNow();
}

inline void MultiAcquire::takeNow() {
  const auto alive = self();
  std::size_t member = 0;
  Patience patience;
  std::stop_token stop;
  {
    const MutexLock lock(mutex_);
    member = fsm_.next();
    if (member == 0) {
      round_ = std::stop_source();
      ++rounds_;
      lostOne_ = false;
      if (ended_) {
        round_.request_stop();
      }
    }
    stop = round_.get_token();
    patience = this->patience();
    asked_ = group_->now();
  }
  if (!oneAttempt() && !patience.cut && !patience.wait.isPositive()) {
    perform(tell([](MultiFsm& fsm) { return fsm.timeUp(); }));
    return;
  }
  AcquireParams params = memberParams(member, std::move(stop));
  params.wait = patience.wait;
  group_->members()[member]->acquireAsync(
      std::move(params), [self = self(), member, patience](const Result<Acquired>& result) {
        self->guarded(member, result, [&] {
          if (ownerEnded(result)) {
            self->stop();
          }
          self->perform(self->answered(member, result, patience));
        });
      });
  if (!oneAttempt() && !patience.wait.isPositive()) {
    // The member's own limit may be later than the caller's.
    armLimit();
  }
}

inline MultiAcquire::Step MultiAcquire::answered(std::size_t member,
                                                 const Result<Acquired>& result,
                                                 const Patience& patience) {
  if (!result.has_value()) {
    return failed(member, result.error(), patience);
  }
  if (!*result) {
    const MutexLock lock(mutex_);
    if (over_) {
      return Step::none;
    }
    answers(member);
    hurried_ = false;
    restless_ = !patience.wait.isPositive();
    return fsm_.refused(timeLeft());
  }
  const Grant& grant = **result;
  const Step step = granted(member, grant);
  if (step == Step::take) {
    hearOfLoss(*grant.hold);
  }
  return step;
}

inline MultiAcquire::Step MultiAcquire::granted(std::size_t member, const Grant& grant) {
  if (const std::optional<Step> step = book(member, grant)) {
    return *step;
  }
  releaseQuietly(member, grant);
  return Step::none;
}

inline std::optional<MultiAcquire::Step> MultiAcquire::book(std::size_t member,
                                                            const Grant& grant) {
  const MutexLock lock(mutex_);
  if (over_) {
    return std::nullopt;
  }
  answers(member);
  const auto now = group_->now();
  if (grants_.empty()) {
    heldSince_ = now;
  }
  grants_.push_back(grant);
  const bool valid = std::all_of(
      grants_.begin(), grants_.end(), [&](const Grant& each) { return each.hold->heldAt(now); });
  restless_ = !valid;
  const Step step = fsm_.granted(valid);
  if (step == Step::finish) {
    hold_ = group_->book(grants_, terms());
  }
  return step;
}

inline void MultiAcquire::hearOfLoss(const HoldHandle& handle) {
  std::uint64_t round = 0;
  {
    const MutexLock lock(mutex_);
    round = rounds_;
  }
  std::list<StopListener> listener;
  listener.emplace_back(handle.lostToken(), [weak = weak_from_this(), round] {
    if (const auto self = weak.lock()) {
      static_cast<MultiAcquire&>(*self).lostOne(round);
    }
  });
  const MutexLock lock(mutex_);
  listeners_.splice(listeners_.end(), listener);
}

inline void MultiAcquire::lostOne(std::uint64_t round) {
  std::optional<std::stop_source> current;
  {
    const MutexLock lock(mutex_);
    // Race: the loss may be told after the next round has begun, which it does not concern.
    if (round != rounds_) {
      return;
    }
    lostOne_ = true;
    current.emplace(round_);
  }
  current->request_stop();
}

inline MultiAcquire::Step MultiAcquire::failed(std::size_t member,
                                               const Error& error,
                                               const Patience& patience) {
  const MutexLock lock(mutex_);
  if (over_) {
    return Step::none;
  }
  if (error.errc() == Errc::cancelled && lostOne_) {
    // Without this limit a call without a time limit could go round for ever.
    hurried_ = false;
    restless_ = !patience.wait.isPositive();
    if (restless_ && outTooLong(member)) {
      return fsm_.failed(lateError());
    }
    return fsm_.lost();
  }
  // A wait that was cut short says nothing about the caller's own time. One without a limit ends
  // after the outage timeout of the member's own client, which may be shorter than another's.
  const bool callersTime = !patience.cut && !endless();
  if (callersTime || !isPassing(error.errc()) || outTooLong(member)) {
    return fsm_.failed(error);
  }
  // The node may only be slow: the next round waits for its answer without cutting the wait.
  hurried_ = error.errc() == Errc::timedOut;
  restless_ = !patience.wait.isPositive() || group_->now() - asked_ < kShortestMultiPause;
  return timeLeft() ? fsm_.away(error) : fsm_.failed(error);
}

inline bool MultiAcquire::outTooLong(std::size_t member) {
  if (member != outMember_ || outSince_ == Clock::time_point::max()) {
    outMember_ = member;
    outSince_ = asked_;
  }
  return endless() && group_->now() - outSince_ >= outageTimeout_;
}

inline void MultiAcquire::giveBack() {
  // First what takes memory: what was taken out must be given back.
  const auto left = std::make_shared<Atomic<std::size_t>>(0);
  MemberGrants grants;
  std::list<StopListener> listeners;
  {
    const MutexLock lock(mutex_);
    grants.swap(grants_);
    listeners.swap(listeners_);
  }
  // Race: another thread may be inside a listener. Its destructor waits for that thread, which
  // takes mutex_; so no lock is held here.
  listeners.clear();
  left->store(grants.size());
  const auto one = [self = self(), left] {
    if (left->fetch_sub(1) == 1) {
      self->guarded([&] {
        self->perform(self->tell([&](MultiFsm& fsm) { return fsm.givenBack(self->timeLeft()); }));
      });
    }
  };
  for (std::size_t i = 0; i < grants.size(); ++i) {
    GroupAcquire::giveBack(i, grants[i], one);
  }
  // The limits of the releases may be later than the caller's.
  armLimit();
}

inline MemberGrants MultiAcquire::abandon() noexcept {
  MemberGrants grants;
  std::list<StopListener> listeners;
  {
    const MutexLock lock(mutex_);
    over_ = true;
    grants.swap(grants_);
    listeners.swap(listeners_);
  }
  endRound();
  return grants;
}

inline void MultiAcquire::endRound() {
  std::optional<std::stop_source> round;
  {
    const MutexLock lock(mutex_);
    ended_ = true;
    round.emplace(round_);
  }
  round->request_stop();
}

inline void MultiAcquire::tellCaller() {
  MultiFsm::Result outcome{};
  std::optional<Error> error;
  IntrusivePtr<GroupHold> hold;
  std::list<StopListener> listeners;
  {
    const MutexLock lock(mutex_);
    listeners.swap(listeners_);
    outcome = fsm_.result();
    error = fsm_.error();
    hold = hold_;
  }
  listeners.clear();
  switch (outcome) {
    case MultiFsm::Result::granted:
      hold->listen();
      conclude(acquired(hold));
      return;
    case MultiFsm::Result::refused:
      conclude(Acquired());
      return;
    case MultiFsm::Result::failed:
    case MultiFsm::Result::pending:
      conclude(error.value_or(Error(Errc::serverError, "no outcome")));
      return;
  }
}

}  // namespace rlock::detail
