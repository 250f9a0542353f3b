// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/group/group_lock.hpp>
#include <rlock/detail/group/release_tally.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
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
///
/// There are up to two rounds: what was planned, and the rest of a hold that the first one finds
/// lost. The second may begin while the first is still asking members whose answers decide nothing,
/// so each has a plan of its own, which stays; the latest decides the outcome. The rest of the
/// owner's hold before goes back at the same time, and the caller is told when that is done, too:
/// the lock is free of lost holds then.
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
  /// As plan(), for what belongs to nobody any more: it is done when as many members are free of it
  /// as make the lock.
  void planRest(GroupHolds::Leaving leaving);
  /// Before start().
  void waitFor(IntrusivePtr<GroupHold> before) noexcept { before_ = std::move(before); }
  /// Carries out what was planned.
  void start();
  /// Instead of start(): there is nothing to release.
  void end(Result<ReleaseOutcome> result);

 private:
  /// One member in one round.
  struct Part {
    std::size_t round;
    std::size_t member;
  };

  void begin(std::size_t round, GroupHold::Plan plan) RLOCK_REQUIRES(mutex_);
  void startRound(std::size_t round);
  /// Whether the outcome depends on what this member answers.
  [[nodiscard]] bool counts(Part part) const RLOCK_REQUIRES(mutex_) {
    const GroupHold::Plan& plan = plans_[part.round];
    return part.round == round_ && (plan.lost.empty() || !plan.lost[part.member]);
  }
  /// Empty: nothing is to be released there.
  [[nodiscard]] std::optional<std::uint64_t> first(Part part);
  void release(Part part, std::uint64_t incarnation);
  void answered(Part part, const Result<ReleaseOutcome>& result);
  void judge();
  void judgeNow();
  /// Tells the caller the outcome.
  void tell();
  /// A loss that this release is the first to find ends the owner's earlier acquisitions as well.
  void releaseRest();

  enum class Rest : std::uint8_t { unknown, asked, known };

  const std::shared_ptr<GroupLock> group_;
  const OwnerId owner_;
  IntrusivePtr<GroupHold> hold_;  // as planned; null: it was not taken through this group
  /// The owner's hold before; null: there is none, or nothing of it is on its way back.
  IntrusivePtr<GroupHold> before_;
  AnnotatedMutex mutex_;
  std::vector<bool> gone_ RLOCK_GUARDED_BY(mutex_);  // members on which nothing was left
  std::array<GroupHold::Plan, 2> plans_ RLOCK_GUARDED_BY(mutex_);
  std::size_t round_ RLOCK_GUARDED_BY(mutex_) = 0;  // the latest
  ReleaseTally tally_ RLOCK_GUARDED_BY(mutex_);     // of the latest
  std::size_t spare_ RLOCK_GUARDED_BY(mutex_) = 0;  // ReleaseTally::spare
  Rest rest_ RLOCK_GUARDED_BY(mutex_) = Rest::unknown;
  std::size_t stillHeld_ RLOCK_GUARDED_BY(mutex_) = 0;
  std::optional<Error> error_ RLOCK_GUARDED_BY(mutex_);
  std::optional<Result<ReleaseOutcome>> outcome_ RLOCK_GUARDED_BY(mutex_);  // as soon as certain
  Done<ReleaseOutcome> done_ RLOCK_GUARDED_BY(mutex_);
};

inline void GroupLock::Releasing::plan(GroupHolds::Leaving leaving) {
  hold_ = std::move(leaving.hold);
  const MutexLock lock(mutex_);
  begin(0, std::move(leaving.plan));
}

inline void GroupLock::Releasing::planRest(GroupHolds::Leaving leaving) {
  {
    const MutexLock lock(mutex_);
    spare_ = group_->members().size() - group_->members().need();
  }
  leaving.plan.last = true;
  plan(std::move(leaving));
}

inline void GroupLock::Releasing::start() {
  startRound(0);
}

inline void GroupLock::Releasing::startRound(std::size_t round) {
  for (std::size_t i = 0; i < group_->members().size(); ++i) {
    const Part part{round, i};
    if (const auto incarnation = first(part)) {
      release(part, *incarnation);
    }
  }
  judge();
}

inline void GroupLock::Releasing::end(Result<ReleaseOutcome> result) {
  {
    const MutexLock lock(mutex_);
    outcome_.emplace(std::move(result));
  }
  tell();
}

inline void GroupLock::Releasing::tell() {
  std::optional<Result<ReleaseOutcome>> outcome;
  std::optional<Done<ReleaseOutcome>> done;
  {
    const MutexLock lock(mutex_);
    outcome.emplace(std::move(*outcome_));
    done.emplace(std::move(done_));
  }
  (*done)(std::move(*outcome));
}

inline void GroupLock::Releasing::begin(std::size_t round, GroupHold::Plan plan) {
  round_ = round;
  plans_[round] = std::move(plan);
  tally_ = ReleaseTally();
  tally_.valid = plans_[round].valid;
  tally_.spare = spare_;
  const auto& incarnations = plans_[round].incarnations;
  for (std::size_t i = 0; i < incarnations.size(); ++i) {
    tally_.members += static_cast<std::size_t>(!incarnations[i].empty() && counts({round, i}));
  }
}

inline std::optional<std::uint64_t> GroupLock::Releasing::first(Part part) {
  const MutexLock lock(mutex_);
  const auto& incarnations = plans_[part.round].incarnations;
  if (part.member >= incarnations.size() || incarnations[part.member].empty()) {
    return std::nullopt;
  }
  return incarnations[part.member].front();
}

inline void GroupLock::Releasing::release(Part part, std::uint64_t incarnation) {
  try {
    // It must go: the group does not know of this hold any more, and could not ask again.
    group_->members()[part.member]->releaseAsync(
        {.owner = owner_, .incarnation = incarnation, .mustGo = true},
        [self = shared_from_this(), part](const Result<ReleaseOutcome>& result) {
          self->answered(part, result);
        });
  } catch (const std::bad_alloc&) {
    // The others are to be released all the same, and this one in the background: by answered() if
    // it has an incarnation.
    if (incarnation == 0) {
      group_->releaseQuietly(part.member, {owner_, incarnation});
    }
    answered(part, memoryError());
  }
}

inline void GroupLock::Releasing::answered(Part part, const Result<ReleaseOutcome>& result) {
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
    std::vector<std::uint64_t>& incarnations = plans_[part.round].incarnations[part.member];
    const std::uint64_t asked = incarnations.front();
    incarnations.erase(incarnations.begin());
    if (result.has_value()) {
      if (!incarnations.empty()) {
        next = incarnations.front();
      } else if (counts(part)) {
        ++tally_.released;
        stillHeld_ += static_cast<std::size_t>(*result == ReleaseOutcome::stillHeld);
      }
    } else if (result.error().errc() == Errc::notOwner) {
      if (counts(part)) {
        ++tally_.notOwner;
        gone_[part.member] = true;
      }
      unasked.swap(incarnations);
      std::erase(unasked, asked);
    } else {
      // The member completes this release in the background, and also those that were to follow.
      unasked.swap(incarnations);
      if (asked != 0 && result.error().errc() == memoryError().errc()) {
        // It may not have begun this one. There is room for what was just taken out.
        unasked.insert(unasked.begin(), asked);
      }
      if (counts(part)) {
        ++tally_.failed;
        if (!error_) {
          error_ = std::move(error);
        }
      }
    }
  }
  for (const std::uint64_t incarnation : unasked) {
    group_->releaseQuietly(part.member, {owner_, incarnation});
  }
  if (next) {
    release(part, *next);
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
  bool certain = false;
  {
    const MutexLock lock(mutex_);
    if (outcome_ || rest_ == Rest::asked) {
      return;
    }
    switch (group_->members().needsAll() ? tally_.ofAll()
                                         : tally_.ofMajority(group_->members().need())) {
      case ReleaseTally::Result::pending:
        return;
      case ReleaseTally::Result::released:
        outcome_.emplace(plans_[round_].last && stillHeld_ < group_->members().need()
                             ? ReleaseOutcome::released
                             : ReleaseOutcome::stillHeld);
        break;
      case ReleaseTally::Result::notOwner:
        if (!plans_[round_].last && rest_ == Rest::unknown) {
          rest_ = Rest::asked;
          break;
        }
        outcome_.emplace(group_->members().describe(
            Error(Errc::notOwner, "not held by this owner, or no longer; nothing is left of it")));
        break;
      case ReleaseTally::Result::failed:
        outcome_.emplace(error_ ? *error_ : Error(Errc::serverError, "no outcome"));
        break;
    }
    certain = outcome_.has_value();
  }
  if (!certain) {
    releaseRest();
    return;
  }
  UniqueFunction<void()> then = [self = shared_from_this()] { self->tell(); };
  if (!before_ || !before_->whenGivenBack(then)) {
    then();
  }
}

inline void GroupLock::Releasing::releaseRest() {
  std::vector<bool> gone;
  {
    const MutexLock lock(mutex_);
    gone = gone_;
  }
  auto rest = group_->holds().takeRest(owner_, hold_, gone);
  // Race: the loop thread may have found the loss first, and is giving the rest back.
  const bool left = rest && !rest->empty();
  {
    const MutexLock lock(mutex_);
    rest_ = Rest::known;
    if (left) {
      begin(1, std::move(*rest));
    }
  }
  if (left) {
    startRound(1);
    return;
  }
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
  releasing->planRest({hold, std::move(plan)});
  releasing->start();
}

inline std::optional<GroupHolds::Leaving> GroupLock::takePlan(ReleaseTarget target) {
  auto leaving = holds_.takePlan(target);
  if (leaving && !leaving->plan.last) {
    // The part that is released may have lasted longer than the rest.
    ifThereIsMemorySoon([&] { tend(leaving->hold); });
  }
  return leaving;
}

inline void GroupLock::startRelease(ReleaseTarget target, Done<ReleaseOutcome> done) {
  const OwnerId owner = target.owner;
  const auto releasing = std::make_shared<Releasing>(shared_from_this(), owner, std::move(done));
  if (auto leaving = takePlan(target)) {
    const IntrusivePtr<GroupHold> hold = leaving->hold;
    const IntrusivePtr<GroupHold> before = leaving->plan.last ? hold->takeBefore() : nullptr;
    releasing->plan(std::move(*leaving));
    // Race: the thread that tells the owner's loss of the hold before may not have come to giving
    // the rest of it back, and may be kept from it by the application.
    if (before) {
      ifThereIsMemorySoon([&] { giveBack(before); });
      releasing->waitFor(before);
    }
    // The rest of this hold, if it is lost, may still be on its way back. The release waits for
    // that, so that the lock is free of it when this call returns.
    UniqueFunction<void()> start = [releasing] { releasing->start(); };
    if (!hold->whenGivenBack(start)) {
      start();
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
  if (const auto leaving = takePlan(target)) {
    for (std::size_t i = 0; i < members_->size(); ++i) {
      for (const std::uint64_t incarnation : leaving->plan.incarnations[i]) {
        releaseQuietly(i, {target.owner, incarnation});
      }
    }
  }
}

}  // namespace rlock::detail
