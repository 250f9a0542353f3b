// SPDX-License-Identifier: Apache-2.0
#include <rlock/inspection.hpp>

namespace rlock {

std::string_view toString(LockKind kind) noexcept {
  switch (kind) {
    case LockKind::lock:
      return "lock";
    case LockKind::fairLock:
      return "fairLock";
    case LockKind::fencedLock:
      return "fencedLock";
    case LockKind::readWriteLock:
      return "readWriteLock";
    case LockKind::simpleLock:
      return "simpleLock";
    case LockKind::counter:
      return "counter";
    case LockKind::permitSemaphore:
      return "permitSemaphore";
    case LockKind::foreign:
      return "foreign";
  }
  return "unknown";
}

}  // namespace rlock
