// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/duration.hpp>
#include <rlock/export.hpp>
#include <rlock/operation.hpp>

#include <memory>
#include <optional>
#include <stop_token>
#include <string>

namespace rlock {

namespace detail {
class ScriptedSemaphore;
}

/// A number of permits shared by every client that uses the same name on the same Redis, Redisson's
/// clients included (`RSemaphore` there). A cheap handle: copies refer to the same semaphore.
///
/// **Thread safety:** Safe to call concurrently from any thread.
///
/// Permits belong to nobody: any client may release permits that another acquired, or that nobody
/// acquired. The permits of a process that dies are gone until somebody adds them again; where that
/// matters, use locks, or permits that expire. A semaphore that was never set has 0 permits. The
/// number is between -2,147,483,648 and 2,147,483,647, as for Redisson; it can be negative after
/// addPermits().
///
/// Waiters of one client are served in the order they came, except that a smaller request passes a
/// larger one that cannot be served: see docs/semaphore.md. There is no order between clients.
///
/// A call blocks until it has its answer, costs one round trip where nothing else is said, and
/// throws as RLock's do. A lost reply is reconciled: acquire() and tryAcquire() take
/// their permits once or not at all. The calls that change the semaphore otherwise are repeated
/// until there is an answer and take effect once. When there is none in time, release(),
/// releaseIfExists() and addPermits() go on in the background, as the error says, and must not be
/// repeated; the error of the other calls says that it is not known whether they took effect.
class RLOCK_EXPORT Semaphore {
 public:
  /// For Client, which makes the semaphores.
  explicit Semaphore(std::shared_ptr<const detail::ScriptedSemaphore> backend) noexcept;

  ///@{
  /// Waits without limit until there are as many permits, and takes them together.
  /// @param permits  0 or more; 0 returns at once, negative is `invalidArgument`
  /// @throws Error  as said for the class
  /// @par Cost    1 round trip; a call that has to wait needs 2, then 1 per wake-up; sleeps
  ///              meanwhile
  /// @par Source  Redisson `RSemaphore.acquire(int)`; lua/semaphore_acquire.lua
  void acquire(int permits = 1);
  /// A stop request ends the wait with `cancelled`, and nothing is taken then.
  void acquire(std::stop_token stop, int permits = 1);
  ///@}

  ///@{
  /// One attempt, past all waiters. @returns true when the permits were taken.
  /// @par Cost    1 round trip
  /// @par Source  Redisson `RSemaphore.tryAcquire(int)`; lua/semaphore_acquire.lua
  [[nodiscard]] bool tryAcquire(int permits = 1);
  /// Waits at most `wait` (zero or less: one attempt; max(): for ever).
  /// @returns true when the permits were taken, false when there were not enough all the time
  [[nodiscard]] bool tryAcquire(int permits, Duration wait);
  [[nodiscard]] bool tryAcquire(Duration wait);
  /// A stop request ends the wait with `cancelled`, and nothing is taken then.
  [[nodiscard]] bool tryAcquire(std::stop_token stop, int permits, Duration wait);
  ///@}

  /// Adds permits, also beyond the number that was set; makes the semaphore if there is none.
  /// @param permits  0 or more; 0 does nothing
  /// @throws Error  also `invalidArgument` when the number would leave its range; nothing changes
  /// @par Cost    1 round trip
  /// @par Source  Redisson `RSemaphore.release(int)`; lua/semaphore_add.lua
  void release(int permits = 1);
  /// As release(), but only if there is a semaphore of that name.
  /// @returns false when there is none, or `permits` is 0
  /// @par Source  Redisson `RSemaphore.releaseIfExists(int)`; lua/semaphore_add.lua
  bool releaseIfExists(int permits = 1);

  /// How many permits there are; negative after addPermits() took more than there were.
  /// @par Source  Redisson `RSemaphore.availablePermits()`
  int availablePermits();
  /// Takes all permits. A negative number becomes 0, too. The expiry of the semaphore stays.
  /// @returns how many there were
  /// @par Source  Redisson `RSemaphore.drainPermits()`; lua/semaphore_drain.lua
  int drainPermits();
  /// Changes the number of permits; makes the semaphore if there is none. The expiry stays.
  /// @param delta  may be negative, and may make the number negative; 0 does nothing
  /// @throws Error  also `invalidArgument` when the number would leave its range; nothing changes
  /// @par Source  Redisson `RSemaphore.addPermits(int)`; lua/semaphore_add.lua
  void addPermits(int delta);
  /// Sets the number of permits if there is no semaphore of that name yet.
  /// @param permits  0 or more
  /// @param ttl      the semaphore vanishes after this time, with all its permits: more than 0, at
  ///                 most 365 days, rounded up to 1 ms. Empty: never.
  /// @returns false when there is one; it is left as it is
  /// @par Source  Redisson `RSemaphore.trySetPermits(int)`; lua/counter_try_set.lua
  bool trySetPermits(int permits, std::optional<Duration> ttl = {});
  /// Deletes the semaphore; calls that wait for permits go on waiting. @returns false when there
  /// was none.
  /// @par Source  Redisson `RSemaphore.delete()`; lua/counter_remove.lua
  bool remove();
  ///@{
  /// The name given to the factory. A temporary handle returns it by value. No round trip.
  /// @throws Error  `invalidArgument` when the handle was moved from
  const std::string& getName() const&;
  std::string getName() const&&;
  ///@}

  ///@{
  /// The same as an Operation, which says how to start it. Nothing is sent before that.
  Operation<void> acquireAsync(int permits = 1);
  Operation<void> acquireAsync(std::stop_token stop, int permits = 1);
  Operation<bool> tryAcquireAsync(int permits = 1);
  Operation<bool> tryAcquireAsync(int permits, Duration wait);
  Operation<bool> tryAcquireAsync(Duration wait);
  Operation<bool> tryAcquireAsync(std::stop_token stop, int permits, Duration wait);
  Operation<void> releaseAsync(int permits = 1);
  Operation<bool> releaseIfExistsAsync(int permits = 1);
  Operation<int> availablePermitsAsync();
  Operation<int> drainPermitsAsync();
  Operation<void> addPermitsAsync(int delta);
  Operation<bool> trySetPermitsAsync(int permits, std::optional<Duration> ttl = {});
  Operation<bool> removeAsync();
  ///@}

 private:
  std::shared_ptr<const detail::ScriptedSemaphore> backend_;
};

}  // namespace rlock
