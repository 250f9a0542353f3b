// SPDX-License-Identifier: Apache-2.0

// Every kind of object in the test double: its simple use, and that another client is shut out.

#include <rlock/rlock.hpp>
#include <rlock/testing.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <thread>

namespace rlock {
namespace {

using namespace std::chrono_literals;

struct Kind {
  const char* name;
  std::function<RLock(Client&)> get;
};

std::ostream& operator<<(std::ostream& out, const Kind& kind) {
  return out << kind.name;
}

class TestDoubleLocks : public testing::TestWithParam<Kind> {
 protected:
  TestServer server;
  Client client = server.connect();
  Client other = server.connect();
};

TEST_P(TestDoubleLocks, ExcludesRenewsExpires) {
  RLock mine = GetParam().get(client);
  RLock theirs = GetParam().get(other);
  ASSERT_TRUE(mine.tryLock());
  EXPECT_FALSE(theirs.tryLock());
  EXPECT_FALSE(theirs.tryLock(3s));
  server.clock().advance(5min);
  EXPECT_TRUE(mine.isHeldByCurrentThread());
  mine.unlock();
  ASSERT_TRUE(theirs.tryLock(0s, 10s));
  server.clock().advance(10s);
  EXPECT_FALSE(theirs.isLocked());
  EXPECT_TRUE(mine.tryLock());
  mine.unlock();
}

TEST_P(TestDoubleLocks, HandsOver) {
  RLock mine = GetParam().get(client);
  Lease lease = mine.acquire();
  auto waiting = std::async(std::launch::async, [&] {
    RLock theirs = GetParam().get(other);
    const bool got = theirs.tryLock(1min);
    if (got) {
      theirs.unlock();
    }
    return got;
  });
  server.clock().awaitWaiting();
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  // A spin lock's waiter polls.
  server.clock().advance(5s);
  EXPECT_TRUE(waiting.get());
}

TEST_P(TestDoubleLocks, LosesItsHold) {
  const Lease lease = GetParam().get(client).acquire();
  const std::string name = "k";
  ASSERT_TRUE(server.lose(name)) << server.dump();
  server.clock().advance(15s);
  EXPECT_FALSE(lease.held());
}

INSTANTIATE_TEST_SUITE_P(
    Kinds,
    TestDoubleLocks,
    testing::Values(Kind{"plain", [](Client& c) { return c.getLock("k"); }},
                    Kind{"fair", [](Client& c) { return c.getFairLock("k"); }},
                    Kind{"nonReentrant", [](Client& c) { return c.getNonReentrantLock("k"); }},
                    Kind{"nonReentrantFair",
                         [](Client& c) { return c.getNonReentrantFairLock("k"); }},
                    Kind{"fenced", [](Client& c) -> RLock { return c.getFencedLock("k"); }},
                    Kind{"spin", [](Client& c) { return c.getSpinLock("k"); }},
                    Kind{"simple", [](Client& c) { return c.getSimpleLock("k"); }},
                    Kind{"write", [](Client& c) { return c.getReadWriteLock("k").writeLock(); }}),
    [](const auto& each) { return std::string(each.param.name); });

class TestDoubleKinds : public testing::Test {
 protected:
  TestServer server;
  Client client = server.connect();
  Client other = server.connect();
};

TEST_F(TestDoubleKinds, ReadersShare) {
  ReadWriteLock mine = client.getReadWriteLock("k");
  ReadWriteLock theirs = other.getReadWriteLock("k");
  ASSERT_TRUE(mine.readLock().tryLock());
  ASSERT_TRUE(theirs.readLock().tryLock());
  EXPECT_FALSE(mine.writeLock().tryLock());
  server.clock().advance(1min);
  mine.readLock().unlock();
  theirs.readLock().unlock();
  EXPECT_TRUE(mine.writeLock().tryLock());
}

TEST_F(TestDoubleKinds, TokensRise) {
  FencedLock lock = client.getFencedLock("k");
  const auto first = lock.lockAndGetToken();
  lock.unlock();
  server.lose("k");
  const auto second = other.getFencedLock("k").lockAndGetToken();
  EXPECT_GT(second, first);
}

TEST_F(TestDoubleKinds, Semaphores) {
  Semaphore mine = client.getSemaphore("k");
  Semaphore theirs = other.getSemaphore("k");
  ASSERT_TRUE(mine.trySetPermits(2));
  mine.acquire(2);
  EXPECT_FALSE(theirs.tryAcquire(1, 5s));
  server.dropReplies();
  mine.release(1);
  EXPECT_EQ(theirs.availablePermits(), 1);
  EXPECT_TRUE(theirs.tryAcquire());
}

TEST_F(TestDoubleKinds, Permits) {
  PermitExpirableSemaphore mine = client.getPermitExpirableSemaphore("k");
  PermitExpirableSemaphore theirs = other.getPermitExpirableSemaphore("k");
  ASSERT_TRUE(mine.trySetPermits(1));
  const Permit permit = mine.hold();
  EXPECT_FALSE(theirs.tryAcquire(5s).has_value());
  server.clock().advance(5min);
  EXPECT_TRUE(permit.held());
  server.lose("k");
  server.clock().advance(15s);
  EXPECT_FALSE(permit.held());
}

TEST_F(TestDoubleKinds, APermitExpires) {
  PermitExpirableSemaphore mine = client.getPermitExpirableSemaphore("k");
  ASSERT_TRUE(mine.trySetPermits(1));
  const std::string id = mine.acquire(10s);
  EXPECT_EQ(mine.availablePermits(), 0);
  server.clock().advance(11s);
  EXPECT_EQ(mine.availablePermits(), 1);
  EXPECT_FALSE(mine.tryRelease(id));
}

TEST_F(TestDoubleKinds, Latches) {
  CountDownLatch mine = client.getCountDownLatch("k");
  ASSERT_TRUE(mine.trySetCount(2));
  auto waiting =
      std::async(std::launch::async, [&] { return other.getCountDownLatch("k").await(1h); });
  server.clock().awaitWaiting();
  mine.countDown();
  mine.countDown();
  EXPECT_TRUE(waiting.get());
}

TEST_F(TestDoubleKinds, SeveralLocksAsOne) {
  RLock both = multiLock({client.getLock("a"), client.getLock("b")});
  ASSERT_TRUE(both.tryLock());
  EXPECT_FALSE(other.getLock("a").tryLock());
  server.clock().advance(5min);
  EXPECT_FALSE(other.getLock("b").tryLock());
  both.unlock();
  EXPECT_TRUE(other.getLock("b").tryLock());
}

TEST_F(TestDoubleKinds, AWaitForSeveralLocksEndsByTheClock) {
  const Lease theirs = server.otherHolds("b");
  RLock both = multiLock({client.getLock("a"), client.getLock("b")});
  const auto before = server.clock().now();
  EXPECT_FALSE(both.tryLock(10s));
  EXPECT_GE(server.clock().now(), before + 10s);
  EXPECT_FALSE(client.getLock("a").isLocked());
}

TEST_F(TestDoubleKinds, AMajorityOfServers) {
  TestServer second(server.clock());
  TestServer third(server.clock());
  Client onSecond = second.connect();
  Client onThird = third.connect();
  const auto group = [&] {
    return redLock({client.getLock("k"), onSecond.getLock("k"), onThird.getLock("k")});
  };
  const Lease theirs = third.otherHolds("k");
  RLock lock = group();
  ASSERT_TRUE(lock.tryLock(1s));
  EXPECT_FALSE(other.getLock("k").tryLock());
  lock.unlock();
  const Lease more = second.otherHolds("k");
  EXPECT_FALSE(group().tryLock(1s));
}

TEST_F(TestDoubleKinds, GuardsOfTheStandard) {
  Mutex mutex(client.getLock("k"));
  {
    const std::lock_guard guard(mutex);
    EXPECT_FALSE(other.getLock("k").tryLock());
  }
  server.clock().settle();
  EXPECT_TRUE(other.getLock("k").tryLock());
}

TEST_F(TestDoubleKinds, Inspection) {
  const Lease lease = client.getLock("k").acquire({.label = "night run"});
  server.clock().settle();  // the label follows in the background
  const auto info = other.inspect("k");
  ASSERT_TRUE(info.has_value());
  ASSERT_EQ(info->holders.size(), 1U);
  EXPECT_EQ(info->holders.front().label, "night run");
  EXPECT_EQ(other.list("*").size(), 1U);
}

}  // namespace
}  // namespace rlock
