// SPDX-License-Identifier: Apache-2.0
#include <rlock/mutex.hpp>

#include <utility>

namespace rlock {

Mutex::Mutex(RLock lock) noexcept : lock_(std::move(lock)) {}

void Mutex::lock() {
  lease_ = lock_.acquire();
}

bool Mutex::try_lock() {
  return tryLockFor(Duration::zero());
}

bool Mutex::tryLockFor(Duration wait) {
  std::optional<Lease> lease = lock_.tryAcquire({.wait = wait});
  if (!lease) {
    return false;
  }
  lease_ = std::move(*lease);
  return true;
}

void Mutex::unlock() noexcept {
  lease_ = Lease();
}

SharedMutex::SharedMutex(const ReadWriteLock& lock)
    : SharedMutex(lock.readLock(), lock.writeLock()) {}

SharedMutex::SharedMutex(RLock lock) noexcept : shared_(lock), exclusive_(std::move(lock)) {}

SharedMutex::SharedMutex(RLock sharedSide, RLock exclusiveSide) noexcept
    : shared_(std::move(sharedSide)), exclusive_(std::move(exclusiveSide)) {}

}  // namespace rlock
