// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/engine/earliest_plan.hpp>
#include <rlock/detail/engine/quorum_fsm.hpp>
#include <rlock/detail/hold_handle.hpp>
#include <rlock/detail/lock_backend.hpp>
#include <rlock/detail/unique_function.hpp>
#include <rlock/error.hpp>
#include <rlock/options.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <unordered_map>
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
    std::vector<int> times;  ///< how often each member is released
    bool last = false;       ///< nothing is held afterwards
    bool valid = false;      ///< it was held until now
  };

  /// @param before  a hold of the same owner that was lost: what is left of its members counts on,
  ///                and so does what the server still has of a member when it is taken again
  GroupHold(std::size_t members, std::size_t need, Terms terms, const GroupHold* before);

  [[nodiscard]] Clock::time_point validUntil() const noexcept override;
  /// The end of one member may be the end of the whole, and the others are left; but what is left
  /// belongs to the owner's newer hold if there is one.
  [[nodiscard]] bool nothingLeft() const noexcept override {
    return replaced_.load(std::memory_order_acquire) || released();
  }
  /// The owner has a newer one.
  void replaced() noexcept { replaced_.store(true, std::memory_order_release); }
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
  /// Enough members are left without those of which a release has found nothing.
  [[nodiscard]] bool survives(const std::vector<bool>& gone) const;
  /// lossAt() has come.
  void runOut();
  /// Somebody is to look at it at `when`. False: somebody does so earlier anyway.
  [[nodiscard]] bool planLook(Clock::time_point when);
  /// The time planned has come. False: another one was planned instead.
  [[nodiscard]] bool beginLook(Clock::time_point when);
  /// Nothing of it is held any more on any clock, or it was released.
  [[nodiscard]] bool over() const;

 private:
  struct Member {
    IntrusivePtr<HoldHandle> handle;
    int count = 0;               // of the acquisitions that went through the group
    std::uint64_t line = 0;      // Grant::line
    int seen = 0;                // the most that the server has counted on it
    std::uint64_t lostLine = 0;  // of the owner's hold before
    int lostCount = 0;
    bool heard = true;  // listener is that of handle
    bool repairing = false;
    std::list<StopListener> listener;
  };

  [[nodiscard]] static bool alive(const Member& member) noexcept;
  static void add(Member& member, const Grant& grant) noexcept;
  /// mutex_ is held.
  Plan planRelease();
  /// mutex_ is held.
  [[nodiscard]] Clock::time_point membersUntil() const noexcept;
  void memberLost() noexcept;
  void lose(LossReason reason);

  const std::size_t need_;
  mutable std::mutex mutex_;
  Terms terms_;                                     // protected by mutex_
  int count_ = 0;                                   // protected by mutex_
  EarliestPlan look_;                               // protected by mutex_
  mutable std::vector<Clock::time_point> scratch_;  // protected by mutex_
  std::stop_source repairs_;
  std::atomic<bool> replaced_{false};
  std::vector<Member> members_;  // protected by mutex_; last: its listeners use the rest
};

class GroupLock;

/// One acquisition of a lock that consists of others. Its handler is called exactly once, on any
/// thread.
///
/// **Thread safety:** Safe to call concurrently from any thread. The application's and the members'
/// code is called with no lock held.
class GroupAcquire : public std::enable_shared_from_this<GroupAcquire> {
 public:
  using Clock = std::chrono::steady_clock;
  using Acquired = LockBackend::Acquired;
  using Done = UniqueFunction<void(Result<Acquired>)>;

  GroupAcquire(std::shared_ptr<GroupLock> group, AcquireParams params, Done done);
  GroupAcquire(const GroupAcquire&) = delete;
  GroupAcquire& operator=(const GroupAcquire&) = delete;
  virtual ~GroupAcquire() = default;

  void start();
  /// When the caller does not wait any longer, whatever is going on: then expire() is due.
  [[nodiscard]] Clock::time_point limit() const noexcept { return limit_; }
  virtual void expire() = 0;
  /// Has expire() called at limit() if that is near; an acquisition that may take long ends by
  /// itself, because each of its steps has a limit.
  void armLimit();

 protected:
  virtual void begin() = 0;
  virtual void stopped() = 0;

  [[nodiscard]] AcquireParams memberParams(std::size_t member, std::stop_token stop) const;
  [[nodiscard]] GroupHold::Terms terms() const;
  [[nodiscard]] bool oneAttempt() const noexcept { return !params_.wait.isPositive(); }
  [[nodiscard]] bool endless() const noexcept { return deadline_ == Clock::time_point::max(); }
  void conclude(Result<Acquired> result);
  [[nodiscard]] static Acquired acquired(const IntrusivePtr<GroupHold>& hold);
  [[nodiscard]] static Error stopError();
  [[nodiscard]] static Error lateError();

  const std::shared_ptr<GroupLock> group_;
  const AcquireParams params_;
  const Clock::time_point began_;
  const Clock::time_point deadline_;
  const Clock::time_point limit_;
  std::mutex mutex_;

 private:
  Done done_;
  std::optional<StopListener> stopListener_;
  std::atomic<bool> armed_{false};
};

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
  Result<ReleaseOutcome> release(OwnerId owner) override;
  void releaseAsync(OwnerId owner, Handler<ReleaseOutcome> handler) override;
  void releaseQuietly(OwnerId owner) override;
  [[nodiscard]] bool refusesBlocking() const noexcept override;
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

  void startRelease(OwnerId owner, Done<ReleaseOutcome> done);
  void startForceRelease(Done<bool> done);
  void startIsLocked(Done<bool> done);
  void startHoldCount(OwnerId owner, Done<int> done);
  void startTimeToLive(Done<TimeToLive> done);
  struct Leaving {
    IntrusivePtr<GroupHold> hold;
    GroupHold::Plan plan;
  };
  /// Empty: this group knows of no hold of the owner.
  [[nodiscard]] std::optional<Leaving> takePlan(OwnerId owner);
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

  std::mutex mutex_;
  std::unordered_map<std::uint64_t, IntrusivePtr<GroupHold>> holds_;  // by owner; mutex_
  std::size_t sweepAt_ = 64;                                          // protected by mutex_
};

/// The parts of a group, checked.
/// @throws Error  invalidArgument: none, one twice, or one that consists of others itself
[[nodiscard]] GroupLock::Members membersOf(const std::vector<std::shared_ptr<LockBackend>>& locks);

}  // namespace rlock::detail
