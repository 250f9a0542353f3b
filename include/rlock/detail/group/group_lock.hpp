// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/base/one_shot.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/engine/task.hpp>
#include <rlock/detail/group/group_acquire.hpp>
#include <rlock/detail/group/group_hold.hpp>
#include <rlock/detail/group/group_holds.hpp>
#include <rlock/detail/group/group_members.hpp>
#include <rlock/detail/group/group_questions.hpp>
#include <rlock/error.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail {

/// A lock that consists of others, of any kind and of any clients: the common part of MultiLock and
/// RedLock. It asks all members at the same time (a MultiLock acquires them one by one); a blocking
/// caller waits for the last answer that is needed.
///
/// Callers enter on any thread; the members answer on the loop threads of their clients.
/// GroupMembers has what is common to the members, GroupHolds the holds, GroupQuestions the
/// questions. Invariants: a member's hold is released by the group only if it was acquired
/// through the group; handlers run once, on the callback thread of the first member's client.
///
/// **Thread safety:** Safe to call concurrently from any thread. The order of mutexes is:
/// GroupAcquire::mutex_, GroupHolds::mutex_, GroupHold::mutex_. The application's code is called
/// with none of them held.
class GroupLock : public LockBackend, public std::enable_shared_from_this<GroupLock> {
 public:
  using Clock = std::chrono::steady_clock;
  using Members = GroupMembers::List;

  [[nodiscard]] const std::string& name() const noexcept override { return members_->name(); }
  [[nodiscard]] Clock::time_point now() const noexcept override { return members_->now(); }
  [[nodiscard]] LockPlace place() const override { return {"", 0, name(), HoldKind::lock, ""}; }

  Result<Acquired> acquire(AcquireParams params) override;
  void acquireAsync(AcquireParams params, Handler<Acquired> handler) override;
  Result<ReleaseOutcome> release(ReleaseTarget target) override;
  void releaseAsync(ReleaseTarget target, Handler<ReleaseOutcome> handler) override;
  void releaseQuietly(ReleaseTarget target) override;
  /// Gives back the hold of one member in the background.
  void releaseQuietly(std::size_t member, ReleaseTarget target) noexcept;
  [[nodiscard]] bool refusesBlocking() const noexcept override {
    return members_->refusesBlocking();
  }
  [[nodiscard]] bool keeps(OwnerId owner) const override { return members_->keep(owner); }
  Result<bool> forceRelease() override;
  void forceReleaseAsync(Handler<bool> handler) override;
  Result<bool> isLocked() override;
  void isLockedAsync(Handler<bool> handler) override;
  Result<int> holdCount(OwnerId owner) override;
  void holdCountAsync(OwnerId owner, Handler<int> handler) override;
  Result<TimeToLive> timeToLive() override;
  void timeToLiveAsync(Handler<TimeToLive> handler) override;
  void runHandler(UniqueFunction<void()> handler) override {
    members_->runHandler(std::move(handler));
  }

  // For acquisitions.

  [[nodiscard]] const GroupMembers& members() const noexcept { return *members_; }
  [[nodiscard]] GroupHolds& holds() noexcept { return holds_; }
  /// As GroupMembers::callAt(); the lock is there until then.
  void callAt(Clock::time_point when, UniqueFunction<void()> function);
  /// As GroupHolds::book(), for a hold that is given back when it is lost.
  IntrusivePtr<GroupHold> book(const MemberGrants& grants, const GroupHold::Terms& terms);
  /// Marks a hold of the owner lost whose time is over, and sends the releases of its members
  /// before any request that the caller sends them next. Call it with no mutex held.
  void endOverdue(OwnerId owner);
  /// The parameters with which a member is acquired.
  [[nodiscard]] virtual AcquireParams forMember(const AcquireParams& params) const = 0;
  /// The terms of the hold that an acquisition with these parameters leaves behind.
  [[nodiscard]] virtual GroupHold::Terms terms(const AcquireParams& params) const = 0;
  /// Looks after a hold from here on, given what its members are now: called when it has been
  /// granted, and when it may end earlier than before. By default the members' own clients do.
  virtual void tend(const IntrusivePtr<GroupHold>& /*hold*/) {}

 protected:
  /// @param members  at least one, not one twice
  /// @param need     how many members must be held
  GroupLock(std::string_view kind, const Members& members, std::size_t need)
      : members_(std::make_shared<GroupMembers>(kind, members, need)),
        questions_(members_),
        holds_(members_) {}

  [[nodiscard]] virtual std::shared_ptr<GroupAcquire> makeAcquire(AcquireParams params,
                                                                  GroupAcquire::Done done) = 0;

 private:
  template <class T>
  using Done = UniqueFunction<void(Result<T>)>;
  class Releasing;

  template <class T, class Start>
  Result<T> runHere(Start start);
  template <class T, class Start>
  void runBehind(Handler<T> handler, Start start);
  /// As GroupHolds::takePlan(); what is left of the hold is tended.
  [[nodiscard]] std::optional<GroupHolds::Leaving> takePlan(ReleaseTarget target);
  void startRelease(ReleaseTarget target, Done<ReleaseOutcome> done);
  /// Releases the rest of a lost hold, which belongs to nobody any more.
  void giveBack(const IntrusivePtr<GroupHold>& hold);

  const std::shared_ptr<GroupMembers> members_;
  const GroupQuestions questions_;
  GroupHolds holds_;
};

template <class T, class Start>
Result<T> GroupLock::runHere(Start start) {
  if (auto why = members_->refuse(true)) {
    return std::move(*why);
  }
  auto answer = std::make_shared<OneShot<Result<T>>>(members_->env());
  start([answer](Result<T> result) { answer->put(std::move(result)); });
  return answer->take();
}

template <class T, class Start>
void GroupLock::runBehind(Handler<T> handler, Start start) {
  struct Answer {
    Handler<T> handler;
    std::optional<Result<T>> result{};
  };
  // Made now: there may be no memory when the answer is there.
  auto tell = [members = members_,
               answer = std::make_shared<Answer>(Answer{std::move(handler)})](Result<T> result) {
    answer->result.emplace(std::move(result));
    members->runHandler([answer] { answer->handler(std::move(*answer->result)); });
  };
  if (auto why = members_->refuse(false)) {
    tell(std::move(*why));
    return;
  }
  start(std::move(tell));
}

inline Result<LockBackend::Acquired> GroupLock::acquire(AcquireParams params) {
  if (auto why = ScriptedObject::check(params)) {
    return members_->describe(*why);
  }
  if (auto why = members_->refuse(true)) {
    return std::move(*why);
  }
  auto answer = std::make_shared<OneShot<Result<Acquired>>>(members_->env());
  const auto acquisition = makeAcquire(
      std::move(params), [answer](Result<Acquired> result) { answer->put(std::move(result)); });
  acquisition->start();
  if (!answer->waitUntil(acquisition->limit())) {
    acquisition->expire();
  }
  return answer->take();
}

inline void GroupLock::acquireAsync(AcquireParams params, Handler<Acquired> handler) {
  runBehind<Acquired>(std::move(handler), [&](auto done) {
    if (auto why = ScriptedObject::check(params)) {
      done(members_->describe(*why));
      return;
    }
    const auto acquisition = makeAcquire(std::move(params), std::move(done));
    acquisition->start();
    // armLimit() follows start(): the limit may be over at once, and expire() must find the
    // acquisition started.
    acquisition->armLimit();
  });
}

inline void GroupLock::callAt(Clock::time_point when, UniqueFunction<void()> function) {
  members_->callAt(
      when, [self = shared_from_this(), function = std::move(function)]() mutable { function(); });
}

inline IntrusivePtr<GroupHold> GroupLock::book(const MemberGrants& grants,
                                               const GroupHold::Terms& terms) {
  GroupHold::Listeners listeners;
  listeners.onLoss = [weak = weak_from_this()](const IntrusivePtr<GroupHold>& lost) {
    if (const auto self = weak.lock()) {
      self->giveBack(lost);
    }
  };
  listeners.onMemberLoss = [weak = weak_from_this()](const IntrusivePtr<GroupHold>& hold) {
    if (const auto self = weak.lock()) {
      self->tend(hold);
    }
  };
  return holds_.book(grants, terms, std::move(listeners), shared_from_this());
}

inline void GroupLock::endOverdue(OwnerId owner) {
  const IntrusivePtr<GroupHold> hold = holds_.overdue(owner);
  if (hold && hold->markOverdue()) {
    callAt(now(), [hold] { hold->signalLoss(); });
  }
}

inline void GroupLock::releaseQuietly(std::size_t member, ReleaseTarget target) noexcept {
  ifThereIsMemorySoon([&] { (*members_)[member]->releaseQuietly(target); });
}

inline Result<ReleaseOutcome> GroupLock::release(ReleaseTarget target) {
  return runHere<ReleaseOutcome>([&](auto done) { startRelease(target, std::move(done)); });
}

inline void GroupLock::releaseAsync(ReleaseTarget target, Handler<ReleaseOutcome> handler) {
  runBehind<ReleaseOutcome>(std::move(handler),
                            [&](auto done) { startRelease(target, std::move(done)); });
}

// Questions.

inline Result<bool> GroupLock::forceRelease() {
  return runHere<bool>([this](auto done) { questions_.forceRelease(std::move(done)); });
}
inline void GroupLock::forceReleaseAsync(Handler<bool> handler) {
  runBehind<bool>(std::move(handler),
                  [this](auto done) { questions_.forceRelease(std::move(done)); });
}

inline Result<bool> GroupLock::isLocked() {
  return runHere<bool>([this](auto done) { questions_.isLocked(std::move(done)); });
}
inline void GroupLock::isLockedAsync(Handler<bool> handler) {
  runBehind<bool>(std::move(handler), [this](auto done) { questions_.isLocked(std::move(done)); });
}

inline Result<int> GroupLock::holdCount(OwnerId owner) {
  return runHere<int>([&](auto done) { questions_.holdCount(owner, std::move(done)); });
}
inline void GroupLock::holdCountAsync(OwnerId owner, Handler<int> handler) {
  runBehind<int>(std::move(handler),
                 [&](auto done) { questions_.holdCount(owner, std::move(done)); });
}

inline Result<LockBackend::TimeToLive> GroupLock::timeToLive() {
  return runHere<TimeToLive>([this](auto done) { questions_.timeToLive(std::move(done)); });
}
inline void GroupLock::timeToLiveAsync(Handler<TimeToLive> handler) {
  runBehind<TimeToLive>(std::move(handler),
                        [this](auto done) { questions_.timeToLive(std::move(done)); });
}

// GroupAcquire, which asks its group.

/// How long the whole acquisition waits for a member beyond the member's own limit.
inline constexpr std::chrono::milliseconds kMemberGrace =
    kReplyGrace + std::chrono::milliseconds(10);

inline GroupAcquire::GroupAcquire(std::shared_ptr<GroupLock> group, AcquireParams params, Done done)
    : group_(std::move(group)),
      params_(std::move(params)),
      began_(group_->now()),
      deadline_(oneAttempt() ? began_ + group_->members().longest(&LockLimits::callTimeout)
                             : params_.wait.deadlineFrom(began_)),
      limit_(deadline_ > Clock::time_point::max() - kMemberGrace ? Clock::time_point::max()
                                                                 : deadline_ + kMemberGrace),
      done_(std::move(done)) {}

inline void GroupAcquire::start() {
  if (params_.stop.stop_possible()) {
    stopListener_.emplace(params_.stop, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->guarded([&] { self->stop(); });
      }
    });
  }
  group_->endOverdue(params_.owner);
  guarded([this] { begin(); });
}

inline void GroupAcquire::stop() {
  stopped();
  // A node that was to give its member back may hang. Without memory its answer is waited for.
  ifThereIsMemory([this] { expireAt(group_->now() + kMemberGrace); });
}

inline void GroupAcquire::armLimit() noexcept {
  const auto near =
      group_->now() + group_->members().longest(&LockLimits::callTimeout) + 2 * kMemberGrace;
  if (limit_ >= near || armed_.exchange(true)) {
    return;
  }
  guarded([this] { expireAt(limit_); });
}

inline void GroupAcquire::expireAt(Clock::time_point when) {
  group_->callAt(when, [weak = weak_from_this(), when] {
    const auto self = weak.lock();
    // A call before its time means that all clients were closed; the members will report that.
    if (self && self->group_->now() >= when) {
      self->expire();
    }
  });
}

inline AcquireParams GroupAcquire::memberParams(std::size_t member, std::stop_token stop) const {
  AcquireParams params = group_->forMember(params_);
  params.wait = Duration::zero();
  params.stop = std::move(stop);
  params.wantsHandle = true;
  params.willRetry = !oneAttempt();
  params.forEver = endless();
  params.afresh = group_->holds().overtime(params_.owner, member);
  return params;
}

inline GroupHold::Terms GroupAcquire::terms() const {
  return group_->terms(params_);
}

inline void GroupAcquire::conclude(Result<Acquired> result) {
  // Race: another thread may be inside stopped(). The destructor of the stop callback waits for
  // that thread, which takes mutex_; so no lock is held here.
  stopListener_.reset();
  if (!result.has_value()) {
    result = group_->members().describe(result.error());
  }
  if (Done done = takeDone(result.has_value() && result->has_value())) {
    done(std::move(result));
  }
}

inline GroupAcquire::Done GroupAcquire::takeDone(bool granted) {
  const MutexLock lock(mutex_);
  granted_ = granted_ || granted;
  return std::move(done_);
}

inline void GroupAcquire::releaseQuietly(std::size_t member, const Grant& grant) noexcept {
  group_->releaseQuietly(member, {params_.owner, grant.hold->incarnation()});
}

template <class OnEnd>
void GroupAcquire::giveBack(std::size_t member, const Grant& grant, const OnEnd& done) {
  try {
    group_->members()[member]->releaseAsync(
        {.owner = params_.owner, .incarnation = grant.hold->incarnation(), .mustGo = true},
        [done](const Result<ReleaseOutcome>& /*result*/) { done(); });
  } catch (const std::bad_alloc&) {
    releaseQuietly(member, grant);
    done();
  }
}

inline void GroupAcquire::giveUp(std::size_t member, const Grant* grant) noexcept {
  const auto self = shared_from_this();
  bool granted = false;
  {
    const MutexLock lock(mutex_);
    granted = granted_;
  }
  if (!granted) {
    const MemberGrants obtained = abandon();
    for (std::size_t i = 0; i < obtained.size(); ++i) {
      if (obtained[i].hold) {
        releaseQuietly(i, obtained[i]);
        grant = grant != nullptr && obtained[i].hold == grant->hold ? nullptr : grant;
      }
    }
  }
  if (grant != nullptr) {
    releaseQuietly(member, *grant);
  }
  if (!granted) {
    try {
      conclude(memoryError());
    } catch (const std::exception&) {
      // There is no memory for the text either.
      if (Done done = takeDone(false)) {
        done(Acquired());
      }
    }
  }
}

inline GroupAcquire::Acquired GroupAcquire::acquired(const IntrusivePtr<GroupHold>& hold) {
  Grant grant;
  grant.hold = hold;
  return grant;
}

inline bool GroupAcquire::ownerEnded(const Result<Acquired>& result) noexcept {
  return result.has_value() && result->has_value() && (*result)->hold &&
         (*result)->hold->reason() == LossReason::threadEnded;
}

inline Error GroupAcquire::stopError() {
  return Error(Errc::cancelled, "a stop was requested");
}

inline Error GroupAcquire::lateError() {
  return Error(Errc::timedOut,
               "a node did not answer in time; what was obtained is given back in the background");
}

}  // namespace rlock::detail
