// SPDX-License-Identifier: Apache-2.0

// Calls that may be repeated, with a server whose answers the test gives.

#include "unit/pending_commands.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/base/random_bits.hpp>
#include <rlock/detail/engine/query_task.hpp>
#include <rlock/detail/executor/start_script.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace query_task_test {
namespace {

using namespace std::chrono_literals;

class World : public PendingEngine {
 public:
  World() : PendingEngine(settings()) {}

  /// Begins a numbered change. Returns how often its caller was answered.
  /// @param goesOn  without its caller, too
  std::shared_ptr<int> change(bool goesOn, QueryTask<bool>::Unanswered unanswered = {}) {
    auto answers = std::make_shared<int>(0);
    const auto compose = [this, goesOn](Call& call, std::string_view /*owner*/) {
      fillInChange(call);
      if (goesOn) {
        addsUp(call);
      }
    };
    const auto parse = [](const Reply& reply) {
      return reply.isInteger() ? std::optional(true) : std::nullopt;
    };
    makeIntrusive<QueryTask<bool>>(engine,
                                   scripts_,
                                   OwnerId{1},
                                   compose,
                                   parse,
                                   Env::Clock::time_point::max(),
                                   std::move(unanswered))
        ->startInBackground([answers](const Result<bool>& /*result*/) { ++*answers; });
    env->runPosted();
    return answers;
  }
  void pass(std::chrono::milliseconds time) {
    env->advance(time);
    env->runPosted();
  }

 private:
  static Options settings() {
    Options options = Options::fromUri("redis://host");
    options.callTimeout = 100ms;
    return options;
  }

  const std::shared_ptr<const LockScripts> scripts_ = std::make_shared<const LockScripts>("orders");
};

/// A change finds no connection until its caller's time is over. Returns after how many ms it goes
/// out.
int repeatedAfter(std::uint64_t seed) {
  // All but the pause is the same each time.
  seedRandomBits(0);
  World world;
  const auto answers = world.change(true);
  seedRandomBits(seed);
  int passed = 0;
  const auto passUntil = [&](const auto& condition) {
    for (; !condition() && passed < 10'000; ++passed) {
      world.pass(1ms);
    }
  };
  passUntil([&] { return *answers > 0; });
  world.connect();
  passUntil([&] { return world.server->sent() > 0; });
  EXPECT_EQ(*answers, 1);
  EXPECT_EQ(world.server->sent(), 1U);
  return passed;
}

// Many clients that lost their server at a time would come back together.
TEST(QueryTask, TheyDoNotAllComeBackAtOneTime) {
  std::set<int> times;
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    times.insert(repeatedAfter(seed));
  }
  EXPECT_GT(times.size(), 1U);
}

using Ends = std::vector<bool>;

/// Notes each end without an answer: true: it certainly took no effect.
QueryTask<bool>::Unanswered noting(Ends& ends) {
  return [&ends](bool notDone) { ends.push_back(notDone); };
}

TEST(QueryTask, AnAnswerIsNoEndWithoutOne) {
  Ends ends;
  World world;
  world.connect();
  const auto answers = world.change(false, noting(ends));
  world.server->answer(test::numberReply(1));
  EXPECT_EQ(*answers, 1);
  EXPECT_EQ(ends, Ends());
}

TEST(QueryTask, AnEndWithoutAnAnswerIsTold) {
  Ends ends;
  World world;
  world.connect();
  const auto refused = world.change(false, noting(ends));
  world.server->refuse("NOPERM this user has no permissions");
  EXPECT_EQ(*refused, 1);
  EXPECT_EQ(ends, (Ends{true}));

  const auto unreadable = world.change(false, noting(ends));
  world.server->answer(test::textReply("what is this"));
  EXPECT_EQ(*unreadable, 1);
  EXPECT_EQ(ends, (Ends{true, false}));
}

TEST(QueryTask, ACallerThatLeavesKnowsNoEnd) {
  Ends ends;
  World world;
  world.connect();
  const auto answers = world.change(false, noting(ends));
  ASSERT_EQ(world.server->underWay(), 1U);
  world.pass(10s);
  EXPECT_EQ(*answers, 1);
  EXPECT_EQ(ends, (Ends{false}));
  world.server->answer(test::numberReply(1));
  EXPECT_EQ(*answers, 1);
}

TEST(QueryTask, WhatFailsAfterItsReplyWasLostMayHaveTakenEffect) {
  Ends ends;
  World world;
  world.connect();
  const auto answers = world.change(false, noting(ends));
  ASSERT_EQ(world.server->underWay(), 1U);
  world.disconnect();
  world.connect();
  world.pass(1ms);
  ASSERT_EQ(world.server->underWay(), 1U) << "it goes out again";
  world.server->refuse("NOPERM this user has no permissions");
  EXPECT_EQ(*answers, 1);
  EXPECT_EQ(ends, (Ends{false}));
}

// The repetition is refused until the key is old, and then lost before the server had it.
TEST(QueryTask, ARepetitionThatIsLostMakesItsKeyNoYounger) {
  World world;
  world.connect();
  const auto answers = world.change(true);
  world.disconnect();
  world.connect();
  world.pass(1ms);
  world.server->answer(test::numberReply(1));  // ChangeAgain: it has run
  for (int i = 0; i < 870; ++i) {
    world.pass(1s);
    while (i < 869 && world.server->underWay() > 0) {
      world.server->refuse("NOPERM this user has no permissions");
    }
  }
  for (int i = 0; i < 100 && world.server->underWay() == 0; ++i) {
    world.pass(100ms);
  }
  ASSERT_EQ(world.server->underWay(), 1U);
  world.disconnect();
  world.pass(60s);
  world.connect();
  world.pass(1ms);
  EXPECT_EQ(world.server->underWay(), 0U) << "the key may have lapsed";
  EXPECT_EQ(*answers, 1);
}

TEST(QueryTask, AChangeThatIsLostIsGivenUpBeforeItsKeyCanHaveLapsed) {
  World world;
  world.connect();
  const auto answers = world.change(true);
  world.disconnect();
  world.pass(10min);
  world.connect();
  world.pass(1ms);
  ASSERT_EQ(world.server->underWay(), 1U) << "ChangeAgain";
  world.server->refuse("NOPERM this user has no permissions");
  world.disconnect();
  world.pass(6min);
  world.connect();
  world.pass(1ms);
  EXPECT_EQ(world.server->underWay(), 0U);
  EXPECT_EQ(*answers, 1);
}

}  // namespace
}  // namespace query_task_test
}  // namespace rlock::detail
