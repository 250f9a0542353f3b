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
/// Of the members in their order; without a hold where a member was not obtained.
using MemberGrants = std::vector<Grant>;

/// What one owner holds of a lock that consists of others: it is valid while at least `need` of
/// them are, and lost when so many are lost that they are fewer.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class GroupHold final : public HoldHandle {
 public:
  struct Terms {
    OwnerId owner{};
    std::optional<std::chrono::milliseconds> lease;  ///< empty: the members' watchdogs keep it
    Clock::time_point maxHoldUntil = Clock::time_point::max();
    Clock::duration margin{0};  ///< not counted of the members' validity
    Clock::duration notice{0};  ///< how long before the end of the validity the loss is announced
    std::string label;
  };

  /// What a release is to do.
  struct Plan {
    /// For each member the incarnations of the holds that are released, in their order.
    std::vector<std::vector<std::uint64_t>> incarnations;
    bool last = false;   ///< nothing is held afterwards
    bool valid = false;  ///< it was held until now
  };
  /// Called once, when it is lost, with no lock held.
  using OnLoss = std::function<void(const IntrusivePtr<GroupHold>&)>;

  /// @param incarnation  HoldHandle::incarnation(), different from those of the same group
  GroupHold(std::shared_ptr<const Env> env,
            std::uint64_t incarnation,
            std::size_t members,
            std::size_t need,
            Terms terms,
            OnLoss onLoss);

  [[nodiscard]] Clock::time_point validUntil() const noexcept override;
  [[nodiscard]] Terms terms() const;
  /// When the loss is to be announced, as things are now.
  [[nodiscard]] Clock::time_point lossAt() const;

  /// One more acquisition in the same name. Call listen() afterwards.
  void enter(const MemberGrants& grants, const Terms& terms);
  /// A member that was obtained later. False: too late, it must be given back. Call listen()
  /// afterwards.
  [[nodiscard]] bool join(std::size_t number, const Grant& grant);
  /// Hears of the members' losses from here on. With no lock held: what was lost already is told
  /// at once.
  void listen();

  /// Members that could be obtained anew; each is named once until repaired() or join().
  [[nodiscard]] std::vector<std::size_t> takeMissing();
  void repaired(std::size_t member);
  /// Stops when no member may be obtained any more.
  [[nodiscard]] std::stop_token repairs() const noexcept { return repairs_.get_token(); }
  void endRepairs() noexcept { repairs_.request_stop(); }

  /// How often a member is held if the whole is over for its maxHold, else 0.
  [[nodiscard]] int overtime(std::size_t member) const;
  Plan leave();
  /// As leave(), however often it was taken; its holders are told that it is lost.
  Plan leaveLost();
  /// What is left of a hold that is lost, to be given back now; whoever asks next gets nothing.
  /// Call givenBack() when it is done.
  Plan giveBack();
  void givenBack();
  /// Calls `then` when what was left is given back. False: nothing is on its way, so that it is not
  /// called.
  [[nodiscard]] bool whenGivenBack(UniqueFunction<void()>& then);
  /// Enough members are left without those of which a release has found nothing.
  [[nodiscard]] bool survives(const std::vector<bool>& gone) const;
  /// lossAt() has come.
  void runOut();
  /// As runOut(), where the application's stop callbacks must not run. True: signalLoss() is due.
  [[nodiscard]] bool markOverdue();
  /// Somebody is to look at it at `when`. False: somebody does so earlier anyway.
  [[nodiscard]] bool planLook(Clock::time_point when);
  /// The time planned has come. False: another one was planned instead.
  [[nodiscard]] bool beginLook(Clock::time_point when);
  /// Nothing of it is held any more on any clock, or it was released.
  [[nodiscard]] bool over() const;

 private:
  struct Listening {
    IntrusivePtr<HoldHandle> to;
    std::list<StopListener> listener;  // empty: still to be made
  };
  struct Member {
    /// One for each acquisition that went through the group; several may be of one incarnation.
    std::vector<IntrusivePtr<HoldHandle>> held;
    int seen = 0;  // the most that the server has counted of the latest incarnation
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
  /// After givenBack().
  std::vector<UniqueFunction<void()>> afterwards_ RLOCK_GUARDED_BY(mutex_);
  EarliestPlan look_ RLOCK_GUARDED_BY(mutex_);
  mutable std::vector<Clock::time_point> scratch_ RLOCK_GUARDED_BY(mutex_);
  std::stop_source repairs_;
  /// Last: its listeners use the rest.
  std::vector<Member> members_ RLOCK_GUARDED_BY(mutex_);
};

}  // namespace rlock::detail
