// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/atomic.hpp>
#include <rlock/detail/base/backoff.hpp>
#include <rlock/detail/engine/task.hpp>
#include <rlock/detail/engine/validity.hpp>
#include <rlock/detail/group/group_lock.hpp>
#include <rlock/detail/group/group_release.hpp>
#include <rlock/detail/group/quorum_fsm.hpp>

#include <algorithm>
#include <memory>
#include <utility>

namespace rlock::detail {

/// A lock that is held when a majority of its members is; each member is on a node of its own.
/// While a hold lasts, members that are missing from it are asked for again.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class RedLock final : public GroupLock {
 public:
  explicit RedLock(Members members);

  [[nodiscard]] AcquireParams forMember(const AcquireParams& params) const override;
  [[nodiscard]] GroupHold::Terms terms(const AcquireParams& params) const override;
  /// Looks after a hold from here on: announces its loss in time and asks for missing members.
  void tend(const IntrusivePtr<GroupHold>& hold);

 protected:
  [[nodiscard]] std::shared_ptr<GroupAcquire> makeAcquire(AcquireParams params,
                                                          GroupAcquire::Done done) override;

 private:
  void look(const IntrusivePtr<GroupHold>& hold);
  void repair(const IntrusivePtr<GroupHold>& hold, std::size_t member);
};

/// Two clients that collide must not meet again, so the first pause is longer than an attempt
/// takes.
inline constexpr std::chrono::milliseconds kShortestRedPause{10};
inline constexpr std::chrono::milliseconds kLongestRedPause{200};
/// The longest time between two attempts to obtain a missing member.
inline constexpr std::chrono::seconds kLongestPeriod{10};

inline std::chrono::milliseconds leaseOf(const GroupLock& group, const AcquireParams& params) {
  return params.lease ? params.lease->ceilMilliseconds()
                      : group.members().shortest(&LockLimits::watchdogTimeout);
}

/// The members' maxHold ends a little later, so that the whole ends first and with its own reason.
inline Duration memberMaxHold(std::chrono::nanoseconds maxHold) {
  constexpr std::chrono::nanoseconds kLater = std::chrono::seconds(1);
  return std::clamp(
             maxHold, std::chrono::nanoseconds::zero(), std::chrono::nanoseconds::max() - kLater) +
         kLater;
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
  QuorumAcquire(std::shared_ptr<RedLock> group, AcquireParams params, Done done)
      : GroupAcquire(group, std::move(params), std::move(done)),
        redLock_(std::move(group)),
        patience_(Quorum::patience(leaseOf(*group_, params_),
                                   group_->members().longest(&LockLimits::commandTimeout))),
        outageTimeout_(group_->members().longest(&LockLimits::outageTimeout)),
        random_(static_cast<std::uint32_t>(
            static_cast<std::uint64_t>(began_.time_since_epoch().count()) ^
            (params_.owner.value * 0x9e3779b97f4a7c15ULL >> 32U))),
        fsm_(group_->members().size(), oneAttempt()) {}

  void expire() override {
    const Step step = tell([](QuorumFsm& fsm) { return fsm.expired(); });
    perform(step);
    if (step == Step::giveBack) {
      perform(tell([](QuorumFsm& fsm) { return fsm.expired(); }));
    }
  }

 private:
  using Step = QuorumFsm::Step;

  void begin() override {
    perform(tell([](QuorumFsm& fsm) { return fsm.start(); }));
  }

  void stopped() override {
    perform(tell([](QuorumFsm& fsm) { return fsm.stopped(stopError()); }));
  }

  template <class Event>
  Step tell(Event event) {
    const MutexLock lock(mutex_);
    return event(fsm_);
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
  [[nodiscard]] bool timeLeft() RLOCK_REQUIRES(mutex_) {
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

  void perform(Step step) {
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

  /// Calls `event` at `when` and performs the step that it returns. The call comes early when all
  /// clients were closed.
  template <class Event>
  void tellAt(Clock::time_point when, Event event) {
    // During a pause only this timer keeps the object alive.
    group_->callAt(when, [self = self(), event] { self->perform(event(*self)); });
  }

  void attempt() {
    std::uint64_t attempt = 0;
    std::stop_source round;
    const auto now = group_->now();
    {
      const MutexLock lock(mutex_);
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
      group_->members()[i]->acquireAsync(
          memberParams(i, round.get_token()),
          [self = self(), i, attempt](const Result<Acquired>& result) {
            if (ownerEnded(result)) {
              self->stopped();
            }
            self->answered(i, attempt, result);
          });
    }
  }

  void answered(std::size_t member, std::uint64_t attempt, const Result<Acquired>& result) {
    if (result.has_value() && result->has_value()) {
      granted(member, attempt, **result);
      return;
    }
    perform(tell(attempt, [&](QuorumFsm& fsm) {
      return result.has_value() ? fsm.refused(member) : fsm.failed(member, result.error());
    }));
  }

  void granted(std::size_t member, std::uint64_t attempt, const Grant& grant) {
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
      group_->members()[member]->releaseQuietly({params_.owner, grant.hold->incarnation()});
    }
    perform(step);
  }

  [[nodiscard]] bool majorityValid() const RLOCK_REQUIRES(mutex_) {
    std::vector<Clock::time_point> until;
    until.reserve(grants_.size());
    for (const Grant& grant : grants_) {
      const bool held = grant.hold && grant.hold->reason() == LossReason::none;
      until.push_back(held ? grant.hold->validUntil() : Clock::time_point::min());
    }
    const auto end = Quorum::validUntil(until, group_->members().need());
    return end != Clock::time_point::min() && group_->now() < end - terms().margin;
  }

  void giveBack() {
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
    // Race: answers may come inside the loop below. The count includes one for this function, so
    // that the last answer counts only after the loop.
    const auto left = std::make_shared<Atomic<std::size_t>>(1);
    const auto one = [self = self(), left, attempt] {
      if (left->fetch_sub(1) == 1) {
        self->perform(self->givenBack(attempt));
      }
    };
    for (std::size_t i = 0; i < grants.size(); ++i) {
      if (grants[i].hold) {
        left->fetch_add(1);
        group_->members()[i]->releaseAsync(
            {params_.owner, grants[i].hold->incarnation()},
            [one](const Result<ReleaseOutcome>& /*result*/) { one(); });
      }
    }
    if (left->load() > 1) {
      tellAt(until, [attempt](QuorumAcquire& self) { return self.givenBack(attempt); });
    }
    one();
  }

  void pause() {
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

  void tellCaller() {
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
        redLock_->tend(hold);
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

  const std::shared_ptr<RedLock> redLock_;
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

inline RedLock::RedLock(Members members)
    : GroupLock("red", members, Quorum::majority(members.size())) {}

inline AcquireParams RedLock::forMember(const AcquireParams& params) const {
  AcquireParams result = params;
  if (params.maxHold && !params.maxHold->isInfinite()) {
    result.maxHold = memberMaxHold(params.maxHold->nanoseconds());
  }
  return result;
}

inline GroupHold::Terms RedLock::terms(const AcquireParams& params) const {
  const auto lease = leaseOf(*this, params);
  GroupHold::Terms terms;
  terms.owner = params.owner;
  terms.label = params.label;
  if (params.lease) {
    terms.lease = lease;
  }
  if (params.maxHold) {
    terms.maxHoldUntil = params.maxHold->deadlineFrom(now());
  }
  terms.margin =
      Quorum::drift(params.lease ? lease : members().longest(&LockLimits::watchdogTimeout));
  terms.notice = Validity::notice(lease);
  return terms;
}

inline std::shared_ptr<GroupAcquire> RedLock::makeAcquire(AcquireParams params,
                                                          GroupAcquire::Done done) {
  return std::make_shared<QuorumAcquire>(
      std::static_pointer_cast<RedLock>(shared_from_this()), std::move(params), std::move(done));
}

inline void RedLock::tend(const IntrusivePtr<GroupHold>& hold) {
  const auto now = this->now();
  const GroupHold::Terms terms = hold->terms();
  const auto period = std::min<Clock::duration>(
      terms.lease.value_or(members().shortest(&LockLimits::watchdogTimeout)) / 3, kLongestPeriod);
  const auto when = std::min(now + std::max<Clock::duration>(period, std::chrono::milliseconds(1)),
                             hold->lossAt());
  if (!hold->planLook(when)) {
    return;
  }
  callAt(when, [weak = weak_from_this(), hold, when] {
    const auto self = weak.lock();
    // A call before its time means that all clients were closed, which ends the members' holds.
    if (self && self->now() >= when && hold->beginLook(when)) {
      static_cast<RedLock&>(*self).look(hold);
    }
  });
}

inline void RedLock::look(const IntrusivePtr<GroupHold>& hold) {
  if (hold->released() || hold->reason() != LossReason::none) {
    return;
  }
  if (now() >= hold->lossAt()) {
    hold->runOut();
    return;
  }
  for (const std::size_t member : hold->takeMissing()) {
    repair(hold, member);
  }
  tend(hold);
}

inline void RedLock::repair(const IntrusivePtr<GroupHold>& hold, std::size_t member) {
  const GroupHold::Terms terms = hold->terms();
  const auto now = this->now();
  AcquireParams params;
  params.owner = terms.owner;
  params.label = terms.label;
  params.stop = hold->repairs();
  params.wantsHandle = true;
  if (terms.lease) {
    // A repaired member must not last longer than the rest of the hold.
    const auto left =
        std::chrono::floor<std::chrono::milliseconds>(hold->validUntil() + terms.margin - now);
    if (left <= std::chrono::milliseconds::zero()) {
      hold->repaired(member);
      return;
    }
    params.lease = Duration(left);
  }
  if (terms.maxHoldUntil != Clock::time_point::max()) {
    params.maxHold = memberMaxHold(terms.maxHoldUntil - now);
  }
  const auto& backend = members()[member];
  backend->acquireAsync(
      std::move(params),
      [hold, member, backend, owner = terms.owner](const Result<Acquired>& result) {
        if (!result.has_value() || !result->has_value()) {
          hold->repaired(member);
        } else if (hold->join(member, **result)) {
          hold->listen();
        } else {
          backend->releaseQuietly({owner, (*result)->hold->incarnation()});
        }
      });
}

}  // namespace rlock::detail
