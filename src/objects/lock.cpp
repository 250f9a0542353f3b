// SPDX-License-Identifier: Apache-2.0

// RLock: a handle without state of its own. Each call turns its arguments into AcquireParams or a
// ReleaseTarget and hands them to the LockBackend, which may be one lock or a group. The blocking
// calls named after Redisson's run on the calling thread without an Operation, because they are the
// fast path. The default owner is the calling thread for calls named after Redisson's, and a new
// owner for acquire() and tryAcquire().

#include "objects/acquisitions.hpp"
#include "objects/moved_from.hpp"
#include "objects/operations.hpp"
#include <rlock/detail/base/lock_backend.hpp>
#include <rlock/lock.hpp>

#include <string>
#include <utility>

namespace rlock {

namespace {

using detail::Acquired;
using detail::acquisition;
using detail::inNameOfThread;
using detail::LockBackend;
using detail::obtained;
using detail::operation;
using detail::params;
using detail::present;
using detail::ReleaseOutcome;
using detail::same;

Result<void> toVoid(detail::Grant /*grant*/) {
  return {};
}

Result<bool> toBool(const Result<Acquired>& result) {
  if (!result.has_value()) {
    return result.error();
  }
  return result->has_value();
}

Result<void> released(const Result<ReleaseOutcome>& result) {
  if (!result.has_value()) {
    return result.error();
  }
  return {};
}

}  // namespace

RLock::RLock(std::shared_ptr<detail::LockBackend> backend) noexcept
    : backend_(std::move(backend)) {}

void RLock::lock() {
  obtained<void>(
      backend_, present(backend_)->acquire(params(currentOwner(), Duration::max())), toVoid)
      .value();
}

void RLock::lock(Duration lease) {
  obtained<void>(
      backend_, present(backend_)->acquire(params(currentOwner(), Duration::max(), lease)), toVoid)
      .value();
}

void RLock::lockInterruptibly(std::stop_token stop, std::optional<Duration> lease) {
  obtained<void>(
      backend_,
      present(backend_)->acquire(params(currentOwner(), Duration::max(), lease, std::move(stop))),
      toVoid)
      .value();
}

bool RLock::tryLock() {
  return tryLock(Duration::zero());
}

bool RLock::tryLock(Duration wait) {
  return toBool(present(backend_)->acquire(params(currentOwner(), wait))).value();
}

bool RLock::tryLock(Duration wait, Duration lease) {
  return toBool(present(backend_)->acquire(params(currentOwner(), wait, lease))).value();
}

bool RLock::tryLock(std::stop_token stop, Duration wait, std::optional<Duration> lease) {
  return toBool(present(backend_)->acquire(params(currentOwner(), wait, lease, std::move(stop))))
      .value();
}

void RLock::unlock() {
  released(present(backend_)->release({currentOwner()})).value();
}

bool RLock::forceUnlock() {
  return present(backend_)->forceRelease().value();
}

bool RLock::isLocked() {
  return present(backend_)->isLocked().value();
}

bool RLock::isHeldByCurrentThread() {
  return isHeldBy(currentOwner());
}

bool RLock::isHeldBy(OwnerId owner) {
  return present(backend_)->holdCount(owner).value() > 0;
}

int RLock::getHoldCount() {
  return present(backend_)->holdCount(currentOwner()).value();
}

std::optional<std::chrono::milliseconds> RLock::remainTimeToLive() {
  return present(backend_)->timeToLive().value();
}

const std::string& RLock::getName() const& {
  return present(backend_)->name();
}

std::string RLock::getName() const&& {
  return present(backend_)->name();
}

// The Operations. Each keeps the backend alive, so that it may outlive its handle. A handle that
// was moved from gives an Operation that fails, and not an exception here: `co_await` and start()
// report errors in one way.
Operation<void> RLock::lockAsync(AcquireOptions options, OwnerId owner) {
  if (!backend_) {
    return detail::movedFrom<void>();
  }
  return acquisition<void>(backend_,
                           params(std::move(options), owner, Duration::max(), false),
                           [backend = backend_](Result<Acquired> result) {
                             return obtained<void>(backend, std::move(result), toVoid);
                           });
}

Operation<bool> RLock::tryLockAsync(AcquireOptions options, OwnerId owner) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return acquisition<bool>(backend_,
                           params(std::move(options), owner, Duration::zero(), false),
                           [](const Result<Acquired>& result) { return toBool(result); });
}

// Without an owner the calling thread is the owner, by its number when the Operation is made and
// not when it runs.
ThreadOperation<void> RLock::lockAsync(AcquireOptions options) {
  return inNameOfThread<void>(backend_,
                              [&](OwnerId owner) { return lockAsync(std::move(options), owner); });
}

ThreadOperation<bool> RLock::tryLockAsync(AcquireOptions options) {
  return inNameOfThread<bool>(
      backend_, [&](OwnerId owner) { return tryLockAsync(std::move(options), owner); });
}

ThreadOperation<bool> RLock::tryLockForAsync(Duration wait, std::optional<Duration> lease) {
  return inNameOfThread<bool>(backend_,
                              [&](OwnerId owner) { return tryLockForAsync(wait, lease, owner); });
}

Operation<bool> RLock::tryLockForAsync(Duration wait,
                                       std::optional<Duration> lease,
                                       OwnerId owner) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return acquisition<bool>(backend_,
                           params(owner, wait, lease),
                           [](const Result<Acquired>& result) { return toBool(result); });
}

Operation<void> RLock::lockInterruptiblyAsync(std::stop_token stop,
                                              std::optional<Duration> lease,
                                              OwnerId owner) {
  if (!backend_) {
    return detail::movedFrom<void>();
  }
  return acquisition<void>(backend_,
                           params(owner, Duration::max(), lease, std::move(stop)),
                           [backend = backend_](Result<Acquired> result) {
                             return obtained<void>(backend, std::move(result), toVoid);
                           });
}

ThreadOperation<void> RLock::lockInterruptiblyAsync(std::stop_token stop,
                                                    std::optional<Duration> lease) {
  return inNameOfThread<void>(backend_, [&](OwnerId owner) {
    return lockInterruptiblyAsync(std::move(stop), lease, owner);
  });
}

ThreadOperation<void> RLock::unlockAsync() {
  return inNameOfThread<void>(backend_, [&](OwnerId owner) { return unlockAsync(owner); });
}

Operation<void> RLock::unlockAsync(OwnerId owner) {
  if (!backend_) {
    return detail::movedFrom<void>();
  }
  return operation<void, ReleaseOutcome>(
      [backend = backend_, owner] { return backend->release({owner}); },
      [backend = backend_, owner](LockBackend::Handler<ReleaseOutcome> handler) {
        backend->releaseAsync({owner}, std::move(handler));
      },
      [](const Result<ReleaseOutcome>& result) { return released(result); });
}

Operation<bool> RLock::forceUnlockAsync() {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return operation<bool, bool>([backend = backend_] { return backend->forceRelease(); },
                               [backend = backend_](LockBackend::Handler<bool> handler) {
                                 backend->forceReleaseAsync(std::move(handler));
                               },
                               same<bool>);
}

Operation<bool> RLock::isLockedAsync() {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return operation<bool, bool>([backend = backend_] { return backend->isLocked(); },
                               [backend = backend_](LockBackend::Handler<bool> handler) {
                                 backend->isLockedAsync(std::move(handler));
                               },
                               same<bool>);
}

Operation<bool> RLock::isHeldByCurrentThreadAsync(OwnerId owner) {
  return isHeldByAsync(owner);
}

Operation<bool> RLock::isHeldByAsync(OwnerId owner) {
  if (!backend_) {
    return detail::movedFrom<bool>();
  }
  return operation<bool, int>([backend = backend_, owner] { return backend->holdCount(owner); },
                              [backend = backend_, owner](LockBackend::Handler<int> handler) {
                                backend->holdCountAsync(owner, std::move(handler));
                              },
                              [](const Result<int>& result) -> Result<bool> {
                                if (!result.has_value()) {
                                  return result.error();
                                }
                                return *result > 0;
                              });
}

Operation<int> RLock::getHoldCountAsync(OwnerId owner) {
  if (!backend_) {
    return detail::movedFrom<int>();
  }
  return operation<int, int>([backend = backend_, owner] { return backend->holdCount(owner); },
                             [backend = backend_, owner](LockBackend::Handler<int> handler) {
                               backend->holdCountAsync(owner, std::move(handler));
                             },
                             same<int>);
}

Operation<std::optional<std::chrono::milliseconds>> RLock::remainTimeToLiveAsync() {
  if (!backend_) {
    return detail::movedFrom<std::optional<std::chrono::milliseconds>>();
  }
  using TimeToLive = LockBackend::TimeToLive;
  return operation<TimeToLive, TimeToLive>(
      [backend = backend_] { return backend->timeToLive(); },
      [backend = backend_](LockBackend::Handler<TimeToLive> handler) {
        backend->timeToLiveAsync(std::move(handler));
      },
      same<TimeToLive>);
}

Lease RLock::acquire(AcquireOptions options) {
  const bool endless = options.wait.value_or(Duration::max()) == Duration::max();
  // The new owner would wait for the thread's own hold, which nobody can release while the thread
  // waits. A deadline or a stop token ends such a wait, so only one without either is refused.
  if (endless && !options.stop.stop_possible() && present(backend_)->keeps(currentOwner())) {
    ErrorContext context;
    context.key = backend_->name();
    const std::string client = backend_->place().client;
    if (!client.empty()) {
      context.owner = client + ':' + std::to_string(currentOwner().value);
    }
    throw Error(Errc::wouldDeadlock,
                "this thread keeps the lock by lock() or tryLock(), which shuts out every other "
                "owner; for one more hold of the thread's own give acquire() currentOwner()",
                std::move(context));
  }
  return acquire(std::move(options), newOwner());
}

Lease RLock::acquire(AcquireOptions options, OwnerId owner) {
  // A Lease needs memory in any case, so one more allocation for the Operation does not matter.
  return acquireAsync(std::move(options), owner).get();
}

std::optional<Lease> RLock::tryAcquire(AcquireOptions options, OwnerId owner) {
  return tryAcquireAsync(std::move(options), owner).get();
}

Operation<Lease> RLock::acquireAsync(AcquireOptions options, OwnerId owner) {
  if (!backend_) {
    return detail::movedFrom<Lease>();
  }
  return acquisition<Lease>(backend_,
                            params(std::move(options), owner, Duration::max(), true),
                            [backend = backend_, owner](Result<Acquired> result) {
                              return obtained<Lease>(
                                  backend, std::move(result), [&](detail::Grant grant) {
                                    return Result<Lease>(Lease(backend, owner, std::move(grant)));
                                  });
                            });
}

Operation<std::optional<Lease>> RLock::tryAcquireAsync(AcquireOptions options, OwnerId owner) {
  if (!backend_) {
    return detail::movedFrom<std::optional<Lease>>();
  }
  return acquisition<std::optional<Lease>>(
      backend_,
      params(std::move(options), owner, Duration::zero(), true),
      [backend = backend_, owner](Result<Acquired> result) -> Result<std::optional<Lease>> {
        if (!result.has_value()) {
          return result.error();
        }
        if (!*result) {
          return std::optional<Lease>();
        }
        return std::optional<Lease>(std::in_place, backend, owner, std::move(**result));
      });
}

}  // namespace rlock
