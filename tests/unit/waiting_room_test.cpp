// SPDX-License-Identifier: Apache-2.0

// The queues of waiters together with the loop's timer.

#include "unit/engine_fixture.hpp"
#include <rlock/detail/engine/precedence.hpp>
#include <rlock/detail/engine/waiting_room.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace rlock::detail {
namespace waiting_room_test {
namespace {

using namespace std::chrono_literals;

constexpr std::chrono::milliseconds kUnknown{-1};

class CountedWaiter final : public Waiter {
 public:
  void turn() noexcept override { ++turns; }
  void shutDown() noexcept override {}
  void waiterAddRef() noexcept override {}
  void waiterDropRef() noexcept override {}

  int turns = 0;
};

class WaitingRoomTest : public EngineFixture {
 protected:
  /// It was refused, and sleeps.
  void sleep(CountedWaiter& waiter) {
    WaitTerms terms{scripts_->channel};
    terms.takesOver = scripts_->name;
    room().queue(waiter, terms, std::nullopt, true, kUnknown);
  }
  Succession takeSuccessor() {
    return room().takeSuccessor(scripts_->channel, 0, scripts_->name, env_->now());
  }
  [[nodiscard]] WaitingRoom& room() const noexcept { return engine_->waiting(); }
};

/// The answer of the release may be late: the pause that its message begins ends by itself.
TEST_F(WaitingRoomTest, APauseThatBeginsWithTheMessageHasAnEnd) {
  const int limit = Options().handOverLimit;
  std::vector<CountedWaiter> crowd(static_cast<std::size_t>(limit) + 1);
  for (CountedWaiter& waiter : crowd) {
    sleep(waiter);
  }
  room().confirmed(scripts_->channel);
  sleep(crowd.front());
  for (int i = 0; i < limit; ++i) {
    CountedWaiter& next = crowd[static_cast<std::size_t>(i)];
    ASSERT_EQ(takeSuccessor().waiter, &next);
    room().leave(next, true, 0ms);
  }
  env_->runPosted();
  CountedWaiter& last = crowd.back();
  ASSERT_NE(takeSuccessor().pause, 0U);
  room().message(scripts_->channel, "0");
  env_->runPosted();
  EXPECT_EQ(last.turns, 0);
  env_->advance(Precedence::kPause);
  EXPECT_EQ(last.turns, 1);
  room().leave(last, false, 0ms);
}

}  // namespace
}  // namespace waiting_room_test
}  // namespace rlock::detail
