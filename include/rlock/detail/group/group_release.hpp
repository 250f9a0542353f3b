// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/group/group_lock.hpp>
#include <rlock/detail/group/release_tally.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

// How GroupLock releases its members.

namespace rlock::detail {

/// One release of one hold, on all members at the same time. start() runs on the caller's thread,
/// the answers come on the members' loop threads. Several holds of one member are released one
/// after the other. The caller is told exactly once, as soon as the outcome is certain; answers
/// that come later only complete the releases. Each planned hold is released once, or handed to
/// releaseQuietly() when its member fails.
class GroupLock::Releasing : public std::enable_shared_from_this<Releasing> {
 public:
  /// It takes all the memory that a release needs before its plan is taken, because a plan that was
  /// taken must be carried out.
  Releasing(std::shared_ptr<GroupLock> group, OwnerId owner, Done<ReleaseOutcome> done)
      : group_(std::move(group)),
        owner_(owner),
        gone_(group_->members().size(), false),
        done_(std::move(done)) {}

  /// Before start(), or instead of it.
  void plan(GroupHolds::Leaving leaving);
  /// Carries out what was planned.
  void start();
  /// Instead of start(): there is nothing to release.
  void end(Result<ReleaseOutcome> result);

 private:
  void begin(GroupHold::Plan plan) RLOCK_REQUIRES(mutex_);
  /// Whether the outcome depends on what this member answers.
  [[nodiscard]] bool counts(std::size_t member) const RLOCK_REQUIRES(mutex_) {
    return plan_.lost.empty() || !plan_.lost[member];
  }
  [[nodiscard]] int plans();
  [[nodiscard]] std::optional<std::uint64_t> first(std::size_t member, int plan);
  void release(std::size_t member, std::uint64_t incarnation);
  void answered(std::size_t member, const Result<ReleaseOutcome>& result);
  void judge();
  void judgeNow();
  /// A loss that this release is the first to find ends the owner's earlier acquisitions as well.
  void releaseRest();

  enum class Rest : std::uint8_t { unknown, asked, known };

  const std::shared_ptr<GroupLock> group_;
  const OwnerId owner_;
  IntrusivePtr<GroupHold> hold_;  // as planned; null: it was not taken through this group
  AnnotatedMutex mutex_;
  std::vector<bool> gone_ RLOCK_GUARDED_BY(mutex_);  // members on which nothing was left
  GroupHold::Plan plan_ RLOCK_GUARDED_BY(mutex_);
  int plans_ RLOCK_GUARDED_BY(mutex_) = 0;  // how many there have been
  ReleaseTally tally_ RLOCK_GUARDED_BY(mutex_);
  Rest rest_ RLOCK_GUARDED_BY(mutex_) = Rest::unknown;
  std::size_t stillHeld_ RLOCK_GUARDED_BY(mutex_) = 0;
  std::optional<Error> error_ RLOCK_GUARDED_BY(mutex_);
  Done<ReleaseOutcome> done_ RLOCK_GUARDED_BY(mutex_);
};

inline void GroupLock::Releasing::plan(GroupHolds::Leaving leaving) {
  hold_ = std::move(leaving.hold);
  const MutexLock lock(mutex_);
  begin(std::move(leaving.plan));
}

inline void GroupLock::Releasing::start() {
  // Race: the last answer may come before this loop ends, and bring the plan for the rest, which
  // another start() carries out.
  const int plan = plans();
  for (std::size_t i = 0; i < group_->members().size(); ++i) {
    if (const auto incarnation = first(i, plan)) {
      release(i, *incarnation);
    }
  }
  judge();
}

inline void GroupLock::Releasing::end(Result<ReleaseOutcome> result) {
  std::optional<Done<ReleaseOutcome>> done;
  {
    const MutexLock lock(mutex_);
    done.emplace(std::move(done_));
  }
  (*done)(std::move(result));
}

inline void GroupLock::Releasing::begin(GroupHold::Plan plan) {
  plan_ = std::move(plan);
  ++plans_;
  tally_ = ReleaseTally();
  tally_.valid = plan_.valid;
  for (std::size_t i = 0; i < plan_.incarnations.size(); ++i) {
    tally_.members += static_cast<std::size_t>(!plan_.incarnations[i].empty() && counts(i));
  }
}

inline int GroupLock::Releasing::plans() {
  const MutexLock lock(mutex_);
  return plans_;
}

/// Empty: nothing is to be released there, or another plan has taken the place of this one.
inline std::optional<std::uint64_t> GroupLock::Releasing::first(std::size_t member, int plan) {
  const MutexLock lock(mutex_);
  if (plan != plans_ || member >= plan_.incarnations.size() || plan_.incarnations[member].empty()) {
    return std::nullopt;
  }
  return plan_.incarnations[member].front();
}

inline void GroupLock::Releasing::release(std::size_t member, std::uint64_t incarnation) {
  try {
    group_->members()[member]->releaseAsync(
        {owner_, incarnation},
        [self = shared_from_this(), member](const Result<ReleaseOutcome>& result) {
          self->answered(member, result);
        });
  } catch (const std::bad_alloc&) {
    // The others are to be released all the same, and this one in the background.
    group_->releaseQuietly(member, {owner_, incarnation});
    answered(member, memoryError());
  }
}

inline void GroupLock::Releasing::answered(std::size_t member,
                                           const Result<ReleaseOutcome>& result) {
  std::optional<Error> error;
  if (!result.has_value()) {
    try {
      error = result.error();
    } catch (const std::bad_alloc&) {
      // Why it failed is not known then.
    }
  }
  std::optional<std::uint64_t> next;
  std::vector<std::uint64_t> unasked;
  {
    const MutexLock lock(mutex_);
    std::vector<std::uint64_t>& incarnations = plan_.incarnations[member];
    const std::uint64_t asked = incarnations.front();
    incarnations.erase(incarnations.begin());
    if (result.has_value()) {
      if (!incarnations.empty()) {
        next = incarnations.front();
      } else if (counts(member)) {
        ++tally_.released;
        stillHeld_ += static_cast<std::size_t>(*result == ReleaseOutcome::stillHeld);
      }
    } else if (result.error().errc() == Errc::notOwner) {
      tally_.notOwner += static_cast<std::size_t>(counts(member));
      gone_[member] = true;
      unasked.swap(incarnations);
      std::erase(unasked, asked);
    } else {
      // The member completes this release in the background, and also those that were to follow.
      unasked.swap(incarnations);
      if (asked != 0 && result.error().errc() == memoryError().errc()) {
        // It may not have begun this one. There is room for what was just taken out.
        unasked.insert(unasked.begin(), asked);
      }
      if (counts(member)) {
        ++tally_.failed;
        if (!error_) {
          error_ = std::move(error);
        }
      }
    }
  }
  for (const std::uint64_t incarnation : unasked) {
    group_->members()[member]->releaseQuietly({owner_, incarnation});
  }
  if (next) {
    release(member, *next);
  } else {
    judge();
  }
}

inline void GroupLock::Releasing::judge() {
  try {
    judgeNow();
  } catch (const std::bad_alloc&) {
    // Without memory for what is to be said, most often the next allocation succeeds.
    {
      const MutexLock lock(mutex_);
      rest_ = rest_ == Rest::asked ? Rest::known : rest_;
    }
    judgeNow();
  }
}

inline void GroupLock::Releasing::judgeNow() {
  std::optional<Result<ReleaseOutcome>> result;
  std::optional<Done<ReleaseOutcome>> done;
  {
    const MutexLock lock(mutex_);
    if (!done_ || rest_ == Rest::asked) {
      return;
    }
    switch (group_->members().needsAll() ? tally_.ofAll()
                                         : tally_.ofMajority(group_->members().need())) {
      case ReleaseTally::Result::pending:
        return;
      case ReleaseTally::Result::released:
        result.emplace(plan_.last && stillHeld_ < group_->members().need()
                           ? ReleaseOutcome::released
                           : ReleaseOutcome::stillHeld);
        break;
      case ReleaseTally::Result::notOwner:
        if (!plan_.last && rest_ == Rest::unknown) {
          rest_ = Rest::asked;
          break;
        }
        result.emplace(group_->members().describe(
            Error(Errc::notOwner, "not held by this owner, or no longer; nothing is left of it")));
        break;
      case ReleaseTally::Result::failed:
        result.emplace(error_ ? *error_ : Error(Errc::serverError, "no outcome"));
        break;
    }
    if (result) {
      done.emplace(std::move(done_));
    }
  }
  if (done) {
    (*done)(std::move(*result));
  } else {
    releaseRest();
  }
}

inline void GroupLock::Releasing::releaseRest() {
  std::vector<bool> gone;
  {
    const MutexLock lock(mutex_);
    gone = gone_;
  }
  auto rest = group_->holds().takeRest(owner_, hold_, gone);
  {
    const MutexLock lock(mutex_);
    rest_ = Rest::known;
    if (rest) {
      begin(std::move(*rest));
    }
  }
  if (rest) {
    start();
    return;
  }
  // Race: the loop thread may have found the loss first, and is giving the rest back.
  UniqueFunction<void()> then = [self = shared_from_this()] { self->judge(); };
  if (!hold_ || !hold_->whenGivenBack(then)) {
    then();
  }
}

inline void GroupLock::giveBack(const IntrusivePtr<GroupHold>& hold) {
  if (hold->reason() == LossReason::threadEnded) {
    // The hold is left to expire: the work that it protects may go on in another thread.
    return;
  }
  // First what takes memory: a plan that was taken must be carried out.
  const auto releasing = std::make_shared<Releasing>(
      shared_from_this(), hold->terms().owner, [hold](const Result<ReleaseOutcome>& /*result*/) {
        hold->givenBack();
      });
  GroupHold::Plan plan = hold->giveBack();
  if (plan.incarnations.empty()) {
    return;
  }
  plan.last = true;
  releasing->plan({hold, std::move(plan)});
  releasing->start();
}

inline void GroupLock::startRelease(ReleaseTarget target, Done<ReleaseOutcome> done) {
  const OwnerId owner = target.owner;
  const auto releasing = std::make_shared<Releasing>(shared_from_this(), owner, std::move(done));
  if (auto leaving = holds_.takePlan(target)) {
    const IntrusivePtr<GroupHold> hold = leaving->hold;
    releasing->plan(std::move(*leaving));
    UniqueFunction<void()> release = [releasing] { releasing->start(); };
    // Race: the rest of a lost hold may still be on its way back. The release waits for that, so
    // that the lock is free of the lost hold when this call returns.
    if (!hold->whenGivenBack(release)) {
      release();
    }
    return;
  }
  if (target.incarnation != 0) {
    releasing->end(members_->describe(Error(Errc::notOwner, "this hold is over")));
    return;
  }
  // The owner may hold the members through another object over the same members.
  questions_.holdCount(owner, [self = shared_from_this(), releasing](const Result<int>& count) {
    if (!count.has_value()) {
      releasing->end(count.error());
      return;
    }
    if (*count == 0) {
      releasing->end(
          self->members().describe(Error(Errc::notOwner, "not held by this owner, or no longer")));
      return;
    }
    GroupHolds::Leaving leaving;
    leaving.plan.incarnations.assign(self->members().size(), {0});
    leaving.plan.last = true;
    leaving.plan.valid = true;
    releasing->plan(std::move(leaving));
    releasing->start();
  });
}

inline void GroupLock::releaseQuietly(ReleaseTarget target) {
  if (members_->refuse(false)) {
    return;
  }
  if (const auto leaving = holds_.takePlan(target)) {
    for (std::size_t i = 0; i < members_->size(); ++i) {
      for (const std::uint64_t incarnation : leaving->plan.incarnations[i]) {
        releaseQuietly(i, {target.owner, incarnation});
      }
    }
  }
}

}  // namespace rlock::detail
