// SPDX-License-Identifier: Apache-2.0
#include "unit/engine_fixture.hpp"
#include "unit/pending_commands.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/engine/acquire_task.hpp>
#include <rlock/detail/engine/hold_gates.hpp>
#include <rlock/detail/engine/scripted_lock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace rlock::detail {
namespace hold_gates_test {
namespace {

/// Each reference to it is counted, as a task would count it.
class FakeGateWaiter final : public GateWaiter {
 public:
  void gateOpened() noexcept override { ++opened; }
  void gateClosed() noexcept override { ++closed; }
  void gateShut() noexcept override { ++references; }
  void gateDropRef() noexcept override { --references; }

  int opened = 0;
  int closed = 0;
  int references = 0;
};

class HoldGatesTest : public EngineFixture {
 protected:
  HoldGates::Gate enter(GateWaiter& waiter, std::uint64_t owner = 1) {
    return engine_->gates().enter(scripts_, OwnerId{owner}, waiter);
  }

  FakeGateWaiter first_;
  FakeGateWaiter second_;
};

TEST_F(HoldGatesTest, OneRequestAboutAHoldAtATime) {
  const HoldGates::Gate gate = enter(first_);
  EXPECT_TRUE(gate.entered);
  const HoldGates::Gate next = enter(second_);
  EXPECT_FALSE(next.entered);
  EXPECT_FALSE(next.refused);
  EXPECT_TRUE(enter(first_, 2).entered) << "another owner has another gate";
  engine_->gates().leave(*gate.hold);
  EXPECT_EQ(second_.opened, 0) << "the loop thread tells it";
  env_->runPosted();
  EXPECT_EQ(second_.opened, 1);
  EXPECT_EQ(second_.references, 0);
}

/// The loop may end before it comes to that.
TEST_F(HoldGatesTest, WhoHasTheGateWhenTheConnectionsEndIsTold) {
  const HoldGates::Gate gate = enter(first_);
  EXPECT_FALSE(enter(second_).entered);
  engine_->gates().leave(*gate.hold);
  engine_->markClosed();
  engine_->disconnect();
  EXPECT_EQ(second_.opened, 1);
  EXPECT_EQ(second_.closed, 0);
  env_->runPosted();
  EXPECT_EQ(second_.opened, 1);
  EXPECT_EQ(second_.references, 0);
}

TEST_F(HoldGatesTest, AHoldThatIsLostCountsForNobodyAtItsGate) {
  takeHold(*engine_, scripts_, 1, grantedNow(*engine_));
  EXPECT_EQ(enter(first_).count, 1);
  engine_->gates().leave(*engine_->gates().entry(scripts_, OwnerId{1}));
  engine_->threadEnded(OwnerId{1});
  const HoldGates::Gate gate = enter(first_);
  EXPECT_EQ(gate.count, 0);
  engine_->gates().leave(*gate.hold);
  const HoldGates::Gate tried = engine_->gates().tryEnter(scripts_, OwnerId{1});
  ASSERT_TRUE(tried.entered);
  EXPECT_EQ(tried.count, 0);
  engine_->gates().leave(*tried.hold);
}

TEST_F(HoldGatesTest, AClosedClientLetsNobodyWaitAtAGate) {
  const HoldGates::Gate gate = enter(first_);
  engine_->markClosed();
  // Nobody would wake it: closing has dismissed those who wait, and the loop may end.
  const HoldGates::Gate late = enter(second_);
  EXPECT_TRUE(late.refused);
  EXPECT_FALSE(late.entered);
  engine_->gates().leave(*gate.hold);
  EXPECT_EQ(second_.opened, 0);
  EXPECT_EQ(second_.closed, 0);
  EXPECT_EQ(second_.references, 0);
}

TEST_F(HoldGatesTest, AClosedClientStillLetsARequestIntoAFreeGate) {
  engine_->markClosed();
  const HoldGates::Gate gate = enter(first_);
  EXPECT_TRUE(gate.entered) << "a release may be under way that gives something back";
  EXPECT_FALSE(gate.refused);
  engine_->gates().leave(*gate.hold);
}

TEST_F(HoldGatesTest, WhoWaitsWhenTheClientIsClosedIsSentAway) {
  const HoldGates::Gate gate = enter(first_);
  EXPECT_FALSE(enter(second_).entered);
  engine_->markClosed();
  engine_->gates().dismissAll();
  EXPECT_EQ(second_.closed, 1);
  EXPECT_EQ(second_.references, 0);
  engine_->gates().leave(*gate.hold);
  EXPECT_EQ(second_.opened, 0);
}

// A call without a time limit waits at its gate for one that lasts no longer than an outage may.
// Behind the gate it waits for others, which may last.
TEST(CallAtGate, ItsLimitIsOverWithTheGate) {
  Options options = Options::fromUri("redis://host");
  options.outageTimeout = std::chrono::seconds(1);
  PendingEngine world(options);
  ScriptedLock lock(
      world.engine, std::make_shared<const LockScripts>("orders"), HandlerPlace::loop);
  world.connect();
  int answers = 0;
  for (const Duration wait : {Duration::zero(), Duration::max()}) {
    AcquireParams params;
    params.owner = OwnerId{1};
    params.wait = wait;
    lock.acquireAsync(std::move(params),
                      [&](const Result<LockBackend::Acquired>& /*result*/) { ++answers; });
    world.env->runPosted();
  }
  ASSERT_EQ(world.server->underWay(), 1U);
  world.server->answer(test::numberReply(100'000));
  world.env->runPosted();
  ASSERT_EQ(world.server->underWay(), 1U) << "the second has its turn";
  world.env->advance(std::chrono::seconds(2));
  world.env->runPosted();
  EXPECT_EQ(answers, 1);
  world.server->answer(test::listReply({test::numberReply(1)}));
  world.env->runPosted();
  EXPECT_EQ(answers, 2);
}

// The request before it gets no answer for longer, and its own caller has more time.
TEST(CallAtGate, ACallWithoutATimeLimitWaitsThereForOneOutage) {
  std::optional<Errc> told;
  Options options = Options::fromUri("redis://host");
  options.outageTimeout = std::chrono::seconds(1);
  PendingEngine world(options);
  ScriptedLock lock(
      world.engine, std::make_shared<const LockScripts>("orders"), HandlerPlace::loop);
  world.connect();
  for (const Duration wait : {Duration::zero(), Duration::max()}) {
    AcquireParams params;
    params.owner = OwnerId{1};
    params.wait = wait;
    lock.acquireAsync(std::move(params),
                      [&told, wait](const Result<LockBackend::Acquired>& result) {
                        if (wait.isPositive() && !result.has_value()) {
                          told = result.error().errc();
                        }
                      });
    world.env->runPosted();
  }
  ASSERT_EQ(world.server->underWay(), 1U);
  world.env->advance(std::chrono::milliseconds(999));
  world.env->runPosted();
  EXPECT_EQ(told, std::nullopt);
  world.env->advance(std::chrono::milliseconds(1));
  world.env->runPosted();
  EXPECT_EQ(told, Errc::connectionFailed);
}

}  // namespace
}  // namespace hold_gates_test
}  // namespace rlock::detail
