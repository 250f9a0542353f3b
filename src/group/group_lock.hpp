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

/// A lock that consists of others, of any kind and of any clients. What they do about one call they
/// do at the same time; a caller that blocks waits for the last one needed.
///
/// **Thread safety:** Safe to call concurrently from any thread. One lock is taken at a time,
/// except an acquisition's before the group's before a hold's.
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

  /// In the order in which everybody takes them.
  [[nodiscard]] const Members& members() const noexcept { return members_; }
  [[nodiscard]] std::size_t need() const noexcept { return need_; }
  [[nodiscard]] Clock::time_point now() const noexcept { return members_.front()->env()->now(); }
  /// The longest of the members' times, or the shortest.
  [[nodiscard]] std::chrono::milliseconds longest(
      std::chrono::milliseconds LockLimits::*time) const;
  [[nodiscard]] std::chrono::milliseconds shortest(
      std::chrono::milliseconds LockLimits::*time) const;
  /// As LockMember::callAt(), by a client that is not closed if there is one.
  void callAt(Clock::time_point when, UniqueFunction<void()> function, std::size_t by = 0);
  /// Fills in what an error does not know yet.
  [[nodiscard]] Error describe(const Error& error) const;

  /// Keeps account of an acquisition. The caller has no lock of a hold, and calls
  /// GroupHold::listen() when it has no lock at all.
  IntrusivePtr<GroupHold> book(const MemberGrants& grants, const GroupHold::Terms& terms);
  /// A hold of the owner whose time is over is lost from here on, and its members are given back
  /// before anything that the caller asks them next. With no lock held.
  void endOverdue(OwnerId owner);
  /// How often the owner holds a member through a hold that is over for its maxHold, of which the
  /// member may not know.
  [[nodiscard]] int overtime(OwnerId owner, std::size_t member);
  /// What a member is asked for.
  [[nodiscard]] virtual AcquireParams forMember(const AcquireParams& params) const = 0;
  /// What an acquisition with these parameters leaves behind.
  [[nodiscard]] virtual GroupHold::Terms terms(const AcquireParams& params) const = 0;

 protected:
  /// @param members  at least one, not one twice
  /// @param need     how many make the whole
  GroupLock(std::string_view kind, Members members, std::size_t need);

  [[nodiscard]] virtual std::shared_ptr<GroupAcquire> makeAcquire(AcquireParams params,
                                                                  GroupAcquire::Done done) = 0;
  /// Every member is needed, so the error of any is the error of the whole.
  [[nodiscard]] bool needsAll() const noexcept { return need_ == members_.size(); }

 private:
  template <class T>
  using Done = UniqueFunction<void(Result<T>)>;
  class Releasing;

  /// Why no call can be made, or nothing.
  [[nodiscard]] std::optional<Error> refuse(bool blocking) const;
  template <class T, class Start>
  Result<T> runHere(Start start);
  template <class T, class Start>
  void runBehind(Handler<T> handler, Start start);
  /// Asks every member and makes one answer of theirs.
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
  /// Empty: this group knows of no such hold of the owner.
  [[nodiscard]] std::optional<Leaving> takePlan(ReleaseTarget target);
  /// What is left of a lost hold is nobody's.
  void giveBack(const IntrusivePtr<GroupHold>& hold);
  /// A release has found nothing on some members: what is left of the hold is to be released, too.
  /// Empty: enough is left of it, or it is not the owner's hold any more.
  [[nodiscard]] std::optional<GroupHold::Plan> takeRest(OwnerId owner,
                                                        const IntrusivePtr<GroupHold>& hold,
                                                        const std::vector<bool>& gone);

  const Members members_;  // sorted
  const std::shared_ptr<LockMember> host_;
  const std::size_t need_;
  const std::string name_;
  const std::uint32_t forkGeneration_;

  AnnotatedMutex mutex_;
  /// By owner.
  std::unordered_map<std::uint64_t, IntrusivePtr<GroupHold>> holds_ RLOCK_GUARDED_BY(mutex_);
  std::size_t sweepAt_ RLOCK_GUARDED_BY(mutex_) = 64;
  std::uint64_t incarnations_ RLOCK_GUARDED_BY(mutex_) = 0;
};

/// The parts of a group, checked.
/// @throws Error  invalidArgument: none, one twice, or one that consists of others itself
[[nodiscard]] GroupLock::Members membersOf(const std::vector<std::shared_ptr<LockBackend>>& locks);

}  // namespace rlock::detail
