// SPDX-License-Identifier: Apache-2.0

// The test double as the tests of a service see it: time, holds, other clients.

#include <rlock/rlock.hpp>
#include <rlock/testing.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

namespace rlock {
namespace {

using namespace std::chrono_literals;
using Real = std::chrono::steady_clock;

/// Far longer than anything here takes, and far shorter than what would be waited for in real time.
constexpr auto kAtOnce = 5s;

class TestDouble : public testing::Test {
 protected:
  TestServer server;
  Client client = server.connect();
};

TEST_F(TestDouble, IsAClientLikeAnyOther) {
  RLock lock = client.getLock("orders:17");
  lock.lock();
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  EXPECT_EQ(lock.remainTimeToLive(), 30s);
  lock.unlock();
  EXPECT_FALSE(lock.isLocked());
  EXPECT_TRUE(client.connected());
  EXPECT_GE(client.ping(), 0ns);
  const Capabilities capabilities = client.capabilities();
  EXPECT_EQ(capabilities.server + " " + capabilities.role + " " + capabilities.mode,
            "redis master standalone");
  EXPECT_EQ(capabilities.scripts, true);
  EXPECT_EQ(capabilities.clientKill, true);
}

TEST_F(TestDouble, ClientsExcludeEachOther) {
  Client second = server.connect();
  EXPECT_NE(client.id(), second.id());
  Lease lease = client.getLock("x").acquire();
  EXPECT_FALSE(second.getLock("x").tryLock());
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_TRUE(second.getLock("x").tryLock());
}

TEST_F(TestDouble, ServersShareNothingButTheClock) {
  TestServer another(server.clock());
  Client elsewhere = another.connect();
  const Lease lease = client.getLock("x").acquire();
  EXPECT_TRUE(elsewhere.getLock("x").tryLock());
  const auto before = server.clock().now();
  another.clock().advance(1h);
  EXPECT_EQ(server.clock().now(), before + 1h);
}

TEST_F(TestDouble, DatabasesHaveLocksOfTheirOwn) {
  Options options;
  options.database = 15;
  Client there = server.connect(options);
  Client beside = server.connect(options);
  const Lease here = client.getLock("x").acquire();
  EXPECT_EQ(server.dump().find("database"), std::string::npos) << server.dump();
  const std::optional<Lease> lease = there.getLock("x").tryAcquire();
  ASSERT_TRUE(lease.has_value());
  EXPECT_FALSE(beside.getLock("x").tryLock());
  server.clock().advance(1min);
  EXPECT_TRUE(here.held());
  EXPECT_TRUE(lease->held());
  EXPECT_NE(server.dump().find("database 15:\n"), std::string::npos) << server.dump();
}

TEST_F(TestDouble, CommandsAreCountedWithThoseOfScripts) {
  RLock lock = client.getLock("x");
  lock.lock();
  lock.unlock();
  server.clock().settle();
  const std::uint64_t before = server.commandCount();
  ASSERT_TRUE(lock.tryLock());
  // It is one request, whose script runs further commands.
  EXPECT_GT(server.commandCount(), before + 1);
}

TEST_F(TestDouble, TimeStandsStill) {
  const auto before = server.clock().now();
  const Lease lease = client.getLock("x").acquire({.lease = 1s});
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(server.clock().now(), before);
  EXPECT_EQ(client.getLock("x").remainTimeToLive(), 1s);
}

TEST_F(TestDouble, ALeaseEndsWhenItsTimeIsOver) {
  const Lease lease = client.getLock("x").acquire({.lease = 10s});
  EXPECT_LE(lease.validUntil(), server.clock().now() + 10s);
  EXPECT_GT(lease.validUntil(), server.clock().now() + 9s);
  server.clock().advance(9s);
  EXPECT_TRUE(lease.held());
  EXPECT_FALSE(lease.lostToken().stop_requested());
  server.clock().advance(1s);
  EXPECT_FALSE(lease.held());
  EXPECT_TRUE(lease.lostToken().stop_requested());
  EXPECT_EQ(lease.lossReason(), LossReason::expired);
  EXPECT_FALSE(client.getLock("x").isLocked());
}

TEST_F(TestDouble, TheWatchdogRenewsWhileTimePasses) {
  const Lease lease = client.getLock("x").acquire();
  server.clock().advance(1h);
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(client.stats().renewals, 360U);
  EXPECT_EQ(client.stats().lost, 0U);
  const auto left = client.getLock("x").remainTimeToLive();
  ASSERT_TRUE(left.has_value());
  EXPECT_GT(*left, 19s);
}

TEST_F(TestDouble, TheSameTestHasTheSameCommandsEachTime) {
  std::optional<std::uint64_t> first;
  for (int i = 0; i < 5; ++i) {
    TestServer again;
    Client a = again.connect();
    Client b = again.connect();
    const Lease one = a.getLock("x").acquire();
    const Lease two = b.getLock("y").acquire();
    EXPECT_FALSE(b.getLock("x").tryLock(10s));
    again.clock().advance(5min);
    const std::uint64_t commands = again.commandCount();
    EXPECT_EQ(first.value_or(commands), commands);
    first = commands;
  }
}

TEST_F(TestDouble, AWaitOfTheOnlyThreadTakesNoTime) {
  const Lease theirs = server.otherHolds("x");
  const auto before = server.clock().now();
  const auto begun = Real::now();
  EXPECT_FALSE(client.getLock("x").tryLock(1min));
  EXPECT_LT(Real::now() - begun, kAtOnce);
  EXPECT_EQ(server.clock().now(), before + 1min);
  EXPECT_TRUE(theirs.held());
}

TEST_F(TestDouble, AWaitOfTheOnlyThreadEndsWithTheOthersLease) {
  const Lease theirs = server.otherHolds("x", 7s);
  const auto before = server.clock().now();
  client.getLock("x").lock();
  EXPECT_GE(server.clock().now(), before + 7s);
  EXPECT_LT(server.clock().now(), before + 9s);
}

TEST_F(TestDouble, AWaitWithoutALimitMovesTimeByAnHour) {
  const Lease theirs = server.otherHolds("x");
  const auto before = server.clock().now();
  std::stop_source stop;
  // It looks at the clock only, so that it is not one of the threads that call.
  auto watching = std::async(std::launch::async, [&] {
    const auto limit = Real::now() + kAtOnce;
    while (server.clock().now() < before + 1h && Real::now() < limit) {
      std::this_thread::sleep_for(1ms);
    }
    std::this_thread::sleep_for(200ms);
    const auto moved = server.clock().now() - before;
    stop.request_stop();
    return moved;
  });
  EXPECT_THROW(client.getLock("x").lockInterruptibly(stop.get_token()), Error);
  const auto moved = watching.get();
  EXPECT_GE(moved, 1h);
  EXPECT_LT(moved, 70min);
  EXPECT_TRUE(theirs.held());

  // The next call begins anew.
  EXPECT_FALSE(client.getLock("x").tryLock(1h));
}

TEST_F(TestDouble, AWaitBesideOtherThreadsLastsUntilTimeIsMoved) {
  const Lease theirs = server.otherHolds("x");
  std::atomic<bool> over{false};
  auto waiting = std::async(std::launch::async, [&] {
    const bool got = client.getLock("x").tryLock(10s);
    over = true;
    return got;
  });
  server.clock().awaitWaiting();
  server.clock().advance(9s);
  server.clock().settle();
  EXPECT_FALSE(over);
  server.clock().advance(1s);
  EXPECT_FALSE(waiting.get());
}

TEST_F(TestDouble, AReleaseWakesTheWaiterWithoutTime) {
  Lease theirs = server.otherHolds("x");
  const auto before = server.clock().now();
  auto waiting = std::async(std::launch::async, [&] {
    RLock lock = client.getLock("x");
    const bool got = lock.tryLock(1h);
    lock.unlock();
    return got;
  });
  server.clock().awaitWaiting();
  EXPECT_EQ(theirs.release(), ReleaseResult::released);
  EXPECT_TRUE(waiting.get());
  EXPECT_EQ(server.clock().now(), before);
}

TEST_F(TestDouble, AsManyWaitersAreAwaitedAsTheTestSays) {
  Lease theirs = server.otherHolds("x");
  const auto wait = [&] {
    RLock lock = client.getLock("x");
    const bool got = lock.tryLock(1h);
    if (got) {
      lock.unlock();
    }
    return got;
  };
  auto first = std::async(std::launch::async, wait);
  server.clock().awaitWaiting();
  std::atomic<bool> begun{false};
  auto awaiting = std::async(std::launch::async, [&] {
    server.clock().awaitWaiting(2);
    return begun.load();
  });
  EXPECT_EQ(awaiting.wait_for(50ms), std::future_status::timeout);
  begun = true;
  auto second = std::async(std::launch::async, wait);
  EXPECT_TRUE(awaiting.get());
  EXPECT_EQ(theirs.release(), ReleaseResult::released);
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get());
}

TEST_F(TestDouble, AStopRequestEndsAWait) {
  const Lease theirs = server.otherHolds("x");
  std::stop_source stop;
  auto waiting = std::async(std::launch::async, [&] {
    try {
      client.getLock("x").lockInterruptibly(stop.get_token());
    } catch (const Error& error) {
      return error.errc();
    }
    return Errc::serverError;
  });
  server.clock().awaitWaiting();
  stop.request_stop();
  EXPECT_EQ(waiting.get(), Errc::cancelled);
}

TEST_F(TestDouble, RealTimePassesByItself) {
  TestServer running{TestClock(TestTime::real)};
  Client here = running.connect();
  const Lease theirs = running.otherHolds("x");
  const auto before = running.clock().now();
  EXPECT_FALSE(here.getLock("x").tryLock(1s));
  EXPECT_GE(running.clock().now(), before + 1s);
  const Lease mine = here.getLock("y").acquire();
  running.clock().advance(1h);
  EXPECT_GE(running.clock().now(), before + 1h);
  EXPECT_TRUE(mine.held());
}

TEST_F(TestDouble, CallbacksHaveReturnedWhenTimeHasPassed) {
  std::atomic<int> told{0};
  Options options;
  options.onLost = [&](const LostHold& lost) {
    EXPECT_EQ(lost.name, "x");
    ++told;
  };
  options.logLevel = LogLevel::error;
  Client teller = server.connect(options);
  const Lease lease = teller.getLock("x").acquire({.lease = 1s});
  server.clock().advance(1s);
  EXPECT_EQ(told, 1);
  std::atomic<bool> done{false};
  teller.getLock("y").acquireAsync().start([&](Result<Lease> got) { done = got.has_value(); });
  server.clock().settle();
  EXPECT_TRUE(done);
}

TEST_F(TestDouble, ACallbackCannotMoveTime) {
  std::promise<Errc> said;
  client.getLock("x").isLockedAsync().start([&](Result<bool>) {
    try {
      server.clock().advance(1s);
      said.set_value(Errc::serverError);
    } catch (const Error& error) {
      said.set_value(error.errc());
    }
  });
  EXPECT_EQ(said.get_future().get(), Errc::wouldDeadlock);
  EXPECT_THROW(server.clock().advance(Duration::max()), Error);
}

TEST_F(TestDouble, ACallbackMayWaitForAnotherClient) {
  Client second = server.connect();
  std::promise<bool> got;
  client.getLock("x").isLockedAsync().start(
      [&](Result<bool>) { got.set_value(second.getLock("y").tryLock()); });
  EXPECT_TRUE(got.get_future().get());
}

TEST_F(TestDouble, OperationsHaveAllTheirFaces) {
  std::future<Lease> future = client.getLock("x").acquireAsync().toFuture();
  Lease lease = future.get();
  EXPECT_TRUE(lease.held());
  std::promise<bool> free;
  client.getLock("x").tryLockAsync(AcquireOptions{}, newOwner()).start([&](Result<bool> result) {
    free.set_value(*result);
  });
  EXPECT_FALSE(free.get_future().get());
}

TEST_F(TestDouble, ThreadsContend) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 25;
  int counter = 0;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        Client own = server.connect();
        for (int round = 0; round < kRounds; ++round) {
          RLock lock = own.getLock("x");
          lock.lock();
          ++counter;
          lock.unlock();
        }
      });
    }
  }
  EXPECT_EQ(counter, kThreads * kRounds);
}

/// A client that has handed its lock on often enough lets others go first, but not for a time that
/// does not pass.
TEST_F(TestDouble, ThreadsOfAFewClientsContend) {
  constexpr int kThreads = 4;
  constexpr int kRounds = 50;
  Options options;
  options.handOverLimit = 1;
  std::vector<Client> clients;
  clients.push_back(server.connect(options));
  clients.push_back(server.connect(options));
  int counter = 0;
  std::stop_source stop;
  std::vector<std::future<void>> threads;
  for (int i = 0; i < kThreads; ++i) {
    for (Client& each : clients) {
      threads.push_back(std::async(std::launch::async, [&] {
        for (int round = 0; round < kRounds; ++round) {
          RLock lock = each.getLock("x");
          lock.lockInterruptibly(stop.get_token());
          ++counter;
          lock.unlock();
        }
      }));
    }
  }
  const auto limit = Real::now() + 4 * kAtOnce;
  for (const auto& thread : threads) {
    EXPECT_EQ(thread.wait_until(limit), std::future_status::ready);
  }
  stop.request_stop();
  for (auto& thread : threads) {
    EXPECT_NO_THROW(thread.get());
  }
  EXPECT_EQ(counter, 2 * kThreads * kRounds);
}

TEST_F(TestDouble, ClosingEndsWaitingCalls) {
  const Lease theirs = server.otherHolds("x");
  auto waiting = std::async(std::launch::async, [&] {
    try {
      client.getLock("x").lock();
    } catch (const Error& error) {
      return error.errc();
    }
    return Errc::serverError;
  });
  server.clock().awaitWaiting();
  client.close(1s);
  EXPECT_EQ(waiting.get(), Errc::closed);
}

TEST_F(TestDouble, AClientOutlivesItsServer) {
  std::optional<TestServer> gone(std::in_place);
  Client stays = gone->connect();
  gone.reset();
  EXPECT_TRUE(stays.getLock("x").tryLock());
}

TEST_F(TestDouble, NothingIsLeftOfAClient) {
  {
    Client passing = server.connect();
    passing.getLock("x").lock();
    EXPECT_EQ(server.connectionCount(), 2U);
  }
  EXPECT_EQ(server.connectionCount(), 1U);
  EXPECT_EQ(server.dump(), "");
}

TEST_F(TestDouble, RefusesWhatItDoesNotHave) {
  Options cluster;
  cluster.topology = Topology::cluster;
  EXPECT_THROW(static_cast<void>(server.connect(cluster)), Error);
  Options acknowledged;
  acknowledged.sync = SyncPolicy::replicas(1);
  EXPECT_THROW(static_cast<void>(server.connect(acknowledged)), Error);
  Options beyond;
  beyond.database = 16;
  EXPECT_THROW(static_cast<void>(server.connect(beyond)), Error);
  // It is refused without being looked at.
  std::byte loop{};
  Options onItsLoop;
  onItsLoop.loop = reinterpret_cast<uv_loop_t*>(&loop);
  EXPECT_THROW(static_cast<void>(server.connect(onItsLoop)), Error);
}

}  // namespace
}  // namespace rlock
