// SPDX-License-Identifier: Apache-2.0
#include "unit/engine_fixture.hpp"
#include <rlock/detail/engine/hold_events.hpp>
#include <rlock/detail/executor/read_write_scripts.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace rlock::detail {
namespace hold_events_test {
namespace {

using namespace std::chrono_literals;

/// The channels that a client listens to.
class Channels final : public net::SubscriptionTransport {
 public:
  explicit Channels(std::set<std::string>& on) : on_(on) {}

  void subscribe(std::string channel) override { on_.insert(std::move(channel)); }
  void unsubscribe(const std::string& channel) override { on_.erase(channel); }
  void close() noexcept override {}

 private:
  std::set<std::string>& on_;
};

class HoldEventsTest : public EngineFixture {
 protected:
  /// An owner takes the lock by a request that is sent now.
  IntrusivePtr<HoldHandle> take(std::uint64_t owner = 1) {
    return takeHold(*engine_, scripts_, owner, grantedNow(*engine_));
  }
  IntrusivePtr<HoldHandle> book(Hold& hold, Env::Clock::time_point sentAt, int before = 0) {
    HoldKeeper::GrantTerms terms = grantedNow(*engine_);
    terms.sentAt = sentAt;
    return engine_->holds().granted(hold, before, before + 1, terms).handle;
  }
  [[nodiscard]] bool isHeld(std::uint64_t owner = 1) const {
    return engine_->holds().holds("orders", OwnerId{owner});
  }

  NoGateWaiter waiter_;
};

TEST_F(HoldEventsTest, AForcedReleaseEndsWhatWasGrantedBeforeIt) {
  const auto handle = take();
  env_->advance(1ms);
  engine_->events().forced(*scripts_, env_->now());
  EXPECT_EQ(handle->reason(), LossReason::forced);
  EXPECT_FALSE(isHeld());
}

TEST_F(HoldEventsTest, AForcedReleaseDoubtsWhatWasGrantedSince) {
  const auto sentAt = env_->now();
  env_->advance(1ms);
  const auto handle = take();
  engine_->events().forced(*scripts_, sentAt);
  EXPECT_EQ(handle->reason(), LossReason::none)
      << "it may be of the time after: the server is asked";
  EXPECT_TRUE(isHeld());
}

/// A clock has steps: one of two moments that look the same is the earlier one.
TEST_F(HoldEventsTest, AForcedReleaseDoubtsWhatWasGrantedAtThatMoment) {
  const auto handle = take();
  engine_->events().forced(*scripts_, env_->now());
  EXPECT_EQ(handle->reason(), LossReason::none);
}

TEST_F(HoldEventsTest, AForcedReleaseIsAboutItsKindOnly) {
  const auto plain = take();
  const auto reading = takeHold(
      *engine_, std::make_shared<const ReadLockScripts>("orders"), 3, grantedNow(*engine_));
  env_->advance(1ms);
  engine_->events().forced(WriteLockScripts("orders"), env_->now());
  EXPECT_EQ(plain->reason(), LossReason::none);
  EXPECT_EQ(reading->reason(), LossReason::forced) << "that of a writer frees both";
  engine_->events().forced(*scripts_, env_->now());
  EXPECT_EQ(plain->reason(), LossReason::forced);
}

// The permit has run out, or was given back by its id.
TEST_F(HoldEventsTest, AChangeOfALeaseThatFindsNothingIsALoss) {
  const auto handle = take();
  const std::stop_token lost = handle->lostToken();
  const HoldPtr hold = engine_->gates().entry(scripts_, OwnerId{1});
  engine_->events().leaseChanged(*hold, env_->now(), 30s, false);
  EXPECT_EQ(handle->reason(), LossReason::refused);
  env_->runPosted();
  EXPECT_TRUE(lost.stop_requested());
}

TEST_F(HoldEventsTest, AForcedReleaseIsAboutItsNameOnly) {
  const auto handle = take();
  env_->advance(1ms);
  engine_->events().forced(LockScripts("invoices"), env_->now());
  EXPECT_EQ(handle->reason(), LossReason::none);
}

TEST_F(HoldEventsTest, HoldsOfAnEndedThreadAreLostAndLeftToExpire) {
  const auto handle = take(1);
  const auto other = take(3);
  engine_->threadEnded(OwnerId{1});
  EXPECT_EQ(handle->reason(), LossReason::threadEnded);
  EXPECT_EQ(other->reason(), LossReason::none);
  EXPECT_TRUE(engine_->events().loseAll().size() == 1) << "closing gives back the other's only";
}

TEST_F(HoldEventsTest, EachHoldIsInvalidAtOnceWhenTheClientIsClosed) {
  const auto handle = take();
  const std::stop_token lost = handle->lostToken();
  engine_->markClosed();
  EXPECT_EQ(handle->reason(), LossReason::clientClosed);
  EXPECT_FALSE(lost.stop_requested()) << "this is told on the loop thread";
  EXPECT_EQ(engine_->events().loseAll().size(), 1U);
  EXPECT_TRUE(lost.stop_requested());
  EXPECT_FALSE(isHeld());
}

/// Its thread ends while the answer is on its way: nothing is lost.
TEST_F(HoldEventsTest, AHoldThatIsBeingReleasedIsNotLostWithItsThread) {
  const auto handle = take(1);
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, OwnerId{1}, waiter_);
  engine_->holds().releasing(*gate.hold, 0, env_->now());
  engine_->threadEnded(OwnerId{1});
  EXPECT_EQ(handle->reason(), LossReason::none);
  // If the release fails, the hold runs out as it would have without the end of the thread.
  engine_->holds().notReleased(*gate.hold);
  EXPECT_FALSE(gate.hold->watched);
  engine_->gates().leave(*gate.hold);
  env_->runPosted();
  env_->advance(30s);
  EXPECT_EQ(handle->reason(), LossReason::expired);
}

TEST_F(HoldEventsTest, AGrantForAnEndedThreadIsLeftToExpire) {
  OwnerId ended{};
  std::thread([&] { ended = currentOwner(); }).join();
  EXPECT_EQ(take(ended.value)->reason(), LossReason::threadEnded);
  EXPECT_TRUE(engine_->events().loseAll().empty());
}

/// The timer for its end comes while the release is under way, and finds nothing to tell.
TEST_F(HoldEventsTest, AReleaseThatFailsLateLeavesAHoldWhoseEndIsTold) {
  const auto handle = take();
  env_->runPosted();
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, OwnerId{1}, waiter_);
  engine_->holds().releasing(*gate.hold, 0, env_->now());
  env_->advance(11s);
  env_->runPosted();
  engine_->holds().notReleased(*gate.hold);
  engine_->gates().leave(*gate.hold);
  env_->runPosted();
  env_->advance(20s);
  env_->runPosted();
  EXPECT_EQ(handle->reason(), LossReason::expired);
}

/// An observer or the hook of the log may run for long.
TEST_F(HoldEventsTest, TheTokensOfAllHoldsStopBeforeAClosingIsToldOf) {
  const auto first = take(1);
  const auto second = take(3);
  const std::stop_token lost = second->lostToken();
  bool stopped = false;
  onLog_ = [&] { stopped = first->lostToken().stop_requested() && lost.stop_requested(); };
  engine_->markClosed();
  EXPECT_EQ(engine_->events().loseAll().size(), 2U);
  EXPECT_TRUE(stopped);
}

TEST_F(HoldEventsTest, EachReadHoldIsInvalidAtOnceWhenTheClientIsClosed) {
  const std::shared_ptr<const LockScripts> reads =
      std::make_shared<const ReadLockScripts>("prices");
  const HoldGates::Gate gate = engine_->gates().enter(reads, OwnerId{1}, waiter_);
  const auto first = book(*gate.hold, env_->now());
  const auto second = book(*gate.hold, env_->now(), 1);
  engine_->gates().leave(*gate.hold);
  engine_->markClosed();
  EXPECT_EQ(first->reason(), LossReason::clientClosed);
  EXPECT_EQ(second->reason(), LossReason::clientClosed);
  EXPECT_EQ(engine_->events().loseAll().size(), 1U);
  EXPECT_TRUE(first->lostToken().stop_requested());
  EXPECT_TRUE(second->lostToken().stop_requested());
}

TEST_F(HoldEventsTest, AHoldIsLostOnce) {
  const auto handle = take();
  env_->advance(1ms);
  engine_->events().forced(*scripts_, env_->now());
  engine_->threadEnded(OwnerId{1});
  engine_->markClosed();
  EXPECT_EQ(handle->reason(), LossReason::forced);
  EXPECT_TRUE(engine_->events().loseAll().empty());
}

TEST_F(HoldEventsTest, AGrantThatIsBookedAfterTheClientWasClosedIsOver) {
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, OwnerId{1}, waiter_);
  const auto sentAt = env_->now();
  engine_->markClosed();
  const auto handle = book(*gate.hold, sentAt);
  EXPECT_EQ(handle->reason(), LossReason::clientClosed);
  engine_->gates().leave(*gate.hold);
}

/// The timer stays as it was set for a hold that is gone: the next one is due later.
TEST_F(HoldEventsTest, AGrantAfterAReleaseWakesNobody) {
  take();
  EXPECT_GT(env_->posted(), 0U) << "the timer is to be set";
  env_->runPosted();
  for (int i = 0; i < 3; ++i) {
    const HoldGates::Gate gate = engine_->gates().enter(scripts_, OwnerId{1}, waiter_);
    engine_->holds().releasing(*gate.hold, 0, env_->now());
    HoldKeeper::Released released;
    auto left = engine_->holds().released(*gate.hold, {}, released);
    ASSERT_TRUE(left);
    engine_->gates().afterLeaving(std::move(*left));
    EXPECT_FALSE(isHeld());
    env_->advance(1ms);
    take();
    EXPECT_EQ(env_->posted(), 0U);
  }
}

// A hold that lasts for longer than subscriptions linger hears of its end as well.
TEST(ForcedReleases, AreListenedForWhileSomethingIsHeld) {
  std::set<std::string> on;
  const LoneEngine client(subscriptionsOnly([&] { return std::make_unique<Channels>(on); }));
  HoldKeeper::GrantTerms terms = grantedNow(*client.engine);
  terms.lease = 1h;
  terms.watched = false;
  takeHold(*client.engine, std::make_shared<const LockScripts>("orders"), 1, terms);
  client.env->runPosted();
  for (int i = 0; i < 60; ++i) {
    client.env->advance(1s);
    client.env->runPosted();
  }
  EXPECT_EQ(on.count("rlock_client:client"), 1U);
}

}  // namespace
}  // namespace hold_events_test
}  // namespace rlock::detail
