// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/hold_handle.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/group/earliest_plan.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace rlock::detail {

using StopListener = std::stop_callback<std::function<void()>>;
/// The grants of the members, in the order of the members; an entry without a hold is a member that
/// was not obtained.
using MemberGrants = std::vector<Grant>;

/// The hold of one owner on a lock that consists of others. It is valid while at least `need` of
/// its members are, and lost as soon as fewer are left.
///
/// GroupLock makes it at the first grant (GroupLock::book()) and books re-entries by enter(). The
/// members' stop callbacks report losses on the loop threads of their clients; releases come from
/// any thread. Invariants: each booked acquisition adds one hold per obtained member; a hold of a
/// member is planned for release exactly once (planRelease() removes it from `held`); the loss is
/// announced at most once, with no lock held.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class GroupHold final : public HoldHandle {
 public:
  struct Terms {
    OwnerId owner{};
    std::optional<std::chrono::milliseconds> lease;  ///< empty: the members' watchdogs keep it
    Clock::time_point maxHoldUntil = Clock::time_point::max();
    Clock::duration margin{0};  ///< subtracted from the members' validity
    Clock::duration notice{0};  ///< how long before the end of the validity the loss is announced
    std::string label;
  };

  /// The work of one release.
  struct Plan {
    /// For each member the incarnations (HoldHandle::incarnation()) of the holds to be released, in their
    /// order.
    std::vector<std::vector<std::uint64_t>> incarnations;
    bool last = false;   ///< nothing is held afterwards
    bool valid = false;  ///< it was held until now
  };
  /// Called once, when the hold is lost, with no lock held.
  using OnLoss = std::function<void(const IntrusivePtr<GroupHold>&)>;

  /// @param incarnation  the number of this incarnation, HoldHandle::incarnation(); unique within the group
  GroupHold(std::shared_ptr<const Env> env,
            std::uint64_t incarnation,
            std::size_t members,
            std::size_t need,
            Terms terms,
            OnLoss onLoss);

  [[nodiscard]] Clock::time_point validUntil() const noexcept override;
  [[nodiscard]] Terms terms() const;
  /// When the loss is to be announced, given the members' present validity.
  [[nodiscard]] Clock::time_point lossAt() const;

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
  /// Calls `then` when the rest of a lost hold has been given back. False: no giving back is under
  /// way, and `then` is not called.
  [[nodiscard]] bool whenGivenBack(UniqueFunction<void()>& then);
  /// Whether enough members are left without those (`gone`) on which a release found nothing.
  [[nodiscard]] bool survives(const std::vector<bool>& gone) const;
  /// Announces the loss; called when lossAt() has come.
  void runOut();
  /// As runOut(), but leaves out the application's stop callbacks. True: the caller must arrange
  /// for signalLoss().
  [[nodiscard]] bool markOverdue();
  /// Asks for a look at the hold at `when`. False: an earlier look is planned already.
  [[nodiscard]] bool planLook(Clock::time_point when);
  /// Begins the look planned for `when`. False: an earlier look has replaced it.
  [[nodiscard]] bool beginLook(Clock::time_point when);
  /// True when it was released, or no member is valid any more on this machine's clock.
  [[nodiscard]] bool over() const;

 private:
  struct Listening {
    IntrusivePtr<HoldHandle> to;
    std::list<StopListener> listener;  // empty: still to be made
  };
  struct Member {
    /// One handle for each acquisition that went through the group; several may be of one
    /// incarnation.
    std::vector<IntrusivePtr<HoldHandle>> held;
    int seen = 0;  // the highest count that the server has told of the latest incarnation
    bool repairing = false;
    std::list<Listening> listening;
  };

  [[nodiscard]] static bool alive(const HoldHandle& handle) noexcept;
  [[nodiscard]] static bool alive(const Member& member) noexcept;
  [[nodiscard]] static LossReason reasonOf(const Member& member) noexcept;
  static void add(Member& member, const Grant& grant) noexcept;
  Plan planRelease() RLOCK_REQUIRES(mutex_);
  [[nodiscard]] Clock::time_point membersUntil() const noexcept RLOCK_REQUIRES(mutex_);
  void memberLost() noexcept;
  void lose(LossReason reason);
  [[nodiscard]] LossReason endOfTime() const;

  const std::shared_ptr<const Env> env_;
  const std::size_t size_;  // of members_
  const std::size_t need_;
  const OnLoss onLoss_;
  mutable AnnotatedMutex mutex_;
  Terms terms_ RLOCK_GUARDED_BY(mutex_);
  int count_ RLOCK_GUARDED_BY(mutex_) = 0;
  bool givingBack_ RLOCK_GUARDED_BY(mutex_) = false;
  /// Functions to be called by givenBack().
  std::vector<UniqueFunction<void()>> afterwards_ RLOCK_GUARDED_BY(mutex_);
  EarliestPlan look_ RLOCK_GUARDED_BY(mutex_);
  mutable std::vector<Clock::time_point> scratch_ RLOCK_GUARDED_BY(mutex_);
  std::stop_source repairs_;
  /// Declared last, so destroyed first: its listeners use the other members.
  std::vector<Member> members_ RLOCK_GUARDED_BY(mutex_);
};

}  // namespace rlock::detail
