// SPDX-License-Identifier: Apache-2.0
#include "group/group_lock.hpp"

#include "engine/scripted_object.hpp"
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/base/one_shot.hpp>
#include <rlock/detail/group/quorum_fsm.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace rlock::detail {

namespace {

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

auto orderOf(const LockPlace& place) {
  // The name comes first, because two programs may know one node by different addresses. The
  // exclusive side of a read-write lock comes before its shared side, because an owner that reads
  // would wait for itself when it asked for the exclusive side.
  return std::tuple(
      place.name, place.database, place.node, 255 - static_cast<int>(place.kind), place.client);
}

GroupLock::Members sorted(GroupLock::Members members) {
  std::stable_sort(members.begin(), members.end(), [](const auto& a, const auto& b) {
    return orderOf(a->place()) < orderOf(b->place());
  });
  return members;
}

std::string nameOf(std::string_view kind, const GroupLock::Members& members) {
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

}  // namespace

GroupLock::Members membersOf(const std::vector<std::shared_ptr<LockBackend>>& locks) {
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

GroupLock::GroupLock(std::string_view kind, Members members, std::size_t need)
    : members_(sorted(members)),
      host_(members.front()),
      need_(need),
      name_(nameOf(kind, members)),
      forkGeneration_(forkGeneration()) {}

LockPlace GroupLock::place() const {
  return {"", 0, name_, HoldKind::lock, ""};
}

std::chrono::milliseconds GroupLock::longest(std::chrono::milliseconds LockLimits::*time) const {
  auto result = std::chrono::milliseconds::zero();
  for (const auto& member : members_) {
    result = std::max(result, member->limits().*time);
  }
  return result;
}

std::chrono::milliseconds GroupLock::shortest(std::chrono::milliseconds LockLimits::*time) const {
  auto result = std::chrono::milliseconds::max();
  for (const auto& member : members_) {
    result = std::min(result, member->limits().*time);
  }
  return result;
}

void GroupLock::callAt(Clock::time_point when, UniqueFunction<void()> function, std::size_t by) {
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

Error GroupLock::describe(const Error& error) const {
  ErrorContext context;
  context.key = name_;
  return error.withContext(context);
}

std::optional<Error> GroupLock::refuse(bool blocking) const {
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

bool GroupLock::refusesBlocking() const noexcept {
  return std::any_of(members_.begin(), members_.end(), [](const auto& member) {
    return member->refusesBlocking();
  });
}

bool GroupLock::keeps(OwnerId owner) const {
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

Result<LockBackend::Acquired> GroupLock::acquire(AcquireParams params) {
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

void GroupLock::acquireAsync(AcquireParams params, Handler<Acquired> handler) {
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

IntrusivePtr<GroupHold> GroupLock::book(const MemberGrants& grants, const GroupHold::Terms& terms) {
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

void GroupLock::endOverdue(OwnerId owner) {
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

int GroupLock::overtime(OwnerId owner, std::size_t member) {
  const MutexLock lock(mutex_);
  const auto found = holds_.find(owner.value);
  return found == holds_.end() ? 0 : found->second->overtime(member);
}

Result<ReleaseOutcome> GroupLock::release(ReleaseTarget target) {
  return runHere<ReleaseOutcome>([&](auto done) { startRelease(target, std::move(done)); });
}

void GroupLock::releaseAsync(ReleaseTarget target, Handler<ReleaseOutcome> handler) {
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

Error GroupLock::tooFew(const Error& first, std::size_t answered) const {
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

Result<bool> GroupLock::any(const std::vector<Result<bool>>& answers) const {
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

void GroupLock::startForceRelease(Done<bool> done) {
  askAll<bool>([](LockMember& member,
                  Handler<bool> handler) { member.forceReleaseAsync(std::move(handler)); },
               [](const GroupLock& self, const std::vector<Result<bool>>& answers) {
                 return self.any(answers);
               },
               std::move(done));
}

void GroupLock::startIsLocked(Done<bool> done) {
  askAll<bool>(
      [](LockMember& member, Handler<bool> handler) { member.isLockedAsync(std::move(handler)); },
      [](const GroupLock& self, std::vector<Result<bool>> answers) {
        return self.common(std::move(answers));
      },
      std::move(done));
}

void GroupLock::startHoldCount(OwnerId owner, Done<int> done) {
  askAll<int>([owner](LockMember& member,
                      Handler<int> handler) { member.holdCountAsync(owner, std::move(handler)); },
              [](const GroupLock& self, std::vector<Result<int>> answers) {
                return self.common(std::move(answers));
              },
              std::move(done));
}

void GroupLock::startTimeToLive(Done<TimeToLive> done) {
  askAll<TimeToLive>(
      [](LockMember& member, Handler<TimeToLive> handler) {
        member.timeToLiveAsync(std::move(handler));
      },
      [](const GroupLock& self, std::vector<Result<TimeToLive>> answers) {
        return self.common(std::move(answers));
      },
      std::move(done));
}

Result<bool> GroupLock::forceRelease() {
  return runHere<bool>([this](auto done) { startForceRelease(std::move(done)); });
}
void GroupLock::forceReleaseAsync(Handler<bool> handler) {
  runBehind<bool>(std::move(handler), [this](auto done) { startForceRelease(std::move(done)); });
}

Result<bool> GroupLock::isLocked() {
  return runHere<bool>([this](auto done) { startIsLocked(std::move(done)); });
}
void GroupLock::isLockedAsync(Handler<bool> handler) {
  runBehind<bool>(std::move(handler), [this](auto done) { startIsLocked(std::move(done)); });
}

Result<int> GroupLock::holdCount(OwnerId owner) {
  return runHere<int>([&](auto done) { startHoldCount(owner, std::move(done)); });
}
void GroupLock::holdCountAsync(OwnerId owner, Handler<int> handler) {
  runBehind<int>(std::move(handler), [&](auto done) { startHoldCount(owner, std::move(done)); });
}

Result<LockBackend::TimeToLive> GroupLock::timeToLive() {
  return runHere<TimeToLive>([this](auto done) { startTimeToLive(std::move(done)); });
}
void GroupLock::timeToLiveAsync(Handler<TimeToLive> handler) {
  runBehind<TimeToLive>(std::move(handler),
                        [this](auto done) { startTimeToLive(std::move(done)); });
}

}  // namespace rlock::detail
