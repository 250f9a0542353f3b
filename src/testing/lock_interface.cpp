// SPDX-License-Identifier: Apache-2.0

// LockInterface and makeLock(): an RLock over an implementation that a test has written, for code
// that is given a lock. The InterfaceBackend translates RLock's calls: the blocking ones on the
// caller's thread, each of the others on a thread of its own. Holds keeps a handle for each owner's
// present hold, so that a Lease ends with its time and belongs to one incarnation of a hold, as
// over a server.
#include "base/detached_thread.hpp"
#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/error.hpp>
#include <rlock/sync_policy.hpp>
#include <rlock/testing.hpp>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <map>
#include <utility>
#include <vector>

namespace rlock {

namespace sim {
namespace {

void endLease(detail::HoldHandle& hold, LossReason reason) {
  if (hold.markLost(reason)) {
    hold.signalLoss();
  }
}

}  // namespace
}  // namespace sim

/// The holds that somebody has a Lease of, or may have.
struct LockInterface::Holds {
  using Handle = detail::IntrusivePtr<detail::HoldHandle>;
  using Clock = detail::HoldHandle::Clock;

  /// The present incarnation of the owner's hold, valid until then at least; a new one if it has
  /// none that lasts, for a Lease whose time is over never holds again.
  Handle granted(OwnerId owner, Clock::time_point now, Clock::time_point until) {
    const detail::MutexLock lock(mutex);
    Handle& handle = handles[owner.value];
    if (!handle || !handle->heldAt(now)) {
      handle = detail::makeIntrusive<detail::HoldHandle>(++last);
    }
    handle->setValidUntil(std::max(handle->validUntil(), until));
    return handle;
  }
  /// Null: there is none.
  Handle find(OwnerId owner) {
    const detail::MutexLock lock(mutex);
    const auto found = handles.find(owner.value);
    return found == handles.end() ? nullptr : found->second;
  }
  Handle take(OwnerId owner) {
    const detail::MutexLock lock(mutex);
    const auto found = handles.find(owner.value);
    if (found == handles.end()) {
      return nullptr;
    }
    Handle handle = std::move(found->second);
    handles.erase(found);
    return handle;
  }

  /// The same, if it is still that incarnation.
  Handle take(OwnerId owner, std::uint64_t incarnation) {
    const detail::MutexLock lock(mutex);
    const auto found = handles.find(owner.value);
    if (found == handles.end() || found->second->incarnation() != incarnation) {
      return nullptr;
    }
    Handle handle = std::move(found->second);
    handles.erase(found);
    return handle;
  }
  /// Whether the owner has a hold without an end.
  bool endless(OwnerId owner, Clock::time_point now) {
    const Handle hold = find(owner);
    return hold && hold->heldAt(now) && hold->validUntil() == Clock::time_point::max();
  }

  /// The holds that a forced release has ended, or may have.
  struct Forced {
    std::vector<Handle> over;
    std::vector<std::pair<OwnerId, Handle>> unsure;  // booked while it was under way
  };
  /// A forced release is over; before it began `newest` was the last incarnation.
  Forced endForce(std::uint64_t newest) {
    const detail::MutexLock lock(mutex);
    Forced forced;
    forced.over.reserve(handles.size());
    for (const auto& [owner, handle] : handles) {
      if (handle->incarnation() > newest) {
        forced.unsure.emplace_back(OwnerId{owner}, handle);
      }
    }
    ++forces;
    for (auto place = handles.begin(); place != handles.end();) {
      if (place->second->incarnation() <= newest) {
        forced.over.push_back(std::move(place->second));
        place = handles.erase(place);
      } else {
        ++place;
      }
    }
    return forced;
  }
  std::uint64_t newest() {
    const detail::MutexLock lock(mutex);
    return last;
  }
  /// How many forced releases are over.
  std::uint64_t forcesOver() {
    const detail::MutexLock lock(mutex);
    return forces;
  }

  detail::AnnotatedMutex mutex;
  std::map<std::uint64_t, Handle> handles RLOCK_GUARDED_BY(mutex);
  std::uint64_t last RLOCK_GUARDED_BY(mutex) = 0;
  std::uint64_t forces RLOCK_GUARDED_BY(mutex) = 0;
};

LockInterface::LockInterface() : holds_(std::make_shared<Holds>()) {}

LockInterface::~LockInterface() = default;

std::optional<std::chrono::milliseconds> LockInterface::timeToLive() {
  if (!isLocked()) {
    return std::nullopt;
  }
  return std::chrono::milliseconds::max();
}

void LockInterface::tellLost(OwnerId owner, LossReason reason) {
  if (const auto handle = holds_->take(owner)) {
    sim::endLease(*handle, reason);
  }
}

namespace sim {

/// RLock's view of a LockInterface.
///
/// The implementation says who holds the lock. LockInterface::Holds only books which handle an
/// owner's present hold has, and does so after the implementation has answered: a
/// further acquisition never shortens it, and a release of an incarnation that is over fails
/// without a call. A grant and a forced release that meet may be booked in the other order than the
/// implementation has made them, so that it is asked whether the owner still holds the lock. A
/// blocking form calls the implementation on the caller's thread; a background
/// form does so on a thread of its own, which then runs the handler. No mutex of this file is held
/// in either. An Error or a std::exception that the implementation throws is the result.
///
/// **Thread safety:** as LockBackend; the implementation has to bear several calls at once.
class InterfaceBackend final : public detail::LockBackend,
                               public std::enable_shared_from_this<InterfaceBackend> {
 public:
  using Outcome = detail::ReleaseOutcome;
  using Clock = detail::HoldHandle::Clock;
  using Holds = LockInterface::Holds;

  InterfaceBackend(std::string name, std::shared_ptr<LockInterface> lock)
      : name_(std::move(name)), lock_(std::move(lock)) {}

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  [[nodiscard]] Clock::time_point now() const noexcept override { return Clock::now(); }
  [[nodiscard]] detail::LockPlace place() const override {
    return {"interface", 0, name_, detail::HoldKind(), {}};
  }
  [[nodiscard]] bool refusesBlocking() const noexcept override { return false; }
  [[nodiscard]] bool keeps(OwnerId owner) const override {
    if (!lock_->holds_->endless(owner, now())) {
      return false;
    }
    const Result<int> count = guarded<int>([this, owner] { return lock_->holdCount(owner); });
    return count.has_value() && *count > 0;
  }

  Result<Acquired> acquire(detail::AcquireParams params) override;
  void acquireAsync(detail::AcquireParams params, Handler<Acquired> handler) override {
    behind([params = std::move(params)](InterfaceBackend& self) { return self.acquire(params); },
           std::move(handler));
  }
  Result<Outcome> release(detail::ReleaseTarget target) override;
  void releaseAsync(detail::ReleaseTarget target, Handler<Outcome> handler) override {
    behind([target](InterfaceBackend& self) { return self.release(target); }, std::move(handler));
  }
  void releaseQuietly(detail::ReleaseTarget target) override { static_cast<void>(release(target)); }
  Result<bool> forceRelease() override;
  void forceReleaseAsync(Handler<bool> handler) override {
    behind([](InterfaceBackend& self) { return self.forceRelease(); }, std::move(handler));
  }
  Result<bool> isLocked() override {
    return guarded<bool>([this] { return lock_->isLocked(); });
  }
  void isLockedAsync(Handler<bool> handler) override {
    behind([](InterfaceBackend& self) { return self.isLocked(); }, std::move(handler));
  }
  Result<int> holdCount(OwnerId owner) override {
    return guarded<int>([this, owner] { return lock_->holdCount(owner); });
  }
  void holdCountAsync(OwnerId owner, Handler<int> handler) override {
    behind([owner](InterfaceBackend& self) { return self.holdCount(owner); }, std::move(handler));
  }
  Result<TimeToLive> timeToLive() override {
    return guarded<TimeToLive>([this] { return lock_->timeToLive(); });
  }
  void timeToLiveAsync(Handler<TimeToLive> handler) override {
    behind([](InterfaceBackend& self) { return self.timeToLive(); }, std::move(handler));
  }
  void runHandler(detail::UniqueFunction<void()> handler) override {
    detail::startDetached(std::move(handler));
  }

 private:
  /// The reason why a lock on a server refuses this; null: it does not.
  [[nodiscard]] static const char* refusal(const detail::AcquireParams& params);

  /// Books a grant that the implementation has just made.
  Holds::Handle book(const detail::AcquireParams& params, std::uint64_t forcesBefore);
  /// A forced release and the grant of this hold were under way at the same time.
  void endIfForced(OwnerId owner, const Holds::Handle& hold);

  [[nodiscard]] Error problem(Errc errc, const char* what) const {
    ErrorContext context;
    context.key = name_;
    return Error(errc, what, std::move(context));
  }

  template <class T, class Call>
  Result<T> guarded(Call call) const {
    try {
      return call();
    } catch (const Error& error) {
      return error;
    } catch (const std::exception& failure) {
      return problem(Errc::serverError, failure.what());
    } catch (...) {
      return problem(Errc::serverError, "the implementation threw what is no std::exception");
    }
  }

  /// Each call has a thread of its own, because it may wait for another.
  template <class Call, class T>
  void behind(Call call, Handler<T> handler) {
    detail::startDetached([self = shared_from_this(),
                           call = std::move(call),
                           handler = std::move(handler)]() mutable {
      try {
        handler(call(*self));
      } catch (...) {
        // There is no client that could log or count it.
      }
    });
  }

  const std::string name_;
  const std::shared_ptr<LockInterface> lock_;
};

const char* InterfaceBackend::refusal(const detail::AcquireParams& params) {
  constexpr auto kLongestLease = std::chrono::hours(24) * 365;
  constexpr std::size_t kLongestLabel = 256;
  if (params.owner == OwnerId{}) {
    return "0 is no owner; make one by newOwner(), or give currentOwner()";
  }
  if (!params.wait.valid()) {
    return "the wait is not a number";
  }
  if (params.lease && (!params.lease->isPositive() || *params.lease > Duration(kLongestLease))) {
    return "a lease is more than 0 and at most 365 days";
  }
  if (params.maxHold && !params.maxHold->isPositive()) {
    return "a longest hold is more than 0";
  }
  if (params.sync && !detail::syncProblem(*params.sync).empty()) {
    return "AcquireOptions::sync cannot be met";
  }
  if (params.label.size() > kLongestLabel) {
    return "a label has 256 bytes at most";
  }
  return nullptr;
}

Result<detail::LockBackend::Acquired> InterfaceBackend::acquire(detail::AcquireParams params) {
  if (const char* const why = refusal(params)) {
    return problem(Errc::invalidArgument, why);
  }
  return guarded<Acquired>([&]() -> Acquired {
    const std::uint64_t forcesBefore = lock_->holds_->forcesOver();
    if (!lock_->acquire({params.owner, params.wait, params.lease, params.stop})) {
      return std::nullopt;
    }
    const auto hold = book(params, forcesBefore);
    detail::Grant grant;
    if (params.wantsHandle) {
      grant.hold = hold;
      const Result<int> count = holdCount(params.owner);
      if (!count) {
        // The caller gets no Lease that could give it back.
        static_cast<void>(release({params.owner, hold->incarnation()}));
      }
      grant.count = count.value();
    }
    return grant;
  });
}

InterfaceBackend::Holds::Handle InterfaceBackend::book(const detail::AcquireParams& params,
                                                       std::uint64_t forcesBefore) {
  // The implementation may have waited, and the time begins when it has the lock.
  const Clock::time_point begun = now();
  const Duration time =
      std::min(params.lease.value_or(Duration::max()), params.maxHold.value_or(Duration::max()));
  auto hold = lock_->holds_->granted(params.owner, begun, time.deadlineFrom(begun));
  if (lock_->holds_->forcesOver() != forcesBefore) {
    endIfForced(params.owner, hold);
  }
  return hold;
}

/// An implementation that cannot say it is not believed to hold: two Leases would.
void InterfaceBackend::endIfForced(OwnerId owner, const Holds::Handle& hold) {
  const Result<int> count = holdCount(owner);
  if (count.has_value() && *count > 0) {
    return;
  }
  if (lock_->holds_->take(owner, hold->incarnation())) {
    endLease(*hold, LossReason::forced);
    if (!count.has_value()) {
      static_cast<void>(guarded<int>([&] { return lock_->release(owner); }));
    }
  }
}

Result<detail::ReleaseOutcome> InterfaceBackend::release(detail::ReleaseTarget target) {
  return guarded<Outcome>([&] {
    const auto hold = lock_->holds_->find(target.owner);
    if (target.incarnation != 0 && (!hold || hold->incarnation() != target.incarnation)) {
      throw problem(Errc::notOwner, "that hold is over");
    }
    if (target.incarnation != 0 && !hold->heldAt(now())) {
      lock_->tellLost(target.owner, LossReason::expired);
      // An implementation that has no clock would keep it for ever.
      static_cast<void>(guarded<int>([&] { return lock_->release(target.owner); }));
      throw problem(Errc::notOwner, "its time is over");
    }
    if (lock_->release(target.owner) > 0) {
      return Outcome::stillHeld;
    }
    if (const auto gone = lock_->holds_->take(target.owner)) {
      gone->setReleased();
    }
    return Outcome::released;
  });
}

Result<bool> InterfaceBackend::forceRelease() {
  return guarded<bool>([this] {
    const std::uint64_t newest = lock_->holds_->newest();
    if (!lock_->forceRelease()) {
      return false;
    }
    const Holds::Forced forced = lock_->holds_->endForce(newest);
    for (const auto& hold : forced.over) {
      endLease(*hold, LossReason::forced);
    }
    for (const auto& [owner, hold] : forced.unsure) {
      endIfForced(owner, hold);
    }
    return true;
  });
}

}  // namespace sim

RLock makeLock(std::string name, std::shared_ptr<LockInterface> lock) {
  if (!lock || name.empty()) {
    throw Error(Errc::invalidArgument, "a lock has a name and an implementation");
  }
  return RLock(std::make_shared<sim::InterfaceBackend>(std::move(name), std::move(lock)));
}

}  // namespace rlock
