// SPDX-License-Identifier: Apache-2.0

// How GroupLock gives back what is held of its members.

#include "engine/group_lock.hpp"
#include <rlock/detail/engine/quorum_fsm.hpp>

#include <algorithm>
#include <utility>

namespace rlock::detail {

std::optional<GroupLock::Leaving> GroupLock::takePlan(OwnerId owner) {
  Leaving leaving;
  {
    const std::lock_guard lock(mutex_);
    const auto found = holds_.find(owner.value);
    if (found == holds_.end()) {
      return std::nullopt;
    }
    leaving.hold = found->second;
    leaving.plan = leaving.hold->leave();
    if (leaving.plan.last) {
      holds_.erase(found);
    }
  }
  if (leaving.plan.last) {
    leaving.hold->endRepairs();
  }
  return leaving;
}

std::optional<GroupHold::Plan> GroupLock::takeRest(OwnerId owner,
                                                   const IntrusivePtr<GroupHold>& hold,
                                                   const std::vector<bool>& gone) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = holds_.find(owner.value);
    if (!hold || found == holds_.end() || found->second != hold || hold->survives(gone)) {
      return std::nullopt;
    }
    holds_.erase(found);
  }
  // With no lock held: it calls the application.
  return hold->leaveLost();
}

/// One release on all members.
class GroupLock::Releasing : public std::enable_shared_from_this<Releasing> {
 public:
  Releasing(std::shared_ptr<GroupLock> group,
            OwnerId owner,
            Leaving leaving,
            Done<ReleaseOutcome> done)
      : group_(std::move(group)),
        owner_(owner),
        hold_(std::move(leaving.hold)),
        gone_(group_->members_.size(), false),
        done_(std::move(done)) {
    begin(std::move(leaving.plan));
  }

  void start() {
    std::vector<int> times;
    {
      const std::lock_guard lock(mutex_);
      times = plan_.times;
    }
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i] > 0) {
        release(i);
      }
    }
    judge();
  }

 private:
  void begin(GroupHold::Plan plan) {
    plan_ = std::move(plan);
    tally_ = GroupRelease();
    tally_.valid = plan_.valid;
    tally_.members = static_cast<std::size_t>(
        std::count_if(plan_.times.begin(), plan_.times.end(), [](int times) { return times > 0; }));
  }

  void release(std::size_t member) {
    group_->members_[member]->releaseAsync(
        owner_, [self = shared_from_this(), member](const Result<ReleaseOutcome>& result) {
          self->answered(member, result);
        });
  }

  void answered(std::size_t member, const Result<ReleaseOutcome>& result) {
    bool more = false;
    int unasked = 0;
    {
      const std::lock_guard lock(mutex_);
      if (result.has_value()) {
        more = --plan_.times[member] > 0;
        if (!more) {
          ++tally_.released;
          stillHeld_ += static_cast<std::size_t>(*result == ReleaseOutcome::stillHeld);
        }
      } else if (result.error().errc() == Errc::notOwner) {
        ++tally_.notOwner;
        gone_[member] = true;
      } else {
        // This one is completed in the background, and so are those that were to follow.
        unasked = std::exchange(plan_.times[member], 0) - 1;
        ++tally_.failed;
        if (!error_) {
          error_ = result.error();
        }
      }
    }
    for (; unasked > 0; --unasked) {
      group_->members_[member]->releaseQuietly(owner_);
    }
    if (more) {
      release(member);
    } else {
      judge();
    }
  }

  void judge() {
    std::optional<Result<ReleaseOutcome>> result;
    std::optional<Done<ReleaseOutcome>> done;
    {
      const std::lock_guard lock(mutex_);
      if (!done_ || rest_ == Rest::asked) {
        return;
      }
      switch (group_->needsAll() ? tally_.ofAll() : tally_.ofMajority(group_->need_)) {
        case GroupRelease::Result::pending:
          return;
        case GroupRelease::Result::released:
          result.emplace(plan_.last && stillHeld_ < group_->need_ ? ReleaseOutcome::released
                                                                  : ReleaseOutcome::stillHeld);
          break;
        case GroupRelease::Result::notOwner:
          if (!plan_.last && rest_ == Rest::unknown) {
            rest_ = Rest::asked;
            break;
          }
          result.emplace(group_->describe(Error(
              Errc::notOwner, "not held by this owner, or no longer; nothing is left of it")));
          break;
        case GroupRelease::Result::failed:
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

  /// A loss that only this release has found ends the acquisitions before it as well.
  void releaseRest() {
    std::vector<bool> gone;
    {
      const std::lock_guard lock(mutex_);
      gone = gone_;
    }
    auto rest = group_->takeRest(owner_, hold_, gone);
    {
      const std::lock_guard lock(mutex_);
      rest_ = Rest::known;
      if (rest) {
        begin(std::move(*rest));
      }
    }
    if (rest) {
      start();
    } else {
      judge();
    }
  }

  enum class Rest : std::uint8_t { unknown, asked, known };

  const std::shared_ptr<GroupLock> group_;
  const OwnerId owner_;
  const IntrusivePtr<GroupHold> hold_;  // null: it was not taken through this group
  std::mutex mutex_;
  std::vector<bool> gone_;      // on which nothing was left; protected by mutex_
  GroupHold::Plan plan_;        // protected by mutex_
  GroupRelease tally_;          // protected by mutex_
  Rest rest_ = Rest::unknown;   // protected by mutex_
  std::size_t stillHeld_ = 0;   // protected by mutex_
  std::optional<Error> error_;  // protected by mutex_
  Done<ReleaseOutcome> done_;   // protected by mutex_
};

void GroupLock::startRelease(OwnerId owner, Done<ReleaseOutcome> done) {
  if (auto leaving = takePlan(owner)) {
    std::make_shared<Releasing>(shared_from_this(), owner, std::move(*leaving), std::move(done))
        ->start();
    return;
  }
  // Taken through another object of the same members, perhaps.
  startHoldCount(
      owner,
      [self = shared_from_this(), owner, done = std::move(done)](const Result<int>& count) mutable {
        if (!count.has_value()) {
          done(count.error());
          return;
        }
        if (*count == 0) {
          done(self->describe(Error(Errc::notOwner, "not held by this owner, or no longer")));
          return;
        }
        Leaving leaving;
        leaving.plan.times.assign(self->members_.size(), 1);
        leaving.plan.last = true;
        leaving.plan.valid = true;
        std::make_shared<Releasing>(self, owner, std::move(leaving), std::move(done))->start();
      });
}

void GroupLock::releaseQuietly(OwnerId owner) {
  if (refuse(false)) {
    return;
  }
  if (const auto leaving = takePlan(owner)) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      for (int times = leaving->plan.times[i]; times > 0; --times) {
        members_[i]->releaseQuietly(owner);
      }
    }
  }
}

}  // namespace rlock::detail
