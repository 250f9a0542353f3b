// SPDX-License-Identifier: Apache-2.0
#include "group/group_hold.hpp"

#include <rlock/detail/group/quorum_fsm.hpp>

#include <algorithm>
#include <utility>

namespace rlock::detail {

GroupHold::GroupHold(std::shared_ptr<const Env> env,
                     std::uint64_t incarnation,
                     std::size_t members,
                     std::size_t need,
                     Terms terms,
                     OnLoss onLoss)
    : HoldHandle(incarnation),
      env_(std::move(env)),
      size_(members),
      need_(need),
      onLoss_(std::move(onLoss)),
      terms_(std::move(terms)),
      members_(members) {
  scratch_.reserve(members);
}

bool GroupHold::alive(const HoldHandle& handle) noexcept {
  return handle.reason() == LossReason::none && !handle.released();
}

bool GroupHold::alive(const Member& member) noexcept {
  return std::any_of(
      member.held.begin(), member.held.end(), [](const auto& handle) { return alive(*handle); });
}

/// Why a member is lost, if it is; it may have been lost before, and taken again.
LossReason GroupHold::reasonOf(const Member& member) noexcept {
  return member.held.empty() || alive(member) ? LossReason::none : member.held.back()->reason();
}

GroupHold::Clock::time_point GroupHold::membersUntil() const noexcept {
  scratch_.clear();
  for (const Member& member : members_) {
    auto until = Clock::time_point::min();
    for (const auto& handle : member.held) {
      if (alive(*handle)) {
        until = std::max(until, handle->validUntil());
      }
    }
    scratch_.push_back(until);
  }
  const auto until = Quorum::validUntil(scratch_, need_);
  return until == Clock::time_point::min() ? Clock::time_point{} : until - terms_.margin;
}

GroupHold::Clock::time_point GroupHold::validUntil() const noexcept {
  const MutexLock lock(mutex_);
  return std::min(membersUntil(), terms_.maxHoldUntil);
}

GroupHold::Clock::time_point GroupHold::lossAt() const {
  const MutexLock lock(mutex_);
  return std::min(membersUntil() - terms_.notice, terms_.maxHoldUntil);
}

GroupHold::Terms GroupHold::terms() const {
  const MutexLock lock(mutex_);
  return terms_;
}

/// What was lost has ended by itself. What the owner took by other ways is not the group's to
/// release, and what it gave back by other ways is not there any more.
void GroupHold::add(Member& member, const Grant& grant) noexcept {
  std::erase_if(member.held, [](const auto& handle) { return !alive(*handle); });
  const bool same =
      !member.held.empty() && member.held.back()->incarnation() == grant.hold->incarnation();
  // Another call of the owner may have been booked since this one was counted.
  member.seen = same ? std::max(member.seen, grant.count) : grant.count;
  member.held.push_back(grant.hold);
  while (same && member.held.size() > static_cast<std::size_t>(std::max(member.seen, 1))) {
    member.held.erase(member.held.begin());
  }
  const bool listening = std::any_of(member.listening.begin(),
                                     member.listening.end(),
                                     [&](const Listening& each) { return each.to == grant.hold; });
  if (!listening) {
    member.listening.push_back({grant.hold, {}});
  }
}

void GroupHold::enter(const MemberGrants& grants, const Terms& terms) {
  const MutexLock lock(mutex_);
  ++count_;
  if (count_ > 1) {
    // As each member does it: a watched hold stays watched, a hold becomes watched by re-entry.
    terms_.lease = terms_.lease && terms.lease
                       ? std::optional(std::max(*terms_.lease, *terms.lease))
                       : std::nullopt;
    terms_.maxHoldUntil = std::min(terms_.maxHoldUntil, terms.maxHoldUntil);
    terms_.margin = std::max(terms_.margin, terms.margin);
    terms_.notice = std::max(terms_.notice, terms.notice);
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (grants[i].hold) {
      add(members_[i], grants[i]);
    }
  }
}

bool GroupHold::join(std::size_t number, const Grant& grant) {
  const MutexLock lock(mutex_);
  Member& member = members_[number];
  member.repairing = false;
  if (count_ == 0 || reason() != LossReason::none || repairs_.stop_requested()) {
    return false;
  }
  add(member, grant);
  return true;
}

void GroupHold::listen() {
  for (std::size_t i = 0; i < size_; ++i) {
    for (;;) {
      IntrusivePtr<HoldHandle> handle;
      std::list<Listening> old;
      {
        const MutexLock lock(mutex_);
        Member& member = members_[i];
        for (auto it = member.listening.begin(); it != member.listening.end();) {
          const auto each = it++;
          if (std::find(member.held.begin(), member.held.end(), each->to) == member.held.end()) {
            old.splice(old.end(), member.listening, each);
          } else if (each->listener.empty() && !handle) {
            handle = each->to;
          }
        }
      }
      // Made and destroyed without the lock: it may run at once, and waits while it runs.
      old.clear();
      if (!handle) {
        break;
      }
      std::list<StopListener> listener;
      listener.emplace_back(handle->lostToken(), [this] { memberLost(); });
      const MutexLock lock(mutex_);
      for (Listening& each : members_[i].listening) {
        if (each.to == handle && each.listener.empty()) {
          each.listener.swap(listener);
        }
      }
    }
  }
}

void GroupHold::memberLost() noexcept {
  // The destructor waits for this to return.
  if (!tryAddRef()) {
    return;
  }
  const auto self = IntrusivePtr<GroupHold>::adopt(this);
  LossReason first = LossReason::none;
  bool ended = false;
  {
    const MutexLock lock(mutex_);
    std::size_t left = 0;
    for (const Member& member : members_) {
      const LossReason reason = reasonOf(member);
      left += static_cast<std::size_t>(alive(member));
      ended = ended || reason == LossReason::threadEnded;
      first = first == LossReason::none ? reason : first;
    }
    if (count_ == 0 || first == LossReason::none || (left >= need_ && !ended)) {
      return;
    }
  }
  lose(ended ? LossReason::threadEnded : first);
}

void GroupHold::lose(LossReason reason) {
  if (markLost(reason)) {
    repairs_.request_stop();
    signalLoss();
    onLoss_(IntrusivePtr<GroupHold>(this));
  }
}

LossReason GroupHold::endOfTime() const {
  const Terms terms = this->terms();
  return env_->now() >= terms.maxHoldUntil ? LossReason::maxHold
         : terms.lease                     ? LossReason::expired
                                           : LossReason::unreachable;
}

void GroupHold::runOut() {
  lose(endOfTime());
}

bool GroupHold::markOverdue() {
  if (!markLost(endOfTime())) {
    return false;
  }
  repairs_.request_stop();
  onLoss_(IntrusivePtr<GroupHold>(this));
  return true;
}

std::vector<std::size_t> GroupHold::takeMissing() {
  const auto now = env_->now();
  std::vector<std::size_t> missing;
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    const bool held = std::any_of(member.held.begin(), member.held.end(), [&](const auto& handle) {
      return handle->heldAt(now);
    });
    if (member.repairing || held) {
      continue;
    }
    // What somebody ended on purpose stays ended.
    const LossReason reason =
        member.held.empty() ? LossReason::unreachable : member.held.back()->reason();
    if (reason == LossReason::expired || reason == LossReason::refused ||
        reason == LossReason::unreachable || reason == LossReason::maxHold) {
      member.repairing = true;
      missing.push_back(i);
    }
  }
  return missing;
}

void GroupHold::repaired(std::size_t member) {
  const MutexLock lock(mutex_);
  members_[member].repairing = false;
}

GroupHold::Plan GroupHold::planRelease() {
  Plan plan;
  plan.last = count_ == 0;
  for (Member& member : members_) {
    std::vector<std::uint64_t>& incarnations = plan.incarnations.emplace_back();
    while (member.held.size() > static_cast<std::size_t>(count_)) {
      incarnations.push_back(member.held.back()->incarnation());
      member.held.pop_back();
      --member.seen;
    }
  }
  return plan;
}

int GroupHold::overtime(std::size_t member) const {
  const LossReason why = reason();
  const MutexLock lock(mutex_);
  const bool over =
      why == LossReason::maxHold || (why == LossReason::none && env_->now() >= terms_.maxHoldUntil);
  return over ? static_cast<int>(members_[member].held.size()) : 0;
}

GroupHold::Plan GroupHold::leave() {
  const bool valid = heldAt(env_->now());
  Plan plan;
  {
    const MutexLock lock(mutex_);
    // What was lost is over, however often it was taken.
    count_ = valid ? count_ - 1 : 0;
    plan = planRelease();
  }
  plan.valid = valid;
  if (plan.last) {
    setReleased();
  }
  return plan;
}

GroupHold::Plan GroupHold::leaveLost() {
  Plan plan;
  {
    const MutexLock lock(mutex_);
    count_ = 0;
    plan = planRelease();
  }
  lose(LossReason::refused);
  setReleased();
  return plan;
}

GroupHold::Plan GroupHold::giveBack() {
  const MutexLock lock(mutex_);
  if (count_ == 0) {
    return {};
  }
  count_ = 0;
  givingBack_ = true;
  return planRelease();
}

void GroupHold::givenBack() {
  std::vector<UniqueFunction<void()>> then;
  {
    const MutexLock lock(mutex_);
    givingBack_ = false;
    then.swap(afterwards_);
  }
  for (UniqueFunction<void()>& each : then) {
    each();
  }
}

bool GroupHold::whenGivenBack(UniqueFunction<void()>& then) {
  const MutexLock lock(mutex_);
  if (givingBack_) {
    afterwards_.push_back(std::move(then));
  }
  return givingBack_;
}

bool GroupHold::survives(const std::vector<bool>& gone) const {
  const MutexLock lock(mutex_);
  std::size_t left = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    left += static_cast<std::size_t>(!gone[i] && alive(members_[i]));
  }
  return left >= need_;
}

bool GroupHold::planLook(Clock::time_point when) {
  const MutexLock lock(mutex_);
  return look_.plan(when);
}

bool GroupHold::beginLook(Clock::time_point when) {
  const MutexLock lock(mutex_);
  return look_.begin(when);
}

bool GroupHold::over() const {
  if (released()) {
    return true;
  }
  const auto now = env_->now();
  const MutexLock lock(mutex_);
  return std::none_of(members_.begin(), members_.end(), [&](const Member& member) {
    return std::any_of(member.held.begin(), member.held.end(), [&](const auto& handle) {
      return handle->heldAt(now);
    });
  });
}

}  // namespace rlock::detail
