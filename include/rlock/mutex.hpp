// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/duration.hpp>
#include <rlock/export.hpp>
#include <rlock/lease.hpp>
#include <rlock/lock.hpp>
#include <rlock/read_write_lock.hpp>

#include <chrono>

namespace rlock {

/// An RLock that meets the standard's Lockable and TimedLockable, for `std::lock_guard`,
/// `std::unique_lock`, `std::scoped_lock` and `std::lock`. Not recursive and bound to no thread: it
/// keeps a Lease inside, and whoever calls unlock() gives that back.
///
/// **Thread safety:** one thread at a time may lock and unlock one Mutex; use one Mutex object per
/// thread or task, all over the same lock. Different Mutex objects exclude each other.
///
/// lock() and try_lock*() throw `rlock::Error` when no answer can be had. unlock() never throws: it
/// sends the release, returns without waiting for the answer, and leaves a failure to the log.
class RLOCK_EXPORT Mutex {
 public:
  /// Not locked yet; nothing is sent.
  explicit Mutex(RLock lock) noexcept;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  ~Mutex() = default;

  ///@{
  /// As the standard says for Lockable and TimedLockable; try_lock() is one attempt.
  /// @throws rlock::Error  as RLock::acquire() and RLock::tryAcquire()
  /// @par Cost  as RLock::lock()
  void lock();
  bool try_lock();
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return tryLockFor(wait);
  }
  template <class Clock, class Span>
  bool try_lock_until(const std::chrono::time_point<Clock, Span>& deadline) {
    const auto now = Clock::now();
    // A difference of time points can overflow, and then a deadline long past would be for ever.
    return tryLockFor(deadline > now ? Duration(deadline - now) : Duration::zero());
  }
  ///@}
  /// Sends the release and does not wait for the answer. Does nothing while unlocked.
  void unlock() noexcept;

  /// The hold, empty while unlocked.
  [[nodiscard]] const Lease& lease() const noexcept { return lease_; }

 private:
  bool tryLockFor(Duration wait);

  RLock lock_;
  Lease lease_;
};

/// Mutex with the standard's SharedTimedLockable on top, for `std::shared_lock`, over the two sides
/// of a read-write lock; given a single plain lock, the shared side excludes as well.
///
/// **Thread safety:** as Mutex: also one SharedMutex for each that shares.
class RLOCK_EXPORT SharedMutex {
 public:
  /// Shared locking is its read lock, exclusive locking its write lock.
  explicit SharedMutex(const ReadWriteLock& lock);
  /// Both sides are the same lock: shared locking excludes too.
  explicit SharedMutex(RLock lock) noexcept;
  /// @param sharedSide     such as the read lock of a read-write lock
  /// @param exclusiveSide  such as its write lock
  SharedMutex(RLock sharedSide, RLock exclusiveSide) noexcept;
  SharedMutex(const SharedMutex&) = delete;
  SharedMutex& operator=(const SharedMutex&) = delete;
  ~SharedMutex() = default;

  ///@{
  /// The exclusive side, as in Mutex.
  void lock() { exclusive_.lock(); }
  bool try_lock() { return exclusive_.try_lock(); }
  template <class Rep, class Period>
  bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return exclusive_.try_lock_for(wait);
  }
  template <class Clock, class Span>
  bool try_lock_until(const std::chrono::time_point<Clock, Span>& deadline) {
    return exclusive_.try_lock_until(deadline);
  }
  void unlock() noexcept { exclusive_.unlock(); }
  ///@}

  ///@{
  /// The shared side, as in Mutex.
  void lock_shared() { shared_.lock(); }
  bool try_lock_shared() { return shared_.try_lock(); }
  template <class Rep, class Period>
  bool try_lock_shared_for(const std::chrono::duration<Rep, Period>& wait) {
    return shared_.try_lock_for(wait);
  }
  template <class Clock, class Span>
  bool try_lock_shared_until(const std::chrono::time_point<Clock, Span>& deadline) {
    return shared_.try_lock_until(deadline);
  }
  void unlock_shared() noexcept { shared_.unlock(); }
  ///@}

 private:
  Mutex shared_;
  Mutex exclusive_;
};

}  // namespace rlock
