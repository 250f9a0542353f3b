// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/fork.hpp>
#include <rlock/error.hpp>
#include <rlock/mutex.hpp>

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

namespace rlock {

Mutex::Mutex(RLock lock) noexcept
    : lock_(std::move(lock)), forkGeneration_(detail::forkGeneration()) {}

/// True in a forked child, where mutex_ may be locked for ever by a thread that only the parent
/// has.
bool Mutex::ofParent() const noexcept {
  return detail::forkGeneration() != forkGeneration_;
}

void Mutex::lock() {
  if (heldByThisThread()) {
    ErrorContext context;
    context.key = lock_.getName();
    throw Error(Errc::wouldDeadlock,
                "this thread has locked this mutex already and would wait for itself; unlock it "
                "first",
                std::move(context));
  }
  lockOnceMore();
}

void Mutex::lockOnceMore() {
  // The list element is made before the lock is obtained: a hold must not be lost for want of
  // memory.
  Holds fresh(1);
  fresh.front().lease = lock_.acquire();
  keep(fresh);
}

bool Mutex::try_lock() {
  return tryLockFor(Duration::zero());
}

bool Mutex::tryLockFor(Duration wait) {
  Holds fresh(1);
  std::optional<Lease> lease = lock_.tryAcquire({.wait = wait});
  if (!lease) {
    return false;
  }
  fresh.front().lease = std::move(*lease);
  keep(fresh);
  return true;
}

bool Mutex::heldByThisThread() const noexcept {
  if (ofParent()) {
    return false;
  }
  const detail::MutexLock lock(mutex_);
  return std::any_of(holds_.begin(), holds_.end(), [](const Held& held) {
    return held.thread == currentOwner() && held.lease.held();
  });
}

void Mutex::keep(Holds& fresh) noexcept {
  fresh.front().thread = currentOwner();
  const detail::MutexLock lock(mutex_);
  holds_.splice(holds_.end(), fresh);
}

void Mutex::unlock() noexcept {
  if (ofParent()) {
    return;
  }
  Holds over;
  {
    const detail::MutexLock lock(mutex_);
    if (holds_.empty()) {
      return;
    }
    const auto mine = std::find_if(holds_.rbegin(), holds_.rend(), [](const Held& held) {
      return held.thread == currentOwner();
    });
    // Race: a thread that lost its hold may unlock late, when another thread holds the lock by this
    // object. Each thread unlocks its own hold first, then a lost one: to release another thread's
    // valid hold would let others in while that thread works.
    const auto chosen = mine != holds_.rend()
                            ? std::prev(mine.base())
                            : std::find_if(holds_.begin(), holds_.end(), [](const Held& held) {
                                return !held.lease.held();
                              });
    over.splice(over.end(), holds_, chosen != holds_.end() ? chosen : holds_.begin());
  }
}

const Lease& Mutex::lease() const noexcept {
  if (ofParent()) {
    return none_;
  }
  const detail::MutexLock lock(mutex_);
  const auto mine = std::find_if(holds_.rbegin(), holds_.rend(), [](const Held& held) {
    return held.thread == currentOwner();
  });
  if (mine != holds_.rend()) {
    return mine->lease;
  }
  return holds_.empty() ? none_ : holds_.back().lease;
}

SharedMutex::SharedMutex(const ReadWriteLock& lock)
    : SharedMutex(lock.readLock(), lock.writeLock()) {}

SharedMutex::SharedMutex(RLock lock) noexcept : shared_(lock), exclusive_(std::move(lock)) {}

SharedMutex::SharedMutex(RLock sharedSide, RLock exclusiveSide) noexcept
    : shared_(std::move(sharedSide)), exclusive_(std::move(exclusiveSide)) {}

}  // namespace rlock
