// SPDX-License-Identifier: Apache-2.0

// Handles that were moved from, and names of handles that are about to go.

#include "integration/lock_harness.hpp"

#include <type_traits>

namespace rlock::test {
namespace {

static_assert(!std::is_swappable_with_v<Permit&, Lease&>);
static_assert(!std::is_swappable_with_v<Lease&, Permit&>);
static_assert(std::is_nothrow_swappable_v<Permit>);
static_assert(std::is_nothrow_swappable_v<Lease>);
template <class A, class B>
concept SwapsWith = requires(A& a, B& b) {
  a.swap(b);
};
static_assert(!SwapsWith<Lease, Permit> && !SwapsWith<Permit, Lease>);
static_assert(SwapsWith<Lease, Lease> && SwapsWith<Permit, Permit>);

class MovedFrom : public FaceTest {
 protected:
  template <class T>
  static std::string by(Operation<T> operation) {
    return outcomeOf(startBy(GetParam(), std::move(operation)).get());
  }
};

constexpr const char* kRefused = "invalidArgument";

TEST_P(MovedFrom, LocksRefuse) {
  Client client = connect();
  const std::vector<RLock> locks{client.getLock("a"),
                                 client.getFencedLock("b"),
                                 client.getReadWriteLock("c").readLock(),
                                 multiLock({client.getLock("a"), client.getLock("b")}),
                                 redLock({client.getLock("a"), client.getLock("b")})};
  for (RLock lock : locks) {
    const RLock other = std::move(lock);
    // NOLINTBEGIN(bugprone-use-after-move): it is what is tested
    EXPECT_EQ(by(lock.lockAsync()), kRefused);
    EXPECT_EQ(by(lock.tryLockAsync()), kRefused);
    EXPECT_EQ(by(lock.tryLockAsync(10ms, 1s)), kRefused);
    EXPECT_EQ(by(lock.lockInterruptiblyAsync({})), kRefused);
    EXPECT_EQ(by(lock.unlockAsync()), kRefused);
    EXPECT_EQ(by(lock.forceUnlockAsync()), kRefused);
    EXPECT_EQ(by(lock.isLockedAsync()), kRefused);
    EXPECT_EQ(by(lock.isHeldByAsync(newOwner())), kRefused);
    EXPECT_EQ(by(lock.isHeldByCurrentThreadAsync()), kRefused);
    EXPECT_EQ(by(lock.getHoldCountAsync()), kRefused);
    EXPECT_EQ(by(lock.remainTimeToLiveAsync()), kRefused);
    EXPECT_EQ(by(lock.acquireAsync()), kRefused);
    EXPECT_EQ(by(lock.tryAcquireAsync()), kRefused);
    EXPECT_EQ(outcomeOf([&] { lock.lock(); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { lock.lock(1s); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { lock.lockInterruptibly({}); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.tryLock()); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.tryLock(1ms, 1s)); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.tryLock(std::stop_token(), 1ms)); }),
              kRefused);
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { lock.forceUnlock(); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.isLocked()); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.getHoldCount()); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.remainTimeToLive()); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.getName()); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(lock.acquire()); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(multiLock({other, lock})); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(redLock({lock})); }), kRefused);
    Mutex mutex(lock);
    EXPECT_EQ(outcomeOf([&] { mutex.lock(); }), kRefused);
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(mutex.try_lock()); }), kRefused);
    mutex.unlock();
    // NOLINTEND(bugprone-use-after-move)
  }
}

TEST_P(MovedFrom, OtherObjectsRefuse) {
  Client client = connect();
  // NOLINTBEGIN(bugprone-use-after-move): it is what is tested
  FencedLock fenced = client.getFencedLock("f");
  const FencedLock otherFenced = std::move(fenced);
  EXPECT_EQ(by(fenced.lockAndGetTokenAsync()), kRefused);
  EXPECT_EQ(by(fenced.lockAndGetTokenAsync(1s)), kRefused);
  EXPECT_EQ(by(fenced.tryLockAndGetTokenAsync(1s)), kRefused);
  EXPECT_EQ(by(fenced.getTokenAsync()), kRefused);
  EXPECT_EQ(outcomeOf([&] { fenced.lockAndGetToken(); }), kRefused);
  EXPECT_EQ(outcomeOf([&] { fenced.getToken(); }), kRefused);

  ReadWriteLock sides = client.getReadWriteLock("rw");
  const ReadWriteLock otherSides = std::move(sides);
  EXPECT_EQ(by(sides.readLock().lockAsync()), kRefused);
  EXPECT_EQ(by(sides.writeLock().tryLockAsync()), kRefused);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(sides.getName()); }), kRefused);

  Semaphore semaphore = client.getSemaphore("s");
  const Semaphore otherSemaphore = std::move(semaphore);
  EXPECT_EQ(by(semaphore.acquireAsync()), kRefused);
  EXPECT_EQ(by(semaphore.tryAcquireAsync(0)), kRefused);
  EXPECT_EQ(by(semaphore.releaseAsync()), kRefused);
  EXPECT_EQ(by(semaphore.addPermitsAsync(0)), kRefused);
  EXPECT_EQ(by(semaphore.availablePermitsAsync()), kRefused);
  EXPECT_EQ(outcomeOf([&] { semaphore.acquire(-1); }), kRefused);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(semaphore.getName()); }), kRefused);

  PermitExpirableSemaphore permits = client.getPermitExpirableSemaphore("p");
  const PermitExpirableSemaphore otherPermits = std::move(permits);
  EXPECT_EQ(by(permits.acquireAsync()), kRefused);
  EXPECT_EQ(by(permits.acquireManyAsync(0)), kRefused);
  EXPECT_EQ(by(permits.holdAsync()), kRefused);
  EXPECT_EQ(by(permits.tryHoldAsync()), kRefused);
  EXPECT_EQ(by(permits.tryReleaseAsync("x")), kRefused);
  EXPECT_EQ(by(permits.getPermitsAsync()), kRefused);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(permits.getName()); }), kRefused);

  CountDownLatch latch = client.getCountDownLatch("l");
  const CountDownLatch otherLatch = std::move(latch);
  EXPECT_EQ(by(latch.awaitAsync()), kRefused);
  EXPECT_EQ(by(latch.countDownAsync()), kRefused);
  EXPECT_EQ(by(latch.trySetCountAsync(0)), kRefused);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(latch.getName()); }), kRefused);

  const Client other = std::move(client);
  EXPECT_EQ(by(client.inspectAsync("a")), kRefused);
  EXPECT_EQ(by(client.listAsync()), kRefused);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(client.getLock("a")); }), kRefused);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(client.getReadWriteLock("a")); }), kRefused);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(client.id()); }), kRefused);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(client.stats()); }), kRefused);
  EXPECT_EQ(outcomeOf([&] { client.close(1s); }), kRefused);
  // NOLINTEND(bugprone-use-after-move)
}

INSTANTIATE_TEST_SUITE_P(Faces, MovedFrom, ::testing::ValuesIn(kFaces), faceName);

class TemporaryHandle : public LockTest {};

TEST_F(TemporaryHandle, ItsNameOutlivesIt) {
  Client client = connect();
  const std::string name(100, 'n');
  // The last handles go at the end of each line.
  const std::string& lock = client.getLock(name).getName();
  const std::string& sides = client.getReadWriteLock(name).getName();
  const std::string& semaphore = client.getSemaphore(name).getName();
  const std::string& permits = client.getPermitExpirableSemaphore(name).getName();
  const std::string& latch = client.getCountDownLatch(name).getName();
  const std::string& id = connect().id();
  EXPECT_EQ(lock, name);
  EXPECT_EQ(sides, name);
  EXPECT_EQ(semaphore, name);
  EXPECT_EQ(permits, name);
  EXPECT_EQ(latch, name);
  EXPECT_EQ(id.size(), 36U);
}

}  // namespace
}  // namespace rlock::test
