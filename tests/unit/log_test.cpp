// SPDX-License-Identifier: Apache-2.0
#include <rlock/log.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rlock {
namespace {

using Line = std::pair<LogLevel, std::string>;

constexpr LogLevel kLevels[] = {
    LogLevel::trace, LogLevel::debug, LogLevel::info, LogLevel::warning, LogLevel::error};

std::string onStderr(const detail::Logger& logger, std::string_view text) {
  testing::internal::CaptureStderr();
  for (const LogLevel level : kLevels) {
    logger.write(level, text);
  }
  return testing::internal::GetCapturedStderr();
}

TEST(LogLevel, HasNames) {
  EXPECT_EQ(toString(LogLevel::trace), "trace");
  EXPECT_EQ(toString(LogLevel::debug), "debug");
  EXPECT_EQ(toString(LogLevel::info), "info");
  EXPECT_EQ(toString(LogLevel::warning), "warning");
  EXPECT_EQ(toString(LogLevel::error), "error");
  EXPECT_EQ(toString(static_cast<LogLevel>(17)), "unknown");
}

TEST(Logger, DropsWhatIsBelowItsLevel) {
  for (const LogLevel min : kLevels) {
    std::vector<Line> lines;
    const detail::Logger logger(
        [&lines](LogLevel level, std::string_view text) { lines.emplace_back(level, text); }, min);
    for (const LogLevel level : kLevels) {
      EXPECT_EQ(logger.enabled(level), level >= min);
      logger.write(level, "text");
    }
    ASSERT_EQ(lines.size(), 5U - static_cast<std::size_t>(min));
    EXPECT_EQ(lines.front(), Line(min, "text"));
  }
}

TEST(Logger, SwallowsWhatTheHookThrows) {
  int calls = 0;
  const detail::Logger logger([&calls](LogLevel, std::string_view) {
    ++calls;
    throw std::runtime_error("disk full");
  });
  logger.write(LogLevel::error, "text");
  const detail::Logger odd([](LogLevel, std::string_view) { throw 5; });
  odd.write(LogLevel::error, "text");
  EXPECT_EQ(calls, 1);
}

TEST(Logger, WritesWarningsToStderrByDefault) {
  EXPECT_EQ(onStderr(detail::Logger(), "text"), "rlock: warning: text\nrlock: error: text\n");
  EXPECT_EQ(onStderr(detail::Logger({}, LogLevel::trace), "text"),
            "rlock: warning: text\nrlock: error: text\n");
  EXPECT_EQ(onStderr(detail::Logger({}, LogLevel::error), "text"), "rlock: error: text\n");
}

TEST(Logger, KeepsALineOneLine) {
  EXPECT_EQ(onStderr(detail::Logger({}, LogLevel::error), "a\nb\tc\x7f"), "rlock: error: a b c \n");
}

TEST(Logger, IsCalledFromManyThreads) {
  std::atomic<int> calls = 0;
  const detail::Logger logger([&calls](LogLevel, std::string_view) { ++calls; });
  {
    std::vector<std::jthread> threads;
    threads.reserve(4);
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&logger] {
        for (int round = 0; round < 1000; ++round) {
          logger.write(LogLevel::info, "text");
        }
      });
    }
  }
  EXPECT_EQ(calls, 4000);
}

}  // namespace
}  // namespace rlock
