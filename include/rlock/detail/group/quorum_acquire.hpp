// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/engine/task.hpp>
#include <rlock/detail/group/group_hold.hpp>
#include <rlock/detail/group/group_lock.hpp>
#include <rlock/detail/group/quorum.hpp>
#include <rlock/detail/group/quorum_fsm.hpp>
#include <rlock/error.hpp>
#include <rlock/result.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

namespace rlock::detail {

/// Two clients that collide must not meet again, so the first pause is longer than an attempt
/// takes.
inline constexpr std::chrono::milliseconds kShortestRedPause{10};
inline constexpr std::chrono::milliseconds kLongestRedPause{200};

inline std::chrono::milliseconds leaseOf(const GroupLock& group, const AcquireParams& params) {
  return params.lease ? params.lease->ceilMilliseconds()
                      : group.members().shortest(&LockLimits::watchdogTimeout);
}

/// One acquisition of a RedLock: performs the steps of QuorumFsm. begin() runs on the caller's
/// thread; answers and timers come on the loop threads of the members' clients, stop requests on
/// any thread. mutex_ guards the state machine; a step is performed after mutex_ has been released,
/// because it calls members and the application.
///
/// attempt_ numbers the attempts. Answers and timers carry the number of their attempt, so that a
/// late one does not count for the next attempt. Every grant is booked in the hold, joins it later,
/// or is given back: a grant never stays behind unnoticed.
class QuorumAcquire final : public GroupAcquire {
 public:
  QuorumAcquire(std::shared_ptr<GroupLock> group, AcquireParams params, Done done);

 private:
  using Step = QuorumFsm::Step;

  void begin() override {
    perform(tell([](QuorumFsm& fsm) { return fsm.start(); }));
  }

  void stopped() override {
    perform(tell([](QuorumFsm& fsm) { return fsm.stopped(stopError()); }));
  }
  void expired() override;
  MemberGrants abandon() noexcept override;

  template <class Event>
  Step tell(Event event) {
    const MutexLock lock(mutex_);
    return over_ ? Step::none : event(fsm_);
  }
  /// As tell(). Race: does nothing when another attempt has begun since the event was arranged.
  template <class Event>
  Step tell(std::uint64_t attempt, Event event) {
    const MutexLock lock(mutex_);
    return attempt == attempt_ ? event(fsm_) : Step::none;
  }
  Step givenBack(std::uint64_t attempt) {
    const MutexLock lock(mutex_);
    return attempt == attempt_ ? fsm_.givenBack(timeLeft()) : Step::none;
  }
  Step pauseOver(std::uint64_t attempt) {
    const MutexLock lock(mutex_);
    return attempt == attempt_ ? fsm_.pauseOver(timeLeft()) : Step::none;
  }

  [[nodiscard]] std::shared_ptr<QuorumAcquire> self() {
    return std::static_pointer_cast<QuorumAcquire>(shared_from_this());
  }

  /// Whether the caller's time, or the outage timeout, allows another attempt.
  [[nodiscard]] bool timeLeft() RLOCK_REQUIRES(mutex_);

  void perform(Step step);

  /// Calls `event` at `when` and performs the step that it returns. The call comes early when all
  /// clients were closed.
  template <class Event>
  void tellAt(Clock::time_point when, Event event) {
    // During a pause only this timer keeps the object alive.
    group_->callAt(when,
                   [self = self(), event] { self->guarded([&] { self->perform(event(*self)); }); });
  }

  void attempt();
  void answered(std::size_t member, std::uint64_t attempt, const Result<Acquired>& result);
  void granted(std::size_t member, std::uint64_t attempt, const Grant& grant);
  [[nodiscard]] bool majorityValid() const RLOCK_REQUIRES(mutex_);
  void giveBack();
  void pause();
  void tellCaller();

  const std::chrono::nanoseconds patience_;
  const std::chrono::milliseconds outageTimeout_;
  std::uint32_t random_ RLOCK_GUARDED_BY(mutex_);
  QuorumFsm fsm_ RLOCK_GUARDED_BY(mutex_);
  std::uint64_t attempt_ RLOCK_GUARDED_BY(mutex_) = 0;
  Clock::time_point attemptBegan_ RLOCK_GUARDED_BY(mutex_){};
  Clock::time_point outSince_ RLOCK_GUARDED_BY(mutex_) = Clock::time_point::max();
  MemberGrants grants_ RLOCK_GUARDED_BY(mutex_);  // obtained in this attempt
  std::stop_source round_ RLOCK_GUARDED_BY(mutex_);
  IntrusivePtr<GroupHold> hold_ RLOCK_GUARDED_BY(mutex_);
};

inline QuorumAcquire::QuorumAcquire(std::shared_ptr<GroupLock> group,
                                    AcquireParams params,
                                    Done done)
    : GroupAcquire(std::move(group), std::move(params), std::move(done)),
      patience_(Quorum::patience(leaseOf(*group_, params_),
                                 group_->members().longest(&LockLimits::commandTimeout))),
      outageTimeout_(group_->members().longest(&LockLimits::outageTimeout)),
      random_(
          static_cast<std::uint32_t>(static_cast<std::uint64_t>(began_.time_since_epoch().count()) ^
                                     (params_.owner.value * 0x9e3779b97f4a7c15ULL >> 32U))),
      fsm_(group_->members().size(), oneAttempt()) {}

inline void QuorumAcquire::expired() {
  const Step step = tell([](QuorumFsm& fsm) { return fsm.expired(); });
  perform(step);
  if (step == Step::giveBack) {
    perform(tell([](QuorumFsm& fsm) { return fsm.expired(); }));
  }
}

inline bool QuorumAcquire::timeLeft() {
  if (oneAttempt()) {
    return false;
  }
  const auto now = group_->now();
  if (!endless()) {
    return now < deadline_;
  }
  if (!fsm_.outOfReach()) {
    outSince_ = Clock::time_point::max();
    return true;
  }
  outSince_ = std::min(outSince_, attemptBegan_);
  return now - outSince_ < outageTimeout_;
}

inline void QuorumAcquire::perform(Step step) {
  switch (step) {
    case Step::none:
    case Step::end:
      return;
    case Step::attempt:
      attempt();
      return;
    case Step::giveBack:
      giveBack();
      return;
    case Step::pause:
      pause();
      return;
    case Step::finish:
    case Step::finishEarly:
      tellCaller();
      return;
  }
}

inline void QuorumAcquire::attempt() {
  std::uint64_t attempt = 0;
  std::stop_source round;
  const auto now = group_->now();
  {
    const MutexLock lock(mutex_);
    // Race: the caller may have left since the state machine decided on this attempt.
    if (over_ || !fsm_.asking()) {
      return;
    }
    attempt = ++attempt_;
    attemptBegan_ = now;
    grants_.assign(group_->members().size(), Grant());
    round_ = round;
  }
  auto until = now + patience_;
  bool early = false;
  if (!oneAttempt() && !endless() && deadline_ < until) {
    until = deadline_;
    early = true;
  }
  tellAt(until, [attempt, early, until](QuorumAcquire& self) {
    return self.tell(attempt, [&](QuorumFsm& fsm) {
      // An early call means closed clients: their own answers say more than silence would.
      return self.group_->now() < until ? Step::none : fsm.limitReached(early);
    });
  });
  // This stops the requests after a success, too: a later grant would last longer than the rest
  // of the hold.
  group_->callAt(until, [round] { std::stop_source(round).request_stop(); });
  for (std::size_t i = 0; i < group_->members().size(); ++i) {
    group_->members()[i]->acquireAsync(memberParams(i, round.get_token()),
                                       [self = self(), i, attempt](const Result<Acquired>& result) {
                                         self->guarded(i, result, [&] {
                                           if (ownerEnded(result)) {
                                             self->stop();
                                           }
                                           self->answered(i, attempt, result);
                                         });
                                       });
  }
}

inline void QuorumAcquire::answered(std::size_t member,
                                    std::uint64_t attempt,
                                    const Result<Acquired>& result) {
  if (result.has_value() && result->has_value()) {
    granted(member, attempt, **result);
    return;
  }
  perform(tell(attempt, [&](QuorumFsm& fsm) {
    return result.has_value() ? fsm.refused(member) : fsm.failed(member, result.error());
  }));
}

inline void QuorumAcquire::granted(std::size_t member, std::uint64_t attempt, const Grant& grant) {
  IntrusivePtr<GroupHold> complete;
  bool late = false;
  Step step = Step::none;
  {
    const MutexLock lock(mutex_);
    // Races: a grant may come while its attempt is open, after the attempt has succeeded (it then
    // joins the hold), or after it has failed or another has begun (it is then given back).
    if (attempt == attempt_ && fsm_.asking()) {
      grants_[member] = grant;
      step = fsm_.granted(member, majorityValid());
      if (step == Step::finish) {
        hold_ = group_->book(grants_, terms());
      }
    } else if (attempt == attempt_ && hold_) {
      complete = hold_;
    } else {
      late = true;
    }
  }
  if (complete) {
    late = !complete->join(member, grant);
    complete->listen();
  }
  if (late) {
    releaseQuietly(member, grant);
  }
  perform(step);
}

inline bool QuorumAcquire::majorityValid() const {
  const GroupHold::Terms terms = this->terms();
  std::vector<Clock::time_point> until;
  until.reserve(grants_.size());
  for (std::size_t i = 0; i < grants_.size(); ++i) {
    const IntrusivePtr<HoldHandle>& hold = grants_[i].hold;
    const bool held = hold && hold->reason() == LossReason::none;
    until.push_back(held ? Quorum::shortened(hold->validUntil(), terms.margins[i])
                         : Clock::time_point::min());
  }
  const auto end = Quorum::validUntil(until, group_->members().need());
  return end != Clock::time_point::min() && group_->now() < end;
}

inline void QuorumAcquire::giveBack() {
  // Race: answers may come inside the loop below. The count includes one for this function, so
  // that the last answer counts only after the loop. It is made first: what was taken out must be
  // given back.
  const auto left = std::make_shared<Atomic<std::size_t>>(1);
  MemberGrants grants;
  std::optional<std::stop_source> round;
  std::uint64_t attempt = 0;
  {
    const MutexLock lock(mutex_);
    grants.swap(grants_);
    round.emplace(round_);
    attempt = attempt_;
  }
  // A member that is still being asked gives back by itself the hold that it obtains.
  round->request_stop();
  auto until = group_->now() + patience_;
  if (!endless()) {
    until = std::max(group_->now(), std::min(until, deadline_ + kReplyGrace));
  }
  const auto one = [self = self(), left, attempt] {
    if (left->fetch_sub(1) == 1) {
      self->guarded([&] { self->perform(self->givenBack(attempt)); });
    }
  };
  for (std::size_t i = 0; i < grants.size(); ++i) {
    if (grants[i].hold) {
      left->fetch_add(1);
      GroupAcquire::giveBack(i, grants[i], one);
    }
  }
  if (left->load() > 1) {
    tellAt(until, [attempt](QuorumAcquire& self) { return self.givenBack(attempt); });
  }
  one();
}

inline MemberGrants QuorumAcquire::abandon() noexcept {
  MemberGrants grants;
  std::optional<std::stop_source> round;
  {
    const MutexLock lock(mutex_);
    over_ = true;
    // Every answer from here on is late.
    ++attempt_;
    grants.swap(grants_);
    round.emplace(round_);
  }
  round->request_stop();
  return grants;
}

inline void QuorumAcquire::pause() {
  std::uint64_t attempt = 0;
  int attempts = 0;
  std::uint32_t random = 0;
  {
    const MutexLock lock(mutex_);
    attempt = attempt_;
    attempts = fsm_.attempts();
    random = random_ = random_ * 1664525U + 1013904223U;
  }
  const auto length =
      backoffPause(kShortestRedPause, kLongestRedPause, attempts - 1, random >> 16U);
  tellAt(std::min(group_->now() + length, deadline_),
         [attempt](QuorumAcquire& self) { return self.pauseOver(attempt); });
}

inline void QuorumAcquire::tellCaller() {
  QuorumFsm::Result outcome{};
  std::optional<Error> error;
  IntrusivePtr<GroupHold> hold;
  {
    const MutexLock lock(mutex_);
    outcome = fsm_.result();
    error = fsm_.error();
    hold = hold_;
  }
  switch (outcome) {
    case QuorumFsm::Result::granted:
      hold->listen();
      group_->tend(hold);
      conclude(acquired(hold));
      return;
    case QuorumFsm::Result::refused:
      conclude(Acquired());
      return;
    case QuorumFsm::Result::failed:
    case QuorumFsm::Result::pending:
      conclude(error.value_or(Error(Errc::serverError, "no outcome")));
      return;
  }
}

}  // namespace rlock::detail
