// SPDX-License-Identifier: Apache-2.0
#include "unit/pending_commands.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/detail/engine/server_queue_entry.hpp>
#include <rlock/detail/executor/fair_lock_scripts.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace rlock::detail {
namespace server_queue_entry_test {
namespace {

using namespace std::chrono_literals;

/// A caller that asks again as soon as it has its answer must not stand behind its own entry.
TEST(ServerQueueEntryTest, IsTakenBackBeforeTheCallerHasItsAnswer) {
  PendingEngine world(Options::fromUri("redis://host"));
  world.connect(true);
  ScriptedLock lock(world.engine,
                    std::make_shared<const FairLockScripts>("orders", 5'000ms, true),
                    HandlerPlace::loop);
  AcquireParams params;
  params.owner = OwnerId{1};
  params.wait = 1s;
  std::size_t sentBeforeAnswer = 0;
  bool refused = false;
  lock.acquireAsync(std::move(params), [&](const Result<LockBackend::Acquired>& result) {
    refused = result.has_value() && !result->has_value();
    sentBeforeAnswer = world.server->sent();
  });
  world.env->runPosted();
  ASSERT_EQ(world.server->underWay(), 1U);
  world.server->answer(test::numberReply(5'000));
  world.env->runPosted();
  ASSERT_EQ(world.server->underWay(), 0U) << "it waits";
  world.env->advance(1s);
  ASSERT_TRUE(refused);
  ASSERT_EQ(world.server->underWay(), 1U);
  const std::vector<std::string>& words = world.server->oldest();
  EXPECT_EQ(words[1], lua::fair_withdraw.sha1);
  EXPECT_EQ(sentBeforeAnswer, world.server->sent());
  world.server->answer(test::numberReply(1));
  world.env->runPosted();
}

}  // namespace
}  // namespace server_queue_entry_test
}  // namespace rlock::detail
