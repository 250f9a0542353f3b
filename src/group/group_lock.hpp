// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "group/group_acquire.hpp"
#include "group/group_hold.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/error.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace rlock::detail {

/// A lock that consists of others, of any kind and of any clients: the common part of MultiLock and
/// RedLock. It asks all members at the same time (a MultiLock acquires them one by one); a blocking
/// caller waits for the last answer that is needed.
///
/// Callers enter on any thread; the members answer on the loop threads of their clients.
/// Invariants: at most one hold per owner is booked in holds_; a member's hold is released by the
/// group only if it was acquired through the group; handlers run once, on the callback thread of
/// the first member's client.
///
/// **Thread safety:** Safe to call concurrently from any thread. The order of mutexes is:
/// GroupAcquire::mutex_, GroupLock::mutex_, GroupHold::mutex_. The application's code is called
/// with none of them held.
class GroupLock : public LockBackend, public std::enable_shared_from_this<GroupLock> {
 public:
  using Clock = std::chrono::steady_clock;
  using Members = std::vector<std::shared_ptr<LockMember>>;

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] LockPlace place() const override;

  Result<Acquired> acquire(AcquireParams params) override;
  void acquireAsync(AcquireParams params, Handler<Acquired> handler) override;
  Result<ReleaseOutcome> release(ReleaseTarget target) override;
  void releaseAsync(ReleaseTarget target, Handler<ReleaseOutcome> handler) override;
  void releaseQuietly(ReleaseTarget target) override;
  [[nodiscard]] bool refusesBlocking() const noexcept override;
  [[nodiscard]] bool keeps(OwnerId owner) const override;
  Result<bool> forceRelease() override;
  void forceReleaseAsync(Handler<bool> handler) override;
  Result<bool> isLocked() override;
  void isLockedAsync(Handler<bool> handler) override;
  Result<int> holdCount(OwnerId owner) override;
  void holdCountAsync(OwnerId owner, Handler<int> handler) override;
  Result<TimeToLive> timeToLive() override;
  void timeToLiveAsync(Handler<TimeToLive> handler) override;

  /// The members in the order in which every client takes them.
  [[nodiscard]] const Members& members() const noexcept { return members_; }
  [[nodiscard]] std::size_t need() const noexcept { return need_; }
  [[nodiscard]] Clock::time_point now() const noexcept override {
    return members_.front()->env()->now();
  }
  /// The longest of the members' times, or the shortest.
  [[nodiscard]] std::chrono::milliseconds longest(
      std::chrono::milliseconds LockLimits::*time) const;
  [[nodiscard]] std::chrono::milliseconds shortest(
      std::chrono::milliseconds LockLimits::*time) const;
  /// As LockMember::callAt(), on the loop of a client that is not closed, if there is one.
  void callAt(Clock::time_point when, UniqueFunction<void()> function, std::size_t by = 0);
  /// Adds the name of this lock to an error.
  [[nodiscard]] Error describe(const Error& error) const;

  /// Books an acquisition. The caller must not hold a GroupHold::mutex_, and must call
  /// GroupHold::listen() as soon as it holds no mutex at all.
  IntrusivePtr<GroupHold> book(const MemberGrants& grants, const GroupHold::Terms& terms);
  /// Marks a hold of the owner lost whose time is over, and sends the releases of its members
  /// before any request that the caller sends them next. Call it with no mutex held.
  void endOverdue(OwnerId owner);
  /// How often the owner holds a member through a hold whose maxHold is over. The member may not
  /// know that, because its own maxHold may be longer.
  [[nodiscard]] int overtime(OwnerId owner, std::size_t member);
  /// The parameters with which a member is acquired.
  [[nodiscard]] virtual AcquireParams forMember(const AcquireParams& params) const = 0;
  /// The terms of the hold that an acquisition with these parameters leaves behind.
  [[nodiscard]] virtual GroupHold::Terms terms(const AcquireParams& params) const = 0;

 protected:
  /// @param members  at least one, not one twice
  /// @param need     how many members must be held
  GroupLock(std::string_view kind, Members members, std::size_t need);

  [[nodiscard]] virtual std::shared_ptr<GroupAcquire> makeAcquire(AcquireParams params,
                                                                  GroupAcquire::Done done) = 0;
  /// True when every member is needed, so that an error of any member is an error of the whole.
  [[nodiscard]] bool needsAll() const noexcept { return need_ == members_.size(); }

 private:
  template <class T>
  using Done = UniqueFunction<void(Result<T>)>;
  class Releasing;

  /// The reason why no call can be made; empty if there is none.
  [[nodiscard]] std::optional<Error> refuse(bool blocking) const;
  template <class T, class Start>
  Result<T> runHere(Start start);
  template <class T, class Start>
  void runBehind(Handler<T> handler, Start start);
  /// Asks every member and combines their answers into one.
  template <class T, class Ask, class Combine>
  void askAll(Ask ask, Combine combine, Done<T> done);
  template <class T>
  [[nodiscard]] Result<T> common(std::vector<Result<T>> answers) const;
  [[nodiscard]] Result<bool> any(const std::vector<Result<bool>>& answers) const;
  [[nodiscard]] Error tooFew(const Error& first, std::size_t answered) const;

  void startRelease(ReleaseTarget target, Done<ReleaseOutcome> done);
  void startForceRelease(Done<bool> done);
  void startIsLocked(Done<bool> done);
  void startHoldCount(OwnerId owner, Done<int> done);
  void startTimeToLive(Done<TimeToLive> done);
  struct Leaving {
    IntrusivePtr<GroupHold> hold;
    GroupHold::Plan plan;
  };
  /// Takes the plan of a release. Empty: the group has booked no such hold of the owner.
  [[nodiscard]] std::optional<Leaving> takePlan(ReleaseTarget target);
  /// Releases the rest of a lost hold, which belongs to nobody any more.
  void giveBack(const IntrusivePtr<GroupHold>& hold);
  /// Takes the plan for the rest of a hold after a release has found nothing on the members `gone`.
  /// Empty: enough members are left, or the hold is not the owner's any more.
  [[nodiscard]] std::optional<GroupHold::Plan> takeRest(OwnerId owner,
                                                        const IntrusivePtr<GroupHold>& hold,
                                                        const std::vector<bool>& gone);

  const Members members_;  // sorted
  const std::shared_ptr<LockMember> host_;
  const std::size_t need_;
  const std::string name_;
  const std::uint32_t forkGeneration_;

  AnnotatedMutex mutex_;
  /// The latest hold of each owner.
  std::unordered_map<std::uint64_t, IntrusivePtr<GroupHold>> holds_ RLOCK_GUARDED_BY(mutex_);
  std::size_t sweepAt_ RLOCK_GUARDED_BY(mutex_) = 64;
  std::uint64_t incarnations_ RLOCK_GUARDED_BY(mutex_) = 0;
};

/// The members of a group, checked.
/// @throws Error  invalidArgument: no member, one member twice, or one that consists of others
///                itself
[[nodiscard]] GroupLock::Members membersOf(const std::vector<std::shared_ptr<LockBackend>>& locks);

}  // namespace rlock::detail
