// SPDX-License-Identifier: Apache-2.0
#include "group/group_acquire.hpp"

#include "group/group_lock.hpp"
#include <rlock/detail/engine/task.hpp>

#include <utility>

namespace rlock::detail {

namespace {

/// How long the whole acquisition waits for a member beyond the member's own limit.
constexpr std::chrono::milliseconds kMemberGrace = kReplyGrace + std::chrono::milliseconds(10);

}  // namespace

GroupAcquire::GroupAcquire(std::shared_ptr<GroupLock> group, AcquireParams params, Done done)
    : group_(std::move(group)),
      params_(std::move(params)),
      began_(group_->now()),
      deadline_(oneAttempt() ? began_ + group_->longest(&LockLimits::callTimeout)
                             : params_.wait.deadlineFrom(began_)),
      limit_(deadline_ > Clock::time_point::max() - kMemberGrace ? Clock::time_point::max()
                                                                 : deadline_ + kMemberGrace),
      done_(std::move(done)) {}

void GroupAcquire::start() {
  if (params_.stop.stop_possible()) {
    stopListener_.emplace(params_.stop, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->stopped();
      }
    });
  }
  group_->endOverdue(params_.owner);
  begin();
}

void GroupAcquire::armLimit() {
  const auto near = group_->now() + group_->longest(&LockLimits::callTimeout) + 2 * kMemberGrace;
  if (limit_ < near && !armed_.exchange(true)) {
    group_->callAt(limit_, [weak = weak_from_this()] {
      const auto self = weak.lock();
      // A call before its time means that all clients were closed; the members will report that.
      if (self && self->group_->now() >= self->limit_) {
        self->expire();
      }
    });
  }
}

AcquireParams GroupAcquire::memberParams(std::size_t member, std::stop_token stop) const {
  AcquireParams params = group_->forMember(params_);
  params.wait = Duration::zero();
  params.stop = std::move(stop);
  params.wantsHandle = true;
  params.willRetry = !oneAttempt();
  params.forEver = endless();
  params.afresh = group_->overtime(params_.owner, member);
  return params;
}

GroupHold::Terms GroupAcquire::terms() const {
  return group_->terms(params_);
}

void GroupAcquire::conclude(Result<Acquired> result) {
  // Race: another thread may be inside stopped(). The destructor of the stop callback waits for
  // that thread, which takes mutex_; so no lock is held here.
  stopListener_.reset();
  const auto done = std::make_unique<Done>(std::move(done_));
  if (result.has_value()) {
    (*done)(std::move(result));
  } else {
    (*done)(group_->describe(result.error()));
  }
}

GroupAcquire::Acquired GroupAcquire::acquired(const IntrusivePtr<GroupHold>& hold) {
  Grant grant;
  grant.hold = hold;
  return grant;
}

bool GroupAcquire::ownerEnded(const Result<Acquired>& result) noexcept {
  return result.has_value() && result->has_value() && (*result)->hold &&
         (*result)->hold->reason() == LossReason::threadEnded;
}

Error GroupAcquire::stopError() {
  return Error(Errc::cancelled, "a stop was requested");
}

Error GroupAcquire::lateError() {
  return Error(Errc::timedOut,
               "a node did not answer in time; what was obtained is given back in the background");
}

}  // namespace rlock::detail
