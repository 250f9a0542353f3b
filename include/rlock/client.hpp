// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/back_off.hpp>
#include <rlock/count_down_latch.hpp>
#include <rlock/export.hpp>
#include <rlock/fenced_lock.hpp>
#include <rlock/inspection.hpp>
#include <rlock/lock.hpp>
#include <rlock/operation.hpp>
#include <rlock/options.hpp>
#include <rlock/permit_expirable_semaphore.hpp>
#include <rlock/read_write_lock.hpp>
#include <rlock/semaphore.hpp>
#include <rlock/stats.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock {

namespace detail {
class ClientCore;
}

/// The way to one Redis: its connections, the loop thread, the watchdog, and the id that all holds
/// of this client carry. Make one per process and share it.
///
/// **Thread safety:** Safe to call concurrently from any thread; move and destruction one thread at
/// a time.
///
/// Handles may outlive the client and then throw `closed`. After `fork()` the client is unusable in
/// the child (`forked`) and untouched in the parent.
class RLOCK_EXPORT Client {
 public:
  /// Connects by URI: `redis://[user:password@]host[:port][/db][?option=value]` or
  /// `unix:///path.sock`; docs/configuration.md lists the options.
  /// @throws Error  `invalidArgument`, `connectionFailed`, `authenticationFailed`, `denied`
  /// @par Blocking  until connected, at most `connectTimeout`
  static Client connect(std::string_view uri);
  /// Connects by Options. With `Options::loop` it returns at once and connects when that loop runs;
  /// call it on the loop's thread or before the loop runs.
  static Client connect(const Options& options);

  ///@{
  /// What is moved from may only be assigned to or destroyed; what is assigned to is closed first.
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ///@}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  /// close() with `Options::closeTimeout`. Safe on any thread, also on the loop thread. Never
  /// throws.
  ~Client();

  /// The re-entrant lock of that name. No round trip.
  /// @param name  1 byte to 64 KiB, any bytes; else `invalidArgument`
  RLock getLock(std::string_view name);
  /// The semaphore of that name whose permits have ids and may expire. As getLock().
  PermitExpirableSemaphore getPermitExpirableSemaphore(std::string_view name);
  /// The semaphore of that name. No round trip.
  /// @param name  1 byte to 64 KiB, any bytes; else `invalidArgument`
  Semaphore getSemaphore(std::string_view name);
  /// The latch of that name. No round trip.
  /// @param name  1 byte to 64 KiB, any bytes; else `invalidArgument`
  CountDownLatch getCountDownLatch(std::string_view name);

  ///@{
  /// What stands under a name: kind, holders with their counts and labels, lifetime, waiters.
  /// @returns empty when nothing does
  /// @par Cost    1 round trip
  /// @par Source  lua/inspect.lua
  std::optional<LockInfo> inspect(std::string_view name);
  Operation<std::optional<LockInfo>> inspectAsync(std::string_view name);
  ///@}
  ///@{
  /// What stands under all names that match, sorted by name; nothing of other kinds. Names that
  /// come or go meanwhile may be missing.
  /// @param pattern  as of the SCAN command: `*`, `?`, `[...]`, and `\\` before what is meant as it
  /// is
  /// @par Errors  `timedOut` when the whole walk takes longer than Options::callTimeout; errors say
  /// how far it came
  /// @par Cost    a round trip for every 500 keys of the database and one for each that matches, of
  /// which at most 64 are under way at once; never KEYS
  std::vector<LockInfo> list(std::string_view pattern = "*");
  Operation<std::vector<LockInfo>> listAsync(std::string_view pattern = "*");
  ///@}

  /// The re-entrant lock of that name that is given to those who wait in the order in which the
  /// server heard of them, whichever client they are of. A waiter that dies keeps the others for at
  /// most `Options::fairWaiterLease`. No round trip.
  /// @param name  as for getLock()
  /// @par Cost    free: 1 round trip. Contended: as getLock(), and one more every third of
  ///              `fairWaiterLease` while waiting; one to leave without the lock.
  /// @par Source  Redisson `RedissonClient.getFairLock()`; lua/fair_acquire.lua
  RLock getFairLock(std::string_view name);
  /// The lock of that name whose owner cannot take it again: that throws `reentry`, whichever
  /// handle is used, and changes nothing. No round trip.
  /// @param name  as for getLock()
  /// @par Source  Redisson `RedissonClient.getNonReentrantLock()`; lua/lock_acquire.lua
  RLock getNonReentrantLock(std::string_view name);
  /// Both: getFairLock() whose owner cannot take it again.
  /// @param name  as for getLock()
  /// @par Source  Redisson `RedissonClient.getNonReentrantFairLock()`; lua/fair_acquire.lua
  RLock getNonReentrantFairLock(std::string_view name);

  /// The read-write lock of that name. No round trip.
  /// @param name  as for getLock()
  ReadWriteLock getReadWriteLock(std::string_view name);
  /// The re-entrant lock whose holds have fencing tokens. No round trip.
  /// @param name  as for getLock()
  FencedLock getFencedLock(std::string_view name);
  /// The lock of getLock() (on one name they exclude each other), whose waiters subscribe to
  /// nothing and look again after pauses. For locks that are held for a few milliseconds and wanted
  /// by few. No round trip.
  /// @param name     as for getLock()
  /// @param backOff  the pauses; also ended by the end of the holder's lease and of the wait
  RLock getSpinLock(std::string_view name, const BackOff& backOff = BackOff::exponential());
  /// The lock of the Redis documentation: one key with the owner as its value, set if it does not
  /// exist, with an expiry. Programs in any language that keep to that pattern share it. Not
  /// re-entrant: an owner that takes it again gets `reentry`. No round trip.
  /// @param name  as for getLock(); the key itself
  RLock getSimpleLock(std::string_view name);

  ///@{
  /// The UUID that stands in every owner field of this client; by value from a client that is about
  /// to go.
  const std::string& id() const&;
  std::string id() const&&;
  ///@}
  /// Counters since connect, and the present numbers of holds, waiters and channels. No round trip.
  Stats stats() const;

  /// Stops renewing, ends every waiting call with `closed`, releases what is held if the server
  /// answers in time (else it expires), closes the connections and joins the loop thread.
  /// Idempotent. On the loop thread it does not wait.
  /// @param deadline  at most this long
  void close(std::chrono::milliseconds deadline);

 private:
  explicit Client(std::shared_ptr<detail::ClientCore> core) noexcept;
  [[nodiscard]] const std::shared_ptr<detail::ClientCore>& core() const;

  std::shared_ptr<detail::ClientCore> core_;
};

}  // namespace rlock
