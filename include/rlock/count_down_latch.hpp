// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/duration.hpp>
#include <rlock/export.hpp>
#include <rlock/operation.hpp>

#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>

namespace rlock {

namespace detail {
class ScriptedLatch;
}

/// A gate that opens when it has been counted down to zero, shared by every client that uses the
/// same name on the same Redis, Redisson's clients included (`RCountDownLatch` there). A cheap
/// handle: copies refer to the same latch.
///
/// **Thread safety:** Safe to call concurrently from any thread.
///
/// A latch without a count is open. It has a count from trySetCount() until it is counted down to
/// zero or removed, and may then be set again. Every call that waits when the latch opens is let
/// through, also if the latch is set again before the call could look. Anybody may count down,
/// anybody may wait.
///
/// A call blocks until it has its answer, costs one round trip where nothing else is said, and
/// throws as RLock's do. A lost reply is reconciled: countDown() counts once. The calls
/// that change the latch are repeated until there is an answer. When there is none in time,
/// countDown() goes on in the background, as the error says, and must not be repeated; the error of
/// the other calls says that it is not known whether they took effect.
class RLOCK_EXPORT CountDownLatch {
 public:
  /// For Client, which makes the latches.
  explicit CountDownLatch(std::shared_ptr<const detail::ScriptedLatch> backend) noexcept;

  ///@{
  /// Waits without limit until the latch is open; returns at once when it is.
  /// @throws Error  as said for the class
  /// @par Cost    1 round trip; a call that has to wait needs 2, then none or 1 when the latch
  ///              opens
  /// @par Source  Redisson `RCountDownLatch.await()`; lua/latch_await.lua
  void await();
  /// As await(), at most `timeout` (zero or less: looks once; max(): for ever).
  /// @returns false when it was closed all the time
  [[nodiscard]] bool await(Duration timeout);
  /// As await(timeout); a stop request ends the wait with `cancelled`.
  [[nodiscard]] bool await(std::stop_token stop, Duration timeout);
  ///@}

  /// Counts down by one; the last one opens the latch for all waiters of all clients. Does nothing
  /// to a latch that is open.
  /// @par Cost    1 round trip
  /// @par Source  Redisson `RCountDownLatch.countDown()`; lua/latch_count_down.lua
  void countDown();
  /// How often the latch must still be counted down; 0: it is open.
  /// @par Source  Redisson `RCountDownLatch.getCount()`
  std::int64_t getCount();
  /// Closes an open latch.
  /// @param count  0 or more. 0 leaves an open latch open and stores nothing; Redisson stores a
  ///               zero there, which then keeps anybody from setting the latch.
  /// @returns false when the latch has a count already; it is left as it is
  /// @throws Error  also `invalidArgument` when `count` is negative
  /// @par Source  Redisson `RCountDownLatch.trySetCount(long)`; lua/counter_try_set.lua
  bool trySetCount(std::int64_t count);
  /// Removes the count, which opens the latch: everybody who waits is let through, Redisson's
  /// waiters too. @returns false when there was none.
  /// @par Source  Redisson `RCountDownLatch.delete()`; lua/counter_remove.lua
  bool remove();
  ///@{
  /// The name given to the factory. A temporary handle returns it by value. No round trip.
  /// @throws Error  `invalidArgument` when the handle was moved from
  const std::string& getName() const&;
  std::string getName() const&&;
  ///@}

  ///@{
  /// The same as an Operation, which says how to start it. Nothing is sent before that.
  Operation<void> awaitAsync();
  Operation<bool> awaitAsync(Duration timeout);
  Operation<bool> awaitAsync(std::stop_token stop, Duration timeout);
  Operation<void> countDownAsync();
  Operation<std::int64_t> getCountAsync();
  Operation<bool> trySetCountAsync(std::int64_t count);
  Operation<bool> removeAsync();
  ///@}

 private:
  std::shared_ptr<const detail::ScriptedLatch> backend_;
};

}  // namespace rlock
