// SPDX-License-Identifier: Apache-2.0
#include "unit/engine_fixture.hpp"
#include "unit/pending_commands.hpp"
#include <rlock/detail/engine/hold_keeper.hpp>
#include <rlock/detail/executor/read_write_scripts.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

namespace rlock::detail {
namespace hold_keeper_test {
namespace {

using namespace std::chrono_literals;
using Scripts = std::shared_ptr<const LockScripts>;

constexpr OwnerId kOwner{1};

/// A hold of 30 s that the watchdog renews.
HoldKeeper::GrantTerms watchedTerms() {
  HoldKeeper::GrantTerms terms{};
  terms.lease = 30s;
  terms.wantsHandle = true;
  return terms;
}

class HoldKeeperTest : public EngineFixture {
 protected:
  /// An owner has so many holds and takes one more, by a request that is sent now.
  IntrusivePtr<HoldHandle> take(const Scripts& scripts,
                                int before = 0,
                                HoldKeeper::GrantTerms terms = watchedTerms(),
                                OwnerId owner = kOwner) {
    terms.sentAt = env_->now();
    terms.now = env_->now();
    return takeHold(*engine_, scripts, owner.value, terms, before);
  }
  /// The server has released a hold.
  void release(const Scripts& scripts, const HoldRelease& what) {
    const HoldGates::Gate gate = engine_->gates().enter(scripts, kOwner, waiter_);
    engine_->holds().releasing(*gate.hold, what.incarnation, env_->now());
    HoldKeeper::Released released;
    auto left = engine_->holds().released(*gate.hold, what, released);
    if (left) {
      engine_->gates().afterLeaving(std::move(*left));
    } else {
      engine_->gates().leave(*gate.hold);
    }
  }
  /// A release was not executed. Returns whether the hold is renewed nevertheless.
  bool watchedAfterAFailedRelease() {
    const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
    engine_->holds().releasing(*gate.hold, 0, env_->now());
    engine_->holds().notReleased(*gate.hold);
    const bool watched = gate.hold->watched;
    engine_->gates().leave(*gate.hold);
    return watched;
  }
  [[nodiscard]] bool keeps(const Scripts& scripts, OwnerId owner = kOwner) const {
    return engine_->holds().keeps(*scripts, owner);
  }

  const Scripts reads_ = std::make_shared<const ReadLockScripts>("orders");
  const Scripts writes_ = std::make_shared<const WriteLockScripts>("orders");
  NoGateWaiter waiter_;
};

// Releases.

/// The server says with each release which of the read holds that remain are over.
TEST_F(HoldKeeperTest, AReadHoldThatAnothersReleaseFindsGoneIsTold) {
  for (const bool othersAreLeft : {true, false}) {
    const auto gone = take(reads_);
    const auto other = take(reads_, 1);
    const std::stop_token lost = gone->lostToken();
    HoldRelease releaseOfTheOther{.incarnation = other->incarnation()};
    if (othersAreLeft) {
      static_cast<void>(take(reads_, 2));
      releaseOfTheOther.remain = 2;
      releaseOfTheOther.over = {1};
    }
    release(reads_, releaseOfTheOther);
    EXPECT_TRUE(other->released());
    EXPECT_EQ(other->reason(), LossReason::none);
    EXPECT_EQ(gone->reason(), LossReason::refused);
    EXPECT_FALSE(lost.stop_requested()) << "this is told on the loop thread";
    env_->runPosted();
    EXPECT_TRUE(lost.stop_requested());
    release(reads_, {});
  }
}

TEST_F(HoldKeeperTest, AHoldThatItsOwnReleaseFindsGoneIsTold) {
  const auto gone = take(scripts_);
  const std::stop_token lost = gone->lostToken();
  release(scripts_, {.lost = true});
  EXPECT_EQ(gone->reason(), LossReason::refused);
  env_->runPosted();
  EXPECT_TRUE(lost.stop_requested());
}

/// The connection was away while the release waited, and the lease ran out.
TEST_F(HoldKeeperTest, AHoldThatRanOutDuringItsReleaseHasExpired) {
  HoldKeeper::GrantTerms ownLease = watchedTerms();
  ownLease.watched = false;
  ownLease.lease = 5s;
  const auto over = take(scripts_, 0, ownLease);
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  engine_->holds().releasing(*gate.hold, 0, env_->now());
  env_->advance(5s);
  HoldKeeper::Released released;
  engine_->holds().released(*gate.hold, {.lost = true}, released);
  engine_->gates().leave(*gate.hold);
  EXPECT_EQ(over->reason(), LossReason::expired);
}

/// A failover has lost the second of two holds, and the release of one finds that it was the last.
TEST_F(HoldKeeperTest, AHoldThatAnothersReleaseFindsGoneIsTold) {
  const auto handle = take(scripts_);
  take(scripts_, 1);
  const std::stop_token lost = handle->lostToken();
  release(scripts_, {});
  EXPECT_EQ(handle->reason(), LossReason::refused);
  EXPECT_FALSE(handle->released());
  EXPECT_FALSE(engine_->holds().holds("orders", kOwner));
  env_->runPosted();
  EXPECT_TRUE(lost.stop_requested());
}

/// One of two was released, although nobody heard of it: the next release finds the last.
TEST_F(HoldKeeperTest, AReleaseOfUnknownOutcomeMakesNoLossOfTheNext) {
  const auto handle = take(scripts_);
  take(scripts_, 1);
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  engine_->holds().releasing(*gate.hold, 0, env_->now());
  engine_->holds().notReleased(*gate.hold, HoldKeeper::GivenUp::doubtful);
  engine_->gates().leave(*gate.hold);
  release(scripts_, {});
  EXPECT_EQ(handle->reason(), LossReason::none);
  EXPECT_TRUE(handle->released());
  // A grant says how many there are.
  const auto next = take(scripts_);
  take(scripts_, 1);
  release(scripts_, {});
  EXPECT_EQ(next->reason(), LossReason::refused);
}

/// As of a member of a group, which does not know of that hold any more.
TEST_F(HoldKeeperTest, AReleaseThatIsGivenUpAndNobodyRepeatsCountsAsDone) {
  take(scripts_);
  take(scripts_, 1);
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  engine_->holds().releasing(*gate.hold, 0, env_->now());
  engine_->holds().notReleased(*gate.hold, HoldKeeper::GivenUp::forgotten);
  EXPECT_EQ(gate.hold->count, 1);
  EXPECT_TRUE(gate.hold->watched);
  const auto plan = engine_->holds().releasing(*gate.hold, 0, env_->now());
  EXPECT_EQ(plan.before, 1);
  EXPECT_TRUE(plan.last) << "a second one of the server's would be too many";
  engine_->holds().notReleased(*gate.hold);
  engine_->gates().leave(*gate.hold);
}

/// It counted two although the server has one, which the next grant shows.
TEST_F(HoldKeeperTest, AGrantAfterAReleaseOfUnknownOutcomeIsNoLoss) {
  const auto handle = take(scripts_);
  take(scripts_, 1);
  HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  engine_->holds().releasing(*gate.hold, 0, env_->now());
  engine_->holds().notReleased(*gate.hold, HoldKeeper::GivenUp::doubtful);
  HoldKeeper::GrantTerms terms = watchedTerms();
  terms.sentAt = terms.now = env_->now();
  engine_->holds().granted(*gate.hold, 2, 2, terms);
  EXPECT_EQ(gate.hold->count, 2);
  EXPECT_EQ(handle->reason(), LossReason::none);
  // One that the server does not know of either was certainly lost.
  engine_->holds().granted(*gate.hold, 2, 2, terms);
  EXPECT_EQ(handle->reason(), LossReason::refused);
  engine_->gates().leave(*gate.hold);
}

/// The answer to a re-entry, or to the reconciliation of one.
TEST_F(HoldKeeperTest, AHoldOfWhichTheServerCountsNoneIsTold) {
  for (const Scripts& scripts : {scripts_, reads_, writes_}) {
    const auto handle = take(scripts);
    const std::stop_token lost = handle->lostToken();
    const HoldGates::Gate gate = engine_->gates().enter(scripts, kOwner, waiter_);
    engine_->holds().counted(*gate.hold, 1);
    EXPECT_EQ(handle->reason(), LossReason::none);
    engine_->holds().counted(*gate.hold, 0);
    engine_->gates().leave(*gate.hold);
    EXPECT_EQ(handle->reason(), LossReason::refused);
    EXPECT_FALSE(engine_->holds().holds("orders", kOwner));
    env_->runPosted();
    EXPECT_TRUE(lost.stop_requested());
  }
}

/// The rest of a lost hold is to end soon.
TEST_F(HoldKeeperTest, AReleaseOfALostHoldRestoresNoLease) {
  take(scripts_);
  take(scripts_, 1);
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  EXPECT_GT(engine_->holds().releasing(*gate.hold, 0, env_->now()).restore, 0s);
  engine_->holds().notReleased(*gate.hold);
  engine_->threadEnded(kOwner);
  EXPECT_EQ(engine_->holds().releasing(*gate.hold, 0, env_->now()).restore, 0s);
  engine_->gates().leave(*gate.hold);
}

/// The loss is announced a moment before the server drops the hold, whose owner releases it then.
TEST_F(HoldKeeperTest, AHoldThatWasToldLostDoesNotCountAsReleased) {
  HoldKeeper::GrantTerms brief = watchedTerms();
  brief.watched = false;
  brief.lease = 5s;
  for (const Scripts& scripts : {scripts_, reads_}) {
    const auto before = engine_->stats();
    take(scripts, 0, brief);
    env_->runPosted();
    env_->advance(4'950ms);
    env_->runPosted();
    release(scripts, {});
    EXPECT_EQ(engine_->stats().lost - before.lost, 1U);
    EXPECT_EQ(engine_->stats().released - before.released, 0U);
    take(scripts, 0, brief);
    release(scripts, {});
    EXPECT_EQ(engine_->stats().released - before.released, 1U) << "another one does";
  }
}

/// It is booked all the same, and the handle shows the loss.
TEST_F(HoldKeeperTest, ALossThatAReleaseFindsIsBookedWithoutMemory) {
  const auto gone = take(scripts_);
  env_->runPosted();
  env_->setFull(true);
  EXPECT_NO_THROW(release(scripts_, {.lost = true}));
  env_->setFull(false);
  EXPECT_EQ(gone->reason(), LossReason::refused);
  EXPECT_FALSE(engine_->holds().holds("orders", kOwner));
}

TEST_F(HoldKeeperTest, OnlyTheLastHoldIsLeftToExpireWhenItsReleaseFails) {
  take(scripts_);
  take(scripts_, 1);
  EXPECT_TRUE(watchedAfterAFailedRelease()) << "the other one is still wanted";
  release(scripts_, {.remain = 1});
  EXPECT_FALSE(watchedAfterAFailedRelease());
}

/// Its release waits for a connection, and the other one ends meanwhile.
TEST_F(HoldKeeperTest, AReadHoldThatIsReleasedIsNotRenewedOnceTheOthersAreOver) {
  HoldKeeper::GrantTerms ownLease = watchedTerms();
  ownLease.watched = false;
  ownLease.lease = 5s;
  for (const bool latest : {true, false}) {
    SCOPED_TRACE(latest);
    const auto first = take(reads_, 0, latest ? ownLease : watchedTerms());
    const auto second = take(reads_, 1, latest ? watchedTerms() : ownLease);
    const HoldGates::Gate gate = engine_->gates().enter(reads_, kOwner, waiter_);
    engine_->holds().releasing(*gate.hold, latest ? 0 : first->incarnation(), env_->now());
    EXPECT_TRUE(gate.hold->hook.linked()) << "the other one is still wanted";
    env_->runPosted();
    env_->advance(5s);
    env_->runPosted();
    EXPECT_EQ((latest ? first : second)->reason(), LossReason::expired);
    EXPECT_FALSE(gate.hold->hook.linked());
    engine_->holds().notReleased(*gate.hold);
    EXPECT_FALSE(gate.hold->watched);
    engine_->gates().leave(*gate.hold);
    release(reads_, {});
  }
}

/// One that is over is given back, which fails.
TEST_F(HoldKeeperTest, AFailedReleaseOfAReadHoldThatIsOverLeavesTheOthersWatched) {
  HoldKeeper::GrantTerms ownLease = watchedTerms();
  ownLease.watched = false;
  ownLease.lease = 5s;
  const auto over = take(reads_, 0, ownLease);
  take(reads_, 1);
  env_->runPosted();
  env_->advance(5s);
  env_->runPosted();
  const HoldGates::Gate gate = engine_->gates().enter(reads_, kOwner, waiter_);
  engine_->holds().releasing(*gate.hold, over->incarnation(), env_->now());
  EXPECT_TRUE(gate.hold->hook.linked());
  engine_->holds().notReleased(*gate.hold);
  EXPECT_TRUE(gate.hold->watched);
  engine_->holds().releasing(*gate.hold, 0, env_->now());
  EXPECT_FALSE(gate.hold->hook.linked()) << "it is the last";
  engine_->holds().notReleased(*gate.hold);
  EXPECT_FALSE(gate.hold->watched);
  engine_->gates().leave(*gate.hold);
}

/// An owner whose release fails takes the lock again: it releases that once, and nothing may stay.
TEST_F(HoldKeeperTest, AHoldWhoseReleaseFailedIsNoPartOfTheNextOne) {
  for (const Scripts& scripts : {scripts_, reads_}) {
    const HoldPtr hold = engine_->gates().entry(scripts, kOwner);
    const auto failedRelease = [&] {
      const HoldGates::Gate gate = engine_->gates().enter(scripts, kOwner, waiter_);
      engine_->holds().releasing(*gate.hold, 0, env_->now());
      engine_->holds().notReleased(*gate.hold);
      engine_->gates().leave(*gate.hold);
    };
    const auto first = take(scripts);
    failedRelease();
    const auto second = take(scripts, 1);
    EXPECT_NE(first->incarnation(), second->incarnation());
    EXPECT_TRUE(hold->watched);
    EXPECT_EQ(second->reason(), LossReason::none);
    EXPECT_EQ(first->reason(), LossReason::none);
    const HoldGates::Gate gate = engine_->gates().enter(scripts, kOwner, waiter_);
    engine_->holds().releasing(*gate.hold, 0, env_->now());
    EXPECT_FALSE(hold->hook.linked()) << "it is the last that is wanted";
    engine_->gates().leave(*gate.hold);
    release(scripts, {});

    // A release that is called again is as any other.
    take(scripts);
    failedRelease();
    release(scripts, {});
    take(scripts);
    take(scripts, 1);
    const HoldPtr again = engine_->gates().entry(scripts, kOwner);
    EXPECT_EQ(again->count, 2);
    release(scripts, {.remain = 1});
    EXPECT_TRUE(again->hook.linked());
    release(scripts, {});
  }
}

/// Whether it was executed will never be known: its place may be that of another by now.
TEST_F(HoldKeeperTest, AReadHoldWhoseReleaseIsGivenUpCountsNoMore) {
  using GivenUp = HoldKeeper::GivenUp;
  for (const GivenUp how : {GivenUp::refused, GivenUp::doubtful, GivenUp::forgotten}) {
    SCOPED_TRACE(static_cast<int>(how));
    const bool certain = how == GivenUp::refused;
    const auto outer = take(reads_);
    take(reads_, 1);
    const HoldGates::Gate gate = engine_->gates().enter(reads_, kOwner, waiter_);
    engine_->holds().releasing(*gate.hold, 0, env_->now());
    engine_->holds().notReleased(*gate.hold, how);
    EXPECT_EQ(gate.hold->parts[1].lost, !certain);
    EXPECT_TRUE(gate.hold->watched);
    engine_->holds().releasing(*gate.hold, outer->incarnation(), env_->now());
    EXPECT_EQ(gate.hold->hook.linked(), certain) << "it is the last that its owner wants";
    engine_->holds().notReleased(*gate.hold);
    engine_->gates().leave(*gate.hold);
    release(reads_, {});
  }
}

/// A failover may have lost the latest: what the server has then is the hold around it.
TEST_F(HoldKeeperTest, AReadHoldIsReleasedByItsPlaceAlsoWithoutItsNumber) {
  take(reads_);
  take(reads_, 1);
  const HoldGates::Gate gate = engine_->gates().enter(reads_, kOwner, waiter_);
  EXPECT_EQ(engine_->holds().releasing(*gate.hold, 0, env_->now()).partIndex, 2);
  engine_->holds().notReleased(*gate.hold);
  engine_->gates().leave(*gate.hold);
}

/// The server may have what is left until the lease of a renewal that was under way ends.
TEST_F(HoldKeeperTest, AReadHoldOfWhichOnlyLostOnesAreLeftIsKeptUntilTheServerHasNone) {
  take(reads_);
  take(reads_, 1);
  const HoldPtr hold = engine_->gates().entry(reads_, kOwner);
  release(reads_, {.remain = 1, .over = {1}});
  EXPECT_TRUE(hold->lost);
  EXPECT_GT(hold->hook.due(), hold->validUntil);
}

/// The server that took over had the first of two holds, and counts the third one as the second.
TEST_F(HoldKeeperTest, AHoldThatAFailoverHasLeftIsNoPartOfTheNextOne) {
  const auto first = take(scripts_);
  take(scripts_, 1);
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  HoldKeeper::GrantTerms terms = watchedTerms();
  terms.sentAt = env_->now();
  terms.now = env_->now();
  const auto third = engine_->holds().granted(*gate.hold, 2, 2, terms).handle;
  EXPECT_EQ(first->reason(), LossReason::refused);
  EXPECT_EQ(third->reason(), LossReason::none);
  EXPECT_EQ(gate.hold->count, 1) << "its owner releases it once";
  engine_->gates().leave(*gate.hold);
}

/// The server counts it still, and its owner was told that it is over.
TEST_F(HoldKeeperTest, AReadHoldThatIsOverDoesNotCountAsOneThatRemains) {
  take(reads_);
  take(reads_, 1);
  take(reads_, 2);
  const HoldGates::Gate gate = engine_->gates().enter(reads_, kOwner, waiter_);
  engine_->holds().releasing(*gate.hold, 0, env_->now());
  HoldKeeper::Released released;
  engine_->holds().released(*gate.hold, {.remain = 2, .over = {1}}, released);
  engine_->gates().leave(*gate.hold);
  EXPECT_EQ(released.remain, 1);
  EXPECT_EQ(gate.hold->count, 2);
}

// Labels.

/// All holds of an owner share it.
TEST(LabelOnTheServer, StaysUntilTheLastHoldIsReleased) {
  PendingEngine world(Options::fromUri("redis://host"));
  world.connect();
  const auto scripts = std::make_shared<const LockScripts>("orders");
  HoldKeeper::GrantTerms terms = grantedNow(*world.engine);
  terms.label = "night run";
  takeHold(*world.engine, scripts, 1, terms);
  takeHold(*world.engine, scripts, 1, terms, 1);
  const auto release = [&](int remain) {
    NoGateWaiter nobody;
    const HoldGates::Gate gate = world.engine->gates().enter(scripts, kOwner, nobody);
    world.engine->holds().releasing(*gate.hold, 0, world.env->now());
    HoldKeeper::Released released;
    world.engine->holds().released(*gate.hold, {.remain = remain}, released);
    world.engine->gates().leave(*gate.hold);
    world.env->runPosted();
  };
  world.env->runPosted();
  const std::size_t written = world.server->sent();
  EXPECT_GT(written, 0U);
  release(1);
  EXPECT_EQ(world.server->sent(), written);
  release(0);
  EXPECT_EQ(world.server->sent(), written + 1);
}

TEST_F(HoldKeeperTest, AFurtherHoldWithoutALabelLeavesTheLabel) {
  HoldKeeper::GrantTerms terms = watchedTerms();
  const HoldPtr hold = engine_->gates().entry(scripts_, kOwner);
  terms.label = "night run";
  take(scripts_, 0, terms);
  take(scripts_, 1);
  EXPECT_EQ(hold->label.view(), "night run");
  terms.label = "day run";
  take(scripts_, 2, terms);
  EXPECT_EQ(hold->label.view(), "day run");
}

TEST_F(HoldKeeperTest, ANewHoldHasNotTheLabelOfTheOneBeforeIt) {
  HoldKeeper::GrantTerms terms = watchedTerms();
  const HoldPtr hold = engine_->gates().entry(scripts_, kOwner);
  terms.label = "night run";
  take(scripts_, 0, terms);
  take(scripts_);
  EXPECT_EQ(hold->label.view(), "");
}

// Whom an owner keeps out for good.

TEST_F(HoldKeeperTest, AWatchedHoldKeepsOthersOut) {
  EXPECT_FALSE(keeps(scripts_));
  take(scripts_);
  EXPECT_TRUE(keeps(scripts_));
  EXPECT_FALSE(keeps(scripts_, OwnerId{3}));
}

TEST_F(HoldKeeperTest, AReadHoldKeepsOutWritersOnly) {
  take(reads_);
  EXPECT_FALSE(keeps(reads_));
  EXPECT_TRUE(keeps(writes_));
}

TEST_F(HoldKeeperTest, AHoldThatEndsByItselfKeepsNobodyOut) {
  HoldKeeper::GrantTerms terms = watchedTerms();
  terms.maxHold = 10s;
  take(scripts_, 0, terms, OwnerId{1});
  EXPECT_FALSE(keeps(scripts_, OwnerId{1}));
  terms = watchedTerms();
  terms.watched = false;
  take(scripts_, 0, terms, OwnerId{3});
  EXPECT_FALSE(keeps(scripts_, OwnerId{3}));
}

TEST_F(HoldKeeperTest, AHoldThatIsBeingReleasedKeepsNobodyOut) {
  for (const Scripts& scripts : {scripts_, writes_}) {
    take(scripts);
    EXPECT_TRUE(keeps(scripts));
    const HoldGates::Gate gate = engine_->gates().enter(scripts, kOwner, waiter_);
    engine_->holds().releasing(*gate.hold, 0, env_->now());
    EXPECT_FALSE(keeps(scripts));
    engine_->holds().notReleased(*gate.hold);
    EXPECT_FALSE(keeps(scripts)) << "it is left to expire";
    engine_->gates().leave(*gate.hold);
    release(scripts, {});
  }
}

TEST_F(HoldKeeperTest, AHoldThatIsLostKeepsNobodyOut) {
  take(scripts_);
  engine_->threadEnded(kOwner);
  EXPECT_FALSE(keeps(scripts_)) << "it is left to expire";
}

// A fenced hold that is taken again and was lost meanwhile is another one, with another token.

TEST_F(HoldKeeperTest, AFencedHoldThatIsLostBeforeItsReentryIsBookedIsOver) {
  HoldKeeper::GrantTerms brief = watchedTerms();
  brief.watched = false;
  brief.lease = 5s;
  take(scripts_, 0, brief);
  env_->runPosted();
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  // The server may have it for a moment longer.
  env_->advance(4'950ms);
  HoldKeeper::GrantTerms again = watchedTerms();
  again.fenced = true;
  again.sentAt = env_->now();
  again.now = env_->now();
  const auto second = engine_->holds().granted(*gate.hold, 1, 2, again).handle;
  EXPECT_EQ(second->reason(), LossReason::unreachable);
  engine_->gates().leave(*gate.hold);
}

// The ledger keeps nothing for ever.

/// A renewal whose answer did not come may have been executed just now. A release that goes on
/// until the hold is over must not end before.
TEST_F(HoldKeeperTest, AWatchedHoldMayLastAsLongAsARenewalWouldMakeIt) {
  for (const bool watched : {true, false}) {
    SCOPED_TRACE(watched);
    HoldKeeper::GrantTerms terms = watchedTerms();
    terms.watched = watched;
    const Scripts scripts = std::make_shared<const LockScripts>(watched ? "kept" : "leased");
    take(scripts, 0, terms);
    const HoldGates::Gate gate = engine_->gates().enter(scripts, kOwner, waiter_);
    env_->advance(9s);
    EXPECT_EQ(engine_->holds().endOf(*gate.hold) >= env_->now() + 30s, watched);
    engine_->gates().leave(*gate.hold);
  }
}

TEST_F(HoldKeeperTest, AHoldThatEndedByItselfIsForgotten) {
  HoldKeeper::GrantTerms brief = watchedTerms();
  brief.watched = false;
  brief.lease = 5s;
  take(scripts_, 0, brief);
  const HoldPtr expired = engine_->gates().entry(scripts_, kOwner);
  env_->runPosted();
  env_->advance(6s);
  env_->runPosted();
  EXPECT_FALSE(expired->known);
}

TEST_F(HoldKeeperTest, AHoldThatWasEndedByForceIsForgotten) {
  take(scripts_);
  const HoldPtr forced = engine_->gates().entry(scripts_, kOwner);
  env_->advance(1ms);
  engine_->events().forced(*scripts_, env_->now());
  EXPECT_FALSE(forced->known);
}

// Policies.

TEST_F(HoldKeeperTest, RenewalsFollowTheLatestPolicyOfTheHold) {
  HoldKeeper::GrantTerms strict = watchedTerms();
  strict.sync = SyncPolicy::replicas(2);
  const HoldPtr hold = engine_->gates().entry(scripts_, kOwner);
  take(scripts_);
  take(scripts_, 1, strict);
  EXPECT_EQ(hold->sync(), SyncPolicy::replicas(2));
  take(scripts_, 2);
  EXPECT_EQ(hold->sync(), SyncPolicy::replicas(2)) << "one without a policy leaves it";
  take(scripts_);
  EXPECT_FALSE(hold->sync().any()) << "another hold";
}

// The rest of a lease that the server tells.

TEST_F(HoldKeeperTest, AHoldThatLastsNoLongerThanThatIsToldInTime) {
  HoldKeeper::GrantTerms terms = watchedTerms();
  terms.watched = false;
  const auto handle = take(scripts_, 0, terms);
  env_->runPosted();
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  engine_->holds().limit(*gate.hold, env_->now(), 5s);
  engine_->gates().leave(*gate.hold);
  EXPECT_EQ(handle->validUntil(), env_->now() + 5s - Validity::allowance(5s));
  env_->runPosted();
  env_->advance(5s);
  EXPECT_EQ(handle->reason(), LossReason::expired);
}

/// A release that was lost goes on until then, and must not end before.
TEST_F(HoldKeeperTest, AHoldWithALeaseOfItsOwnMayLastAsLongAsThat) {
  HoldKeeper::GrantTerms terms = watchedTerms();
  terms.watched = false;
  terms.lease = 60s;
  const auto handle = take(scripts_, 0, terms);
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  env_->advance(9s);
  EXPECT_EQ(engine_->holds().endOf(*gate.hold), handle->validUntil() + Validity::allowance(60s));
  engine_->gates().leave(*gate.hold);
}

/// The server counts one less than this owner knows of, and it is the latest that is missing.
TEST_F(HoldKeeperTest, AReadHoldThatTheNextGrantFindsGoneIsTold) {
  const auto first = take(reads_);
  const auto second = take(reads_, 1);
  const HoldGates::Gate gate = engine_->gates().enter(reads_, kOwner, waiter_);
  const auto third = engine_->holds().granted(*gate.hold, 2, 2, grantedNow(*engine_)).handle;
  EXPECT_EQ(first->reason(), LossReason::none);
  EXPECT_EQ(second->reason(), LossReason::refused);
  EXPECT_EQ(third->reason(), LossReason::none);
  EXPECT_EQ(gate.hold->count, 2);
  engine_->gates().leave(*gate.hold);
}

// Releases: which hold they are about, and who may be told that it was released.

/// Only a release that was sent while the hold was certainly there is given the credit.
TEST_F(HoldKeeperTest, AReleaseThatBeginsAfterTheValidityIsNotCertainOfItsHold) {
  take(scripts_);
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  const auto until = gate.hold->validUntil;
  EXPECT_TRUE(engine_->holds().releasing(*gate.hold, 0, until - 1ns).valid);
  EXPECT_FALSE(engine_->holds().releasing(*gate.hold, 0, until).valid);
  engine_->gates().leave(*gate.hold);
}

TEST_F(HoldKeeperTest, AReadHoldThatWasLostAloneIsNotReleased) {
  HoldKeeper::GrantTerms brief = watchedTerms();
  brief.watched = false;
  brief.lease = 2s;
  const auto over = take(reads_, 0, brief);
  take(reads_, 1);
  env_->runPosted();
  env_->advance(2s);
  ASSERT_EQ(over->reason(), LossReason::expired);
  const HoldGates::Gate gate = engine_->gates().enter(reads_, kOwner, waiter_);
  EXPECT_FALSE(gate.hold->lost);
  EXPECT_TRUE(engine_->holds().releasing(*gate.hold, over->incarnation(), env_->now()).lost);
  engine_->holds().notReleased(*gate.hold);
  engine_->gates().leave(*gate.hold);
}

TEST_F(HoldKeeperTest, AHoldIsOverForWhoHadTheOneBeforeIt) {
  const std::uint64_t first = take(scripts_)->incarnation();
  EXPECT_FALSE(engine_->holds().isOver(*scripts_, kOwner, first));
  release(scripts_, {});
  EXPECT_TRUE(engine_->holds().isOver(*scripts_, kOwner, first));
  const std::uint64_t second = take(scripts_)->incarnation();
  EXPECT_TRUE(engine_->holds().isOver(*scripts_, kOwner, first));
  EXPECT_FALSE(engine_->holds().isOver(*scripts_, kOwner, second));
}

/// The release after it has an answer that says how many are left: nothing is in doubt any more.
TEST_F(HoldKeeperTest, TheDoubtOfAReleaseEndsWithTheNextAnswer) {
  const auto handle = take(scripts_);
  take(scripts_, 1);
  take(scripts_, 2);
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  engine_->holds().releasing(*gate.hold, 0, env_->now());
  engine_->holds().notReleased(*gate.hold, HoldKeeper::GivenUp::doubtful);
  engine_->gates().leave(*gate.hold);
  release(scripts_, {.remain = 2});
  release(scripts_, {});
  EXPECT_EQ(handle->reason(), LossReason::refused) << "a hold beside the released one is not there";
}

// Terms of a hold that the owner has taken anew through a group.

TEST_F(HoldKeeperTest, AMaxHoldThatIsOverForTheWholeDoesNotLimitTheNextHold) {
  HoldKeeper::GrantTerms brief = watchedTerms();
  brief.maxHold = 10s;
  take(scripts_, 0, brief);
  HoldKeeper::GrantTerms anew = watchedTerms();
  take(scripts_, 1, anew);
  EXPECT_FALSE(keeps(scripts_)) << "a re-entry";
  anew.afresh = 2;
  take(scripts_, 2, anew);
  EXPECT_TRUE(keeps(scripts_));
}

// The holder, for the error of an owner that is none.

TEST_F(HoldKeeperTest, AnotherHolderIsOneThatHasThisSideOfTheLockNow) {
  const auto another = [&](const Scripts& scripts) {
    return engine_->holds().anotherHolder(*scripts, OwnerId{2});
  };
  take(reads_);
  EXPECT_EQ(another(writes_), std::nullopt) << "another side";
  EXPECT_EQ(another(reads_), kOwner);
  engine_->threadEnded(kOwner);
  EXPECT_EQ(another(reads_), std::nullopt) << "lost";
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, kOwner, waiter_);
  EXPECT_EQ(another(scripts_), std::nullopt) << "it is just asking";
  engine_->gates().leave(*gate.hold);
}

}  // namespace
}  // namespace hold_keeper_test
}  // namespace rlock::detail
