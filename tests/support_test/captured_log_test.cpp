// SPDX-License-Identifier: Apache-2.0
#include "support/captured_log.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <vector>

namespace rlock::test {
namespace {

enum class Level { debug, warning };

TEST(CapturedLog, HookFitsALevelledFunction) {
  const CapturedLog log;
  const std::function<void(Level, std::string_view)> hook = log.hook();
  hook(Level::debug, "first");
  hook(Level::warning, "second line");
  const std::vector<CapturedLog::Line> expected{{0, "first"}, {1, "second line"}};
  EXPECT_EQ(log.lines(), expected);
  EXPECT_TRUE(log.contains("cond"));
  EXPECT_FALSE(log.contains("third"));
  EXPECT_EQ(log.countLevel(1), 1U);
  EXPECT_EQ(log.size(), 2U);
}

TEST(CapturedLog, HookOutlivesTheCollector) {
  std::function<void(int, std::string_view)> hook;
  {
    const CapturedLog log;
    hook = log.hook();
  }
  hook(1, "nobody listens");
}

TEST(CapturedLog, WaitsForALineOfAnotherThread) {
  CapturedLog log;
  std::thread writer([hook = log.hook()] { hook(2, "the lock is lost"); });
  EXPECT_TRUE(log.waitFor("lost", std::chrono::milliseconds(5'000)));
  EXPECT_FALSE(log.waitFor("found", std::chrono::milliseconds(10)));
  writer.join();
  log.clear();
  EXPECT_EQ(log.size(), 0U);
}

TEST(CapturedLog, CollectsFromManyThreads) {
  CapturedLog log;
  std::vector<std::thread> writers;
  for (int i = 0; i < 4; ++i) {
    writers.emplace_back([&log] {
      for (int n = 0; n < 250; ++n) {
        log.add(0, "line");
      }
    });
  }
  for (std::thread& writer : writers) {
    writer.join();
  }
  EXPECT_EQ(log.count("line"), 1'000U);
}

}  // namespace
}  // namespace rlock::test
