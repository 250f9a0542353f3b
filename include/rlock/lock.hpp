// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/duration.hpp>
#include <rlock/export.hpp>
#include <rlock/lease.hpp>
#include <rlock/operation.hpp>
#include <rlock/owner.hpp>
#include <rlock/sync_policy.hpp>

#include <chrono>
#include <concepts>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace rlock {

class FencedLock;
class RLock;

namespace detail {
struct LockAccess;

/// The locks that the standard's guards must not guard: the destructor of a guard unlocks,
/// RLock::unlock() throws when the hold was lost, and an exception out of a destructor ends the
/// process.
template <class Lock>
concept NotForGuards = std::same_as<Lock, RLock> || std::same_as<Lock, FencedLock>;
}  // namespace detail

/// The options of one acquisition. An aggregate: use designated initialisers.
struct AcquireOptions {
  /// How long to wait while another owner holds the lock. Empty: for ever (`lockAsync`, `acquire`)
  /// or one attempt (`tryLockAsync`, `tryAcquire`). Zero or negative: one attempt.
  std::optional<Duration> wait{};
  /// Lifetime of the hold on the server, more than 0 and at most 365 days, rounded up to 1 ms.
  /// Empty: `Options::watchdogTimeout`, renewed by the watchdog until released.
  std::optional<Duration> lease{};
  /// The longest validity of the hold, renewed or not; counted from the acquisition, on this
  /// machine's clock. More than 0; with a lease the smaller of the two counts.
  std::optional<Duration> maxHold{};
  /// A stop request ends the call with `cancelled`.
  std::stop_token stop{};
  /// Names the hold in logs and inspection; at most 256 bytes, else `invalidArgument`. Kept beside
  /// the lock, under a key of its own.
  std::string label{};
  /// The policy says who must have the hold before the call ends well, and each of its renewals.
  /// Empty: `Options::sync`. A policy that is not met undoes the acquisition, and the call fails
  /// with `notSynced`.
  std::optional<SyncPolicy> sync{};
};

/// A re-entrant lock shared by every client that uses the same name on the same Redis, Redisson's
/// clients included (`RLock` there). A cheap handle: copies refer to the same lock.
///
/// **Thread safety:** Safe to call concurrently from any thread.
///
/// The hold belongs to an owner: for the blocking calls the calling thread (currentOwner()),
/// otherwise the OwnerId given. An owner that holds the lock may take it again and must release it
/// as often. Without a lease the watchdog renews the hold every third of `Options::watchdogTimeout`
/// until it is released, its thread ends, or the server says it is gone.
///
/// A call blocks until it has its answer, and costs one round trip where nothing else is said; an
/// Async twin returns at once and costs the same. The methods are those of Redisson's `RLock`
/// with the same name.
///
/// Every call throws `closed` after Client::close(), `forked` in a child process, `wouldDeadlock`
/// when it blocks and is made on the client's loop thread, `connectionFailed` or `timedOut` when no
/// answer could be had within the call's time, `authenticationFailed`, `denied`, `wrongType`,
/// `outOfMemory`, `readOnly` or `serverError` when the server refuses, `notSynced` when too few
/// replicas have it, `protocolError` when what answers is no Redis, `overloaded` beyond
/// `Options::maxOperations`, and `invalidArgument` on a handle that was moved from. Calls without a
/// time limit of their own end within `Options::callTimeout`; lock() keeps trying for
/// `Options::outageTimeout` while no node answers. A request whose reply is lost takes effect once
/// or not at all, and never silently: see docs/semantics.md.
class RLOCK_EXPORT RLock {
 public:
  /// For Client, which makes the locks.
  explicit RLock(std::shared_ptr<detail::LockBackend> backend) noexcept;

  /// Waits for the lock without limit and lets the watchdog keep it.
  /// @throws Error  as said for the class
  /// @par Cost    free: 1 round trip. Contended: 2, then 1 per wake-up; sleeps meanwhile.
  /// @par Source  Redisson `RLock.lock()`; lua/lock_acquire.lua
  void lock();
  /// As lock(), but the hold ends after `lease` unless released before.
  /// @param lease  more than 0, at most 365 days, rounded up to 1 ms; else `invalidArgument`
  void lock(Duration lease);
  /// As lock(), or as lock(lease) if there is a lease; a stop request ends the wait with
  /// `cancelled`, and nothing is held then.
  void lockInterruptibly(std::stop_token stop, std::optional<Duration> lease = {});

  /// One attempt. @returns true when this thread holds the lock now.
  /// @par Cost    1 round trip
  /// @par Source  Redisson `RLock.tryLock()`; lua/lock_acquire.lua
  [[nodiscard]] bool tryLock();
  /// Waits at most `wait` (zero or less: one attempt; max(): for ever). The watchdog keeps the
  /// hold.
  /// @returns true when held, false when another owner held it all the time
  /// @par Cost    as lock()
  [[nodiscard]] bool tryLock(Duration wait);
  /// As tryLock(wait), with a hold that ends after `lease`, which is as for lock(lease).
  [[nodiscard]] bool tryLock(Duration wait, Duration lease);
  /// As above; a stop request ends the wait with `cancelled`.
  [[nodiscard]] bool tryLock(std::stop_token stop,
                             Duration wait,
                             std::optional<Duration> lease = {});

  /// Gives one hold of this thread back. The last one goes straight to the next waiter of this
  /// client, if there is one, within Options::handOverLimit and handOverTime.
  /// @throws Error  `notOwner` when this thread does not hold the lock, or no longer
  /// @par Cost    1 round trip
  /// @par Source  Redisson `RLock.unlock()`; lua/lock_release.lua, lua/lock_hand_over.lua
  void unlock();

  /// Frees the lock, whoever holds it, and tells the holder: in this client, or in another client
  /// of this library, which hears of it within a round trip if it has held something for 100 ms,
  /// else at its next renewal or release.
  /// @returns true when somebody held it
  /// @par Cost    1 round trip
  /// @par Source  Redisson `RLock.forceUnlock()`; lua/lock_force_release.lua
  bool forceUnlock();

  /// Whether anybody holds the lock. 1 round trip.
  bool isLocked();
  /// Whether the calling thread holds the lock, according to the server. 1 round trip.
  bool isHeldByCurrentThread();
  /// Whether this client's `owner` holds the lock, according to the server. 1 round trip.
  bool isHeldBy(OwnerId owner);
  /// How often the calling thread holds the lock; 0 when it does not. 1 round trip.
  int getHoldCount();
  /// How long the present hold lasts unless renewed. Empty: nobody holds the lock;
  /// `milliseconds::max()`: without end. 1 round trip.
  std::optional<std::chrono::milliseconds> remainTimeToLive();
  ///@{
  /// The name given to the factory. A temporary handle returns it by value. No round trip.
  /// @throws Error  `invalidArgument` when the handle was moved from
  const std::string& getName() const&;
  std::string getName() const&&;
  ///@}

  ///@{
  /// The same as an Operation, which says how to start it. Nothing is sent before that. Without
  /// `options.wait`, lockAsync() waits for ever and tryLockAsync() makes one attempt. Without
  /// `owner` the owner is the thread that makes the operation, not the one that starts it. Such an
  /// operation cannot be awaited, and on the client's loop thread it fails with `invalidArgument`.
  ThreadOperation<void> lockAsync() { return lockAsync(AcquireOptions{}); }
  ThreadOperation<void> lockAsync(AcquireOptions options);
  Operation<void> lockAsync(AcquireOptions options, OwnerId owner);
  ThreadOperation<bool> tryLockAsync() { return tryLockAsync(AcquireOptions{}); }
  ThreadOperation<bool> tryLockAsync(AcquireOptions options);
  Operation<bool> tryLockAsync(AcquireOptions options, OwnerId owner);
  // The forms without options exist for `co_await lock.lockAsync(owner)`: GCC before 13 destroys an
  // aggregate twice that is made inside a co_await expression. They are templates, so that `{}`
  // still means options.
  template <std::same_as<OwnerId> Owner>
  Operation<void> lockAsync(Owner owner) {
    return lockAsync(AcquireOptions{}, owner);
  }
  template <std::same_as<OwnerId> Owner>
  Operation<bool> tryLockAsync(Owner owner) {
    return tryLockAsync(AcquireOptions{}, owner);
  }
  template <std::convertible_to<Duration> Lifetime>
  ThreadOperation<void> lockAsync(Lifetime lease) {
    return lockAsync(AcquireOptions{.lease = lease});
  }
  template <std::convertible_to<Duration> Lifetime>
  Operation<void> lockAsync(Lifetime lease, OwnerId owner) {
    return lockAsync(AcquireOptions{.lease = lease}, owner);
  }
  template <std::convertible_to<Duration> Wait>
  ThreadOperation<bool> tryLockAsync(Wait wait, std::optional<Duration> lease = {}) {
    return tryLockForAsync(wait, lease);
  }
  template <std::convertible_to<Duration> Wait>
  Operation<bool> tryLockAsync(Wait wait, std::optional<Duration> lease, OwnerId owner) {
    return tryLockForAsync(wait, lease, owner);
  }
  ThreadOperation<bool> tryLockAsync(std::stop_token stop,
                                     Duration wait,
                                     std::optional<Duration> lease = {}) {
    return tryLockAsync(AcquireOptions{.wait = wait, .lease = lease, .stop = std::move(stop)});
  }
  Operation<bool> tryLockAsync(std::stop_token stop,
                               Duration wait,
                               std::optional<Duration> lease,
                               OwnerId owner) {
    return tryLockAsync(AcquireOptions{.wait = wait, .lease = lease, .stop = std::move(stop)},
                        owner);
  }
  ThreadOperation<void> lockInterruptiblyAsync(std::stop_token stop,
                                               std::optional<Duration> lease = {});
  Operation<void> lockInterruptiblyAsync(std::stop_token stop,
                                         std::optional<Duration> lease,
                                         OwnerId owner);
  ThreadOperation<void> unlockAsync();
  Operation<void> unlockAsync(OwnerId owner);
  Operation<bool> forceUnlockAsync();
  Operation<bool> isLockedAsync();
  Operation<bool> isHeldByCurrentThreadAsync(OwnerId owner = currentOwner());
  Operation<bool> isHeldByAsync(OwnerId owner);
  Operation<int> getHoldCountAsync(OwnerId owner = currentOwner());
  Operation<std::optional<std::chrono::milliseconds>> remainTimeToLiveAsync();
  ///@}

  /// Acquires and returns the hold as an object. Waits for ever unless `options.wait` says
  /// otherwise. Without `owner` the hold has an owner of its own, so a thread that already holds
  /// the lock is shut out like any other.
  /// @throws Error  also `timedOut` when `options.wait` is over; `wouldDeadlock` when the calling
  ///                thread keeps the lock by lock() or tryLock() and neither `owner`, nor a wait
  ///                nor a stop token is given
  /// @par Cost    as lock()
  Lease acquire(AcquireOptions options = {});
  /// As above, for this owner: with currentOwner() a thread that holds the lock may take it again.
  Lease acquire(AcquireOptions options, OwnerId owner);
  /// As acquire(), but empty when the lock was not obtained in time; one attempt when
  /// `options.wait` is empty.
  [[nodiscard]] std::optional<Lease> tryAcquire(AcquireOptions options = {},
                                                OwnerId owner = newOwner());
  ///@{
  /// As acquire() and tryAcquire(), as an Operation.
  Operation<Lease> acquireAsync() { return acquireAsync(AcquireOptions{}, newOwner()); }
  Operation<Lease> acquireAsync(AcquireOptions options, OwnerId owner = newOwner());
  Operation<std::optional<Lease>> tryAcquireAsync() {
    return tryAcquireAsync(AcquireOptions{}, newOwner());
  }
  Operation<std::optional<Lease>> tryAcquireAsync(AcquireOptions options,
                                                  OwnerId owner = newOwner());
  ///@}

 private:
  friend struct detail::LockAccess;

  ThreadOperation<bool> tryLockForAsync(Duration wait, std::optional<Duration> lease);
  Operation<bool> tryLockForAsync(Duration wait, std::optional<Duration> lease, OwnerId owner);

  std::shared_ptr<detail::LockBackend> backend_;
};

/// @cond
namespace detail {

/// Gives the library's groups of locks access to the backends of their members.
struct LockAccess {
  static const std::shared_ptr<LockBackend>& backend(const RLock& lock) noexcept {
    return lock.backend_;
  }
};

}  // namespace detail
/// @endcond

}  // namespace rlock

/// @cond
namespace std {

template <rlock::detail::NotForGuards Lock>
class lock_guard<Lock> {
  static_assert(!rlock::detail::NotForGuards<Lock>,
                "unlock() throws when the hold was lost: guard an rlock::Mutex, or use acquire()");
};

template <rlock::detail::NotForGuards Lock>
class unique_lock<Lock> {
  static_assert(!rlock::detail::NotForGuards<Lock>,
                "unlock() throws when the hold was lost: guard an rlock::Mutex, or use acquire()");
};

template <rlock::detail::NotForGuards Lock>
class scoped_lock<Lock> {
  static_assert(!rlock::detail::NotForGuards<Lock>,
                "unlock() throws when the hold was lost: guard an rlock::Mutex, or use acquire()");
};

template <class First, class Second, class... Rest>
requires(rlock::detail::NotForGuards<First> || rlock::detail::NotForGuards<Second> ||
         (rlock::detail::NotForGuards<Rest> || ...)) class scoped_lock<First, Second, Rest...> {
  static_assert(!(rlock::detail::NotForGuards<First> || rlock::detail::NotForGuards<Second> ||
                  (rlock::detail::NotForGuards<Rest> || ...)),
                "unlock() throws when the hold was lost: guard an rlock::Mutex, or use acquire()");
};

}  // namespace std
/// @endcond
