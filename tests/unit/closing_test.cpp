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

/// A client that is being closed.
class ClosingUnderWayTest : public EngineFixture {
 protected:
  Closing& closing() { return engine_->closing(); }
  void close() {
    engine_->shutDown(env_->now() + 5s, [this] { ++ended_; });
    env_->runPosted();
  }

  int ended_ = 0;
};

TEST_F(ClosingUnderWayTest, WaitsForTheLastDelivery) {
  closing().deliveryBegan();
  closing().deliveryBegan();
  close();
  closing().deliveryEnded();
  env_->runPosted();
  EXPECT_EQ(ended_, 0);
  closing().deliveryEnded();
  env_->runPosted();
  EXPECT_EQ(ended_, 1);
}

TEST_F(ClosingUnderWayTest, WaitsUntilTheLastEntryHasLeftItsQueue) {
  closing().entryTaken("owner");
  closing().entryTaken("owner");
  closing().entryTaken("another");
  close();
  EXPECT_FALSE(closing().entryAbandoned("owner")) << "the owner's other waiter needs it";
  closing().entryLeft();
  EXPECT_TRUE(closing().entryAbandoned("owner"));
  closing().entryLeft();
  env_->runPosted();
  EXPECT_EQ(ended_, 0);
  EXPECT_TRUE(closing().entryAbandoned("another"));
  closing().entryLeft();
  env_->runPosted();
  EXPECT_EQ(ended_, 1);
}

TEST_F(ClosingUnderWayTest, AnEntryIsCountedAnewWhenItIsTakenAgain) {
  for (int i = 0; i < 2; ++i) {
    closing().entryTaken("owner");
    EXPECT_TRUE(closing().entryAbandoned("owner"));
    closing().entryLeft();
  }
  close();
  EXPECT_EQ(ended_, 1);
}

TEST_F(ClosingUnderWayTest, EndsAtItsDeadlineAndOnlyOnce) {
  closing().deliveryBegan();
  close();
  env_->advance(5s - 1ms);
  EXPECT_EQ(ended_, 0);
  env_->advance(1ms);
  EXPECT_EQ(ended_, 1);
  closing().deliveryEnded();
  env_->runPosted();
  EXPECT_EQ(ended_, 1);
}

TEST_F(ClosingUnderWayTest, AnEndBeforeTheDeadlineIsTheOnlyOne) {
  close();
  EXPECT_EQ(ended_, 1);
  env_->advance(5s);
  EXPECT_EQ(ended_, 1);
}

TEST_F(ClosingUnderWayTest, WaitsForTheServerToTakeBackWhatIsHeld) {
  takeHold(*engine_, scripts_, 1, grantedNow(*engine_));
  close();
  EXPECT_EQ(ended_, 0) << "the server may come back until the deadline";
  env_->advance(5s);
  EXPECT_EQ(ended_, 1);
}

}  // namespace
}  // namespace closing_test
}  // namespace rlock::detail
