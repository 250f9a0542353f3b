// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>
#include <rlock/lock.hpp>

#include <string>

namespace rlock {

/// A lock that any number of owners may hold for reading or one for writing, Redisson's clients
/// included (`RReadWriteLock` there). A cheap handle: copies refer to the same lock.
///
/// **Thread safety:** Safe to call concurrently from any thread.
///
/// Both sides are re-entrant. A writer may read as well, and goes on reading when it has released
/// the write side. A reader cannot become a writer: its `tryLock()` is false, and waiting for the
/// write side throws `wouldDeadlock`. Each read hold has a lease of its own; the latest is released
/// first. New readers stand back while a writer waits; see docs/read-write-lock.md.
class RLOCK_EXPORT ReadWriteLock {
 public:
  /// For Client, which makes the locks.
  ReadWriteLock(RLock readSide, RLock writeSide) noexcept;

  /// The shared side. No round trip. `forceUnlock()` ends the holds of all readers, unless the lock
  /// is held for writing; `isLocked()` says whether anybody reads.
  /// @par Cost    as RLock; the server looks at the owner's read holds when one is released, and at
  ///              all read holds when that one was the last to expire by a second or more
  /// @par Source  Redisson `RReadWriteLock.readLock()`; lua/rw_read_acquire.lua,
  ///              rw_read_release.lua
  RLock readLock() const { return read_; }
  /// The exclusive side. No round trip. `forceUnlock()` ends the hold of the writer, and its read
  /// holds; `isLocked()` says whether anybody writes.
  /// @par Cost    as RLock; a writer that waits looks at least once a second
  /// @par Source  Redisson `RReadWriteLock.writeLock()`; lua/rw_write_acquire.lua,
  ///              rw_write_release.lua
  RLock writeLock() const { return write_; }
  ///@{
  /// The name given to the factory. A temporary handle returns it by value. No round trip.
  /// @throws Error  `invalidArgument` when the handle was moved from
  const std::string& getName() const& { return read_.getName(); }
  std::string getName() const&& { return read_.getName(); }
  ///@}

 private:
  RLock read_;
  RLock write_;
};

}  // namespace rlock
