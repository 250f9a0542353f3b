// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/one_shot.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/engine/scripted_object.hpp>
#include <rlock/detail/engine/task.hpp>
#include <rlock/detail/group/group_acquire.hpp>
#include <rlock/detail/group/group_hold.hpp>
#include <rlock/detail/group/quorum_fsm.hpp>
#include <rlock/error.hpp>
#include <rlock/owner.hpp>
#include <rlock/result.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
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

using Clock = std::chrono::steady_clock;

/// Collects the answers of all members and passes them on when the last one is there.
template <class T>
class Gathering {
 public:
  using Done = UniqueFunction<void(std::vector<Result<T>>)>;

  Gathering(std::size_t members, Done done) : answers_(members), done_(std::move(done)) {}

  void put(std::size_t member, Result<T> answer) {
    std::vector<Result<T>> all;
    {
      const MutexLock lock(mutex_);
      answers_[member].emplace(std::move(answer));
      if (++answered_ < answers_.size()) {
        return;
      }
      all.reserve(answers_.size());
      for (auto& each : answers_) {
        all.push_back(std::move(*each));
      }
    }
    done_(std::move(all));
  }

 private:
  AnnotatedMutex mutex_;
  std::vector<std::optional<Result<T>>> answers_ RLOCK_GUARDED_BY(mutex_);
  std::size_t answered_ RLOCK_GUARDED_BY(mutex_) = 0;
  Done done_;
};

inline auto orderOf(const LockPlace& place) {
  // The name comes first, because two programs may know one node by different addresses. The
  // exclusive side of a read-write lock comes before its shared side, because an owner that reads
  // would wait for itself when it asked for the exclusive side.
  return std::tuple(
      place.name, place.database, place.node, 255 - static_cast<int>(place.kind), place.client);
}

inline GroupLock::Members sorted(GroupLock::Members members) {
  std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
    return orderOf(a->place()) < orderOf(b->place());
  });
  return members;
}

inline std::string nameOf(std::string_view kind, const GroupLock::Members& members) {
  std::string name(kind);
  char separator = '(';
  for (const auto& member : members) {
    name += separator;
    name += member->name();
    separator = ',';
  }
  name += ')';
  return name;
}

inline GroupLock::Members membersOf(const std::vector<std::shared_ptr<LockBackend>>& locks) {
  GroupLock::Members members;
  for (const auto& lock : locks) {
    std::shared_ptr<LockMember> member = lock ? lock->member() : nullptr;
    if (!member) {
      ErrorContext context;
      context.key = lock ? lock->name() : std::string();
      throw Error(Errc::invalidArgument,
                  lock ? "a lock that consists of others cannot be part of another one"
                       : "an empty lock cannot be part of another one",
                  std::move(context));
    }
    const LockPlace place = member->place();
    for (const auto& other : members) {
      const LockPlace there = other->place();
      if (std::tie(there.node, there.database, there.name, there.kind) ==
          std::tie(place.node, place.database, place.name, place.kind)) {
        ErrorContext context;
        context.key = place.name;
        context.node = place.node;
        throw Error(Errc::invalidArgument,
                    "a lock cannot be part of another one twice",
                    std::move(context));
      }
    }
    members.push_back(std::move(member));
  }
  if (members.empty()) {
    throw Error(Errc::invalidArgument, "a lock cannot consist of no locks");
  }
  return members;
}

inline GroupLock::GroupLock(std::string_view kind, Members members, std::size_t need)
    : members_(sorted(members)),
      host_(members.front()),
      need_(need),
      name_(nameOf(kind, members)),
      forkGeneration_(forkGeneration()) {}

inline LockPlace GroupLock::place() const {
  return {"", 0, name_, HoldKind::lock, ""};
}

inline std::chrono::milliseconds GroupLock::longest(
    std::chrono::milliseconds LockLimits::*time) const {
  auto result = std::chrono::milliseconds::zero();
  for (const auto& member : members_) {
    result = std::max(result, member->limits().*time);
  }
  return result;
}

inline std::chrono::milliseconds GroupLock::shortest(
    std::chrono::milliseconds LockLimits::*time) const {
  auto result = std::chrono::milliseconds::max();
  for (const auto& member : members_) {
    result = std::min(result, member->limits().*time);
  }
  return result;
}

inline void GroupLock::callAt(Clock::time_point when,
                              UniqueFunction<void()> function,
                              std::size_t by) {
  members_[by]->callAt(
      when, [self = shared_from_this(), when, by, function = std::move(function)]() mutable {
        // A call before its time means that this client was closed; the next one takes over.
        if (self->now() < when && by + 1 < self->members_.size()) {
          self->callAt(when, std::move(function), by + 1);
        } else {
          function();
        }
      });
}

inline Error GroupLock::describe(const Error& error) const {
  ErrorContext context;
  context.key = name_;
  return error.withContext(context);
}

inline std::optional<Error> GroupLock::refuse(bool blocking) const {
  if (forkGeneration() != forkGeneration_) {
    return describe(Error(
        Errc::forked, "the clients belong to the parent process; create new ones after fork()"));
  }
  if (blocking && refusesBlocking()) {
    return describe(
        Error(Errc::wouldDeadlock,
              "a blocking call on a member's loop thread would wait for itself; use its "
              "async twin"));
  }
  return std::nullopt;
}

inline bool GroupLock::refusesBlocking() const noexcept {
  return std::any_of(members_.begin(), members_.end(), [](const auto& member) {
    return member->refusesBlocking();
  });
}

inline bool GroupLock::keeps(OwnerId owner) const {
  const auto kept = std::count_if(
      members_.begin(), members_.end(), [&](const auto& member) { return member->keeps(owner); });
  return static_cast<std::size_t>(kept) > members_.size() - need_;
}

template <class T, class Start>
Result<T> GroupLock::runHere(Start start) {
  if (auto why = refuse(true)) {
    return std::move(*why);
  }
  auto answer = std::make_shared<OneShot<Result<T>>>();
  start([answer](Result<T> result) { answer->put(std::move(result)); });
  return answer->take();
}

template <class T, class Start>
void GroupLock::runBehind(Handler<T> handler, Start start) {
  auto tell = [host = host_, handler = std::move(handler)](Result<T> result) mutable {
    host->runHandler([handler = std::move(handler), result = std::move(result)]() mutable {
      handler(std::move(result));
    });
  };
  if (auto why = refuse(false)) {
    tell(std::move(*why));
    return;
  }
  start(std::move(tell));
}

inline Result<LockBackend::Acquired> GroupLock::acquire(AcquireParams params) {
  if (auto why = ScriptedObject::check(params)) {
    return describe(*why);
  }
  if (auto why = refuse(true)) {
    return std::move(*why);
  }
  auto answer = std::make_shared<OneShot<Result<Acquired>>>();
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
      done(describe(*why));
      return;
    }
    const auto acquisition = makeAcquire(std::move(params), std::move(done));
    acquisition->start();
    // armLimit() follows start(): the limit may be over at once, and expire() must find the
    // acquisition started.
    acquisition->armLimit();
  });
}

inline IntrusivePtr<GroupHold> GroupLock::book(const MemberGrants& grants,
                                               const GroupHold::Terms& terms) {
  const MutexLock lock(mutex_);
  if (holds_.size() >= sweepAt_) {
    // Holds that were lost and never released stay in the table until this sweep.
    std::erase_if(holds_, [](const auto& entry) { return entry.second->over(); });
    sweepAt_ = std::max<std::size_t>(64, 2 * holds_.size());
  }
  IntrusivePtr<GroupHold>& hold = holds_[terms.owner.value];
  if (!hold || !hold->heldAt(now())) {
    if (hold) {
      hold->endRepairs();
      // runOut() calls the application, so it runs later, on a loop thread, with no lock held.
      callAt(now(), [before = std::move(hold)] { before->runOut(); });
    }
    hold = makeIntrusive<GroupHold>(members_.front()->env(),
                                    ++incarnations_,
                                    members_.size(),
                                    need_,
                                    terms,
                                    [weak = weak_from_this()](const IntrusivePtr<GroupHold>& lost) {
                                      if (const auto self = weak.lock()) {
                                        self->giveBack(lost);
                                      }
                                    });
  }
  hold->enter(grants, terms);
  return hold;
}

inline void GroupLock::endOverdue(OwnerId owner) {
  IntrusivePtr<GroupHold> hold;
  {
    const MutexLock lock(mutex_);
    const auto found = holds_.find(owner.value);
    if (found == holds_.end() || found->second->heldAt(now())) {
      return;
    }
    hold = found->second;
  }
  if (hold->markOverdue()) {
    callAt(now(), [hold] { hold->signalLoss(); });
  }
}

inline int GroupLock::overtime(OwnerId owner, std::size_t member) {
  const MutexLock lock(mutex_);
  const auto found = holds_.find(owner.value);
  return found == holds_.end() ? 0 : found->second->overtime(member);
}

inline Result<ReleaseOutcome> GroupLock::release(ReleaseTarget target) {
  return runHere<ReleaseOutcome>([&](auto done) { startRelease(target, std::move(done)); });
}

inline void GroupLock::releaseAsync(ReleaseTarget target, Handler<ReleaseOutcome> handler) {
  runBehind<ReleaseOutcome>(std::move(handler),
                            [&](auto done) { startRelease(target, std::move(done)); });
}

// Questions to all members.

template <class T, class Ask, class Combine>
void GroupLock::askAll(Ask ask, Combine combine, Done<T> done) {
  auto gathering = std::make_shared<Gathering<T>>(
      members_.size(),
      [self = shared_from_this(), combine, done = std::move(done)](
          std::vector<Result<T>> answers) mutable { done(combine(*self, std::move(answers))); });
  for (std::size_t i = 0; i < members_.size(); ++i) {
    ask(*members_[i], [gathering, i](Result<T> answer) { gathering->put(i, std::move(answer)); });
  }
}

inline Error GroupLock::tooFew(const Error& first, std::size_t answered) const {
  if (needsAll()) {
    return first;
  }
  return describe(Error(Errc::noQuorum,
                        fmt::format("of {} nodes only {} answered; one said: {}",
                                    members_.size(),
                                    answered,
                                    first.message())));
}

/// The greatest value that at least `need_` members reach: with all members needed the smallest
/// value, with a majority needed the smallest of the best majority.
template <class T>
Result<T> GroupLock::common(std::vector<Result<T>> answers) const {
  std::vector<T> values;
  const Error* first = nullptr;
  for (const Result<T>& answer : answers) {
    if (answer.has_value()) {
      values.push_back(*answer);
    } else if (first == nullptr) {
      first = &answer.error();
    }
  }
  if (first != nullptr && values.size() < need_) {
    return tooFew(*first, values.size());
  }
  std::sort(values.begin(), values.end(), std::greater<T>());
  return T(values[need_ - 1]);
}

inline Result<bool> GroupLock::any(const std::vector<Result<bool>>& answers) const {
  std::size_t answered = 0;
  bool result = false;
  const Error* first = nullptr;
  for (const Result<bool>& answer : answers) {
    if (answer.has_value()) {
      ++answered;
      result = result || *answer;
    } else if (first == nullptr) {
      first = &answer.error();
    }
  }
  if (first != nullptr && answered < need_) {
    return tooFew(*first, answered);
  }
  return result;
}

inline void GroupLock::startForceRelease(Done<bool> done) {
  askAll<bool>([](LockMember& member,
                  Handler<bool> handler) { member.forceReleaseAsync(std::move(handler)); },
               [](const GroupLock& self, const std::vector<Result<bool>>& answers) {
                 return self.any(answers);
               },
               std::move(done));
}

inline void GroupLock::startIsLocked(Done<bool> done) {
  askAll<bool>(
      [](LockMember& member, Handler<bool> handler) { member.isLockedAsync(std::move(handler)); },
      [](const GroupLock& self, std::vector<Result<bool>> answers) {
        return self.common(std::move(answers));
      },
      std::move(done));
}

inline void GroupLock::startHoldCount(OwnerId owner, Done<int> done) {
  askAll<int>([owner](LockMember& member,
                      Handler<int> handler) { member.holdCountAsync(owner, std::move(handler)); },
              [](const GroupLock& self, std::vector<Result<int>> answers) {
                return self.common(std::move(answers));
              },
              std::move(done));
}

inline void GroupLock::startTimeToLive(Done<TimeToLive> done) {
  askAll<TimeToLive>(
      [](LockMember& member, Handler<TimeToLive> handler) {
        member.timeToLiveAsync(std::move(handler));
      },
      [](const GroupLock& self, std::vector<Result<TimeToLive>> answers) {
        return self.common(std::move(answers));
      },
      std::move(done));
}

inline Result<bool> GroupLock::forceRelease() {
  return runHere<bool>([this](auto done) { startForceRelease(std::move(done)); });
}
inline void GroupLock::forceReleaseAsync(Handler<bool> handler) {
  runBehind<bool>(std::move(handler), [this](auto done) { startForceRelease(std::move(done)); });
}

inline Result<bool> GroupLock::isLocked() {
  return runHere<bool>([this](auto done) { startIsLocked(std::move(done)); });
}
inline void GroupLock::isLockedAsync(Handler<bool> handler) {
  runBehind<bool>(std::move(handler), [this](auto done) { startIsLocked(std::move(done)); });
}

inline Result<int> GroupLock::holdCount(OwnerId owner) {
  return runHere<int>([&](auto done) { startHoldCount(owner, std::move(done)); });
}
inline void GroupLock::holdCountAsync(OwnerId owner, Handler<int> handler) {
  runBehind<int>(std::move(handler), [&](auto done) { startHoldCount(owner, std::move(done)); });
}

inline Result<LockBackend::TimeToLive> GroupLock::timeToLive() {
  return runHere<TimeToLive>([this](auto done) { startTimeToLive(std::move(done)); });
}
inline void GroupLock::timeToLiveAsync(Handler<TimeToLive> handler) {
  runBehind<TimeToLive>(std::move(handler),
                        [this](auto done) { startTimeToLive(std::move(done)); });
}

// GroupAcquire, which asks its group.

/// How long the whole acquisition waits for a member beyond the member's own limit.
inline constexpr std::chrono::milliseconds kMemberGrace =
    kReplyGrace + std::chrono::milliseconds(10);

inline GroupAcquire::GroupAcquire(std::shared_ptr<GroupLock> group, AcquireParams params, Done done)
    : group_(std::move(group)),
      params_(std::move(params)),
      began_(group_->now()),
      deadline_(oneAttempt() ? began_ + group_->longest(&LockLimits::callTimeout)
                             : params_.wait.deadlineFrom(began_)),
      limit_(deadline_ > Clock::time_point::max() - kMemberGrace ? Clock::time_point::max()
                                                                 : deadline_ + kMemberGrace),
      done_(std::move(done)) {}

inline void GroupAcquire::start() {
  if (params_.stop.stop_possible()) {
    stopListener_.emplace(params_.stop, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->stopped();
      }
    });
  }
  group_->endOverdue(params_.owner);
  begin();
}

inline void GroupAcquire::armLimit() {
  const auto near = group_->now() + group_->longest(&LockLimits::callTimeout) + 2 * kMemberGrace;
  if (limit_ < near && !armed_.exchange(true)) {
    group_->callAt(limit_, [weak = weak_from_this()] {
      const auto self = weak.lock();
      // A call before its time means that all clients were closed; the members will report that.
      if (self && self->group_->now() >= self->limit_) {
        self->expire();
      }
    });
  }
}

inline AcquireParams GroupAcquire::memberParams(std::size_t member, std::stop_token stop) const {
  AcquireParams params = group_->forMember(params_);
  params.wait = Duration::zero();
  params.stop = std::move(stop);
  params.wantsHandle = true;
  params.willRetry = !oneAttempt();
  params.forEver = endless();
  params.afresh = group_->overtime(params_.owner, member);
  return params;
}

inline GroupHold::Terms GroupAcquire::terms() const {
  return group_->terms(params_);
}

inline void GroupAcquire::conclude(Result<Acquired> result) {
  // Race: another thread may be inside stopped(). The destructor of the stop callback waits for
  // that thread, which takes mutex_; so no lock is held here.
  stopListener_.reset();
  const auto done = std::make_unique<Done>(std::move(done_));
  if (result.has_value()) {
    (*done)(std::move(result));
  } else {
    (*done)(group_->describe(result.error()));
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
