// SPDX-License-Identifier: Apache-2.0

// A hand-over whose reply is lost, with a server whose answers the test gives: it may still be
// executed while its connection lives, and two owners have to find out what they have.

#include "unit/pending_commands.hpp"
#include <rlock/detail/engine/acquire_task.hpp>
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace hand_over_lost_test {
namespace {

using namespace std::chrono_literals;
using Words = std::vector<std::string>;

Reply number(std::int64_t value) {
  Reply reply;
  reply.type = Reply::Type::integer;
  reply.integer = value;
  return reply;
}

Reply array(std::initializer_list<std::int64_t> values) {
  Reply reply;
  reply.type = Reply::Type::array;
  for (const std::int64_t value : values) {
    reply.elements.push_back(number(value));
  }
  return reply;
}

bool runs(const Words& words, const lua::Script& script) {
  return words.size() > 1 && (words[1] == script.sha1 || words[1] == script.body);
}

class HandOverLost : public testing::Test {
 protected:
  HandOverLost() {
    world_.connect(true);
    acquire(kFirst, Duration::zero());
    answer(array({1}));
    acquire(kNext, 1h);
    answer(number(100'000));
    lock_.releaseAsync({kFirst}, [this](const Result<ReleaseOutcome>& result) {
      released_ = result.has_value() ? "released" : result.error().what();
    });
    world_.env->runPosted();
  }

  static Options settings() {
    Options options = Options::fromUri("redis://host");
    options.handOverLimit = 16;
    return options;
  }

  void acquire(OwnerId owner, Duration wait) {
    AcquireParams params;
    params.owner = owner;
    params.wait = wait;
    params.wantsHandle = true;
    lock_.acquireAsync(std::move(params), [this](const Result<LockBackend::Acquired>& result) {
      granted_ += result.has_value() && *result ? 1 : 0;
      if (result.has_value() && *result) {
        count_ = (*result)->count;
        hold_ = (*result)->hold;
      }
    });
    world_.env->runPosted();
  }
  void answer(Reply reply) {
    world_.server->answer(std::move(reply));
    world_.env->runPosted();
  }
  [[nodiscard]] const Words& oldest() const { return world_.server->oldest(); }
  /// Answers the reconciliations of both owners, whichever comes first.
  void answerBoth(const Reply& first, const Reply& next) {
    for (int i = 0; i < 2; ++i) {
      ASSERT_GT(world_.server->underWay(), 0U);
      ASSERT_TRUE(runs(oldest(), lua::lock_reconcile)) << oldest()[0];
      const bool ofFirst =
          std::find(oldest().begin(), oldest().end(), "client:1") != oldest().end();
      answer(ofFirst ? first : next);
    }
  }

  static constexpr OwnerId kFirst{1};
  static constexpr OwnerId kNext{3};

  PendingEngine world_{settings()};
  ScriptedLock lock_{world_.engine,
                     [] {
                       LockTraits traits;
                       traits.handsOver = true;
                       return std::make_shared<const LockScripts>("orders", traits);
                     }(),
                     HandlerPlace::loop};
  std::string released_;
  int granted_ = 0;
  int count_ = 0;
  IntrusivePtr<HoldHandle> hold_;  // of the latest grant
};

// While it may still be executed, a reconciliation of the next owner would be overtaken by it.
TEST_F(HandOverLost, NeitherOwnerAsksBeforeItsConnectionIsDead) {
  ASSERT_EQ(world_.server->underWay(), 1U);
  ASSERT_TRUE(runs(oldest(), lua::lock_hand_over));
  world_.reconnect();
  ASSERT_EQ(world_.server->underWay(), 1U) << "more than the request that closes the connection";
  EXPECT_EQ(oldest()[0] + " " + oldest()[1], "CLIENT KILL");
  world_.env->advance(50ms);
  world_.env->runPosted();
  EXPECT_EQ(world_.server->underWay(), 1U);
  answer(number(1));
  EXPECT_EQ(world_.server->underWay(), 2U) << "one for each owner";
  answerBoth(array({0, 0, 100'000}), array({1, 1, 100'000}));
  EXPECT_EQ(released_, "released");
  EXPECT_EQ(granted_, 2);
  EXPECT_EQ(count_, 1);
}

// It was executed: the next owner has the lock. Trying once more would count a second hold, or be
// refused where nobody may take the lock twice.
TEST_F(HandOverLost, TheNextOwnerAsksWhatItHas) {
  world_.reconnect();
  answer(number(1));
  const std::size_t sent = world_.server->sent();
  answerBoth(array({0, 0, 100'000}), array({1, 1, 100'000}));
  EXPECT_EQ(granted_, 2);
  EXPECT_EQ(world_.server->sent(), sent) << "there is nothing left to ask";
}

// It was not: each owner has what it had before, and the next one tries by itself.
TEST_F(HandOverLost, TheNextOwnerTriesIfItHasNothing) {
  world_.reconnect();
  answer(number(1));
  // The first owner's is the release, too.
  answerBoth(array({1, 0, -2}), array({0, 0, -2}));
  EXPECT_EQ(released_, "released");
  EXPECT_EQ(granted_, 1);
  ASSERT_EQ(world_.server->underWay(), 1U);
  ASSERT_TRUE(runs(oldest(), lua::lock_acquire));
  answer(array({1}));
  EXPECT_EQ(granted_, 2);
  EXPECT_EQ(count_, 1);
}

// Time has passed since it was executed.
TEST_F(HandOverLost, WhatTheNextOwnerHasLastsNoLongerThanTheServerSays) {
  world_.reconnect();
  answer(number(1));
  answerBoth(array({0, 0, 5'000}), array({1, 1, 5'000}));
  ASSERT_EQ(granted_, 2);
  ASSERT_TRUE(hold_);
  EXPECT_LE(hold_->validUntil(), world_.env->now() + 5s);
}

}  // namespace
}  // namespace hand_over_lost_test
}  // namespace rlock::detail
