// SPDX-License-Identifier: Apache-2.0

// The time of the test double, and the loops that live by it.

#include "testing/timekeeper.hpp"

#include "testing/error_of.hpp"
#include "testing/test_loop.hpp"
#include <rlock/error.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rlock::sim {
namespace {

using namespace std::chrono_literals;
using test::errorOf;

class TimekeeperTest : public testing::Test {
 protected:
  std::shared_ptr<detail::Env> env() {
    return std::make_shared<TestEnv>(TestLoop::start(time, log));
  }
  void note(const std::string& what) {
    const std::lock_guard lock(mutex);
    noted.push_back(what);
  }

  std::shared_ptr<Timekeeper> time = std::make_shared<Timekeeper>(false);
  std::shared_ptr<const detail::Logger> log =
      std::make_shared<const detail::Logger>([](LogLevel, std::string_view) {});
  std::mutex mutex;
  std::vector<std::string> noted;
};

TEST_F(TimekeeperTest, TimersOfAllLoopsExpireInOrder) {
  const auto first = env();
  const auto second = env();
  const auto now = time->now();
  const auto a = first->makeTimer([&] { note("a"); });
  const auto b = second->makeTimer([&] { note("b"); });
  const auto c = first->makeTimer([&] { note("c"); });
  const auto d = second->makeTimer([&] { note("d"); });
  a->armAt(now + 3s);
  b->armAt(now + 1s);
  c->armAt(now + 2s);
  d->armAt(now + 2s);
  time->advance(2s);
  EXPECT_EQ(noted, (std::vector<std::string>{"b", "c", "d"}));
  EXPECT_EQ(time->now(), now + 2s);
  time->advance(999ms);
  EXPECT_EQ(noted.size(), 3U);
  time->advance(1ms);
  EXPECT_EQ(noted.back(), "a");
}

TEST_F(TimekeeperTest, ATimerSeesItsOwnTime) {
  const auto loop = env();
  const auto begin = time->now();
  std::vector<std::chrono::nanoseconds> seen;
  std::unique_ptr<detail::Timer> timer;
  timer = loop->makeTimer([&] {
    seen.push_back(loop->now() - begin);
    timer->armAt(loop->now() + 10s);
  });
  timer->armAt(begin + 10s);
  time->advance(35s);
  EXPECT_EQ(seen, (std::vector<std::chrono::nanoseconds>{10s, 20s, 30s}));
  timer->disarm();
  EXPECT_FALSE(timer->armed());
  time->advance(35s);
  EXPECT_EQ(seen.size(), 3U);
}

TEST_F(TimekeeperTest, WhatFollowsIsDoneBeforeTimeGoesOn) {
  const auto first = env();
  const auto second = env();
  const auto now = time->now();
  const auto early = first->makeTimer([&] {
    second->post([&] {
      std::this_thread::sleep_for(20ms);
      first->post([&] { note("done"); });
    });
  });
  const auto late = second->makeTimer([&] { note("late"); });
  early->armAt(now + 1s);
  late->armAt(now + 1s + 1ns);
  time->advance(2s);
  EXPECT_EQ(noted, (std::vector<std::string>{"done", "late"}));
}

TEST_F(TimekeeperTest, SleepersWakeAtTheirTime) {
  const auto loop = env();
  loop->post([] {});  // this thread calls, and the other one does: time is moved by advance() only
  const auto deadline = time->now() + 5s;
  const std::atomic<std::uint32_t> word{0};
  auto sleeping = std::async(std::launch::async, [&] {
    while (loop->now() < deadline) {
      loop->sleep(word, 0, deadline);
    }
    return loop->now();
  });
  time->advance(4s);
  EXPECT_EQ(sleeping.wait_for(20ms), std::future_status::timeout);
  time->advance(4s);
  EXPECT_GE(sleeping.get(), deadline);
}

TEST_F(TimekeeperTest, ASleeperIsWoken) {
  const auto loop = env();
  loop->post([] {});
  std::atomic<std::uint32_t> word{0};
  auto sleeping = std::async(std::launch::async, [&] {
    while (word == 0) {
      loop->sleep(word, 0, std::chrono::steady_clock::time_point::max());
    }
  });
  std::this_thread::sleep_for(5ms);
  word = 1;
  loop->wakeOne(&word);
  sleeping.get();
}

TEST_F(TimekeeperTest, TooFewSleepersAreAnError) {
  Timekeeper hasty(false, 20ms);
  EXPECT_EQ(errorOf([&] { hasty.awaitSleepers(1); }), Errc::timedOut);
  // Time can be moved all the same.
  const auto before = hasty.now();
  hasty.advance(1s);
  EXPECT_EQ(hasty.now(), before + 1s);
}

TEST_F(TimekeeperTest, AFunctionThatDoesNotReturnIsAnError) {
  std::promise<void> over;
  const auto hasty = std::make_shared<Timekeeper>(false, 20ms);
  const std::shared_ptr<detail::Env> loop = std::make_shared<TestEnv>(TestLoop::start(hasty, log));
  loop->post([until = over.get_future().share()] { until.wait(); });
  EXPECT_EQ(errorOf([&] { hasty->settle(); }), Errc::timedOut);
  EXPECT_EQ(errorOf([&] { hasty->advance(1s); }), Errc::timedOut);
  over.set_value();
}

TEST_F(TimekeeperTest, TheOnlyThreadSkips) {
  const auto loop = env();
  const auto begin = time->now();
  const auto timer = loop->makeTimer([&] { note("timer"); });
  timer->armAt(begin + 1h);
  const std::atomic<std::uint32_t> word{0};
  while (time->now() < begin + 2h) {
    loop->sleep(word, 0, begin + 2h);
  }
  EXPECT_EQ(time->now(), begin + 2h);
  EXPECT_EQ(noted.size(), 1U);
}

/// A busy machine may let it wait longer than it may take to come back. So it may afterwards, but
/// not each time.
TEST_F(TimekeeperTest, AThreadThatWasWokenIsWaitedForFromWhereItRunsAgain) {
  const auto loop = env();
  loop->post([] {});
  bool waitedFor = false;
  for (int attempt = 0; attempt < 50 && !waitedFor; ++attempt) {
    const auto before = time->now();
    std::atomic<std::uint32_t> word{0};
    auto woken = std::async(std::launch::async, [&] {
      while (word == 0) {
        loop->sleep(word, 0, std::chrono::steady_clock::time_point::max());
      }
      std::this_thread::sleep_for(1ms);
      return loop->now();
    });
    time->awaitSleepers(1);
    word = 1;
    loop->wakeOne(&word);
    {
      const detail::MutexLock lock(time->mutex());
      std::this_thread::sleep_for(20ms);
    }
    time->advance(1h);
    waitedFor = woken.get() == before;
  }
  EXPECT_TRUE(waitedFor);
}

TEST_F(TimekeeperTest, ItsLastFunctionsRunWhenALoopIsStopped) {
  auto loop = env();
  loop->post([&] { loop->post([&] { note("last"); }); });
  loop->stop(time->now());
  EXPECT_EQ(noted.size(), 1U);
  loop->post([&] { note("after the end"); });
  EXPECT_EQ(noted.size(), 1U);
}

TEST_F(TimekeeperTest, WhatAFunctionOwnsGoesWithIt) {
  const auto loop = env();
  const std::shared_ptr<detail::Timer> timer = loop->makeTimer([&] { note("never"); });
  timer->armAt(time->now() + 1s);
  loop->post([owned = loop->makeTimer([] {}), last = std::shared_ptr(loop->makeTimer([] {}))] {
    owned->armAt(std::chrono::steady_clock::time_point::max());
  });
  std::unique_ptr<detail::Timer> itself;
  itself = loop->makeTimer([&] { itself.reset(); });
  itself->armAt(time->now());
  time->settle();
  EXPECT_EQ(itself, nullptr);
  loop->post([&] { timer->disarm(); });
  time->advance(1s);
  EXPECT_TRUE(noted.empty());
}

TEST_F(TimekeeperTest, AFunctionThatThrowsEndsNothing) {
  const auto loop = env();
  loop->post([] { throw std::runtime_error("broken"); });
  loop->post([&] { note("next"); });
  time->settle();
  EXPECT_EQ(noted.size(), 1U);
}

TEST_F(TimekeeperTest, WhatRunsElsewhereIsWaitedFor) {
  const auto loop = env();
  loop->runElsewhere([&] {
    std::this_thread::sleep_for(20ms);
    note("elsewhere");
  });
  time->settle();
  EXPECT_EQ(noted.size(), 1U);
}

TEST_F(TimekeeperTest, ATaskIsQueuedOnce) {
  const auto loop = env();
  int runs = 0;
  const std::shared_ptr<detail::ReadyTask> task = loop->makeTask([&] { ++runs; });
  loop->post([&] {
    task->post(task);
    task->post(task);
  });
  time->settle();
  EXPECT_EQ(runs, 1);
  task->post(task);
  time->settle();
  EXPECT_EQ(runs, 2);
}

}  // namespace
}  // namespace rlock::sim
