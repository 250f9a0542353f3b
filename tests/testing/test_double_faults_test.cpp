// SPDX-License-Identifier: Apache-2.0

// Each thing that a test can order to go wrong, and what a client makes of it.

#include "testing/error_of.hpp"
#include <rlock/rlock.hpp>
#include <rlock/testing.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <stop_token>
#include <thread>

namespace rlock {
namespace {

using namespace std::chrono_literals;
using test::errorOf;

Options quiet() {
  Options options;
  options.log = [](LogLevel, std::string_view) {};
  return options;
}

class TestDoubleFaults : public testing::Test {
 protected:
  TestServer server;
  Client client = server.connect(quiet());
};

TEST_F(TestDoubleFaults, ALostHoldIsToldAtTheNextRenewal) {
  const Lease lease = client.getLock("x").acquire();
  EXPECT_TRUE(server.lose("x"));
  EXPECT_FALSE(server.lose("x"));
  EXPECT_TRUE(lease.held());
  server.clock().advance(10s);
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(lease.lossReason(), LossReason::refused);
  EXPECT_TRUE(lease.lostToken().stop_requested());
}

TEST_F(TestDoubleFaults, ALostHoldCanBeAnothers) {
  Lease mine = client.getLock("x").acquire();
  EXPECT_EQ(errorOf([&] { static_cast<void>(server.otherHolds("x")); }), Errc::timedOut);
  server.lose("x");
  const Lease theirs = server.otherHolds("x");
  server.clock().advance(10s);
  EXPECT_FALSE(mine.held());
  EXPECT_TRUE(theirs.held());
  EXPECT_EQ(mine.release(), ReleaseResult::lost);
  EXPECT_TRUE(theirs.held());
}

TEST_F(TestDoubleFaults, AHoldInAnotherDatabaseIsLostThere) {
  Options options = quiet();
  options.database = 3;
  Client there = server.connect(options);
  const Lease lease = there.getLock("x").acquire();
  // The next connection is to the same database.
  server.restart();
  server.clock().advance(1min);
  EXPECT_TRUE(lease.held());
  EXPECT_TRUE(server.lose("x"));
  server.clock().advance(10s);
  EXPECT_FALSE(lease.held());
  EXPECT_FALSE(server.lose("x"));
}

TEST_F(TestDoubleFaults, UnlockOfALostHold) {
  RLock lock = client.getLock("x");
  lock.lock();
  server.lose("x");
  EXPECT_EQ(errorOf([&] { lock.unlock(); }), Errc::notOwner);
}

TEST_F(TestDoubleFaults, AForcedReleaseIsToldAtOnce) {
  const Lease lease = client.getLock("x").acquire();
  server.clock().advance(1s);
  Client admin = server.connect();
  EXPECT_TRUE(admin.getLock("x").forceUnlock());
  server.clock().settle();
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(lease.lossReason(), LossReason::forced);
}

TEST_F(TestDoubleFaults, ALostReplyIsReconciled) {
  RLock lock = client.getLock("x");
  server.dropReplies();
  lock.lock();
  EXPECT_EQ(lock.getHoldCount(), 1);
  server.dropReplies();
  lock.unlock();
  EXPECT_FALSE(lock.isLocked());
  EXPECT_EQ(client.stats().lostReplies, 2U);
  EXPECT_EQ(client.stats().reconnects, 2U);
}

TEST_F(TestDoubleFaults, SeveralLostReplies) {
  RLock lock = client.getLock("x");
  server.dropReplies(3);
  EXPECT_TRUE(lock.tryLock());
  EXPECT_EQ(lock.getHoldCount(), 1);
}

TEST_F(TestDoubleFaults, ALostRequestIsRepeated) {
  RLock lock = client.getLock("x");
  server.dropRequests();
  lock.lock();
  EXPECT_EQ(lock.getHoldCount(), 1);
  lock.unlock();
  EXPECT_EQ(client.stats().lostReplies, 1U);
}

TEST_F(TestDoubleFaults, ALostMessageIsMadeUpForByAPoll) {
  std::optional<Lease> theirs = server.otherHolds("x");
  auto waiting = std::async(std::launch::async, [&] { return client.getLock("x").tryLock(1min); });
  server.clock().awaitWaiting();
  server.dropMessages();
  theirs->release();
  server.clock().settle();
  EXPECT_EQ(client.stats().waiters, 1U);
  server.clock().advance(1s);
  EXPECT_TRUE(waiting.get());
  EXPECT_GE(client.stats().safetyPolls, 1U);
}

TEST_F(TestDoubleFaults, DownForAWhile) {
  server.down(5s);
  server.clock().settle();
  EXPECT_FALSE(client.connected());
  EXPECT_EQ(errorOf([&] { static_cast<void>(server.connect(quiet())); }), Errc::connectionFailed);
  server.clock().advance(8s);
  EXPECT_TRUE(client.connected());
  EXPECT_TRUE(client.getLock("x").tryLock());
}

TEST_F(TestDoubleFaults, ACallWaitsForTheServer) {
  server.down(2s);
  const auto before = server.clock().now();
  EXPECT_TRUE(client.getLock("x").tryLock());
  EXPECT_GE(server.clock().now(), before + 2s);
}

TEST_F(TestDoubleFaults, ACallGivesUpWhileTheServerIsDown) {
  server.down();
  const auto before = server.clock().now();
  EXPECT_EQ(errorOf([&] { static_cast<void>(client.getLock("x").tryLock()); }),
            Errc::connectionFailed);
  EXPECT_GE(server.clock().now(), before + 5s);
  server.up();
  server.clock().advance(2s);
  EXPECT_TRUE(client.getLock("x").tryLock());
}

TEST_F(TestDoubleFaults, AHoldRunsOutWhileTheServerIsDown) {
  const Lease lease = client.getLock("x").acquire();
  server.down();
  server.clock().advance(29s);
  EXPECT_TRUE(lease.held());
  server.clock().advance(1s);
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(lease.lossReason(), LossReason::unreachable);
}

TEST_F(TestDoubleFaults, AShortOutageLosesNothing) {
  const Lease lease = client.getLock("x").acquire();
  server.clock().advance(5s);
  server.down(10s);
  server.clock().advance(1min);
  EXPECT_TRUE(lease.held());
}

TEST_F(TestDoubleFaults, ClosingWhileTheServerIsDownEnds) {
  std::thread([&] { EXPECT_TRUE(client.getLock("y").tryLock()); }).join();
  const Lease lease = client.getLock("x").acquire();
  server.down();
  client.close(2s);
  EXPECT_FALSE(lease.held());
}

TEST_F(TestDoubleFaults, AFrozenServerAnswersLate) {
  server.freeze(1s);
  const auto before = server.clock().now();
  EXPECT_TRUE(client.getLock("x").tryLock());
  EXPECT_GE(server.clock().now(), before + 1s);
  EXPECT_EQ(client.stats().lostReplies, 0U);
}

/// Nobody moves the time at which the call would look by itself.
TEST_F(TestDoubleFaults, AStopRequestEndsTheWaitForAReply) {
  server.freeze(1h);
  std::stop_source stop;
  auto waiting = std::async(std::launch::async, [&] {
    return errorOf([&] { client.getLock("x").lockInterruptibly(stop.get_token()); });
  });
  server.clock().awaitWaiting();
  stop.request_stop();
  EXPECT_EQ(waiting.wait_for(10s), std::future_status::ready);
  server.clock().advance(1s);
  EXPECT_EQ(waiting.get(), Errc::cancelled);
}

TEST_F(TestDoubleFaults, AFrozenServerSubscribesNobody) {
  RLock lock = client.getLock("x");
  Lease earlier = lock.acquire();
  server.clock().advance(1s);
  EXPECT_EQ(earlier.release(), ReleaseResult::released);
  // From here on the client has a connection for its channels, and none of them any longer.
  server.clock().advance(1min);
  const Lease lease = lock.acquire();
  server.freeze(5s);
  const std::uint64_t before = server.commandCount();
  // A holder subscribes to what tells it of a forced release.
  server.clock().advance(4s);
  EXPECT_EQ(server.commandCount(), before);
  server.clock().advance(2s);
  EXPECT_GT(server.commandCount(), before);
  Client admin = server.connect(quiet());
  EXPECT_TRUE(admin.getLock("x").forceUnlock());
  server.clock().settle();
  EXPECT_EQ(lease.lossReason(), LossReason::forced);
}

TEST_F(TestDoubleFaults, AFrozenServerEndsNoSubscription) {
  Lease lease = client.getLock("x").acquire();
  server.clock().advance(1s);
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  server.freeze(1min);
  const std::uint64_t before = server.commandCount();
  // The subscription is given up some time after the last hold.
  server.clock().advance(50s);
  EXPECT_EQ(server.commandCount(), before);
  server.clock().advance(15s);
  EXPECT_GT(server.commandCount(), before);
}

TEST_F(TestDoubleFaults, AServerThatStaysFrozenIsGivenUp) {
  server.freeze(1h);
  EXPECT_TRUE(errorOf([&] { static_cast<void>(client.getLock("x").tryLock()); }).has_value());
  EXPECT_FALSE(client.connected());
  server.clock().advance(1h);
  EXPECT_TRUE(client.getLock("x").tryLock());
}

TEST_F(TestDoubleFaults, AFrozenServerAnswersWhenItIsToldTo) {
  RLock lock = client.getLock("x");
  Lease earlier = lock.acquire();
  server.clock().advance(1s);
  EXPECT_EQ(earlier.release(), ReleaseResult::released);
  server.clock().advance(1min);
  // A request and a subscription wait now.
  server.freeze(Duration::max());
  std::optional<bool> taken;
  lock.tryLockAsync(AcquireOptions{}, newOwner()).start([&](const Result<bool>& result) {
    taken = result.has_value() && *result;
  });
  server.clock().advance(10ms);
  EXPECT_FALSE(taken.has_value());
  server.freeze(0s);
  server.clock().settle();
  EXPECT_EQ(taken, true);
  EXPECT_EQ(client.stats().lostReplies, 0U);
  // A holder subscribes to what tells it of a forced release.
  server.clock().advance(100ms);
  server.freeze(Duration::max());
  server.clock().advance(200ms);
  server.freeze(0s);
  server.clock().settle();
  Client admin = server.connect(quiet());
  EXPECT_TRUE(admin.getLock("x").forceUnlock());
  server.clock().settle();
  EXPECT_EQ(client.stats().lost, 1U);
}

TEST_F(TestDoubleFaults, AClientFindsAServerThatIsNoLongerFrozen) {
  server.freeze(Duration::max());
  EXPECT_TRUE(errorOf([&] { static_cast<void>(client.getLock("x").tryLock()); }).has_value());
  EXPECT_FALSE(client.connected());
  server.freeze(0s);
  EXPECT_TRUE(client.getLock("x").tryLock());
}

TEST_F(TestDoubleFaults, ARestartedServerIsNotFrozen) {
  server.freeze(Duration::max());
  server.restart();
  const auto before = server.clock().now();
  EXPECT_TRUE(client.getLock("x").tryLock());
  EXPECT_LT(server.clock().now(), before + 5s);
}

TEST_F(TestDoubleFaults, ARestartKeepsTheHolds) {
  const Lease lease = client.getLock("x").acquire();
  server.restart();
  server.clock().advance(1min);
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(client.stats().reconnects, 1U);
}

TEST_F(TestDoubleFaults, ARestartWithoutDataIsToldOnceReconnected) {
  const Lease lease = client.getLock("x").acquire();
  server.restartEmpty();
  server.clock().advance(1s);
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(server.dump(), "");
}

TEST_F(TestDoubleFaults, WaitersAreWokenAfterARestart) {
  const Lease theirs = server.otherHolds("x", 1h);
  auto waiting = std::async(std::launch::async, [&] { return client.getLock("x").tryLock(10min); });
  server.clock().awaitWaiting();
  server.restartEmpty();
  server.clock().advance(2s);
  EXPECT_TRUE(waiting.get());
}

TEST_F(TestDoubleFaults, MemoryAndReplicas) {
  server.setOutOfMemory(true);
  EXPECT_EQ(errorOf([&] { static_cast<void>(client.getLock("x").tryLock()); }), Errc::outOfMemory);
  server.setOutOfMemory(false);
  server.setReadOnly(true);
  EXPECT_EQ(errorOf([&] { static_cast<void>(client.getLock("x").tryLock()); }), Errc::readOnly);
  server.setReadOnly(false);
  server.clock().advance(5s);
  EXPECT_TRUE(client.getLock("x").tryLock());
}

TEST_F(TestDoubleFaults, FaultsAndThreadsTogether) {
  constexpr int kThreads = 4;
  int counter = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        for (int round = 0; round < 50; ++round) {
          const Lease lease = client.getLock("x").acquire();
          ++counter;
          if (round % 10 == 0) {
            server.dropReplies();
          }
        }
      });
    }
  }
  EXPECT_EQ(counter, kThreads * 50);
}

}  // namespace
}  // namespace rlock
