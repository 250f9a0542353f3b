// SPDX-License-Identifier: Apache-2.0

#include "unit/engine_fixture.hpp"
#include <rlock/detail/engine/outage_log.hpp>

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace {

using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using Event = OutageLog::Event;

class OutageLogTest : public testing::Test {
 protected:
  [[nodiscard]] bool first(Event event, std::size_t times = 1) { return note(event, times).first; }
  OutageLog::Noted note(Event event, std::size_t times = 1) {
    return outage_.note(event, times, now_);
  }
  [[nodiscard]] std::vector<std::string> taken() { return std::exchange(lines_, {}); }

  OutageLog::Clock::time_point now_{};
  std::vector<std::string> lines_;
  Logger log_{[this](LogLevel level, std::string_view text) {
    lines_.push_back(std::string(toString(level)) + ": " + std::string(text));
  }};
  OutageLog outage_;
};

TEST_F(OutageLogTest, TellsTheFirstOfEachKindAndCountsTheOthers) {
  EXPECT_TRUE(first(Event::renewal, 3));
  EXPECT_TRUE(first(Event::loss));
  EXPECT_FALSE(first(Event::renewal, 3));
  EXPECT_FALSE(first(Event::loss));
  EXPECT_FALSE(first(Event::loss));
  EXPECT_TRUE(first(Event::release));
  now_ += 1s;
  static_cast<void>(outage_.summarise(log_, now_));
  EXPECT_EQ(taken(),
            (std::vector<std::string>{"warning: 3 more renewals of holds failed",
                                      "error: 2 more holds were lost: unreachable"}));
}

TEST_F(OutageLogTest, SummarisesAtDoublingIntervalsUntilNothingIsNew) {
  const auto noted = note(Event::loss);
  ASSERT_TRUE(noted.summariseAt);
  EXPECT_EQ(*noted.summariseAt, now_ + 1s);
  EXPECT_FALSE(note(Event::loss).summariseAt) << "it is arranged";
  std::optional<OutageLog::Clock::time_point> next = noted.summariseAt;
  for (const auto interval : {2s, 4s, 8s, 16s, 32s, 60s, 60s}) {
    now_ = *next - 1ms;
    static_cast<void>(note(Event::loss));
    now_ = *next;
    next = outage_.summarise(log_, now_);
    ASSERT_TRUE(next);
    EXPECT_EQ(*next, now_ + interval);
  }
  now_ = *next;
  lines_.clear();
  EXPECT_FALSE(outage_.summarise(log_, now_)) << "nothing for a minute";
  EXPECT_TRUE(taken().empty());
  EXPECT_TRUE(first(Event::loss));
  EXPECT_EQ(outage_.note(Event::loss, 1, now_).summariseAt, std::nullopt);
}

TEST_F(OutageLogTest, IsOverWhenTheServerWorksAndNothingFails) {
  static_cast<void>(note(Event::renewal));
  static_cast<void>(note(Event::renewal, 7));
  now_ += 999ms;
  outage_.over(log_, now_);
  EXPECT_TRUE(taken().empty()) << "some requests fail, others do not";
  EXPECT_FALSE(first(Event::renewal));
  now_ += 1s;
  outage_.over(log_, now_);
  EXPECT_EQ(taken(), (std::vector<std::string>{"warning: 8 more renewals of holds failed"}));
  EXPECT_TRUE(first(Event::renewal)) << "the next outage";
}

TEST(OutageReportTest, WhatWasCountedWhileTheClientEndedIsTold) {
  std::vector<std::string> lines;
  const LoneEngine client(
      noServer(),
      std::make_shared<const Logger>(
          [&](LogLevel /*level*/, std::string_view text) { lines.emplace_back(text); },
          LogLevel::error));
  const std::shared_ptr<LockEngine>& engine = client.engine;
  engine->shutDown(client.env->now() + 1s, [] {});
  EXPECT_TRUE(engine->outages().tells(Event::loss));
  EXPECT_FALSE(engine->outages().tells(Event::loss));
  EXPECT_FALSE(engine->outages().tells(Event::loss));
  EXPECT_TRUE(lines.empty());
  client.end();
  EXPECT_EQ(lines, (std::vector<std::string>{"2 more holds were lost: unreachable"}));
}

}  // namespace
}  // namespace rlock::detail
