// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/back_off.hpp>
#include <rlock/capabilities.hpp>
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
struct ClientAccess;
}  // namespace detail

/// The access of a process to one Redis server: the connections, the loop thread, the watchdog, and
/// the id that all holds of this client carry. Make one per process and share it. The client is the
/// factory of all locks and synchronizers; the objects that it makes are cheap handles.
///
/// **Thread safety:** Safe to call concurrently from any thread; move and destruction one thread at
/// a time.
///
/// Handles may outlive the client and then throw `closed`. After `fork()` the client is unusable in
/// the child (`forked`) and untouched in the parent.
class RLOCK_EXPORT Client {
 public:
  /// Connects by URI: `redis://[user:password@]host[:port][/db][?option=value]`, `rediss://` with
  /// TLS, `unix:///path.sock`, `redis+sentinel://` or `redis+cluster://`; docs/configuration.md has
  /// all forms and options.
  /// @throws Error  `invalidArgument`, `connectionFailed`, `authenticationFailed`, `denied`,
  ///                `protocolError` when what answers is no Redis or speaks TLS or not as asked,
  ///                `serverError` when the server refuses the connection for another reason
  /// @par Blocking  until connected, at most `connectTimeout`
  static Client connect(std::string_view uri);
  /// Connects by Options. With `Options::loop` it returns at once and connects when that loop runs;
  /// call it on the loop's thread or before the loop runs. With `ConnectMode::lazy` it returns at
  /// once and connects in the background; calls wait for the connection as in an outage, and fail
  /// at once with what no waiting cures, such as `authenticationFailed`.
  /// @throws Error  as above
  /// @par Blocking  as above, but not at all with a loop or `ConnectMode::lazy`
  static Client connect(const Options& options);

  ///@{
  /// A client that was moved from may only be assigned to or destroyed. Assignment closes the
  /// client that is assigned to first.
  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ///@}
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  /// Calls close() with `Options::closeTimeout`. Safe on any thread, also on the loop thread. Never
  /// throws.
  ~Client();

  /// The re-entrant lock of that name. No round trip.
  /// @param name  1 byte to 64 KiB, any bytes; else `invalidArgument`
  /// @throws Error  also `invalidArgument` when Options::nameMapper fails, or in a cluster when the
  ///                keys of the name would be in several slots
  /// @par Source  Redisson `RedissonClient.getLock()`; lua/lock_acquire.lua
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
  /// The state of one name: kind, holders with their counts and labels, lifetime, waiters.
  /// @returns empty when there is nothing under the name
  /// @par Errors  as said for RLock
  /// @par Cost    1 round trip
  /// @par Source  lua/inspect.lua
  std::optional<LockInfo> inspect(std::string_view name);
  Operation<std::optional<LockInfo>> inspectAsync(std::string_view name);
  ///@}
  ///@{
  /// The state of all names that match and under which there is a lock or synchronizer, sorted by
  /// name. Names that come or go meanwhile may be missing.
  /// @param pattern  as of the SCAN command: `*`, `?`, `[...]`, and `\\` before a character that is
  ///                 meant literally
  /// @par Errors  `timedOut` when the whole walk takes longer than Options::callTimeout; errors say
  ///              how far it came
  /// @par Cost    a round trip for every 500 keys of the database and one for each that matches, of
  ///              which at most 64, and half of Options::maxOperations, are under way at once;
  ///              never KEYS
  std::vector<LockInfo> list(std::string_view pattern = "*");
  Operation<std::vector<LockInfo>> listAsync(std::string_view pattern = "*");
  ///@}

  /// The re-entrant lock of that name that goes to its waiters in the order in which the server
  /// heard of them, whichever client they belong to. A waiter that dies delays the others by at
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
  /// The lock of getFairLock() whose owner cannot take it again, as with getNonReentrantLock().
  /// @param name  as for getLock()
  /// @par Source  Redisson `RedissonClient.getNonReentrantFairLock()`; lua/fair_acquire.lua
  RLock getNonReentrantFairLock(std::string_view name);

  /// The read-write lock of that name. No round trip.
  /// @param name  as for getLock()
  ReadWriteLock getReadWriteLock(std::string_view name);
  /// The re-entrant lock whose holds have fencing tokens. No round trip.
  /// @param name  as for getLock()
  FencedLock getFencedLock(std::string_view name);
  /// The lock of getLock() with waiters that poll: they subscribe to nothing and look again after
  /// pauses. On one name both locks exclude each other. It suits locks that are held for a few
  /// milliseconds and have few waiters. No round trip.
  /// @param name     as for getLock()
  /// @param backOff  the pauses; a pause also ends with the holder's lease and with the wait
  RLock getSpinLock(std::string_view name, const BackOff& backOff = BackOff::exponential());
  /// The lock of the Redis documentation: one key with the owner as its value, set if it does not
  /// exist, with an expiry. Programs in any language that keep to that pattern share it. Not
  /// re-entrant: an owner that takes it again gets `reentry`. No round trip.
  /// @param name  as for getLock(); the key itself
  RLock getSimpleLock(std::string_view name);

  ///@{
  /// The UUID in every owner field of this client. A temporary client returns it by value.
  const std::string& id() const&;
  std::string id() const&&;
  ///@}
  /// Whether there is a connection to the server; in a cluster, to at least one node. It may end at
  /// any moment, so this is for health checks; calls wait for a connection by themselves. See also
  /// Options::onStateChange. No round trip.
  [[nodiscard]] bool connected() const noexcept;
  ///@{
  /// Asks the server for a sign of life.
  /// @returns how long the request and its reply took, without any wait for a connection
  /// @par Errors  as said for RLock, such as `connectionFailed`, and `timedOut` after
  ///              Options::callTimeout
  /// @par Cost    1 round trip
  std::chrono::nanoseconds ping();
  Operation<std::chrono::nanoseconds> pingAsync();
  ///@}
  /// The facts about the server that the latest connection has found; all empty before the first.
  /// No round trip.
  [[nodiscard]] Capabilities capabilities() const;
  ///@{
  /// Authenticates the connection anew, with what Options::credentials gives now: call it when the
  /// password or token has changed or is about to expire. Requests under way are not disturbed; the
  /// connection that asks for acknowledgements is authenticated, too. The subscriber connection is
  /// replaced. Without a connection nothing is sent: the next one is made with the new credentials
  /// anyway.
  /// @par Errors  `authenticationFailed`: the server refuses, which is logged, and the connection
  ///              goes on as it was; `invalidArgument`: there is no Options::credentials
  /// @par Cost    1 round trip for each node, with a SyncPolicy 2
  void refreshCredentials();
  Operation<void> refreshCredentialsAsync();
  ///@}
  /// Counters and durations since connect, and the present numbers of holds, waiters and channels.
  /// No round trip.
  Stats stats() const;
  /// The names that come first in the given order, by what this client has seen of them. Kept for
  /// Options::topNames names, which is what bounds the memory: what a name has done before it came
  /// among them is not shown, so that the numbers are never too high; a name that deserves to be
  /// among them is. Empty without the option. No round trip.
  /// @param order  what comes first
  /// @param most   so many lines at most
  std::vector<TopName> topNames(TopBy order, std::size_t most = 10) const;

  /// Stops renewing, ends every waiting call with `closed`, and releases all holds if the server
  /// answers in time (otherwise they expire). Then it closes the connections and joins the loop
  /// thread. Idempotent. On the loop thread it does not wait.
  /// @param deadline  how long to wait for the server at most; zero or less: not at all
  /// @par Blocking  at most `deadline` and a moment for its own threads
  /// @par Cost      1 round trip for each hold
  void close(std::chrono::milliseconds deadline);

 private:
  friend struct detail::ClientAccess;

  explicit Client(std::shared_ptr<detail::ClientCore> core) noexcept;
  [[nodiscard]] const std::shared_ptr<detail::ClientCore>& core() const;

  std::shared_ptr<detail::ClientCore> core_;
};

}  // namespace rlock
