// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/hold_handle.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/group/earliest_plan.hpp>
#include <rlock/detail/group/member_hold.hpp>
#include <rlock/detail/group/quorum.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>
#include <rlock/sync_policy.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <new>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The hold of one owner on a lock that consists of others. It is valid while at least `need` of
/// its members are, and lost as soon as fewer are left.
///
/// GroupLock makes it at the first grant (GroupLock::book()) and books re-entries by enter(). The
/// members' stop callbacks report losses on the loop threads of their clients; releases come from
/// any thread. The owner's holds of each member are in a MemberHold. Invariants: each booked
/// acquisition adds one hold per obtained member; a hold of a member is planned for release exactly
/// once (planRelease() takes it out of its MemberHold); the loss is announced at most once, with no
/// lock held. Acquisitions that the owner has given back by other ways, on as many members as are
/// needed, are dropped before the next one is booked or released.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class GroupHold final : public HoldHandle {
 public:
  struct Terms {
    OwnerId owner{};
    std::optional<std::chrono::milliseconds> lease;  ///< empty: the members' watchdogs keep it
    Clock::time_point maxHoldUntil = Clock::time_point::max();
    /// For each member, what is subtracted from its validity; empty: nothing.
    std::vector<Clock::duration> margins{};
    Clock::duration notice{0};  ///< how long before the end of the validity the loss is announced
    std::string label;
    /// Of the members that are obtained later; empty: their clients'.
    std::optional<SyncPolicy> sync{};
  };

  /// The work of one release.
  struct Plan {
    /// For each member the incarnations (HoldHandle::incarnation()) of the holds to be released, in
    /// their order.
    std::vector<std::vector<std::uint64_t>> incarnations;
    /// The members of which it releases nothing but what was lost before: what they answer says
    /// nothing of the whole. Empty: none.
    std::vector<bool> lost{};
    bool last = false;   ///< nothing is held afterwards
    bool valid = false;  ///< it was held until now

    /// Nothing is to be released: another has taken it.
    [[nodiscard]] bool empty() const noexcept {
      return std::all_of(
          incarnations.begin(), incarnations.end(), [](const auto& each) { return each.empty(); });
    }
  };
  using Listener = std::function<void(const IntrusivePtr<GroupHold>&)>;
  /// Called with no lock held.
  struct Listeners {
    Listener onLoss;  ///< once, when the hold is lost
    /// Whenever a member is lost of which enough others are left, so that lossAt() may be earlier
    /// than it was. It may be empty.
    Listener onMemberLoss{};
  };

  /// @param incarnation  the number of this incarnation, HoldHandle::incarnation(); unique within
  /// the group
  /// @param before       the owner's hold before this one, which is over; null: there was none
  GroupHold(std::shared_ptr<const Env> env,
            std::uint64_t incarnation,
            std::size_t members,
            std::size_t need,
            Terms terms,
            Listeners listeners,
            IntrusivePtr<GroupHold> before = nullptr);

  [[nodiscard]] Clock::time_point validUntil() const noexcept override;
  [[nodiscard]] Terms terms() const;
  /// When the loss is to be announced, given the members' present validity.
  [[nodiscard]] Clock::time_point lossAt() const;

  /// Whether nothing is left of it because its owner has given all back by other ways. It is then
  /// released. Drops the acquisitions of which that is so.
  /// @param coming  what was granted and is not booked yet; null: nothing
  /// @param rest    gets what is left of it on some members, to be released
  [[nodiscard]] bool endIfReturned(const MemberGrants* coming, Plan& rest);
  /// Books one more acquisition of the same owner. Call listen() afterwards.
  void enter(const MemberGrants& grants, const Terms& terms);
  /// Books a member that was obtained later. False: the hold is over, and the caller must give the
  /// member back. Call listen() afterwards.
  [[nodiscard]] bool join(std::size_t number, const Grant& grant);
  /// Subscribes to the losses of all booked members. Call it with no lock held: a member that is
  /// lost already reports its loss inside this call.
  void listen();

  /// The members that could be obtained anew. Each is returned once until repaired() or join().
  [[nodiscard]] std::vector<std::size_t> takeMissing();
  void repaired(std::size_t member);
  /// A token that stops when no member may be obtained any more.
  [[nodiscard]] std::stop_token repairs() const noexcept { return repairs_.get_token(); }
  void endRepairs() noexcept { repairs_.request_stop(); }

  /// How often a member is held if the maxHold of the whole is over, else 0.
  [[nodiscard]] int overtime(std::size_t member) const;
  /// Plans the release of one acquisition, or of all when the hold is lost.
  Plan leave();
  /// Plans the release of all acquisitions and tells the holders that the hold is lost.
  Plan leaveLost();
  /// Plans the release of the rest of a lost hold. The first caller gets the plan, every later one
  /// an empty plan. Call givenBack() when the releases are done.
  Plan giveBack();
  void givenBack();
  /// The owner's hold before this one, of which something may be left on the members. Null: it was
  /// taken before, or there is none.
  [[nodiscard]] IntrusivePtr<GroupHold> takeBefore() noexcept;
  /// Calls `then` when the rest of a lost hold has been given back. False: `then` is not called,
  /// because no giving back is under way, or there is no memory to wait for it.
  [[nodiscard]] bool whenGivenBack(UniqueFunction<void()>& then);
  /// Whether enough members are left without those (`gone`) on which a release found nothing.
  [[nodiscard]] bool survives(const std::vector<bool>& gone) const;
  /// Announces the loss; called when lossAt() has come.
  void runOut();
  /// As runOut(), but leaves out the application's stop callbacks, which must not run on this
  /// thread. True: the caller must arrange for signalLoss().
  [[nodiscard]] bool markOverdue();
  /// Asks for a look at the hold at `when`. False: an earlier look is planned already.
  [[nodiscard]] bool planLook(Clock::time_point when);
  /// The look planned for `when` will not come.
  void cancelLook(Clock::time_point when) noexcept;
  /// Begins the look planned for `when`. False: an earlier look has replaced it.
  [[nodiscard]] bool beginLook(Clock::time_point when);
  /// True when it was released, or no member is valid any more on this machine's clock.
  [[nodiscard]] bool over() const;

 private:
  void dropReturned(const MemberGrants* coming) noexcept RLOCK_REQUIRES(mutex_);
  Plan planRelease(int remaining) RLOCK_REQUIRES(mutex_);
  [[nodiscard]] Clock::time_point membersUntil() const noexcept RLOCK_REQUIRES(mutex_);
  void memberLost() noexcept;
  void lose(LossReason reason);
  void tellLoss() noexcept;
  /// Why the members make the whole lost; `none`: they do not.
  [[nodiscard]] LossReason reasonOfMembers() const noexcept RLOCK_REQUIRES(mutex_);
  /// Why it is over when nobody has been told yet.
  [[nodiscard]] LossReason reasonOfEnd() const;

  const std::shared_ptr<const Env> env_;
  const std::size_t size_;  // of members_
  const std::size_t need_;
  const Listeners listeners_;
  mutable AnnotatedMutex mutex_;
  Terms terms_ RLOCK_GUARDED_BY(mutex_);
  int count_ RLOCK_GUARDED_BY(mutex_) = 0;
  /// reasonOfMembers() when a release found the hold over and took its members' holds out.
  LossReason foundOver_ RLOCK_GUARDED_BY(mutex_) = LossReason::none;
  bool givingBack_ RLOCK_GUARDED_BY(mutex_) = false;
  IntrusivePtr<GroupHold> before_ RLOCK_GUARDED_BY(mutex_);
  /// Functions to be called by givenBack().
  std::vector<UniqueFunction<void()>> afterwards_ RLOCK_GUARDED_BY(mutex_);
  EarliestPlan look_ RLOCK_GUARDED_BY(mutex_);
  mutable std::vector<Clock::time_point> scratch_ RLOCK_GUARDED_BY(mutex_);
  std::stop_source repairs_;
  /// Declared last, so destroyed first: its listeners use the other members.
  std::vector<MemberHold> members_ RLOCK_GUARDED_BY(mutex_);
};

inline GroupHold::GroupHold(std::shared_ptr<const Env> env,
                            std::uint64_t incarnation,
                            std::size_t members,
                            std::size_t need,
                            Terms terms,
                            Listeners listeners,
                            IntrusivePtr<GroupHold> before)
    : HoldHandle(incarnation),
      env_(std::move(env)),
      size_(members),
      need_(need),
      listeners_(std::move(listeners)),
      terms_(std::move(terms)),
      before_(std::move(before)),
      members_(members) {
  scratch_.reserve(members);
  terms_.margins.resize(members);
}

inline GroupHold::Clock::time_point GroupHold::membersUntil() const noexcept {
  scratch_.clear();
  for (std::size_t i = 0; i < members_.size(); ++i) {
    scratch_.push_back(Quorum::shortened(members_[i].validUntil(), terms_.margins[i]));
  }
  const auto until = Quorum::validUntil(scratch_, need_);
  return until == Clock::time_point::min() ? Clock::time_point{} : until;
}

inline GroupHold::Clock::time_point GroupHold::validUntil() const noexcept {
  if (!inItsProcess()) {
    return {};
  }
  const MutexLock lock(mutex_);
  return std::min(membersUntil(), terms_.maxHoldUntil);
}

inline GroupHold::Clock::time_point GroupHold::lossAt() const {
  const MutexLock lock(mutex_);
  return std::min(membersUntil() - terms_.notice, terms_.maxHoldUntil);
}

inline GroupHold::Terms GroupHold::terms() const {
  const MutexLock lock(mutex_);
  return terms_;
}

inline bool GroupHold::endIfReturned(const MemberGrants* coming, Plan& rest) {
  {
    const MutexLock lock(mutex_);
    if (reason() != LossReason::none || count_ == 0) {
      return reason() == LossReason::none && released();
    }
    dropReturned(coming);
    if (count_ > 0) {
      return false;
    }
    rest = planRelease(0);
    setReleased();
  }
  endRepairs();
  return true;
}

/// As many members as make the whole say so: the others' releases may still be on their way.
inline void GroupHold::dropReturned(const MemberGrants* coming) noexcept {
  const auto comingTo = [&](std::size_t i) {
    return coming != nullptr ? (*coming)[i].hold.get() : nullptr;
  };
  const auto saySo = [&](int returned) RLOCK_REQUIRES(mutex_) {
    std::size_t sayers = 0;
    for (std::size_t i = 0; i < members_.size(); ++i) {
      sayers += members_[i].returned(comingTo(i)) >= returned ? 1U : 0U;
    }
    return sayers >= need_;
  };
  int returned = 0;
  while (returned < count_ && saySo(returned + 1)) {
    ++returned;
  }
  count_ -= returned;
  for (std::size_t i = 0; returned > 0 && i < members_.size(); ++i) {
    members_[i].dropReturned(returned, comingTo(i));
  }
}

inline void GroupHold::enter(const MemberGrants& grants, const Terms& terms) {
  const MutexLock lock(mutex_);
  for (MemberHold& member : members_) {
    member.makeRoom();
  }
  ++count_;
  if (count_ > 1) {
    // The members do the same: a watched hold stays watched, and a watched re-entry makes any hold
    // watched.
    terms_.lease = terms_.lease && terms.lease
                       ? std::optional(std::max(*terms_.lease, *terms.lease))
                       : std::nullopt;
    terms_.maxHoldUntil = std::min(terms_.maxHoldUntil, terms.maxHoldUntil);
    for (std::size_t i = 0; i < terms.margins.size(); ++i) {
      terms_.margins[i] = std::max(terms_.margins[i], terms.margins[i]);
    }
    terms_.notice = std::max(terms_.notice, terms.notice);
    if (terms.sync && terms.sync->any()) {
      terms_.sync = terms.sync;
    }
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (grants[i].hold) {
      members_[i].add(grants[i]);
    }
  }
}

inline bool GroupHold::join(std::size_t number, const Grant& grant) {
  const MutexLock lock(mutex_);
  MemberHold& member = members_[number];
  member.repaired();
  if (count_ == 0 || reason() != LossReason::none || repairs_.stop_requested()) {
    return false;
  }
  member.makeRoom();
  member.add(grant);
  return true;
}

inline void GroupHold::listen() {
  for (std::size_t i = 0; i < size_; ++i) {
    for (;;) {
      IntrusivePtr<HoldHandle> handle;
      MemberHold::Listeners old;
      {
        const MutexLock lock(mutex_);
        handle = members_[i].unheard(old);
      }
      // Race: a stop callback runs at once when the member is lost already, and its destructor
      // waits while another thread runs it. Both would deadlock under mutex_, so listeners are made
      // and destroyed without it.
      old.clear();
      if (!handle) {
        break;
      }
      std::list<StopListener> listener;
      listener.emplace_back(handle->lostToken(), [this] { memberLost(); });
      const MutexLock lock(mutex_);
      members_[i].hear(handle, listener);
    }
  }
}

inline void GroupHold::memberLost() noexcept {
  // Race: the last owner may be destroying this object. The destructor waits for this callback to
  // return, so the object is still there, but it must not be revived.
  if (!tryAddRef()) {
    return;
  }
  const auto self = IntrusivePtr<GroupHold>::adopt(this);
  LossReason reason = LossReason::none;
  {
    const MutexLock lock(mutex_);
    if (count_ == 0) {
      return;
    }
    reason = reasonOfMembers();
  }
  if (reason != LossReason::none) {
    lose(reason);
  } else if (listeners_.onMemberLoss) {
    ifThereIsMemorySoon([&] { listeners_.onMemberLoss(self); });
  }
}

inline LossReason GroupHold::reasonOfMembers() const noexcept {
  LossReason first = LossReason::none;
  bool ended = false;
  std::size_t left = 0;
  for (const MemberHold& member : members_) {
    const LossReason reason = member.reason();
    left += static_cast<std::size_t>(member.alive());
    ended = ended || reason == LossReason::threadEnded;
    first = first == LossReason::none ? reason : first;
  }
  return ended ? LossReason::threadEnded : left >= need_ ? LossReason::none : first;
}

inline void GroupHold::lose(LossReason reason) {
  if (markLost(reason)) {
    repairs_.request_stop();
    signalLoss();
    tellLoss();
  }
}

/// The rest of the hold has to be released, or the members' watchdogs would keep it for ever.
inline void GroupHold::tellLoss() noexcept {
  ifThereIsMemorySoon([this] { listeners_.onLoss(IntrusivePtr<GroupHold>(this)); });
}

inline LossReason GroupHold::reasonOfEnd() const {
  const auto now = env_->now();
  const MutexLock lock(mutex_);
  // Race: a member that is lost says so later, on the loop of its client.
  const LossReason found = foundOver_ != LossReason::none ? foundOver_ : reasonOfMembers();
  return found != LossReason::none    ? found
         : now >= terms_.maxHoldUntil ? LossReason::maxHold
         : terms_.lease               ? LossReason::expired
                                      : LossReason::unreachable;
}

inline void GroupHold::runOut() {
  lose(reasonOfEnd());
}

inline bool GroupHold::markOverdue() {
  if (!markLost(reasonOfEnd())) {
    return false;
  }
  repairs_.request_stop();
  tellLoss();
  return true;
}

inline std::vector<std::size_t> GroupHold::takeMissing() {
  const auto now = env_->now();
  std::vector<std::size_t> missing;
  missing.reserve(size_);
  const MutexLock lock(mutex_);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (members_[i].beginRepair(now)) {
      missing.push_back(i);
    }
  }
  return missing;
}

inline void GroupHold::repaired(std::size_t member) {
  const MutexLock lock(mutex_);
  members_[member].repaired();
}

/// Without memory nothing changes.
inline GroupHold::Plan GroupHold::planRelease(int remaining) {
  Plan plan;
  plan.last = remaining == 0;
  // First all that takes memory: what is taken out of a member must be carried out.
  plan.incarnations.resize(members_.size());
  plan.lost.resize(members_.size());
  for (std::size_t i = 0; i < members_.size(); ++i) {
    plan.incarnations[i].reserve(static_cast<std::size_t>(members_[i].count()));
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    plan.lost[i] = !members_[i].takeSurplus(remaining, plan.incarnations[i]);
  }
  count_ = remaining;
  return plan;
}

inline int GroupHold::overtime(std::size_t member) const {
  const LossReason why = reason();
  const MutexLock lock(mutex_);
  const bool over =
      why == LossReason::maxHold || (why == LossReason::none && env_->now() >= terms_.maxHoldUntil);
  return over ? members_[member].count() : 0;
}

inline GroupHold::Plan GroupHold::leave() {
  const bool valid = heldAt(env_->now());
  Plan plan;
  {
    const MutexLock lock(mutex_);
    // A loss ends all acquisitions of the owner, however often it took the lock. Race: it may have
    // come since, and have taken what was to be released.
    const bool still = valid && count_ > 0;
    foundOver_ = still ? LossReason::none : reasonOfMembers();
    plan = planRelease(still ? count_ - 1 : 0);
    plan.valid = still;
  }
  if (plan.last) {
    setReleased();
  }
  return plan;
}

inline GroupHold::Plan GroupHold::leaveLost() {
  Plan plan;
  {
    const MutexLock lock(mutex_);
    plan = planRelease(0);
  }
  lose(LossReason::refused);
  setReleased();
  return plan;
}

inline GroupHold::Plan GroupHold::giveBack() {
  const MutexLock lock(mutex_);
  if (count_ == 0) {
    return {};
  }
  // Race: a release may give back what the thread that is to tell the loss has not looked at yet.
  foundOver_ = reasonOfMembers();
  Plan plan = planRelease(0);
  givingBack_ = true;
  return plan;
}

inline IntrusivePtr<GroupHold> GroupHold::takeBefore() noexcept {
  const MutexLock lock(mutex_);
  return std::exchange(before_, nullptr);
}

inline void GroupHold::givenBack() {
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

inline bool GroupHold::whenGivenBack(UniqueFunction<void()>& then) {
  const MutexLock lock(mutex_);
  if (!givingBack_) {
    return false;
  }
  try {
    afterwards_.push_back(std::move(then));
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

inline bool GroupHold::survives(const std::vector<bool>& gone) const {
  const MutexLock lock(mutex_);
  std::size_t left = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    left += static_cast<std::size_t>(!gone[i] && members_[i].alive());
  }
  return left >= need_;
}

inline bool GroupHold::planLook(Clock::time_point when) {
  const MutexLock lock(mutex_);
  return look_.plan(when);
}

inline void GroupHold::cancelLook(Clock::time_point when) noexcept {
  const MutexLock lock(mutex_);
  look_.cancel(when);
}

inline bool GroupHold::beginLook(Clock::time_point when) {
  const MutexLock lock(mutex_);
  return look_.begin(when);
}

inline bool GroupHold::over() const {
  if (released()) {
    return true;
  }
  const auto now = env_->now();
  const MutexLock lock(mutex_);
  return std::none_of(members_.begin(), members_.end(), [&](const MemberHold& member) {
    return member.heldAt(now);
  });
}

}  // namespace rlock::detail
