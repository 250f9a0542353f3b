// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/intrusive_ptr.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/group/group_hold.hpp>
#include <rlock/detail/group/group_members.hpp>
#include <rlock/owner.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The holds of a lock that consists of others: the latest one of each owner, from the acquisition
/// that is booked to the release or the loss that takes it out.
///
/// **Thread safety:** Safe to call concurrently from any thread. Its mutex is taken before
/// GroupHold::mutex_; what calls the application is done by others, or later on a loop thread.
class GroupHolds {
 public:
  explicit GroupHolds(std::shared_ptr<GroupMembers> members) noexcept
      : members_(std::move(members)) {}

  /// Books an acquisition. The caller must not hold a GroupHold::mutex_, and must call
  /// GroupHold::listen() as soon as it holds no mutex at all.
  /// @param listeners  of a hold that begins with this acquisition
  /// @param whole      what is needed until the loss of the hold before has been told
  IntrusivePtr<GroupHold> book(const MemberGrants& grants,
                               const GroupHold::Terms& terms,
                               GroupHold::Listeners listeners,
                               std::shared_ptr<const void> whole);
  /// The hold of an owner whose time is over; null: there is none.
  [[nodiscard]] IntrusivePtr<GroupHold> overdue(OwnerId owner);
  /// How often the owner holds a member through a hold whose maxHold is over. The member may not
  /// know that, because its own maxHold may be longer.
  [[nodiscard]] int overtime(OwnerId owner, std::size_t member);

  struct Leaving {
    IntrusivePtr<GroupHold> hold;
    GroupHold::Plan plan;
  };
  /// Takes the plan of a release. Empty: no such hold of the owner is booked.
  [[nodiscard]] std::optional<Leaving> takePlan(ReleaseTarget target);
  /// Takes the plan for the rest of a hold after a release has found nothing on the members `gone`.
  /// Empty: enough members are left, or the hold is not the owner's any more.
  [[nodiscard]] std::optional<GroupHold::Plan> takeRest(OwnerId owner,
                                                        const IntrusivePtr<GroupHold>& hold,
                                                        const std::vector<bool>& gone);

  /// As GroupHold::endIfReturned(). What is left of it is released later, on a loop thread.
  [[nodiscard]] bool endIfReturned(const IntrusivePtr<GroupHold>& hold,
                                   const MemberGrants* coming = nullptr);

 private:
  /// The owner's other acquisitions end with a release that is the first to find the time over:
  /// nothing else will come upon this hold again. It calls the application later, on a loop thread.
  void tellOverdue(const IntrusivePtr<GroupHold>& hold) noexcept;

  const std::shared_ptr<GroupMembers> members_;
  AnnotatedMutex mutex_;
  /// The latest hold of each owner.
  std::unordered_map<std::uint64_t, IntrusivePtr<GroupHold>> holds_ RLOCK_GUARDED_BY(mutex_);
  std::size_t sweepAt_ RLOCK_GUARDED_BY(mutex_) = 64;
  std::uint64_t incarnations_ RLOCK_GUARDED_BY(mutex_) = 0;
};

inline IntrusivePtr<GroupHold> GroupHolds::book(const MemberGrants& grants,
                                                const GroupHold::Terms& terms,
                                                GroupHold::Listeners listeners,
                                                std::shared_ptr<const void> whole) {
  const MutexLock lock(mutex_);
  if (holds_.size() >= sweepAt_) {
    // Holds that were lost and never released stay in the table until this sweep.
    std::erase_if(holds_, [](const auto& entry) { return entry.second->over(); });
    sweepAt_ = std::max<std::size_t>(64, 2 * holds_.size());
  }
  const auto now = members_->now();
  const auto found = holds_.find(terms.owner.value);
  IntrusivePtr<GroupHold> hold = found == holds_.end() ? nullptr : found->second;
  const bool over = hold && endIfReturned(hold, &grants);
  if (!hold || over || !hold->heldAt(now)) {
    IntrusivePtr<GroupHold> before = over ? nullptr : std::move(hold);
    // Made before the table changes: without memory no owner may be left with a hold that is none.
    hold = makeIntrusive<GroupHold>(members_->env(),
                                    ++incarnations_,
                                    members_->size(),
                                    members_->need(),
                                    terms,
                                    std::move(listeners),
                                    before);
    if (before) {
      // Or an owner that loses every hold and releases none would leave a chain of them.
      before->takeBefore().reset();
      before->endRepairs();
      // runOut() calls the application, so it runs later, on a loop thread, with no lock held.
      members_->callAt(now, [before, whole = std::move(whole)] { before->runOut(); });
    }
    if (found != holds_.end()) {
      found->second = hold;
    } else {
      holds_.emplace(terms.owner.value, hold);
    }
  }
  hold->enter(grants, terms);
  return hold;
}

inline bool GroupHolds::endIfReturned(const IntrusivePtr<GroupHold>& hold,
                                      const MemberGrants* coming) {
  GroupHold::Plan rest;
  if (!hold->endIfReturned(coming, rest)) {
    return false;
  }
  if (!rest.empty()) {
    ifThereIsMemorySoon([&] {
      members_->callAt(members_->now(), [members = members_, hold, rest] {
        for (std::size_t i = 0; i < members->size(); ++i) {
          for (const std::uint64_t incarnation : rest.incarnations[i]) {
            ifThereIsMemorySoon([&] {
              (*members)[i]->releaseQuietly({hold->terms().owner, incarnation});
            });
          }
        }
      });
    });
  }
  return true;
}

inline IntrusivePtr<GroupHold> GroupHolds::overdue(OwnerId owner) {
  const MutexLock lock(mutex_);
  const auto found = holds_.find(owner.value);
  if (found == holds_.end() || endIfReturned(found->second) ||
      found->second->heldAt(members_->now())) {
    return nullptr;
  }
  return found->second;
}

inline int GroupHolds::overtime(OwnerId owner, std::size_t member) {
  const MutexLock lock(mutex_);
  const auto found = holds_.find(owner.value);
  return found == holds_.end() ? 0 : found->second->overtime(member);
}

inline std::optional<GroupHolds::Leaving> GroupHolds::takePlan(ReleaseTarget target) {
  Leaving leaving;
  {
    const MutexLock lock(mutex_);
    const auto found = holds_.find(target.owner.value);
    if (found == holds_.end() ||
        (target.incarnation != 0 && found->second->incarnation() != target.incarnation)) {
      return std::nullopt;
    }
    if (endIfReturned(found->second)) {
      holds_.erase(found);
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
    if (!leaving.plan.valid) {
      tellOverdue(leaving.hold);
    }
  }
  return leaving;
}

inline void GroupHolds::tellOverdue(const IntrusivePtr<GroupHold>& hold) noexcept {
  if (hold->markOverdue()) {
    ifThereIsMemorySoon([&] { members_->callAt(members_->now(), [hold] { hold->signalLoss(); }); });
  }
}

inline std::optional<GroupHold::Plan> GroupHolds::takeRest(OwnerId owner,
                                                           const IntrusivePtr<GroupHold>& hold,
                                                           const std::vector<bool>& gone) {
  {
    const MutexLock lock(mutex_);
    const auto found = holds_.find(owner.value);
    if (!hold || found == holds_.end() || found->second != hold || hold->survives(gone)) {
      return std::nullopt;
    }
    holds_.erase(found);
  }
  // leaveLost() calls the application, so no mutex is held.
  return hold->leaveLost();
}

}  // namespace rlock::detail
