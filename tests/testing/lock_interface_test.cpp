// SPDX-License-Identifier: Apache-2.0

// An RLock over an implementation of the test's own.

#include <rlock/rlock.hpp>
#include <rlock/testing.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

namespace rlock {
namespace {

using namespace std::chrono_literals;

/// Belongs to one owner at a time, and notes what it was asked for.
class Noted : public LockInterface {
 public:
  bool acquire(const Attempt& attempt) override {
    std::this_thread::sleep_for(slowness);
    call(onAttempt);
    const bool granted = grant(attempt);
    call(onGrant);
    return granted;
  }
  bool grant(const Attempt& attempt) {
    const std::lock_guard lock(mutex);
    last = attempt;
    if (failure) {
      throw *failure;
    }
    if (broken) {
      throw std::runtime_error("broken");
    }
    if (odd) {
      throw 1;
    }
    if (count > 0 && owner != attempt.owner) {
      return false;
    }
    owner = attempt.owner;
    ++count;
    acquiredAt = std::chrono::steady_clock::now();
    return true;
  }
  int release(OwnerId by) override {
    const std::lock_guard lock(mutex);
    if (count == 0 || owner != by) {
      throw Error(Errc::notOwner, "not held");
    }
    return --count;
  }
  int holdCount(OwnerId of) override {
    const std::lock_guard lock(mutex);
    if (forgetful) {
      throw std::runtime_error("forgotten");
    }
    return owner == of ? count : 0;
  }
  bool isLocked() override {
    const std::lock_guard lock(mutex);
    return count > 0;
  }
  bool forceRelease() override {
    call(onForce);
    const bool forced = drop();
    call(onForced);
    return forced;
  }
  bool drop() {
    const std::lock_guard lock(mutex);
    return std::exchange(count, 0) > 0;
  }
  /// An event that comes in between, once.
  static void call(std::function<void()>& between) {
    if (const auto once = std::exchange(between, nullptr)) {
      once();
    }
  }
  void takeAway(LossReason reason = LossReason::refused) {
    const OwnerId loser = owner;
    drop();
    tellLost(loser, reason);
  }

  std::mutex mutex;
  Attempt last;
  OwnerId owner{};
  int count = 0;
  std::chrono::milliseconds slowness{0};
  std::function<void()> onAttempt;  // before an acquisition
  std::function<void()> onGrant;    // after it, and before the caller has it
  std::function<void()> onForce;    // before a forced release
  std::function<void()> onForced;   // after it, and before the caller has its answer
  std::chrono::steady_clock::time_point acquiredAt;
  std::optional<Error> failure;
  bool broken = false;
  bool odd = false;
  bool forgetful = false;
};

class MadeLock : public testing::Test {
 protected:
  std::shared_ptr<Noted> noted = std::make_shared<Noted>();
  RLock lock = makeLock("printer", noted);
};

TEST_F(MadeLock, PassesTheCallsOn) {
  EXPECT_EQ(lock.getName(), "printer");
  EXPECT_TRUE(lock.tryLock(5s, 10s));
  EXPECT_EQ(noted->last.owner, currentOwner());
  EXPECT_EQ(noted->last.wait, Duration(5s));
  EXPECT_EQ(noted->last.lease, Duration(10s));
  lock.lock();
  EXPECT_TRUE(noted->last.wait.isInfinite());
  EXPECT_EQ(lock.getHoldCount(), 2);
  EXPECT_EQ(lock.remainTimeToLive(), std::chrono::milliseconds::max());
  lock.unlock();
  lock.unlock();
  EXPECT_FALSE(lock.isLocked());
  EXPECT_FALSE(lock.remainTimeToLive().has_value());
  EXPECT_THROW(lock.unlock(), Error);
}

TEST_F(MadeLock, PassesTheStopTokenOn) {
  std::stop_source stop;
  lock.lockInterruptibly(stop.get_token());
  EXPECT_FALSE(noted->last.stop.stop_requested());
  stop.request_stop();
  EXPECT_TRUE(noted->last.stop.stop_requested());
}

TEST_F(MadeLock, RefusesWhoeverComesSecond) {
  Lease lease = lock.acquire();
  EXPECT_TRUE(lease.held());
  EXPECT_FALSE(lock.tryLock());
  EXPECT_THROW(lock.lock(), Error);
  EXPECT_FALSE(lock.tryAcquire().has_value());
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_TRUE(lock.tryLock());
  EXPECT_TRUE(lock.forceUnlock());
}

TEST_F(MadeLock, ALeaseOfItCanBeLost) {
  Lease lease = lock.acquire();
  noted->takeAway();
  EXPECT_FALSE(lease.held());
  EXPECT_TRUE(lease.lostToken().stop_requested());
  EXPECT_EQ(lease.lossReason(), LossReason::refused);
  const Lease next = lock.acquire();
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_TRUE(next.held());
  EXPECT_TRUE(lock.isLocked());
}

TEST_F(MadeLock, TheReasonOfALossIsTheImplementations) {
  const Lease lease = lock.acquire();
  noted->takeAway(LossReason::forced);
  EXPECT_EQ(lease.lossReason(), LossReason::forced);
}

TEST_F(MadeLock, AnOldLeaseCannotReleaseALaterHold) {
  const OwnerId owner = newOwner();
  Lease first = lock.acquire({}, owner);
  noted->takeAway();
  const Lease second = lock.acquire({}, owner);
  EXPECT_EQ(first.release(), ReleaseResult::lost);
  EXPECT_TRUE(second.held());
  EXPECT_EQ(noted->count, 1);
}

TEST_F(MadeLock, AnotherHoldOfTheOwnerStays) {
  const OwnerId owner = newOwner();
  Lease first = lock.acquire({}, owner);
  const Lease second = lock.acquire({}, owner);
  EXPECT_EQ(first.release(), ReleaseResult::stillHeld);
  EXPECT_TRUE(second.held());
}

TEST_F(MadeLock, ALeaseIsReleasedByItsDestructor) {
  { const Lease lease = lock.acquire(); }
  EXPECT_FALSE(lock.isLocked());
}

TEST_F(MadeLock, ALeaseEndsWithItsTime) {
  const Lease lease = lock.acquire({.lease = 1ms});
  while (lease.held()) {
  }
  EXPECT_LE(lease.validUntil(), std::chrono::steady_clock::now());
  EXPECT_THROW(static_cast<void>(lock.tryLock(0s, -1s)), Error);
}

TEST_F(MadeLock, ALeaseWhoseTimeIsOverStaysOver) {
  const OwnerId owner = newOwner();
  Lease first = lock.acquire({.lease = 1ms}, owner);
  while (first.held()) {
  }
  // The implementation's own time for it is over, too.
  noted->forceRelease();
  const Lease second = lock.acquire({}, owner);
  EXPECT_FALSE(first.held());
  EXPECT_EQ(first.release(), ReleaseResult::lost);
  EXPECT_EQ(noted->count, 1);
  EXPECT_TRUE(second.held());
}

TEST_F(MadeLock, ALeaseWhoseTimeIsOverWasLost) {
  Lease lease = lock.acquire({.lease = 1ms});
  const std::stop_token lost = lease.lostToken();
  while (lease.held()) {
  }
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_TRUE(lost.stop_requested());
  EXPECT_FALSE(lock.isLocked());
}

TEST_F(MadeLock, AForcedReleaseEndsTheLeases) {
  const OwnerId owner = newOwner();
  Lease first = lock.acquire({}, owner);
  EXPECT_TRUE(lock.forceUnlock());
  EXPECT_FALSE(first.held());
  EXPECT_TRUE(first.lostToken().stop_requested());
  EXPECT_EQ(first.lossReason(), LossReason::forced);

  const Lease second = lock.acquire({}, owner);
  EXPECT_EQ(first.release(), ReleaseResult::lost);
  EXPECT_TRUE(second.held());
  EXPECT_EQ(noted->count, 1);
}

// A forced release and a grant may meet, and the implementation alone knows which came first.

TEST_F(MadeLock, AGrantThatIsForcedBeforeItIsBookedIsLost) {
  noted->onGrant = [this] { EXPECT_TRUE(lock.forceUnlock()); };
  const Lease lease = lock.acquire();
  EXPECT_FALSE(lease.held());
  EXPECT_TRUE(lease.lostToken().stop_requested());
  EXPECT_EQ(lease.lossReason(), LossReason::forced);
  EXPECT_TRUE(lock.acquire().held());
}

TEST_F(MadeLock, AGrantThatIsBookedDuringTheForceIsLost) {
  std::optional<Lease> lease;
  noted->onForce = [&] { lease = lock.acquire(); };
  EXPECT_TRUE(lock.forceUnlock());
  EXPECT_FALSE(lease->held());
  EXPECT_EQ(lease->lossReason(), LossReason::forced);
}

TEST_F(MadeLock, AGrantAfterTheForceIsHeld) {
  Lease first = lock.acquire();
  std::optional<Lease> second;
  noted->onForced = [&] { second = lock.acquire(); };
  EXPECT_TRUE(lock.forceUnlock());
  EXPECT_FALSE(first.held());
  EXPECT_TRUE(second->held());

  noted->onAttempt = [this] { EXPECT_TRUE(lock.forceUnlock()); };
  const Lease third = lock.acquire();
  EXPECT_FALSE(second->held());
  EXPECT_TRUE(third.held());
  EXPECT_EQ(noted->count, 1);
}

TEST_F(MadeLock, AThreadThatKeepsItWouldWaitForItself) {
  const auto refused = [this] {
    try {
      static_cast<void>(lock.acquire());
      return Errc{};
    } catch (const Error& error) {
      return error.errc();
    }
  };
  lock.lock();
  EXPECT_EQ(refused(), Errc::wouldDeadlock);
  EXPECT_TRUE(lock.acquire({}, currentOwner()).held());
  lock.unlock();
  EXPECT_TRUE(lock.acquire().held());
  lock.lock(1h);
  EXPECT_EQ(refused(), Errc::timedOut) << "that ends by itself";
  lock.unlock();
  lock.lock();
  noted->drop();
  EXPECT_EQ(refused(), Errc{}) << "the implementation has it no more";
}

TEST_F(MadeLock, ALongestHoldEndsALeaseLikeItsTime) {
  for (const AcquireOptions& options : {AcquireOptions{.maxHold = 1h},
                                        AcquireOptions{.lease = 2h, .maxHold = 1h},
                                        AcquireOptions{.lease = 1h, .maxHold = 2h}}) {
    const auto before = std::chrono::steady_clock::now();
    const Lease lease = lock.acquire(options);
    EXPECT_GE(lease.validUntil(), before + 1h);
    EXPECT_LE(lease.validUntil(), std::chrono::steady_clock::now() + 1h);
  }
}

TEST_F(MadeLock, TheTimeOfALeaseBeginsAfterTheWait) {
  noted->slowness = 20ms;
  const Lease lease = lock.acquire({.wait = 1h, .lease = 1h, .maxHold = 2h});
  EXPECT_GE(lease.validUntil(), noted->acquiredAt + 1h);
}

TEST_F(MadeLock, AFurtherHoldDoesNotShortenALease) {
  const OwnerId owner = newOwner();
  const Lease first = lock.acquire({.lease = 1h}, owner);
  const auto until = first.validUntil();
  const Lease second = lock.acquire({.lease = 1min}, owner);
  EXPECT_EQ(first.validUntil(), until);
  EXPECT_EQ(second.validUntil(), until);
}

TEST_F(MadeLock, FailuresAreTheCallers) {
  noted->failure = Error(Errc::connectionFailed, "unplugged");
  try {
    lock.lock();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::connectionFailed);
  }
  noted->failure.reset();
  for (const bool odd : {false, true}) {
    noted->broken = !odd;
    noted->odd = odd;
    try {
      lock.lock();
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.errc(), Errc::serverError) << odd;
    }
  }
}

TEST_F(MadeLock, RefusesWhatALockOnAServerRefuses) {
  const auto refused = [&](const AcquireOptions& options) {
    try {
      static_cast<void>(lock.tryAcquire(options));
      return false;
    } catch (const Error& error) {
      return error.errc() == Errc::invalidArgument;
    }
  };
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(refused({.wait = std::chrono::duration<double>(kNone)}));
  EXPECT_TRUE(refused({.lease = 0s}));
  EXPECT_TRUE(refused({.maxHold = 0s}));
  EXPECT_TRUE(refused({.label = std::string(257, 'x')}));
  EXPECT_TRUE(refused({.sync = SyncPolicy::replicas(0)}));
  EXPECT_EQ(noted->count, 0);
  EXPECT_FALSE(refused({.label = std::string(256, 'x'), .sync = SyncPolicy::replicas(1)}));
}

TEST_F(MadeLock, WhatIsHeldWithoutACountIsGivenBack) {
  noted->forgetful = true;
  EXPECT_THROW(static_cast<void>(lock.acquire()), Error);
  EXPECT_EQ(noted->count, 0);
  noted->forgetful = false;
  EXPECT_TRUE(lock.acquire().held());
}

TEST_F(MadeLock, HasAllFaces) {
  Lease lease = lock.acquireAsync().toFuture().get();
  EXPECT_TRUE(lease.held());
  std::promise<bool> got;
  lock.tryLockAsync(AcquireOptions{}, newOwner()).start([&](Result<bool> result) {
    got.set_value(*result);
  });
  EXPECT_FALSE(got.get_future().get());
  Mutex mutex(makeLock("another", std::make_shared<Noted>()));
  const std::lock_guard guard(mutex);
  EXPECT_TRUE(mutex.lease().held());
}

TEST_F(MadeLock, IsNoMemberOfAGroup) {
  EXPECT_THROW(static_cast<void>(multiLock({lock, makeLock("b", noted)})), Error);
  EXPECT_THROW(static_cast<void>(makeLock("", noted)), Error);
  EXPECT_THROW(static_cast<void>(makeLock("x", nullptr)), Error);
}

}  // namespace
}  // namespace rlock
