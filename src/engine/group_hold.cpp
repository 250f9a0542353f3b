// SPDX-License-Identifier: Apache-2.0
#include "engine/group_hold.hpp"

#include <rlock/detail/engine/quorum_fsm.hpp>

#include <algorithm>
#include <utility>

namespace rlock::detail {

GroupHold::GroupHold(std::size_t members, std::size_t need, Terms terms, const GroupHold* before)
    : need_(need), terms_(std::move(terms)), members_(members) {
  scratch_.reserve(members);
  if (before != nullptr) {
    const std::lock_guard lock(before->mutex_);
    for (std::size_t i = 0; i < members; ++i) {
      const Member& old = before->members_[i];
      if (alive(old)) {
        members_[i].handle = old.handle;
        members_[i].count = old.count;
        members_[i].line = old.line;
        members_[i].seen = old.seen;
        members_[i].heard = false;
      } else {
        members_[i].lostLine = old.handle ? old.line : old.lostLine;
        members_[i].lostCount = old.handle ? old.count : old.lostCount;
      }
    }
  }
}

bool GroupHold::alive(const Member& member) noexcept {
  return member.handle && member.handle->reason() == LossReason::none && !member.handle->released();
}

GroupHold::Clock::time_point GroupHold::membersUntil() const noexcept {
  scratch_.clear();
  for (const Member& member : members_) {
    scratch_.push_back(alive(member) ? member.handle->validUntil() : Clock::time_point::min());
  }
  const auto until = Quorum::validUntil(scratch_, need_);
  return until == Clock::time_point::min() ? Clock::time_point{} : until - terms_.margin;
}

GroupHold::Clock::time_point GroupHold::validUntil() const noexcept {
  const std::lock_guard lock(mutex_);
  return std::min(membersUntil(), terms_.maxHoldUntil);
}

GroupHold::Clock::time_point GroupHold::lossAt() const {
  const std::lock_guard lock(mutex_);
  return std::min(membersUntil() - terms_.notice, terms_.maxHoldUntil);
}

GroupHold::Terms GroupHold::terms() const {
  const std::lock_guard lock(mutex_);
  return terms_;
}

/// What was lost may be gone from the server or still count there. What the owner took by other
/// ways is not the group's to release.
void GroupHold::add(Member& member, const Grant& grant) noexcept {
  int kept = 0;
  if (member.handle && member.line == grant.line) {
    kept = member.count;
  } else if (!member.handle && member.lostLine == grant.line) {
    kept = member.lostCount;
  }
  // Another call of the owner may have been booked since this one was counted.
  member.seen =
      member.handle && member.line == grant.line ? std::max(member.seen, grant.count) : grant.count;
  member.count = std::min(kept + 1, std::max(member.seen, 1));
  member.handle = grant.hold;
  member.line = grant.line;
  member.heard = false;
}

void GroupHold::enter(const MemberGrants& grants, const Terms& terms) {
  const std::lock_guard lock(mutex_);
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
  const std::lock_guard lock(mutex_);
  Member& member = members_[number];
  member.repairing = false;
  if (count_ == 0 || reason() != LossReason::none || repairs_.stop_requested()) {
    return false;
  }
  add(member, grant);
  return true;
}

void GroupHold::listen() {
  for (Member& member : members_) {
    IntrusivePtr<HoldHandle> handle;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(member.heard, true)) {
        continue;
      }
      handle = member.handle;
    }
    // Made and destroyed without the lock: it may run at once, and waits while it runs.
    std::list<StopListener> listener;
    listener.emplace_back(handle->lostToken(), [this] { memberLost(); });
    const std::lock_guard lock(mutex_);
    member.listener.swap(listener);
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
    const std::lock_guard lock(mutex_);
    std::size_t left = 0;
    for (const Member& member : members_) {
      const LossReason reason = member.handle ? member.handle->reason() : LossReason::none;
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
  }
}

void GroupHold::runOut() {
  const Terms terms = this->terms();
  lose(Clock::now() >= terms.maxHoldUntil ? LossReason::maxHold
       : terms.lease                      ? LossReason::expired
                                          : LossReason::unreachable);
}

std::vector<std::size_t> GroupHold::takeMissing() {
  const auto now = Clock::now();
  std::vector<std::size_t> missing;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (member.repairing || (member.handle && member.handle->heldAt(now))) {
      continue;
    }
    // What somebody ended on purpose stays ended.
    const LossReason reason = member.handle ? member.handle->reason() : LossReason::unreachable;
    if (reason == LossReason::expired || reason == LossReason::refused ||
        reason == LossReason::unreachable || reason == LossReason::maxHold) {
      member.repairing = true;
      missing.push_back(i);
    }
  }
  return missing;
}

void GroupHold::repaired(std::size_t member) {
  const std::lock_guard lock(mutex_);
  members_[member].repairing = false;
}

GroupHold::Plan GroupHold::planRelease() {
  Plan plan;
  plan.last = count_ == 0;
  for (Member& member : members_) {
    if (member.handle && member.handle->nothingLeft()) {
      // What the owner has there now it took by other ways.
      member.count = 0;
    }
    const int times = std::max(member.count - count_, 0);
    member.count -= times;
    member.seen -= times;
    plan.times.push_back(times);
  }
  return plan;
}

int GroupHold::overtime(std::size_t member) const {
  const LossReason why = reason();
  const std::lock_guard lock(mutex_);
  const bool over = why == LossReason::maxHold ||
                    (why == LossReason::none && Clock::now() >= terms_.maxHoldUntil);
  return over ? members_[member].count : 0;
}

GroupHold::Plan GroupHold::leave() {
  const bool valid = heldAt(Clock::now());
  Plan plan;
  {
    const std::lock_guard lock(mutex_);
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
    const std::lock_guard lock(mutex_);
    count_ = 0;
    plan = planRelease();
  }
  lose(LossReason::refused);
  setReleased();
  return plan;
}

bool GroupHold::survives(const std::vector<bool>& gone) const {
  const std::lock_guard lock(mutex_);
  std::size_t left = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    left += static_cast<std::size_t>(!gone[i] && members_[i].count > 0 && alive(members_[i]));
  }
  return left >= need_;
}

bool GroupHold::planLook(Clock::time_point when) {
  const std::lock_guard lock(mutex_);
  return look_.plan(when);
}

bool GroupHold::beginLook(Clock::time_point when) {
  const std::lock_guard lock(mutex_);
  return look_.begin(when);
}

bool GroupHold::over() const {
  if (released()) {
    return true;
  }
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  return std::none_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.handle && member.handle->heldAt(now);
  });
}

}  // namespace rlock::detail
