// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/duration.hpp>
#include <rlock/export.hpp>
#include <rlock/lock.hpp>
#include <rlock/operation.hpp>
#include <rlock/permit.hpp>

#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace rlock {

namespace detail {
class PermitSemaphore;
}

/// A semaphore shared by every client that uses the same name on the same Redis, Redisson's clients
/// included (`RPermitExpirableSemaphore` there), whose permits have ids and may expire. A cheap
/// handle: copies refer to the same semaphore.
///
/// **Thread safety:** Safe to call concurrently from any thread.
///
/// A permit belongs to anybody who knows its id, on any client; there is no owner. A permit taken
/// without a lease never expires, and nobody can use it again if its id is lost: take it with a
/// lease, or by hold(), which keeps it alive only as long as this process lives. The server's clock
/// decides what has expired. Every call puts expired permits back into the pool.
///
/// The semaphore has no permits before trySetPermits(), setPermits() or addPermits(). An id is 32
/// hexadecimal characters, given in lower case and taken in either; anything else is refused with
/// `invalidArgument` where nothing else is said. One call takes or names at most 10,000 permits.
///
/// A call blocks until it has its answer, and costs one round trip where nothing else is said. The
/// methods are those of Redisson with the same name, without `Many`.
///
/// Every call throws `closed` after Client::close(), `forked` in a child process, `wouldDeadlock`
/// when it blocks and is made on the client's loop thread, `connectionFailed` or `timedOut` when no
/// answer could be had within the call's time, `authenticationFailed`, `denied`, `wrongType`,
/// `outOfMemory`, `readOnly` or `serverError` when the server refuses, `notSynced` when too few
/// replicas have it, `protocolError` when what answers is no Redis, `overloaded` beyond
/// `Options::maxOperations`, and `invalidArgument` on a handle that was moved from. Calls without a
/// time limit of their own end within `Options::callTimeout`; waiting ones keep trying for
/// `Options::outageTimeout` while no node answers. A request whose reply is lost takes effect once:
/// see docs/permits.md. Releases and addPermits() whose time is over go on in the background.
class RLOCK_EXPORT PermitExpirableSemaphore {
 public:
  using Ids = std::vector<std::string>;                        ///< of several permits
  using LeaseTime = std::optional<std::chrono::milliseconds>;  ///< empty: permanent

  /// For Client, which makes the semaphores.
  explicit PermitExpirableSemaphore(std::shared_ptr<detail::PermitSemaphore> semaphore) noexcept;

  /// Waits for a permit without limit and takes it for good. @returns its id
  /// @throws Error  as said for the class
  /// @par Cost    free: 1 round trip. Contended: 2, then 1 per wake-up; sleeps meanwhile.
  /// @par Source  Redisson `RPermitExpirableSemaphore.acquire()`; lua/permit_acquire.lua
  [[nodiscard]] std::string acquire();
  /// As acquire(), but the permit expires after `lease` unless released before.
  /// @param lease  more than 0, at most 365 days, rounded up to 1 ms; else `invalidArgument`
  [[nodiscard]] std::string acquire(Duration lease);
  /// As acquire(); a stop request ends the wait with `cancelled`, and nothing is taken then.
  [[nodiscard]] std::string acquire(std::stop_token stop, std::optional<Duration> lease = {});
  /// As acquire(), for several permits at once: all or none. Waiters of this client that need fewer
  /// permits may pass one that must wait for more, but not for ever.
  /// @param permits  0 or more, else `invalidArgument`; 0 returns at once, without a request
  /// @param lease    as for acquire(lease); empty: they never expire
  [[nodiscard]] Ids acquireMany(int permits, std::optional<Duration> lease = {});
  /// As above, with a stop token.
  [[nodiscard]] Ids acquireMany(std::stop_token stop,
                                int permits,
                                std::optional<Duration> lease = {});

  /// One attempt. Empty: there was no free permit.
  /// @par Cost    1 round trip
  /// @par Source  Redisson `RPermitExpirableSemaphore.tryAcquire()`; lua/permit_acquire.lua
  [[nodiscard]] std::optional<std::string> tryAcquire();
  /// Waits at most `wait`. Zero or less: one attempt; max(): for ever.
  /// @returns the id; empty: there was no free permit all the time
  /// @par Cost    as acquire()
  [[nodiscard]] std::optional<std::string> tryAcquire(Duration wait);
  /// As tryAcquire(wait), with a lease as for acquire(lease).
  [[nodiscard]] std::optional<std::string> tryAcquire(Duration wait, Duration lease);
  /// As above; a stop request ends the wait with `cancelled`.
  [[nodiscard]] std::optional<std::string> tryAcquire(std::stop_token stop,
                                                      Duration wait,
                                                      std::optional<Duration> lease = {});
  /// All or none, which is an empty list. As acquireMany() and tryAcquire(wait).
  [[nodiscard]] Ids tryAcquireMany(int permits,
                                   Duration wait = {},
                                   std::optional<Duration> lease = {});
  /// As above, with a stop token.
  [[nodiscard]] Ids tryAcquireMany(std::stop_token stop,
                                   int permits,
                                   Duration wait,
                                   std::optional<Duration> lease = {});

  /// Gives a permit back.
  /// @throws Error  `notOwner` when no such permit is taken, or no longer
  /// @par Cost    1 round trip; one small idempotency key, used again and again, by which the
  ///              server recognises a repeated request
  /// @par Source  Redisson `RPermitExpirableSemaphore.release()`; lua/permit_release.lua
  void release(std::string_view id);
  /// Gives several back: all, or none if one of them is not taken, which throws `notOwner`. An
  /// empty list and an id that is named twice are refused with `invalidArgument`.
  void release(std::span<const std::string> ids);
  /// As release(); false instead of `notOwner`.
  bool tryRelease(std::string_view id);
  /// As release(ids). @returns how many were given back: all or 0
  int tryRelease(std::span<const std::string> ids);

  /// Permits that can be taken now; negative after addPermits() took away more. 0 if there is no
  /// such semaphore. Saturates. 1 round trip.
  int availablePermits();
  /// All permits, free and taken. 1 round trip.
  int getPermits();
  /// Permits that are taken. 1 round trip.
  int acquiredPermits();

  /// Makes the semaphore with so many permits. False: there is one already.
  /// @param permits  0 or more, else `invalidArgument`
  /// @par Cost    as release()
  /// @par Source  Redisson `RPermitExpirableSemaphore.trySetPermits()`; lua/permit_change.lua
  bool trySetPermits(int permits);
  /// Sets the number of all permits, free and taken. The number of free permits may become
  /// negative.
  /// @param permits  0 or more, else `invalidArgument`
  void setPermits(int permits);
  /// Adds permits, or takes some away if `delta` is negative. The number of free permits may become
  /// negative. `invalidArgument` when a number would leave the range of 32 bits.
  void addPermits(int delta);
  /// Deletes the semaphore with all permits, free and taken. Each Permit of this client is told
  /// that it is lost. @returns true when there was a semaphore
  /// @par Source  Redisson `RPermitExpirableSemaphore.delete()`; lua/permit_remove.lua
  bool remove();

  /// Gives a permit a new lease, counted from now. @returns false when no such permit is taken, and
  /// for text that is no id
  /// @param id     32 hexadecimal characters, as acquire() returned it
  /// @param lease  as for acquire(lease); empty: it never expires
  /// @par Cost    as release()
  /// @par Source  Redisson `RPermitExpirableSemaphore.updateLeaseTime()`;
  ///              lua/permit_update_lease.lua
  bool updateLeaseTime(std::string_view id, std::optional<Duration> lease);
  /// How long a permit lasts; empty: for ever. 1 round trip.
  /// @throws Error  `notOwner` when no such permit is taken
  LeaseTime getLeaseTime(std::string_view id);

  /// Takes a permit as an object. Waits for ever unless `options.wait` says otherwise. Without
  /// `options.lease` the watchdog renews it.
  /// @throws Error  also `timedOut` when `options.wait` is over
  /// @par Cost    as acquire()
  Permit hold(AcquireOptions options = {});
  /// As hold(), but empty when no permit was obtained in time; one attempt when `options.wait` is
  /// empty.
  [[nodiscard]] std::optional<Permit> tryHold(AcquireOptions options = {});

  ///@{
  /// The name given to the factory. A temporary handle returns it by value. No round trip.
  /// @throws Error  `invalidArgument` when the handle was moved from
  const std::string& getName() const&;
  std::string getName() const&&;
  ///@}

  ///@{
  /// The same as an Operation, which says how to start it. Nothing is sent before that.
  Operation<std::string> acquireAsync();
  Operation<std::string> acquireAsync(Duration lease);
  Operation<std::string> acquireAsync(std::stop_token stop, std::optional<Duration> lease = {});
  Operation<Ids> acquireManyAsync(int permits, std::optional<Duration> lease = {});
  Operation<Ids> acquireManyAsync(std::stop_token stop,
                                  int permits,
                                  std::optional<Duration> lease = {});
  Operation<std::optional<std::string>> tryAcquireAsync();
  Operation<std::optional<std::string>> tryAcquireAsync(Duration wait);
  Operation<std::optional<std::string>> tryAcquireAsync(Duration wait, Duration lease);
  Operation<std::optional<std::string>> tryAcquireAsync(std::stop_token stop,
                                                        Duration wait,
                                                        std::optional<Duration> lease = {});
  Operation<Ids> tryAcquireManyAsync(int permits,
                                     Duration wait = {},
                                     std::optional<Duration> lease = {});
  Operation<Ids> tryAcquireManyAsync(std::stop_token stop,
                                     int permits,
                                     Duration wait,
                                     std::optional<Duration> lease = {});
  Operation<void> releaseAsync(std::string_view id);
  Operation<void> releaseAsync(std::span<const std::string> ids);
  Operation<bool> tryReleaseAsync(std::string_view id);
  Operation<int> tryReleaseAsync(std::span<const std::string> ids);
  Operation<int> availablePermitsAsync();
  Operation<int> getPermitsAsync();
  Operation<int> acquiredPermitsAsync();
  Operation<bool> trySetPermitsAsync(int permits);
  Operation<void> setPermitsAsync(int permits);
  Operation<void> addPermitsAsync(int delta);
  Operation<bool> removeAsync();
  Operation<bool> updateLeaseTimeAsync(std::string_view id, std::optional<Duration> lease);
  Operation<LeaseTime> getLeaseTimeAsync(std::string_view id);
  // The forms without options are for co_await, where GCC before 13 destroys an aggregate twice.
  Operation<Permit> holdAsync() { return holdAsync(AcquireOptions{}); }
  Operation<Permit> holdAsync(AcquireOptions options);
  Operation<std::optional<Permit>> tryHoldAsync() { return tryHoldAsync(AcquireOptions{}); }
  Operation<std::optional<Permit>> tryHoldAsync(AcquireOptions options);
  ///@}

 private:
  std::shared_ptr<detail::PermitSemaphore> semaphore_;
};

}  // namespace rlock
