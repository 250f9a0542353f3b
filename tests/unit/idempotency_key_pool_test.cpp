// SPDX-License-Identifier: Apache-2.0
#include "unit/pending_commands.hpp"
#include <rlock/detail/executor/counter_scripts.hpp>
#include <rlock/detail/executor/idempotency_key_pool.hpp>
#include <rlock/options.hpp>
#include <rlock/sync_policy.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace rlock::detail {
namespace {

class IdempotencyKeyPoolTest : public ::testing::Test {
 protected:
  IdempotencyKeyPool::Loan borrow() {
    return pool->borrow([this] { return "id" + std::to_string(++made); });
  }

  std::shared_ptr<IdempotencyKeyPool> pool =
      std::make_shared<IdempotencyKeyPool>(std::chrono::seconds(1));
  int made = 0;
};

TEST_F(IdempotencyKeyPoolTest, LendsEachToOneAtATime) {
  const auto first = borrow();
  const auto second = borrow();
  EXPECT_EQ(first->id, "id1");
  EXPECT_EQ(second->id, "id2");
  EXPECT_EQ(first->number, 0U);
  EXPECT_EQ(pool->life(), std::chrono::seconds(1));
}

TEST_F(IdempotencyKeyPoolTest, LendsAgainWhatCameBackAndCountsOn) {
  borrow()->number = 7;
  auto again = borrow();
  EXPECT_EQ(again->id, "id1");
  EXPECT_EQ(again->number, 7U);
  const auto copy = again;
  again.reset();
  EXPECT_EQ(borrow()->id, "id2") << "a copy is still out";
}

TEST_F(IdempotencyKeyPoolTest, LendsAllThatCameBackBeforeAnythingNew) {
  for (int round = 0; round < 3; ++round) {
    const auto first = borrow();
    const auto second = borrow();
    EXPECT_NE(first->id, second->id);
  }
  EXPECT_EQ(made, 2);
}

TEST_F(IdempotencyKeyPoolTest, LoanMayOutliveThePool) {
  const auto loan = borrow();
  pool.reset();
  EXPECT_EQ(loan->id, "id1");
}

TEST_F(IdempotencyKeyPoolTest, ThreadsNeverShareOne) {
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([this, thread] {
      for (int i = 0; i < 1000; ++i) {
        const auto loan =
            pool->borrow([&] { return std::to_string(thread) + "-" + std::to_string(i); });
        const auto before = ++loan->number;
        std::this_thread::yield();
        EXPECT_EQ(loan->number, before);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_F(IdempotencyKeyPoolTest, AChildNeverWaitsForItsParentsThreads) {
  auto kept = borrow();
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads(2);
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      while (!stop) {
        static_cast<void>(pool->borrow([] { return std::string("id"); }));
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(5);
      const auto other = pool->borrow([] { return std::string("child"); });
      kept.reset();
      ::_exit(other->id == "child" ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      ADD_FAILURE() << "a child hung, or shared a marker with its parent: " << status;
      break;
    }
  }
  stop = true;
  for (std::thread& thread : threads) {
    thread.join();
  }
}

// An acquisition is undone when they have not come in time, and its key must be there then.
TEST(IdempotencyKeyLife, OutlastsTheTimeForAcknowledgements) {
  constexpr std::chrono::minutes kLimit{20};
  Options options = Options::fromUri("redis://host");
  options.sync = SyncPolicy::replicas(1, kLimit);
  const PendingEngine world(options);
  const auto& keys = world.engine->idempotencyKeys();
  EXPECT_GE(keys->life(), kIdempotencyKeyLife + kLimit);
  EXPECT_GT(SemaphoreScripts("gates", keys).traits.reconcileWithin, kLimit);
}

}  // namespace
}  // namespace rlock::detail
