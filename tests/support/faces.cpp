// SPDX-License-Identifier: Apache-2.0
#include "support/faces.hpp"

namespace rlock::test {

template std::future<Result<void>> startBy(Face face, Operation<void> operation);
template std::future<Result<bool>> startBy(Face face, Operation<bool> operation);
template std::future<Result<int>> startBy(Face face, Operation<int> operation);
template std::future<Result<std::int64_t>> startBy(Face face, Operation<std::int64_t> operation);
template std::future<Result<Lease>> startBy(Face face, Operation<Lease> operation);
template Result<void> runBy(Face face, Operation<void> operation);
template Result<bool> runBy(Face face, Operation<bool> operation);
template Result<int> runBy(Face face, Operation<int> operation);
template Result<std::int64_t> runBy(Face face, Operation<std::int64_t> operation);
template Result<Lease> runBy(Face face, Operation<Lease> operation);

namespace {

template <class T, class F>
Result<T> caught(F call) {
  try {
    if constexpr (std::is_void_v<T>) {
      call();
      return {};
    } else {
      return call();
    }
  } catch (const Error& error) {
    return error;
  }
}

}  // namespace

Result<void> FaceLock::lock(OwnerId owner, std::optional<Duration> lease) {
  if (direct(owner)) {
    return caught<void>([&] { lease ? lock_.lock(*lease) : lock_.lock(); });
  }
  AcquireOptions options;
  options.lease = lease;
  return runBy(face_, lock_.lockAsync(std::move(options), owner));
}

Result<bool> FaceLock::tryLock(OwnerId owner,
                               std::optional<Duration> wait,
                               std::optional<Duration> lease) {
  if (direct(owner)) {
    return caught<bool>([&] {
      if (lease) {
        return lock_.tryLock(wait.value_or(Duration::zero()), *lease);
      }
      return wait ? lock_.tryLock(*wait) : lock_.tryLock();
    });
  }
  AcquireOptions options;
  options.wait = wait;
  options.lease = lease;
  return runBy(face_, lock_.tryLockAsync(std::move(options), owner));
}

Result<void> FaceLock::unlock(OwnerId owner) {
  if (direct(owner)) {
    return caught<void>([&] { lock_.unlock(); });
  }
  return runBy(face_, lock_.unlockAsync(owner));
}

Result<bool> FaceLock::forceUnlock() {
  return face_ == Face::blocking ? caught<bool>([&] { return lock_.forceUnlock(); })
                                 : runBy(face_, lock_.forceUnlockAsync());
}

bool FaceLock::isLocked() {
  return face_ == Face::blocking ? lock_.isLocked() : runBy(face_, lock_.isLockedAsync()).value();
}

bool FaceLock::isHeldBy(OwnerId owner) {
  return face_ == Face::blocking ? lock_.isHeldBy(owner)
                                 : runBy(face_, lock_.isHeldByAsync(owner)).value();
}

bool FaceLock::isHeldByCurrentThread() {
  return face_ == Face::blocking ? lock_.isHeldByCurrentThread()
                                 : runBy(face_, lock_.isHeldByCurrentThreadAsync()).value();
}

int FaceLock::holdCount(OwnerId owner) {
  return direct(owner) ? lock_.getHoldCount()
                       : runBy(face_, lock_.getHoldCountAsync(owner)).value();
}

}  // namespace rlock::test
