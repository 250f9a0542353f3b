// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/duration.hpp>
#include <rlock/export.hpp>
#include <rlock/lease.hpp>
#include <rlock/lock.hpp>
#include <rlock/owner.hpp>
#include <rlock/read_write_lock.hpp>

#include <chrono>
#include <cstdint>
#include <list>

namespace rlock {

/// An RLock that meets the standard's Lockable and TimedLockable, for `std::lock_guard`,
/// `std::unique_lock`, `std::scoped_lock` and `std::lock`. It is not recursive and not bound to a
/// thread: it keeps a Lease inside for each lock() that succeeded, and each unlock() gives one of
/// them back.
///
/// **Thread safety:** Safe to call concurrently from any thread, like `std::mutex`: threads that
/// share one Mutex exclude each other, and so do different Mutex objects over the same lock, in one
/// process or several.
///
/// lock() and try_lock*() throw `rlock::Error` when no answer can be had. unlock() never throws: it
/// sends the release, returns without waiting for the answer, and leaves a failure to the log. Over
/// a lock of one node the release is ahead of whatever the same thread sends next, so that a thread
/// that unlocks and locks again does not meet its own hold.
class RLOCK_EXPORT Mutex {
 public:
  /// The new Mutex is not locked; nothing is sent.
  explicit Mutex(RLock lock) noexcept;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;
  /// Releases the holds that are left, in the background.
  ~Mutex() = default;

  ///@{
  /// As the standard says for Lockable and TimedLockable; try_lock() is one attempt. False while
  /// anybody holds the lock, the calling thread and this object included.
  /// @throws rlock::Error  as RLock::acquire() and RLock::tryAcquire(); lock() `wouldDeadlock` when
  ///                       the calling thread has locked this object and still holds it
  /// @par Cost  as RLock::lock()
  void lock();
  [[nodiscard]] bool try_lock();
  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return tryLockFor(wait);
  }
  template <class Clock, class Span>
  [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Span>& deadline) {
    return tryLockFor(timeLeft(deadline.time_since_epoch(), Clock::now().time_since_epoch()));
  }
  ///@}
  /// Sends the release and does not wait for the answer. Does nothing while unlocked. There may be
  /// several holds: on the shared side of a SharedMutex, and after a loss. Then the call gives back
  /// the calling thread's last one; a lost one when the thread has none; or else the oldest.
  void unlock() noexcept;

  /// The hold, empty while unlocked; of several holds the calling thread's last one, or else the
  /// last. The reference is valid until that hold is unlocked.
  [[nodiscard]] const Lease& lease() const noexcept;

 private:
  struct Held {
    OwnerId thread;
    Lease lease;
  };
  using Holds = std::list<Held>;

  friend class SharedMutex;

  // Time points of a clock as lengths since its epoch: their difference can overflow, and so can a
  // time point of a coarse unit that is compared with one in nanoseconds.
  [[nodiscard]] static constexpr Duration timeLeft(Duration deadline, Duration now) noexcept {
    if (deadline <= now) {
      return Duration::zero();
    }
    const std::chrono::nanoseconds begin = now.nanoseconds();
    const bool beyond = begin < std::chrono::nanoseconds::zero() &&
                        deadline.nanoseconds() > std::chrono::nanoseconds::max() + begin;
    return deadline.isInfinite() || beyond ? Duration::max()
                                           : Duration(deadline.nanoseconds() - begin);
  }

  void lockOnceMore();
  [[nodiscard]] bool heldByThisThread() const noexcept;
  bool tryLockFor(Duration wait);
  void keep(Holds& fresh) noexcept;
  [[nodiscard]] bool ofParent() const noexcept;

  RLock lock_;
  const std::uint32_t forkGeneration_;
  mutable detail::AnnotatedMutex mutex_;
  Holds holds_ RLOCK_GUARDED_BY(mutex_);  // in the order in which they were obtained
  const Lease none_;                      // the answer of lease() while nothing is held
};

/// Mutex with the standard's SharedTimedLockable on top, for `std::shared_lock`, over the two sides
/// of a read-write lock; given a single plain lock, the shared side excludes as well.
///
/// **Thread safety:** Safe to call concurrently from any thread, like `std::shared_mutex`. A thread
/// that holds the shared side must not wait for either side, of this object or another over the
/// same lock: a writer that waits in between lets neither pass, and the exclusive side waits for
/// all holds of the shared side.
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
  [[nodiscard]] bool try_lock() { return exclusive_.try_lock(); }
  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_for(const std::chrono::duration<Rep, Period>& wait) {
    return exclusive_.try_lock_for(wait);
  }
  template <class Clock, class Span>
  [[nodiscard]] bool try_lock_until(const std::chrono::time_point<Clock, Span>& deadline) {
    return exclusive_.try_lock_until(deadline);
  }
  void unlock() noexcept { exclusive_.unlock(); }
  ///@}

  ///@{
  /// The shared side, as in Mutex, except that it may be held several times. unlock_shared() gives
  /// one of these holds back and leaves the others.
  void lock_shared() { shared_.lockOnceMore(); }
  [[nodiscard]] bool try_lock_shared() { return shared_.try_lock(); }
  template <class Rep, class Period>
  [[nodiscard]] bool try_lock_shared_for(const std::chrono::duration<Rep, Period>& wait) {
    return shared_.try_lock_for(wait);
  }
  template <class Clock, class Span>
  [[nodiscard]] bool try_lock_shared_until(const std::chrono::time_point<Clock, Span>& deadline) {
    return shared_.try_lock_until(deadline);
  }
  void unlock_shared() noexcept { shared_.unlock(); }
  ///@}

 private:
  Mutex shared_;
  Mutex exclusive_;
};

}  // namespace rlock
