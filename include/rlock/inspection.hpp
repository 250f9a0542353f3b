// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock {

/// The kind of object under a name, as far as the server's data tell it. Plain, spin and
/// non-reentrant locks look the same there, and so do a semaphore and a latch.
enum class LockKind {
  lock,             ///< plain, spin or non-reentrant lock
  fairLock,         ///< a lock with a queue of waiters
  fencedLock,       ///< a lock with a fencing counter
  readWriteLock,    ///< held in one of its modes
  simpleLock,       ///< one key whose value names the owner
  counter,          ///< semaphore or latch: a number
  permitSemaphore,  ///< a semaphore whose permits expire
  foreign           ///< something that no lock of this library or of Redisson leaves there
};

/// The enumerator's name; "unknown" for any other number.
RLOCK_EXPORT std::string_view toString(LockKind kind) noexcept;

/// One owner that holds a lock, or one permit that is taken.
struct LockHolder {
  std::string owner{};    ///< owner field `uuid:number`, or permit id (32 hex characters)
  int holds = 1;          ///< the hold count
  bool exclusive = true;  ///< false: the shared side of a read-write lock, or a permit
  std::string label{};    ///< AcquireOptions::label of its hold, if there is one
  /// How long until a permit expires. Empty: a hold ends with the lock, a permit never.
  std::optional<std::chrono::milliseconds> timeToLive{};
};

/// The state of one lock or synchronizer at one moment.
struct LockInfo {
  std::string name{};                 ///< the name as given to the call
  LockKind kind = LockKind::foreign;  ///< as far as it can be told
  std::vector<LockHolder> holders{};  ///< at most 1000
  /// How long the key lasts unless renewed. `milliseconds::max()`: without end. Empty: there is no
  /// key, only waiters.
  std::optional<std::chrono::milliseconds> timeToLive{};
  /// Owner fields in the order of their turn, where the server keeps a queue; at most 1000.
  std::vector<std::string> waiters{};
  std::optional<std::int64_t> available{};  ///< permits, or the latch's count
  std::optional<std::uint64_t> token{};     ///< the last fencing token given out
};

}  // namespace rlock
