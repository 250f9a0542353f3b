// SPDX-License-Identifier: Apache-2.0

// Code that must not compile, one mistake at a time, and the code to write instead, which must. The
// list of the mistakes, with what the compiler has to say, is in CMakeLists.txt.

#if defined(ASIO_IN_THE_NAME_OF_A_THREAD)
#include <rlock/asio.hpp>
#endif
#include <rlock/rlock.hpp>

#include <chrono>
#include <coroutine>
#include <mutex>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

struct Task {
  struct promise_type {
    Task get_return_object() { return {}; }
    std::suspend_never initial_suspend() { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() {}
  };
};

}  // namespace

#if defined(GUARD_OVER_A_LOCK)
void mistake(rlock::RLock& lock) {
  const std::lock_guard guard(lock);
}
#elif defined(UNIQUE_LOCK_OVER_A_LOCK)
void mistake(rlock::FencedLock& lock) {
  const std::unique_lock guard(lock);
}
#elif defined(SCOPED_LOCK_OVER_A_LOCK)
void mistake(rlock::RLock& lock) {
  const std::scoped_lock guard(lock);
}
#elif defined(SCOPED_LOCK_OVER_SEVERAL)
void mistake(rlock::RLock& lock, std::mutex& mutex) {
  const std::scoped_lock guard(mutex, lock);
}
#elif defined(AWAITED_IN_THE_NAME_OF_A_THREAD)
Task mistake(rlock::RLock lock) {
  co_await lock.lockAsync();
}
#elif defined(AWAITED_RELEASE_IN_THE_NAME_OF_A_THREAD)
Task mistake(rlock::RLock lock) {
  auto release = lock.unlockAsync();
  co_await release;
}
#elif defined(ASIO_IN_THE_NAME_OF_A_THREAD)
void mistake(rlock::RLock lock) {
  rlock::useAsio(lock.lockAsync());
}
#elif defined(TRY_LOCK_IGNORED)
void mistake(rlock::RLock& lock) {
  lock.tryLock(5s);
}
#elif defined(LEASE_IGNORED)
void mistake(rlock::RLock& lock) {
  lock.acquire();
}
#elif defined(TRY_ACQUIRE_IGNORED)
void mistake(rlock::RLock& lock) {
  lock.tryAcquire();
}
#elif defined(TOKEN_IGNORED)
void mistake(rlock::FencedLock& lock) {
  lock.tryLockAndGetToken();
}
#elif defined(OPERATION_NOT_STARTED)
void mistake(rlock::RLock& lock) {
  lock.unlockAsync();
}
#elif defined(PERMITS_NOT_TAKEN)
void mistake(rlock::Semaphore& semaphore) {
  semaphore.tryAcquire(3);
}
#elif defined(PERMIT_ID_IGNORED)
void mistake(rlock::PermitExpirableSemaphore& semaphore) {
  semaphore.acquire(10s);
}
#elif defined(PERMIT_IGNORED)
void mistake(rlock::PermitExpirableSemaphore& semaphore) {
  semaphore.hold();
}
#elif defined(LATCH_NOT_OPEN)
void mistake(rlock::CountDownLatch& latch) {
  latch.await(1s);
}
#elif defined(PERMIT_SWAPPED_WITH_A_LEASE)
void mistake(rlock::Permit& permit, rlock::Lease& lease) {
  swap(permit, lease);
}
#elif defined(LEASE_COPIED)
rlock::Lease mistake(rlock::Lease& lease) {
  return lease;
}
#elif defined(MUTEX_TRY_LOCK_IGNORED)
void mistake(rlock::Mutex& mutex) {
  mutex.try_lock();
}
#else
void guarded(rlock::Mutex& mutex, rlock::Mutex& other) {
  const std::scoped_lock guard(mutex, other);
}

void held(rlock::RLock& lock) {
  const rlock::Lease lease = lock.acquire();
}

Task awaited(rlock::RLock lock) {
  const rlock::OwnerId owner = rlock::newOwner();
  co_await lock.lockAsync(owner);
  co_await lock.unlockAsync(owner);
}

void prepared(rlock::RLock& lock, rlock::FencedLock& fenced) {
  std::vector<rlock::Operation<bool>> attempts;
  attempts.push_back(lock.tryLockAsync({}));
  attempts.push_back(lock.tryLockAsync(1s));
  attempts.push_back(lock.tryLockAsync({.wait = 1s}));
  attempts.push_back(lock.tryLockAsync(1s, 10s));
  attempts.push_back(lock.tryLockAsync(rlock::newOwner()));
  attempts.push_back(lock.tryLockAsync({}, rlock::newOwner()));
  attempts.push_back(lock.tryLockAsync(1s, {}, rlock::newOwner()));
  attempts.push_back(lock.tryLockAsync(std::stop_token(), 1s));
  attempts.push_back(lock.tryLockAsync(std::stop_token(), 1s, {}, rlock::newOwner()));
  rlock::Operation<void> locking = lock.lockAsync({});
  locking = lock.lockAsync();
  locking = lock.lockAsync(10s);
  locking = lock.lockAsync(10s, rlock::newOwner());
  locking = lock.unlockAsync();
  auto token = fenced.lockAndGetTokenAsync({});
  token = fenced.lockAndGetTokenAsync(10s);
  auto tried = fenced.tryLockAndGetTokenAsync({});
  tried = fenced.tryLockAndGetTokenAsync(1s, 10s);
}
#endif
