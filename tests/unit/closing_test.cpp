// SPDX-License-Identifier: Apache-2.0
#include "unit/engine_fixture.hpp"
#include <rlock/detail/engine/hold_keeper.hpp>

#include <gtest/gtest.h>

#include <chrono>

namespace rlock::detail {
namespace closing_test {
namespace {

using namespace std::chrono_literals;

using ClosingTest = EngineFixture;

// Its release fails at once, inside the call that looks whether all is over.
TEST_F(ClosingTest, AGrantThatComesTooLateToBeGivenBackEndsItOnce) {
  NoGateWaiter waiter;
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, OwnerId{1}, waiter);
  engine_->markClosed();
  HoldKeeper::GrantTerms terms{};
  terms.sentAt = env_->now();
  terms.now = env_->now();
  terms.lease = 30s;
  terms.watched = true;
  engine_->holds().granted(*gate.hold, 0, 1, terms);
  engine_->gates().leave(*gate.hold);
  int ended = 0;
  EXPECT_NO_THROW(engine_->shutDown(env_->now() - 1ms, [&] { ++ended; }));
  env_->advance(1s);
  EXPECT_EQ(ended, 1);
}

// Two requests of one owner: the first passes its gate on to the second.
TEST_F(ClosingTest, WaitsForARequestToWhichAGateWasPassedOn) {
  NoGateWaiter first;
  NoGateWaiter second;
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, OwnerId{1}, first);
  ASSERT_FALSE(engine_->gates().enter(scripts_, OwnerId{1}, second).entered);
  engine_->gates().leave(*gate.hold);
  int ended = 0;
  engine_->shutDown(env_->now() + 1h, [&] { ++ended; });
  env_->runPosted();
  EXPECT_EQ(ended, 0) << "it may obtain something that nobody would give back";
  engine_->gates().leave(*gate.hold);
  env_->runPosted();
  EXPECT_EQ(ended, 1);
}

}  // namespace
}  // namespace closing_test
}  // namespace rlock::detail
