// SPDX-License-Identifier: Apache-2.0

// Questions about holds that somebody may have ended by force, with a server whose answers the test
// gives.

#include "unit/engine_fixture.hpp"
#include "unit/pending_commands.hpp"
#include <rlock/detail/engine/hold_events.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <memory>

namespace rlock::detail {
namespace force_listener_test {
namespace {

using namespace std::chrono_literals;

/// The owner takes the lock once more while the question is under way. The answer may be older than
/// that grant, and the next one is about it.
TEST(ForceListener, AQuestionThatAGrantOvertookIsPutOnceMore) {
  PendingEngine world(Options::fromUri("redis://host"));
  world.connect();
  const std::shared_ptr<const LockScripts> scripts = std::make_shared<const LockScripts>("orders");
  const auto handle = takeHold(*world.engine, scripts, 1, grantedNow(*world.engine));
  world.env->runPosted();
  world.engine->events().forced(*scripts, world.env->now());
  ASSERT_EQ(world.server->underWay(), 1U) << "it may be of the time after";
  world.env->advance(1ms);
  takeHold(*world.engine, scripts, 1, grantedNow(*world.engine), 1);
  world.server->answer(world.server->toEach(0));
  EXPECT_EQ(handle->reason(), LossReason::none);
  ASSERT_EQ(world.server->underWay(), 1U);
  world.server->answer(world.server->toEach(0));
  EXPECT_EQ(handle->reason(), LossReason::forced);
}

}  // namespace
}  // namespace force_listener_test
}  // namespace rlock::detail
