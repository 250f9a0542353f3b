// SPDX-License-Identifier: Apache-2.0
#include "engine/group_lock.hpp"

#include "engine/task.hpp"
#include <rlock/detail/fork.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <tuple>
#include <utility>

namespace rlock::detail {

namespace {

using Clock = std::chrono::steady_clock;

/// How long after a member's own limit the whole waits for it.
constexpr std::chrono::milliseconds kMemberGrace = kReplyGrace + std::chrono::milliseconds(10);

/// One thread waits for what another has to say.
template <class T>
class Inbox {
 public:
  void put(Result<T> result) {
    const std::lock_guard lock(mutex_);
    result_.emplace(std::move(result));
    changed_.notify_all();
  }
  /// False: it did not come in time.
  bool waitUntil(Clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    const auto there = [this] { return result_.has_value(); };
    if (deadline == Clock::time_point::max()) {
      changed_.wait(lock, there);
      return true;
    }
    return changed_.wait_until(lock, deadline, there);
  }
  Result<T> take() {
    waitUntil(Clock::time_point::max());
    return std::move(*result_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<T>> result_;
};

/// Collects the answers of all members.
template <class T>
class Gathering {
 public:
  using Done = UniqueFunction<void(std::vector<Result<T>>)>;

  Gathering(std::size_t members, Done done) : answers_(members), done_(std::move(done)) {}

  void put(std::size_t member, Result<T> answer) {
    {
      const std::lock_guard lock(mutex_);
      answers_[member].emplace(std::move(answer));
      if (++answered_ < answers_.size()) {
        return;
      }
    }
    std::vector<Result<T>> all;
    all.reserve(answers_.size());
    for (auto& each : answers_) {
      all.push_back(std::move(*each));
    }
    done_(std::move(all));
  }

 private:
  std::mutex mutex_;
  std::vector<std::optional<Result<T>>> answers_;
  std::size_t answered_ = 0;
  Done done_;
};

auto orderOf(const LockPlace& place) {
  // By name first: two programs may know one node by different addresses. The exclusive side of a
  // read-write lock before the shared one: the other way round it would wait for itself.
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

// Holds.

GroupHold::GroupHold(std::size_t members, std::size_t need, Terms terms, const GroupHold* before)
    : need_(need), terms_(std::move(terms)), members_(members) {
  scratch_.reserve(members);
  if (before != nullptr) {
    const std::lock_guard lock(before->mutex_);
    for (std::size_t i = 0; i < members; ++i) {
      const Member& old = before->members_[i];
      if (alive(old)) {
        members_[i].handle = old.handle;
        members_[i].count = old.count;
        members_[i].line = old.line;
        members_[i].seen = old.seen;
        members_[i].heard = false;
      } else {
        members_[i].lostLine = old.handle ? old.line : old.lostLine;
        members_[i].lostCount = old.handle ? old.count : old.lostCount;
      }
    }
  }
}

bool GroupHold::alive(const Member& member) noexcept {
  return member.handle && member.handle->reason() == LossReason::none && !member.handle->released();
}

GroupHold::Clock::time_point GroupHold::membersUntil() const noexcept {
  scratch_.clear();
  for (const Member& member : members_) {
    scratch_.push_back(alive(member) ? member.handle->validUntil() : Clock::time_point::min());
  }
  const auto until = Quorum::validUntil(scratch_, need_);
  return until == Clock::time_point::min() ? Clock::time_point{} : until - terms_.margin;
}

GroupHold::Clock::time_point GroupHold::validUntil() const noexcept {
  const std::lock_guard lock(mutex_);
  return std::min(membersUntil(), terms_.maxHoldUntil);
}

GroupHold::Clock::time_point GroupHold::lossAt() const {
  const std::lock_guard lock(mutex_);
  return std::min(membersUntil() - terms_.notice, terms_.maxHoldUntil);
}

GroupHold::Terms GroupHold::terms() const {
  const std::lock_guard lock(mutex_);
  return terms_;
}

/// What was lost may be gone from the server or still count there. What the owner took by other
/// ways is not the group's to release.
void GroupHold::add(Member& member, const Grant& grant) noexcept {
  int kept = 0;
  if (member.handle && member.line == grant.line) {
    kept = member.count;
  } else if (!member.handle && member.lostLine == grant.line) {
    kept = member.lostCount;
  }
  // Another call of the owner may have been booked since this one was counted.
  member.seen =
      member.handle && member.line == grant.line ? std::max(member.seen, grant.count) : grant.count;
  member.count = std::min(kept + 1, std::max(member.seen, 1));
  member.handle = grant.hold;
  member.line = grant.line;
  member.heard = false;
}

void GroupHold::enter(const MemberGrants& grants, const Terms& terms) {
  const std::lock_guard lock(mutex_);
  ++count_;
  if (count_ > 1) {
    // As each member does it: a watched hold stays watched, a hold becomes watched by re-entry.
    terms_.lease = terms_.lease && terms.lease
                       ? std::optional(std::max(*terms_.lease, *terms.lease))
                       : std::nullopt;
    terms_.maxHoldUntil = std::min(terms_.maxHoldUntil, terms.maxHoldUntil);
    terms_.margin = std::max(terms_.margin, terms.margin);
    terms_.notice = std::max(terms_.notice, terms.notice);
  }
  for (std::size_t i = 0; i < members_.size(); ++i) {
    if (grants[i].hold) {
      add(members_[i], grants[i]);
    }
  }
}

bool GroupHold::join(std::size_t number, const Grant& grant) {
  const std::lock_guard lock(mutex_);
  Member& member = members_[number];
  member.repairing = false;
  if (count_ == 0 || reason() != LossReason::none || repairs_.stop_requested()) {
    return false;
  }
  add(member, grant);
  return true;
}

void GroupHold::listen() {
  for (Member& member : members_) {
    IntrusivePtr<HoldHandle> handle;
    {
      const std::lock_guard lock(mutex_);
      if (std::exchange(member.heard, true)) {
        continue;
      }
      handle = member.handle;
    }
    // Made and destroyed without the lock: it may run at once, and waits while it runs.
    std::list<StopListener> listener;
    listener.emplace_back(handle->lostToken(), [this] { memberLost(); });
    const std::lock_guard lock(mutex_);
    member.listener.swap(listener);
  }
}

void GroupHold::memberLost() noexcept {
  // The destructor waits for this to return.
  if (!tryAddRef()) {
    return;
  }
  const auto self = IntrusivePtr<GroupHold>::adopt(this);
  LossReason first = LossReason::none;
  bool ended = false;
  {
    const std::lock_guard lock(mutex_);
    std::size_t left = 0;
    for (const Member& member : members_) {
      const LossReason reason = member.handle ? member.handle->reason() : LossReason::none;
      left += static_cast<std::size_t>(alive(member));
      ended = ended || reason == LossReason::threadEnded;
      first = first == LossReason::none ? reason : first;
    }
    if (count_ == 0 || first == LossReason::none || (left >= need_ && !ended)) {
      return;
    }
  }
  lose(ended ? LossReason::threadEnded : first);
}

void GroupHold::lose(LossReason reason) {
  if (markLost(reason)) {
    repairs_.request_stop();
    signalLoss();
  }
}

void GroupHold::runOut() {
  const Terms terms = this->terms();
  lose(Clock::now() >= terms.maxHoldUntil ? LossReason::maxHold
       : terms.lease                      ? LossReason::expired
                                          : LossReason::unreachable);
}

std::vector<std::size_t> GroupHold::takeMissing() {
  const auto now = Clock::now();
  std::vector<std::size_t> missing;
  const std::lock_guard lock(mutex_);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    Member& member = members_[i];
    if (member.repairing || (member.handle && member.handle->heldAt(now))) {
      continue;
    }
    // What somebody ended on purpose stays ended.
    const LossReason reason = member.handle ? member.handle->reason() : LossReason::unreachable;
    if (reason == LossReason::expired || reason == LossReason::refused ||
        reason == LossReason::unreachable || reason == LossReason::maxHold) {
      member.repairing = true;
      missing.push_back(i);
    }
  }
  return missing;
}

void GroupHold::repaired(std::size_t member) {
  const std::lock_guard lock(mutex_);
  members_[member].repairing = false;
}

GroupHold::Plan GroupHold::planRelease() {
  Plan plan;
  plan.last = count_ == 0;
  for (Member& member : members_) {
    if (member.handle && member.handle->nothingLeft()) {
      // What the owner has there now it took by other ways.
      member.count = 0;
    }
    const int times = std::max(member.count - count_, 0);
    member.count -= times;
    member.seen -= times;
    plan.times.push_back(times);
  }
  return plan;
}

int GroupHold::overtime(std::size_t member) const {
  const LossReason why = reason();
  const std::lock_guard lock(mutex_);
  const bool over = why == LossReason::maxHold ||
                    (why == LossReason::none && Clock::now() >= terms_.maxHoldUntil);
  return over ? members_[member].count : 0;
}

GroupHold::Plan GroupHold::leave() {
  const bool valid = heldAt(Clock::now());
  Plan plan;
  {
    const std::lock_guard lock(mutex_);
    // What was lost is over, however often it was taken.
    count_ = valid ? count_ - 1 : 0;
    plan = planRelease();
  }
  plan.valid = valid;
  if (plan.last) {
    setReleased();
  }
  return plan;
}

GroupHold::Plan GroupHold::leaveLost() {
  Plan plan;
  {
    const std::lock_guard lock(mutex_);
    count_ = 0;
    plan = planRelease();
  }
  lose(LossReason::refused);
  setReleased();
  return plan;
}

bool GroupHold::survives(const std::vector<bool>& gone) const {
  const std::lock_guard lock(mutex_);
  std::size_t left = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    left += static_cast<std::size_t>(!gone[i] && members_[i].count > 0 && alive(members_[i]));
  }
  return left >= need_;
}

bool GroupHold::planLook(Clock::time_point when) {
  const std::lock_guard lock(mutex_);
  return look_.plan(when);
}

bool GroupHold::beginLook(Clock::time_point when) {
  const std::lock_guard lock(mutex_);
  return look_.begin(when);
}

bool GroupHold::over() const {
  if (released()) {
    return true;
  }
  const auto now = Clock::now();
  const std::lock_guard lock(mutex_);
  return std::none_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.handle && member.handle->heldAt(now);
  });
}

// Acquisitions.

GroupAcquire::GroupAcquire(std::shared_ptr<GroupLock> group, AcquireParams params, Done done)
    : group_(std::move(group)),
      params_(std::move(params)),
      began_(Clock::now()),
      deadline_(oneAttempt() ? began_ + group_->longest(&LockLimits::callTimeout)
                             : params_.wait.deadlineFrom(began_)),
      limit_(deadline_ > Clock::time_point::max() - kMemberGrace ? Clock::time_point::max()
                                                                 : deadline_ + kMemberGrace),
      done_(std::move(done)) {}

void GroupAcquire::start() {
  if (params_.stop.stop_possible()) {
    stopListener_.emplace(params_.stop, [weak = weak_from_this()] {
      if (const auto self = weak.lock()) {
        self->stopped();
      }
    });
  }
  begin();
}

void GroupAcquire::armLimit() {
  const auto near = Clock::now() + group_->longest(&LockLimits::callTimeout) + 2 * kMemberGrace;
  if (limit_ < near && !armed_.exchange(true)) {
    group_->callAt(limit_, [weak = weak_from_this()] {
      const auto self = weak.lock();
      // Before its time: all clients were closed, which the members will say.
      if (self && Clock::now() >= self->limit_) {
        self->expire();
      }
    });
  }
}

AcquireParams GroupAcquire::memberParams(std::size_t member, std::stop_token stop) const {
  AcquireParams params = group_->forMember(params_);
  params.wait = Duration::zero();
  params.stop = std::move(stop);
  params.wantsHandle = true;
  params.willRetry = !oneAttempt();
  params.forEver = endless();
  params.afresh = group_->overtime(params_.owner, member);
  return params;
}

GroupHold::Terms GroupAcquire::terms() const {
  return group_->terms(params_);
}

void GroupAcquire::conclude(Result<Acquired> result) {
  // Whoever is just calling stopped() is waited for, so with no lock held.
  stopListener_.reset();
  const auto done = std::make_unique<Done>(std::move(done_));
  if (result.has_value()) {
    (*done)(std::move(result));
  } else {
    (*done)(group_->describe(result.error()));
  }
}

GroupAcquire::Acquired GroupAcquire::acquired(const IntrusivePtr<GroupHold>& hold) {
  Grant grant;
  grant.hold = hold;
  return grant;
}

Error GroupAcquire::stopError() {
  return Error(Errc::cancelled, "a stop was requested");
}

Error GroupAcquire::lateError() {
  return Error(Errc::timedOut,
               "a node did not answer in time; what was obtained is given back in the background");
}

// The group.

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
        // Too early: that client was closed.
        if (Clock::now() < when && by + 1 < self->members_.size()) {
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
    return describe(Error(Errc::forked, "the clients belong to the parent process"));
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

template <class T, class Start>
Result<T> GroupLock::runHere(Start start) {
  if (auto why = refuse(true)) {
    return std::move(*why);
  }
  auto inbox = std::make_shared<Inbox<T>>();
  start([inbox](Result<T> result) { inbox->put(std::move(result)); });
  return inbox->take();
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

namespace {

std::optional<Error> check(const AcquireParams& params) {
  // The rest is the members' to check.
  return params.wait.valid()
             ? std::nullopt
             : std::optional(Error(Errc::invalidArgument, "the wait is not a number"));
}

}  // namespace

Result<LockBackend::Acquired> GroupLock::acquire(AcquireParams params) {
  if (auto why = check(params)) {
    return describe(*why);
  }
  if (auto why = refuse(true)) {
    return std::move(*why);
  }
  auto inbox = std::make_shared<Inbox<Acquired>>();
  const auto acquisition = makeAcquire(
      std::move(params), [inbox](Result<Acquired> result) { inbox->put(std::move(result)); });
  acquisition->start();
  if (!inbox->waitUntil(acquisition->limit())) {
    acquisition->expire();
  }
  return inbox->take();
}

void GroupLock::acquireAsync(AcquireParams params, Handler<Acquired> handler) {
  runBehind<Acquired>(std::move(handler), [&](auto done) {
    if (auto why = check(params)) {
      done(describe(*why));
      return;
    }
    const auto acquisition = makeAcquire(std::move(params), std::move(done));
    acquisition->start();
    // Not before: the limit may be over at once, and nothing can end before it began.
    acquisition->armLimit();
  });
}

IntrusivePtr<GroupHold> GroupLock::book(const MemberGrants& grants, const GroupHold::Terms& terms) {
  const std::lock_guard lock(mutex_);
  if (holds_.size() >= sweepAt_) {
    // Those that were lost and never released.
    std::erase_if(holds_, [](const auto& entry) { return entry.second->over(); });
    sweepAt_ = std::max<std::size_t>(64, 2 * holds_.size());
  }
  IntrusivePtr<GroupHold>& hold = holds_[terms.owner.value];
  if (!hold || !hold->heldAt(Clock::now())) {
    const auto before = std::move(hold);
    if (before) {
      before->endRepairs();
      before->replaced();
    }
    hold = makeIntrusive<GroupHold>(members_.size(), need_, terms, before.get());
  }
  hold->enter(grants, terms);
  return hold;
}

int GroupLock::overtime(OwnerId owner, std::size_t member) {
  const std::lock_guard lock(mutex_);
  const auto found = holds_.find(owner.value);
  return found == holds_.end() ? 0 : found->second->overtime(member);
}

std::optional<GroupLock::Leaving> GroupLock::takePlan(OwnerId owner) {
  Leaving leaving;
  {
    const std::lock_guard lock(mutex_);
    const auto found = holds_.find(owner.value);
    if (found == holds_.end()) {
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
  }
  return leaving;
}

std::optional<GroupHold::Plan> GroupLock::takeRest(OwnerId owner,
                                                   const IntrusivePtr<GroupHold>& hold,
                                                   const std::vector<bool>& gone) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = holds_.find(owner.value);
    if (!hold || found == holds_.end() || found->second != hold || hold->survives(gone)) {
      return std::nullopt;
    }
    holds_.erase(found);
  }
  // With no lock held: it calls the application.
  return hold->leaveLost();
}

/// One release on all members.
class GroupLock::Releasing : public std::enable_shared_from_this<Releasing> {
 public:
  Releasing(std::shared_ptr<GroupLock> group,
            OwnerId owner,
            Leaving leaving,
            Done<ReleaseOutcome> done)
      : group_(std::move(group)),
        owner_(owner),
        hold_(std::move(leaving.hold)),
        gone_(group_->members_.size(), false),
        done_(std::move(done)) {
    begin(std::move(leaving.plan));
  }

  void start() {
    std::vector<int> times;
    {
      const std::lock_guard lock(mutex_);
      times = plan_.times;
    }
    for (std::size_t i = 0; i < times.size(); ++i) {
      if (times[i] > 0) {
        release(i);
      }
    }
    judge();
  }

 private:
  void begin(GroupHold::Plan plan) {
    plan_ = std::move(plan);
    tally_ = GroupRelease();
    tally_.valid = plan_.valid;
    tally_.members = static_cast<std::size_t>(
        std::count_if(plan_.times.begin(), plan_.times.end(), [](int times) { return times > 0; }));
  }

  void release(std::size_t member) {
    group_->members_[member]->releaseAsync(
        owner_, [self = shared_from_this(), member](const Result<ReleaseOutcome>& result) {
          self->answered(member, result);
        });
  }

  void answered(std::size_t member, const Result<ReleaseOutcome>& result) {
    bool more = false;
    int unasked = 0;
    {
      const std::lock_guard lock(mutex_);
      if (result.has_value()) {
        more = --plan_.times[member] > 0;
        if (!more) {
          ++tally_.released;
          stillHeld_ += static_cast<std::size_t>(*result == ReleaseOutcome::stillHeld);
        }
      } else if (result.error().errc() == Errc::notOwner) {
        ++tally_.notOwner;
        gone_[member] = true;
      } else {
        // This one is completed in the background, and so are those that were to follow.
        unasked = std::exchange(plan_.times[member], 0) - 1;
        ++tally_.failed;
        if (!error_) {
          error_ = result.error();
        }
      }
    }
    for (; unasked > 0; --unasked) {
      group_->members_[member]->releaseQuietly(owner_);
    }
    if (more) {
      release(member);
    } else {
      judge();
    }
  }

  void judge() {
    std::optional<Result<ReleaseOutcome>> result;
    std::optional<Done<ReleaseOutcome>> done;
    {
      const std::lock_guard lock(mutex_);
      if (!done_ || rest_ == Rest::asked) {
        return;
      }
      switch (group_->needsAll() ? tally_.ofAll() : tally_.ofMajority(group_->need_)) {
        case GroupRelease::Result::pending:
          return;
        case GroupRelease::Result::released:
          result.emplace(plan_.last && stillHeld_ < group_->need_ ? ReleaseOutcome::released
                                                                  : ReleaseOutcome::stillHeld);
          break;
        case GroupRelease::Result::notOwner:
          if (!plan_.last && rest_ == Rest::unknown) {
            rest_ = Rest::asked;
            break;
          }
          result.emplace(group_->describe(Error(
              Errc::notOwner, "not held by this owner, or no longer; nothing is left of it")));
          break;
        case GroupRelease::Result::failed:
          result.emplace(error_ ? *error_ : Error(Errc::serverError, "no outcome"));
          break;
      }
      if (result) {
        done.emplace(std::move(done_));
      }
    }
    if (done) {
      (*done)(std::move(*result));
    } else {
      releaseRest();
    }
  }

  /// A loss that only this release has found ends the acquisitions before it as well.
  void releaseRest() {
    std::vector<bool> gone;
    {
      const std::lock_guard lock(mutex_);
      gone = gone_;
    }
    auto rest = group_->takeRest(owner_, hold_, gone);
    {
      const std::lock_guard lock(mutex_);
      rest_ = Rest::known;
      if (rest) {
        begin(std::move(*rest));
      }
    }
    if (rest) {
      start();
    } else {
      judge();
    }
  }

  enum class Rest : std::uint8_t { unknown, asked, known };

  const std::shared_ptr<GroupLock> group_;
  const OwnerId owner_;
  const IntrusivePtr<GroupHold> hold_;  // null: it was not taken through this group
  std::mutex mutex_;
  std::vector<bool> gone_;      // on which nothing was left; protected by mutex_
  GroupHold::Plan plan_;        // protected by mutex_
  GroupRelease tally_;          // protected by mutex_
  Rest rest_ = Rest::unknown;   // protected by mutex_
  std::size_t stillHeld_ = 0;   // protected by mutex_
  std::optional<Error> error_;  // protected by mutex_
  Done<ReleaseOutcome> done_;   // protected by mutex_
};

void GroupLock::startRelease(OwnerId owner, Done<ReleaseOutcome> done) {
  if (auto leaving = takePlan(owner)) {
    std::make_shared<Releasing>(shared_from_this(), owner, std::move(*leaving), std::move(done))
        ->start();
    return;
  }
  // Taken through another object of the same members, perhaps.
  startHoldCount(
      owner,
      [self = shared_from_this(), owner, done = std::move(done)](const Result<int>& count) mutable {
        if (!count.has_value()) {
          done(count.error());
          return;
        }
        if (*count == 0) {
          done(self->describe(Error(Errc::notOwner, "not held by this owner, or no longer")));
          return;
        }
        Leaving leaving;
        leaving.plan.times.assign(self->members_.size(), 1);
        leaving.plan.last = true;
        leaving.plan.valid = true;
        std::make_shared<Releasing>(self, owner, std::move(leaving), std::move(done))->start();
      });
}

Result<ReleaseOutcome> GroupLock::release(OwnerId owner) {
  return runHere<ReleaseOutcome>([&](auto done) { startRelease(owner, std::move(done)); });
}

void GroupLock::releaseAsync(OwnerId owner, Handler<ReleaseOutcome> handler) {
  runBehind<ReleaseOutcome>(std::move(handler),
                            [&](auto done) { startRelease(owner, std::move(done)); });
}

void GroupLock::releaseQuietly(OwnerId owner) {
  if (refuse(false)) {
    return;
  }
  if (const auto leaving = takePlan(owner)) {
    for (std::size_t i = 0; i < members_.size(); ++i) {
      for (int times = leaving->plan.times[i]; times > 0; --times) {
        members_[i]->releaseQuietly(owner);
      }
    }
  }
}

// Questions.

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

/// What at least so many members as are needed would say "so much, or more" to.
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
