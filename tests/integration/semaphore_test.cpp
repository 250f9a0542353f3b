// SPDX-License-Identifier: Apache-2.0

// The semaphore: Redisson's own tests, what stands on the server, and who is woken. Lost replies
// are in semaphore_fault_test.cpp.

#include "integration/counter_harness.hpp"
#include "integration/lost_reply_harness.hpp"

#include <barrier>
#include <limits>
#include <random>

namespace rlock::test {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();

class SemaphoreTest : public CounterTest {};
class SemaphoreBlocking : public LockTest {};

INSTANTIATE_TEST_SUITE_P(Faces, SemaphoreTest, ::testing::ValuesIn(kFaces), faceName);

// ---- Redisson's tests

TEST_P(SemaphoreTest, SE01_PermitsAreSetOnce) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se01");
  EXPECT_EQ(semaphore.getName(), "se01");
  EXPECT_EQ(answer(semaphore.trySetPermitsAsync(10)), "true");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 10);
  EXPECT_EQ(answer(semaphore.trySetPermitsAsync(15)), "false");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 10);
  EXPECT_EQ(answer(semaphore.removeAsync()), "true");
  EXPECT_EQ(answer(semaphore.removeAsync()), "false");
  EXPECT_EQ(answer(semaphore.trySetPermitsAsync(1, 3s)), "true");
  EXPECT_LE(raw().pttl("se01"), 3000);
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 1);
  EXPECT_EVENTUALLY(kLong, run(semaphore.availablePermitsAsync()).value() == 0);
  EXPECT_FALSE(raw().exists("se01"));
}

TEST_P(SemaphoreTest, SE02_AcquireWithoutPermitsSet) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se02");
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_EQ(outcome(semaphore.acquireAsync(2)), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 0);
}

TEST_P(SemaphoreTest, SE03_ReleaseMakesTheSemaphore) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se03");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 0);
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 1);
}

TEST_P(SemaphoreTest, SE04_TheCountsAddUp) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se04");
  ASSERT_EQ(answer(semaphore.trySetPermitsAsync(10)), "true");
  EXPECT_EQ(outcome(semaphore.acquireAsync()), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 9);
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 10);
  EXPECT_EQ(outcome(semaphore.acquireAsync(5)), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 5);
  EXPECT_EQ(outcome(semaphore.releaseAsync(5)), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 10);
}

TEST_P(SemaphoreTest, SE05_PermitsAreAdded) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se05");
  ASSERT_EQ(answer(semaphore.trySetPermitsAsync(10)), "true");
  EXPECT_EQ(outcome(semaphore.acquireAsync(10)), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 0);
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(4)), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 4);
  EXPECT_EQ(outcome(semaphore.releaseAsync(10)), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 14);
  EXPECT_EQ(outcome(semaphore.acquireAsync(5)), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 9);
}

TEST_P(SemaphoreTest, SE06_PermitsAreReducedBelowZero) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se06");
  ASSERT_EQ(answer(semaphore.trySetPermitsAsync(10)), "true");
  EXPECT_EQ(outcome(semaphore.acquireAsync(10)), "ok");
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(-5)), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), -5);
  EXPECT_EQ(answer(semaphore.tryAcquireAsync()), "false");
  EXPECT_EQ(outcome(semaphore.releaseAsync(10)), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 5);
  EXPECT_EQ(outcome(semaphore.acquireAsync(5)), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 0);
}

TEST_P(SemaphoreTest, SE07_NoPermitsNeedNoWait) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se07");
  const auto before = client.stats().commands;
  const Stopwatch watch;
  EXPECT_EQ(answer(semaphore.tryAcquireAsync(0, 10min)), "true");
  EXPECT_EQ(outcome(semaphore.acquireAsync(0)), "ok");
  EXPECT_EQ(answer(semaphore.tryAcquireAsync(0)), "true");
  EXPECT_EQ(outcome(semaphore.releaseAsync(0)), "ok");
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(0)), "ok");
  EXPECT_EQ(answer(semaphore.releaseIfExistsAsync(0)), "false");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  EXPECT_EQ(client.stats().commands, before);
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 0);
  expectNoKeys();
}

TEST_P(SemaphoreTest, SE08_Drain) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se08");
  EXPECT_EQ(run(semaphore.drainPermitsAsync()).value(), 0);
  EXPECT_FALSE(raw().exists("se08"));
  ASSERT_EQ(answer(semaphore.trySetPermitsAsync(10)), "true");
  EXPECT_EQ(outcome(semaphore.acquireAsync(3)), "ok");
  EXPECT_EQ(run(semaphore.drainPermitsAsync()).value(), 7);
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 0);
  // As Redisson: a debt is evened out.
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(-4)), "ok");
  EXPECT_EQ(run(semaphore.drainPermitsAsync()).value(), -4);
  EXPECT_EQ(raw().get("se08"), "0");
}

TEST_P(SemaphoreTest, SE09_ReleaseIfExists) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se09");
  ASSERT_EQ(answer(semaphore.trySetPermitsAsync(10)), "true");
  EXPECT_EQ(outcome(semaphore.acquireAsync()), "ok");
  EXPECT_EQ(answer(semaphore.releaseIfExistsAsync(1)), "true");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 10);
  Semaphore unset = client.getSemaphore("se09-unset");
  EXPECT_EQ(answer(unset.releaseIfExistsAsync(1)), "false");
  EXPECT_FALSE(raw().exists("se09-unset"));
}

TEST_P(SemaphoreTest, SE10_AcquireBlocksUntilARelease) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se10");
  ASSERT_EQ(answer(semaphore.trySetPermitsAsync(1)), "true");
  EXPECT_EQ(outcome(semaphore.acquireAsync()), "ok");
  auto waiter = later([semaphore]() mutable { return semaphore.acquireAsync(); });
  EXPECT_FALSE(ready(waiter, 100ms));
  awaitSubscribed(semaphoreChannelOf("se10"));
  const Stopwatch watch;
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_EQ(waiter.get(), "ok");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  EXPECT_EQ(answer(semaphore.tryAcquireAsync()), "false");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 0);
}

TEST_P(SemaphoreTest, SE11_AcquireOfSeveralWaitsForSeveralReleases) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se11");
  ASSERT_EQ(answer(semaphore.trySetPermitsAsync(5)), "true");
  EXPECT_EQ(outcome(semaphore.acquireAsync(3)), "ok");
  auto waiter = later([semaphore]() mutable { return semaphore.acquireAsync(4); });
  awaitSubscribed(semaphoreChannelOf("se11"));
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_FALSE(ready(waiter, 100ms));
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_EQ(waiter.get(), "ok");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 0);
}

TEST_P(SemaphoreTest, SE12_TryAcquireOfSeveralInTime) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se12");
  ASSERT_EQ(answer(semaphore.trySetPermitsAsync(5)), "true");
  EXPECT_EQ(outcome(semaphore.acquireAsync(3)), "ok");
  EXPECT_EQ(answer(semaphore.tryAcquireAsync(4)), "false");
  auto waiter =
      inThread([&] { return answerOf(runBy(GetParam(), semaphore.tryAcquireAsync(4, 20s))); });
  awaitSubscribed(semaphoreChannelOf("se12"));
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_FALSE(ready(waiter, 50ms));
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_EQ(waiter.get(), "true");
  EXPECT_EQ(run(semaphore.availablePermitsAsync()).value(), 0);
}

TEST_F(SemaphoreBlocking, SE14_OnePermitExcludes) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("se14");
  ASSERT_TRUE(semaphore.trySetPermits(1));
  Resource resource;
  std::vector<std::future<void>> jobs;
  for (int i = 0; i < 15; ++i) {
    jobs.push_back(inThread([&] {
      semaphore.acquire();
      resource.use(500us);
      semaphore.release();
    }));
  }
  for (auto& job : jobs) {
    job.get();
  }
  EXPECT_EQ(resource.value(), 15);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EQ(semaphore.availablePermits(), 1);
}

TEST_F(SemaphoreBlocking, SE15_OnePermitExcludesClients) {
  Client client = connect();
  ASSERT_TRUE(client.getSemaphore("se15").trySetPermits(1));
  Resource resource;
  std::vector<std::future<void>> jobs;
  for (int i = 0; i < 30; ++i) {
    jobs.push_back(inThread([&] {
      Client own = connect();
      Semaphore semaphore = own.getSemaphore("se15");
      semaphore.acquire();
      resource.use(500us);
      semaphore.release();
    }));
  }
  for (auto& job : jobs) {
    job.get();
  }
  EXPECT_EQ(resource.value(), 30);
  EXPECT_EQ(resource.overlaps(), 0);
}

TEST_F(SemaphoreBlocking, SE16_OnePermitExcludesClientsInLoops) {
  Client client = connect();
  ASSERT_TRUE(client.getSemaphore("se16").trySetPermits(1));
  Resource resource;
  std::vector<std::future<void>> jobs;
  constexpr int kRounds = 20;
  for (int i = 0; i < 16; ++i) {
    jobs.push_back(inThread([&] {
      Client own = connect();
      Semaphore semaphore = own.getSemaphore("se16");
      for (int round = 0; round < kRounds; ++round) {
        semaphore.acquire();
        resource.use(1ms);
        semaphore.release();
      }
    }));
  }
  for (auto& job : jobs) {
    job.get();
  }
  EXPECT_EQ(resource.value(), 16 * kRounds);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EQ(raw().get("se16"), "1");
}

TEST_F(SemaphoreBlocking, SE17_AllPermitsOrOneAtRandom) {
  Client client = connect();
  ASSERT_TRUE(client.getSemaphore("se17").trySetPermits(kMost));
  std::vector<std::future<int>> jobs;
  for (int i = 0; i < 4; ++i) {
    jobs.push_back(inThread([&, i] {
      Client own = connect();
      Semaphore semaphore = own.getSemaphore("se17");
      std::minstd_rand random(static_cast<unsigned>(i) + 1);
      int done = 0;
      for (int round = 0; round < 10; ++round) {
        const int permits = random() % 2 == 0 ? kMost : 1;
        semaphore.acquire(permits);
        std::this_thread::sleep_for(2ms);
        semaphore.release(permits);
        ++done;
      }
      return done;
    }));
  }
  int done = 0;
  for (auto& job : jobs) {
    done += job.get();
  }
  EXPECT_EQ(done, 40);
  EXPECT_EQ(client.getSemaphore("se17").availablePermits(), kMost);
}

TEST_F(SemaphoreBlocking, OLD05_TenPermitsLetTenIn) {
  Client first = connect();
  ASSERT_TRUE(first.getSemaphore("old05").trySetPermits(10));
  std::barrier<> barrier(10);
  std::atomic<int> wrong{0};
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 10; ++i) {
    clients.push_back(std::make_unique<Client>(connect()));
  }
  std::vector<std::future<void>> jobs;
  for (std::size_t i = 0; i < 100; ++i) {
    jobs.push_back(inThread([&, i] {
      Semaphore semaphore = clients[i % clients.size()]->getSemaphore("old05");
      semaphore.acquire();
      barrier.arrive_and_wait();
      if (semaphore.availablePermits() != 0 || semaphore.tryAcquire()) {
        ++wrong;
      }
      barrier.arrive_and_wait();
      semaphore.release();
    }));
  }
  for (auto& job : jobs) {
    job.get();
  }
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(first.getSemaphore("old05").availablePermits(), 10);
}

// ---- The state on the server

TEST_P(SemaphoreTest, V23_StatesAndMessages) {
  Client client = connect();
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(semaphoreChannelOf("S"));
  Semaphore semaphore = client.getSemaphore("S");
  EXPECT_EQ(answer(semaphore.trySetPermitsAsync(3)), "true");
  EXPECT_EQ(raw().type("S"), "string");
  EXPECT_EQ(raw().get("S"), "3");
  EXPECT_EQ(raw().pttl("S"), -1);
  EXPECT_EQ(answer(semaphore.tryAcquireAsync(2)), "true");
  EXPECT_EQ(raw().get("S"), "1");
  EXPECT_EQ(answer(semaphore.tryAcquireAsync(2)), "false");
  EXPECT_EQ(raw().get("S"), "1");
  EXPECT_EQ(outcome(semaphore.releaseAsync(2)), "ok");
  EXPECT_EQ(raw().get("S"), "3");
  ASSERT_TRUE(subscriber.waitFor(2, kLong));
  EXPECT_EQ(answer(semaphore.tryAcquireAsync(3)), "true");
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(-2)), "ok");
  EXPECT_EQ(raw().get("S"), "-2");
  // A total below 1 would break Redisson's reader.
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  ASSERT_TRUE(subscriber.waitFor(3, kLong));
  EXPECT_EQ(payloads(subscriber), (std::vector<std::string>{"3", "3", "1"}));
  EXPECT_EQ(answer(semaphore.removeAsync()), "true");
  for (const std::string& key : raw().keys()) {
    EXPECT_TRUE(key.starts_with("rlock_request:{S}:")) << key;
  }
  expectNoEternalKeys();
  EXPECT_EQ(subscriber.count(), 3U);
}

TEST_P(SemaphoreTest, V14_BracesInTheName) {
  Client client = connect();
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe("redisson_sc:a{t}b");
  EXPECT_EQ(outcome(client.getSemaphore("a{t}b").releaseAsync()), "ok");
  EXPECT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(raw().get("a{t}b"), "1");
}

TEST_P(SemaphoreTest, V14_AForeignReleaseWakesUs) {
  Client client = connect();
  raw().set("foreign", "0");
  Semaphore semaphore = client.getSemaphore("foreign");
  auto waiter = later([semaphore]() mutable { return semaphore.acquireAsync(2); });
  awaitSubscribed(semaphoreChannelOf("foreign"));
  raw().run({"INCRBY", "foreign", "2"});
  const Stopwatch watch;
  raw().publish(semaphoreChannelOf("foreign"), "2");
  EXPECT_EQ(waiter.get(), "ok");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  EXPECT_EQ(raw().get("foreign"), "0");
}

TEST_P(SemaphoreTest, XSEM3_TheTimeToLiveSurvives) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("xsem3");
  ASSERT_EQ(answer(semaphore.trySetPermitsAsync(10, 50s)), "true");
  const auto lives = [&] {
    const auto left = raw().pttl("xsem3");
    return left > 40'000 && left <= 50'000;
  };
  EXPECT_EQ(outcome(semaphore.acquireAsync(3)), "ok");
  EXPECT_TRUE(lives());
  EXPECT_EQ(outcome(semaphore.releaseAsync(2)), "ok");
  EXPECT_TRUE(lives());
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(5)), "ok");
  EXPECT_TRUE(lives());
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(-5)), "ok");
  EXPECT_TRUE(lives());
  EXPECT_EQ(run(semaphore.drainPermitsAsync()).value(), 9);
  EXPECT_TRUE(lives());
  expectNoEternalKeys();
}

TEST_P(SemaphoreTest, XSEM4_ArgumentsOutsideTheirRange) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("xsem4");
  const auto before = client.stats().commands;
  EXPECT_EQ(outcome(semaphore.acquireAsync(-1)), "invalidArgument");
  EXPECT_EQ(outcome(semaphore.tryAcquireAsync(-1)), "invalidArgument");
  EXPECT_EQ(outcome(semaphore.tryAcquireAsync(-1, 1s)), "invalidArgument");
  EXPECT_EQ(outcome(semaphore.releaseAsync(-1)), "invalidArgument");
  EXPECT_EQ(outcome(semaphore.releaseIfExistsAsync(std::numeric_limits<int>::min())),
            "invalidArgument");
  EXPECT_EQ(outcome(semaphore.trySetPermitsAsync(-1)), "invalidArgument");
  EXPECT_EQ(outcome(semaphore.trySetPermitsAsync(1, Duration::zero())), "invalidArgument");
  EXPECT_EQ(outcome(semaphore.trySetPermitsAsync(1, -1s)), "invalidArgument");
  EXPECT_EQ(outcome(semaphore.trySetPermitsAsync(1, Duration::max())), "invalidArgument");
  EXPECT_EQ(outcome(semaphore.tryAcquireAsync(
                1, std::chrono::duration<double>(std::numeric_limits<double>::quiet_NaN()))),
            "invalidArgument");
  EXPECT_EQ(client.stats().commands, before);
  expectNoKeys();
}

TEST_P(SemaphoreTest, XSEM4_NothingWrapsAround) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("xsem4");
  EXPECT_EQ(answer(semaphore.trySetPermitsAsync(kMost)), "true");
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "invalidArgument");
  EXPECT_EQ(outcome(semaphore.releaseIfExistsAsync(kMost)), "invalidArgument");
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(kMost)), "invalidArgument");
  EXPECT_EQ(raw().get("xsem4"), "2147483647");
  EXPECT_EQ(run(semaphore.drainPermitsAsync()).value(), kMost);
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(std::numeric_limits<int>::min())), "ok");
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(-1)), "invalidArgument");
  EXPECT_EQ(raw().get("xsem4"), "-2147483648");
  EXPECT_EQ(outcome(semaphore.releaseAsync(kMost)), "ok");
  EXPECT_EQ(raw().get("xsem4"), "-1");
  // Numbers that another program wrote.
  raw().set("xsem4", "99999999999999");
  EXPECT_NE(outcome(semaphore.availablePermitsAsync()), "ok");
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "invalidArgument");
  EXPECT_EQ(raw().get("xsem4"), "99999999999999");
}

TEST_P(SemaphoreTest, AnotherTypeIsLeftAlone) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("other");
  raw().run({"HSET", "other", "field", "1"});
  const auto tryAll = [&] {
    EXPECT_EQ(outcome(semaphore.acquireAsync()), "wrongType");
    EXPECT_EQ(outcome(semaphore.tryAcquireAsync(1, 10s)), "wrongType");
    EXPECT_EQ(outcome(semaphore.releaseAsync()), "wrongType");
    EXPECT_EQ(outcome(semaphore.releaseIfExistsAsync()), "wrongType");
    EXPECT_EQ(outcome(semaphore.addPermitsAsync(-1)), "wrongType");
    EXPECT_EQ(outcome(semaphore.drainPermitsAsync()), "wrongType");
  };
  tryAll();
  EXPECT_EQ(outcome(semaphore.availablePermitsAsync()), "wrongType");
  EXPECT_EQ(outcome(semaphore.trySetPermitsAsync(1)), "wrongType");
  EXPECT_EQ(outcome(semaphore.removeAsync()), "wrongType");
  EXPECT_EQ(raw().hget("other", "field"), "1");
  raw().del("other");
  raw().set("other", "somebody's words");
  tryAll();
  EXPECT_EQ(raw().get("other"), "somebody's words");
}

TEST_P(SemaphoreTest, ErrorsNameTheSemaphore) {
  Client client = connect();
  const auto result = run(client.getSemaphore("named").acquireAsync(-3));
  ASSERT_FALSE(result.has_value());
  EXPECT_EQ(result.error().key(), "named");
  EXPECT_NE(std::string(result.error().what()).find("semaphore \"named\""), std::string::npos)
      << result.error().what();
}

TEST_F(SemaphoreBlocking, IdempotencyKeysDoNotPileUp) {
  Options settings = options();
  settings.commandTimeout = 3s;  // a part of how long the keys are kept
  Client client = Client::connect(settings);
  // In a cluster a request that waits for the first connection has a marker of its own.
  EXPECT_EQ(client.getSemaphore("markers").availablePermits(), 0);
  for (int i = 0; i < 200; ++i) {
    Semaphore semaphore = client.getSemaphore("markers");
    semaphore.release();
    semaphore.acquire();
    ASSERT_FALSE(semaphore.tryAcquire());
  }
  EXPECT_EQ(raw().get("markers"), "0");
  EXPECT_EQ(raw().keys("rlock_request:*").size(), 1U);
  for (const std::string& key : raw().keys("rlock_request:*")) {
    EXPECT_GT(raw().pttl(key), 880'000);
    EXPECT_LE(raw().pttl(key), 920'000);
  }
}

// ---- Waiting

TEST_P(SemaphoreTest, W32_OneReleaseOfManyWakesMany) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("w32");
  std::vector<std::future<std::string>> waiters;
  for (std::size_t i = 0; i < 5; ++i) {
    waiters.push_back(later([semaphore]() mutable { return semaphore.acquireAsync(); }));
    ASSERT_EVENTUALLY(kLong, client.stats().waiters == i + 1);
  }
  awaitSubscribed(semaphoreChannelOf("w32"));
  EXPECT_EQ(outcome(semaphore.releaseAsync(4)), "ok");
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(ready(waiters[i], kLong)) << i;
  }
  EXPECT_EVENTUALLY(kLong, client.stats().waiters == 1);
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(1)), "ok");
  EXPECT_TRUE(ready(waiters[4], kLong));
  EXPECT_EQ(raw().get("w32"), "0");
}

TEST_P(SemaphoreTest, W34_ASmallRequestPassesALargeOneThatCannotBeServed) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("w34");
  auto large = later([semaphore]() mutable { return semaphore.acquireAsync(5); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  auto middle = later([semaphore]() mutable { return semaphore.acquireAsync(3); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2);
  auto small = later([semaphore]() mutable { return semaphore.acquireAsync(1); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 3);
  awaitSubscribed(semaphoreChannelOf("w34"));
  EXPECT_EQ(outcome(semaphore.releaseAsync(2)), "ok");
  EXPECT_EQ(small.get(), "ok");
  EXPECT_FALSE(ready(middle, 20ms));
  EXPECT_EQ(outcome(semaphore.releaseAsync(2)), "ok");
  EXPECT_EQ(middle.get(), "ok");
  EXPECT_EQ(outcome(semaphore.releaseAsync(5)), "ok");
  EXPECT_EQ(large.get(), "ok");
  EXPECT_EQ(raw().get("w34"), "0");
}

TEST_F(SemaphoreBlocking, XSEM1_LargeAndSmallRequestsBothGoOn) {
  Options settings = options();
  settings.safetyPoll = 100ms;
  Client client = Client::connect(settings);
  Semaphore semaphore = client.getSemaphore("xsem1");
  constexpr int kAll = 4;
  ASSERT_TRUE(semaphore.trySetPermits(kAll));
  std::atomic<bool> end{false};
  std::atomic<long> small{0};
  std::vector<std::future<void>> jobs;
  for (int i = 0; i < 8; ++i) {
    jobs.push_back(inThread([&] {
      while (!end.load()) {
        semaphore.acquire();
        std::this_thread::sleep_for(5ms);
        semaphore.release();
        ++small;
      }
    }));
  }
  ASSERT_EVENTUALLY(kLong, small.load() > 20);
  for (int round = 0; round < 3; ++round) {
    const long before = small.load();
    EXPECT_TRUE(semaphore.tryAcquire(kAll, scaled(10s))) << "starved";
    semaphore.release(kAll);
    ASSERT_EVENTUALLY(kLong, small.load() > before + 20);
  }
  end = true;
  for (auto& job : jobs) {
    job.get();
  }
  EXPECT_EQ(semaphore.availablePermits(), kAll);
}

TEST_P(SemaphoreTest, XSEM5_WaitersWhileTheBalanceIsNegative) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("xsem5");
  EXPECT_EQ(outcome(semaphore.addPermitsAsync(-3)), "ok");
  auto waiter = later([semaphore]() mutable { return semaphore.acquireAsync(); });
  awaitSubscribed(semaphoreChannelOf("xsem5"));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
    // As a Redisson client of old would announce it.
    raw().publish(semaphoreChannelOf("xsem5"), std::to_string(i - 2));
  }
  EXPECT_FALSE(ready(waiter, 50ms));
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_EQ(waiter.get(), "ok");
  EXPECT_EQ(raw().get("xsem5"), "0");
}

TEST_P(SemaphoreTest, ATimeLimitEndsTheWait) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("timed");
  const Stopwatch watch;
  EXPECT_EQ(answer(semaphore.tryAcquireAsync(1, 150ms)), "false");
  EXPECT_GE(watch.elapsedMs(), 150ms);
  EXPECT_LT(watch.elapsedMs(), 150ms + scaled(2 * kLate));
  EXPECT_EQ(answer(semaphore.tryAcquireAsync(1ms)), "false");
  EXPECT_EQ(client.stats().waiters, 0U);
  // Nobody is left who would take it.
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(raw().get("timed"), "1");
}

TEST_P(SemaphoreTest, AStopEndsTheWait) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("stopped");
  std::stop_source stop;
  auto waiter =
      later([semaphore, &stop]() mutable { return semaphore.acquireAsync(stop.get_token(), 2); });
  auto timed = later(
      [semaphore, &stop]() mutable { return semaphore.tryAcquireAsync(stop.get_token(), 1, 1h); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2);
  const Stopwatch watch;
  stop.request_stop();
  EXPECT_EQ(waiter.get(), "cancelled");
  EXPECT_EQ(timed.get(), "cancelled");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  EXPECT_EQ(outcome(semaphore.acquireAsync(stop.get_token())), "cancelled");
  EXPECT_EQ(outcome(semaphore.releaseAsync(2)), "ok");
  EXPECT_EQ(raw().get("stopped"), "2");
}

TEST_P(SemaphoreTest, AClosedClientEndsTheWait) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("closed");
  auto waiter = later([semaphore]() mutable { return semaphore.acquireAsync(); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  client.close(1s);
  EXPECT_EQ(waiter.get(), "closed");
  EXPECT_EQ(outcome(semaphore.acquireAsync()), "closed");
  EXPECT_EQ(outcome(semaphore.acquireAsync(0)), "closed");
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "closed");
  EXPECT_EQ(outcome(semaphore.availablePermitsAsync()), "closed");
}

TEST_P(SemaphoreTest, WhatAClosingClientObtainsIsGivenBack) {
  raw().set("closing", "3");
  Client client = Client::connect(proxied());
  Semaphore semaphore = client.getSemaphore("closing");
  ASSERT_EQ(answer(semaphore.tryAcquireAsync(5)), "false");
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto slow =
      proxy().addRule(running(lua::semaphore_acquire), TcpProxy::Action::stallReply(), once);
  auto caller = later([semaphore]() mutable { return semaphore.acquireAsync(2); });
  ASSERT_TRUE(slow.waitForHits(1, kLong));
  EXPECT_EVENTUALLY(kLong, raw().get("closing") == "1");
  auto closing = inThread([&] { client.close(10s); });
  // Nothing is asked of the server for no permits, whose reply would be held back as well.
  EXPECT_EVENTUALLY(kLong, outcome(semaphore.acquireAsync(0)) == "closed");
  proxy().releaseStalled();
  closing.get();
  EXPECT_EQ(caller.get(), "closed");
  EXPECT_EQ(raw().get("closing"), "3");
}

TEST_P(SemaphoreTest, W85_XSUB2_ALostMessageIsFoundByThePoll) {
  Options settings = options();
  settings.safetyPoll = 200ms;
  Client client = Client::connect(settings);
  Semaphore semaphore = client.getSemaphore("w85");
  auto waiter = later([semaphore]() mutable { return semaphore.acquireAsync(); });
  awaitSubscribed(semaphoreChannelOf("w85"));
  raw().run({"INCR", "w85"});
  EXPECT_EQ(waiter.get(), "ok");
}

TEST_P(SemaphoreTest, XSUB15_ARemovedSemaphoreCanBeSetAgainUnderItsWaiters) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("again");
  ASSERT_EQ(answer(semaphore.trySetPermitsAsync(1)), "true");
  auto waiter = later([semaphore]() mutable { return semaphore.acquireAsync(2); });
  awaitSubscribed(semaphoreChannelOf("again"));
  EXPECT_EQ(answer(semaphore.removeAsync()), "true");
  EXPECT_FALSE(ready(waiter, 50ms));
  EXPECT_EQ(answer(semaphore.trySetPermitsAsync(2)), "true");
  EXPECT_EQ(waiter.get(), "ok");
}

// ---- Errors of the server

TEST_P(SemaphoreTest, XERR4_AtTheMemoryLimitReleasingGoesOn) {
  Client client = connect();
  Semaphore semaphore = client.getSemaphore("oom");
  ASSERT_EQ(answer(semaphore.trySetPermitsAsync(2)), "true");
  raw().configSet("maxmemory-policy", "noeviction");
  raw().configSet("maxmemory", "1");
  EXPECT_EQ(outcome(semaphore.acquireAsync()), "outOfMemory");
  EXPECT_EQ(outcome(semaphore.drainPermitsAsync()), "outOfMemory");
  EXPECT_EQ(raw().get("oom"), "2");
  EXPECT_EQ(outcome(semaphore.releaseAsync()), "ok");
  EXPECT_EQ(raw().get("oom"), "3");
  EXPECT_EQ(answer(semaphore.removeAsync()), "true");
  raw().configSet("maxmemory", "0");
}

TEST_F(SemaphoreBlocking, XERR6_WhatIsForbiddenChangesNothing) {
  raw().run({"ACL", "SETUSER", "mute", "on", ">pw", "~*", "&*", "+@all", "-publish"});
  raw().run({"ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", "-decrby", "-incrby"});
  Options settings = options();
  settings.password = "pw";
  settings.username = "mute";
  Client mute = Client::connect(settings);
  Semaphore semaphore = mute.getSemaphore("err6");
  EXPECT_TRUE(semaphore.trySetPermits(1));
  semaphore.release();
  EXPECT_EQ(raw().get("err6"), "2");
  CountDownLatch latch = mute.getCountDownLatch("err6-latch");
  EXPECT_TRUE(latch.trySetCount(1));
  latch.countDown();
  EXPECT_FALSE(raw().exists("err6-latch"));
  settings.username = "poor";
  Client poor = Client::connect(settings);
  Semaphore theirs = poor.getSemaphore("err6");
  EXPECT_EQ(outcomeOf([&] { theirs.acquire(); }), "denied");
  EXPECT_EQ(outcomeOf([&] { theirs.release(); }), "denied");
  EXPECT_EQ(outcomeOf([&] { theirs.drainPermits(); }), "denied");
  EXPECT_EQ(raw().get("err6"), "2");
}

TEST_F(SemaphoreBlocking, WhoeverCannotTellWaitersSaysSo) {
  RLOCK_ONE_MASTER_ONLY("forbids a command that sharded channels do not need");
  raw().run({"ACL", "SETUSER", "mute", "on", ">pw", "~*", "&*", "+@all", "-publish"});
  Options settings = options();
  settings.password = "pw";
  settings.username = "mute";
  using Use = std::function<void(Client&)>;
  const std::vector<std::pair<std::string, Use>> uses{
      {"set", [](Client& client) { client.getSemaphore("set").trySetPermits(1); }},
      {"released", [](Client& client) { client.getSemaphore("released").release(); }},
      {"opened", [](Client& client) { client.getCountDownLatch("opened").countDown(); }},
      {"removed", [](Client& client) { client.getCountDownLatch("removed").remove(); }}};
  for (const auto& [name, use] : uses) {
    if (name != "set") {
      raw().set(name, "1");
    }
    // Of one client only the first is told in full.
    Client mute = Client::connect(settings);
    EXPECT_EQ(outcomeOf([&] { use(mute); }), "ok") << name;
    EXPECT_TRUE(log().contains("\"" + name + "\": waiters could not be told: ")) << name;
  }
  EXPECT_EQ(raw().get("released"), "2");
  EXPECT_FALSE(raw().exists("opened"));
  Client mute = Client::connect(settings);
  Semaphore semaphore = mute.getSemaphore("released");
  log().clear();
  semaphore.release();
  semaphore.release();
  EXPECT_EQ(log().count("waiters could not be told: "), 1U);
}

}  // namespace
}  // namespace rlock::test
