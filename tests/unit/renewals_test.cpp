// SPDX-License-Identifier: Apache-2.0

// The renewals of many holds at once, with a server whose answers the test gives.

#include "unit/engine_fixture.hpp"
#include "unit/pending_commands.hpp"
#include <rlock/detail/engine/hold_keeper.hpp>
#include <rlock/detail/executor/read_write_scripts.hpp>
#include <rlock/observer.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace renewals_test {
namespace {

using namespace std::chrono_literals;

bool hasMemory = true;

void composeWithMemory(Call& call, std::span<const RenewalRequest> renewals) {
  if (!hasMemory) {
    throw std::bad_alloc();
  }
  LockScripts("any").renewals()(call, renewals);
}

/// Its renewals can be composed while there is memory.
class LargeScripts final : public LockScripts {
 public:
  using LockScripts::LockScripts;
  [[nodiscard]] ComposeRenewals renewals() const noexcept override { return &composeWithMemory; }
};

using Server = PendingCommands;

constexpr std::size_t kWindow = RenewalWindow::kAtOnce;

class RenewalsTest : public testing::Test {
 protected:
  /// @param batchSize  so many holds in a request
  explicit RenewalsTest(std::size_t batchSize = 1) : world_(settings(batchSize)) {
    world_.connect();
  }

  /// So many holds of as many locks, renewed after 10 s if they are watched.
  template <class Scripts = LockScripts>
  std::vector<HoldPtr> take(std::size_t count,
                            std::chrono::milliseconds lease = 30s,
                            bool watched = true) {
    std::vector<HoldPtr> holds;
    for (std::size_t i = 0; i < count; ++i) {
      const std::shared_ptr<const LockScripts> scripts =
          std::make_shared<const Scripts>("lock" + std::to_string(taken_++));
      const HoldGates::Gate gate = engine_->gates().enter(scripts, OwnerId{1}, waiter_);
      HoldKeeper::GrantTerms terms{};
      terms.sentAt = env_->now();
      terms.now = env_->now();
      terms.lease = lease;
      terms.watched = watched;
      engine_->holds().granted(*gate.hold, 0, 1, terms);
      holds.push_back(gate.hold);
      engine_->gates().leave(*gate.hold);
    }
    env_->runPosted();
    return holds;
  }
  /// One more of a hold whose gate was entered, with a lease of its own.
  void grantWithLease(Hold& hold, std::chrono::milliseconds lease) {
    HoldKeeper::GrantTerms terms{};
    terms.sentAt = env_->now();
    terms.now = env_->now();
    terms.lease = lease;
    terms.watched = false;
    engine_->holds().granted(hold, 1, 2, terms);
    engine_->gates().leave(hold);
  }
  /// Of the lock that was taken last.
  [[nodiscard]] std::shared_ptr<const LockScripts> latestScripts() const {
    return std::make_shared<const LockScripts>("lock" + std::to_string(taken_ - 1));
  }
  static Options settings(std::size_t batchSize) {
    Options options = Options::fromUri("redis://host");
    options.watchdogBatchSize = static_cast<int>(batchSize);
    return options;
  }

  PendingEngine world_;
  const std::shared_ptr<ManualEnv>& env_ = world_.env;
  const std::shared_ptr<Server>& server_ = world_.server;
  const std::shared_ptr<LockEngine>& engine_ = world_.engine;
  NoGateWaiter waiter_;
  std::size_t taken_ = 0;
};

TEST_F(RenewalsTest, OnlySoManyAreUnderWayAndTheFirstGoesAlone) {
  take(3 * kWindow);
  env_->advance(10s);
  EXPECT_EQ(server_->underWay(), 1U);
  server_->confirm();
  EXPECT_EQ(server_->underWay(), kWindow);
  server_->confirm();
  EXPECT_EQ(server_->underWay(), kWindow) << "the next takes the place";
  server_->confirmAll();
  EXPECT_EQ(server_->sent(), 3 * kWindow);
  EXPECT_EQ(engine_->stats().renewals, 3 * kWindow);
}

TEST_F(RenewalsTest, OneMeetsTheServerThatLacksTheScript) {
  take(3 * kWindow);
  env_->advance(10s);
  server_->refuse("NOSCRIPT No matching script. Please use EVAL.");
  EXPECT_EQ(server_->underWay(), 1U) << "the text";
  server_->confirmAll();
  EXPECT_EQ(server_->sent(), 3 * kWindow + 1);
  EXPECT_EQ(engine_->stats().scriptsLoaded, 1U);
}

TEST_F(RenewalsTest, ACrowdDisperses) {
  constexpr std::size_t kHolds = 100;
  take(kHolds);
  env_->advance(10s);
  server_->confirmAll();
  ASSERT_EQ(server_->sent(), kHolds);
  env_->advance(9s);
  EXPECT_EQ(server_->sent(), kHolds) << "not earlier than that";
  std::size_t most = 0;
  for (int i = 0; i < 10; ++i) {
    const std::size_t before = server_->sent();
    env_->advance(100ms);
    server_->confirmAll();
    most = std::max(most, server_->sent() - before);
  }
  EXPECT_EQ(server_->sent(), 2 * kHolds) << "and not after a third of the lease";
  EXPECT_LE(most, kHolds / 5);
}

TEST_F(RenewalsTest, OneByItselfIsRenewedAtAThirdOfItsLease) {
  take(1);
  for (std::size_t round = 1; round < 5; ++round) {
    env_->advance(10s - 1ms);
    EXPECT_EQ(server_->sent(), round - 1);
    env_->advance(1ms);
    EXPECT_EQ(server_->sent(), round);
    server_->confirmAll();
  }
}

TEST_F(RenewalsTest, AllAreRenewedAfterAReconnection) {
  const std::vector<HoldPtr> holds = take(3 * kWindow);
  env_->advance(10s);
  server_->confirm();
  world_.disconnect();
  EXPECT_EQ(server_->underWay(), 0U);
  env_->advance(5s);
  world_.connect();
  env_->advance(0s);
  EXPECT_EQ(server_->underWay(), 1U) << "what goes first goes alone again";
  server_->confirmAll();
  for (const HoldPtr& hold : holds) {
    EXPECT_GT(hold->validUntil, env_->now() + 29s);
  }
  EXPECT_EQ(engine_->stats().lost, 0U);
}

// It may be there from a snapshot, with an older expiry than its holder counts with.
TEST_F(RenewalsTest, AnotherServerIsAskedForTheRestOfTheValidity) {
  const auto leaseAskedFor = [&] { return std::stol(server_->oldest().at(4)); };
  const HoldPtr leased = take(1, 60s, false).front();
  env_->advance(20s);
  world_.disconnect();
  world_.connect(false, "another");
  env_->advance(0s);
  ASSERT_EQ(server_->underWay(), 1U);
  EXPECT_EQ(leaseAskedFor(), 40'000);
  server_->confirm();
  EXPECT_EQ(leased->validUntil - env_->now(), 40s - Validity::allowance(60s));
  engine_->holds().releasing(*leased, 0, env_->now());

  // A lease that is longer than the watchdog's counts as well, once.
  const HoldPtr watched = take(1).front();
  ASSERT_EQ(engine_->gates().enter(latestScripts(), OwnerId{1}, waiter_).hold, watched);
  grantWithLease(*watched, 60s);
  world_.disconnect();
  world_.connect(false, "a third");
  env_->advance(0s);
  ASSERT_EQ(server_->underWay(), 1U);
  EXPECT_EQ(leaseAskedFor(), 60'000);
  server_->confirm();
  env_->advance(10s);
  ASSERT_EQ(server_->underWay(), 1U);
  EXPECT_EQ(leaseAskedFor(), 30'000);
  server_->confirm();
}

// Each read hold has a lease of its own: one that ends soon must not last as long as another one of
// its owner.
TEST_F(RenewalsTest, AnotherServerIsAskedForTheRestOfTheFirstOfSeveralReadHolds) {
  const HoldPtr held = take<ReadLockScripts>(1, 60s, false).front();
  const auto scripts = std::make_shared<const ReadLockScripts>("lock0");
  ASSERT_EQ(engine_->gates().enter(scripts, OwnerId{1}, waiter_).hold, held);
  grantWithLease(*held, 20s);
  env_->advance(5s);
  world_.disconnect();
  world_.connect(false, "another");
  env_->advance(0s);
  ASSERT_EQ(server_->underWay(), 1U);
  EXPECT_EQ(server_->oldest().at(5), "15000");
  server_->confirm();
}

TEST_F(RenewalsTest, NobodyKnowsTheScriptsOfANewConnection) {
  take(3 * kWindow);
  env_->advance(10s);
  server_->confirmAll();
  world_.disconnect();
  world_.connect();
  env_->advance(0s);
  EXPECT_EQ(server_->underWay(), 1U);
  server_->confirm();
  EXPECT_EQ(server_->underWay(), kWindow);
}

TEST_F(RenewalsTest, WhatIsReleasedWhileItWaitsIsNotSent) {
  const std::vector<HoldPtr> holds = take(3);
  env_->advance(10s);
  EXPECT_EQ(server_->keys(), std::vector<std::string>{"lock0"});
  engine_->holds().releasing(*holds[1], 0, env_->now());
  server_->confirm();
  EXPECT_EQ(server_->keys(), std::vector<std::string>{"lock2"});
  server_->confirmAll();
  EXPECT_EQ(server_->sent(), 2U);
}

/// Its work may go on elsewhere, for no longer than the lease that the server has.
TEST_F(RenewalsTest, WhatIsLostWhileItWaitsIsNotSent) {
  take(3);
  env_->advance(10s);
  ASSERT_EQ(server_->underWay(), 1U);
  engine_->threadEnded(OwnerId{1});
  server_->confirm();
  EXPECT_EQ(server_->sent(), 1U);
}

/// The one of two read holds that is left on the server was over before.
TEST_F(RenewalsTest, WhatAFailoverHasLostWhileItWaitsIsNotSent) {
  take<ReadLockScripts>(1);
  const HoldPtr hold = take<ReadLockScripts>(1, 5s, false).front();
  const auto scripts = std::make_shared<const ReadLockScripts>("lock1");
  ASSERT_EQ(engine_->gates().enter(scripts, OwnerId{1}, waiter_).hold, hold);
  HoldKeeper::GrantTerms terms = grantedNow(*engine_);
  terms.watched = true;
  engine_->holds().granted(*hold, 1, 2, terms);
  engine_->gates().leave(*hold);
  env_->runPosted();
  env_->advance(10s);
  ASSERT_EQ(server_->sent(), 1U);
  EXPECT_TRUE(hold->renewing);
  engine_->holds().counted(*hold, 1);
  EXPECT_TRUE(hold->lost);
  server_->confirm();
  EXPECT_EQ(server_->sent(), 1U);
}

TEST_F(RenewalsTest, NothingIsSentOnceTheClientIsClosed) {
  take(3 * kWindow);
  env_->advance(10s);
  server_->confirm();
  const std::size_t sent = server_->sent();
  engine_->markClosed();
  server_->confirm();
  EXPECT_EQ(server_->sent(), sent);
}

TEST_F(RenewalsTest, WhatThereIsNoMemoryForIsTriedAgain) {
  take<LargeScripts>(2 * kWindow);
  hasMemory = false;
  env_->advance(10s);
  hasMemory = true;
  EXPECT_EQ(server_->sent(), 0U);
  EXPECT_EQ(engine_->stats().renewalFailures, 2 * kWindow);
  env_->advance(1s);
  server_->confirmAll();
  EXPECT_EQ(engine_->stats().renewals, 2 * kWindow);
  EXPECT_EQ(engine_->stats().lost, 0U);
}

// More than are taken at once, so that some wait in the watchdog and others for their turn.
TEST_F(RenewalsTest, ALossIsToldOnTimeHoweverManyWait) {
  constexpr std::size_t kHolds = 10'000;
  const std::vector<HoldPtr> holds = take(kHolds);
  env_->advance(10s);
  EXPECT_EQ(server_->underWay(), 1U);
  env_->advance(30s - 31ms - 100ms - 10s - 1ms);
  EXPECT_EQ(engine_->stats().lost, 0U);
  env_->advance(1ms);
  EXPECT_EQ(engine_->stats().lost, kHolds);
  // The lost holds are given back, which finds nothing.
  server_->confirm();
  for (env_->runPosted(); server_->underWay() > 0; env_->runPosted()) {
    server_->findNothing();
  }
  // All places in the window have come back.
  take(1);
  const std::size_t sent = server_->sent();
  env_->advance(10s);
  EXPECT_EQ(server_->sent(), sent + 1);
  server_->confirmAll();
}

TEST_F(RenewalsTest, ALateAnswerIsNotAboutTheHoldThatCameAfterIt) {
  const HoldPtr hold = take(1).front();
  env_->advance(10s);
  ASSERT_EQ(server_->underWay(), 1U);
  // The key is gone, the owner takes the lock anew, and the loop is late with the answer.
  env_->advance(1ms);
  HoldKeeper::GrantTerms terms{};
  terms.sentAt = env_->now();
  terms.now = env_->now();
  terms.lease = 30s;
  terms.watched = true;
  terms.wantsHandle = true;
  const HoldGates::Gate gate =
      engine_->gates().enter(std::make_shared<const LockScripts>("lock0"), OwnerId{1}, waiter_);
  ASSERT_EQ(gate.hold, hold);
  const IntrusivePtr<HoldHandle> handle = engine_->holds().granted(*hold, 1, 1, terms).handle;
  engine_->gates().leave(*hold);
  env_->advance(10s);
  server_->answer(server_->toEach(0));
  env_->runPosted();
  EXPECT_EQ(handle->reason(), LossReason::none);
  for (int i = 0; i < 10; ++i) {
    env_->advance(1s);
    server_->confirmAll();
  }
  EXPECT_EQ(handle->reason(), LossReason::none);
  EXPECT_GT(handle->validUntil(), terms.now + 30s) << "it is renewed";
  // An answer to a renewal that was sent since is about this hold.
  env_->advance(10s);
  ASSERT_GT(server_->underWay(), 0U);
  server_->answer(server_->toEach(0));
  env_->runPosted();
  EXPECT_EQ(handle->reason(), LossReason::refused);
}

class BatchedRenewalsTest : public RenewalsTest {
 protected:
  BatchedRenewalsTest() : RenewalsTest(100) {}

  /// Refuses whatever comes, until it would have been tried for so long.
  void refuseFor(std::chrono::milliseconds time) {
    for (const auto end = env_->now() + time; env_->now() < end; env_->advance(10ms)) {
      while (server_->underWay() > 0) {
        server_->refuse("WRONGTYPE Operation against a key holding the wrong kind of value");
      }
    }
  }
};

TEST_F(BatchedRenewalsTest, WhatWasRenewedAloneIsRenewedWithTheOthersAgain) {
  const std::vector<HoldPtr> holds = take(2);
  env_->advance(10s);
  ASSERT_EQ(server_->underWay(), 1U);
  ASSERT_EQ(server_->keys().size(), 2U);
  refuseFor(1s);
  EXPECT_TRUE(holds[0]->renewedAlone && holds[1]->renewedAlone);
  // The server has come to its senses: each is confirmed when it is tried next.
  const std::uint64_t before = engine_->stats().renewals;
  for (int i = 0; i < 500 && engine_->stats().renewals < before + 2; ++i) {
    env_->advance(10ms);
    if (server_->underWay() > 0) {
      EXPECT_EQ(server_->keys().size(), 1U);
      server_->confirm();
    }
  }
  ASSERT_EQ(engine_->stats().renewals, before + 2);
  // They are due within the same second, and both are known to be renewed then.
  ASSERT_EQ(server_->underWay(), 0U);
  env_->advance(12s);
  ASSERT_EQ(server_->underWay(), 1U);
  EXPECT_EQ(server_->keys().size(), 2U);
  server_->confirm();
  EXPECT_EQ(engine_->stats().lost, 0U);
}

// Each half would be refused as well, and so on down to the single holds.
TEST_F(BatchedRenewalsTest, ABatchThatIsRefusedForNoneOfItsKeysStaysWhole) {
  take(4);
  env_->advance(10s);
  ASSERT_EQ(server_->underWay(), 1U);
  server_->refuse("OOM command not allowed when used memory > 'maxmemory'.");
  EXPECT_EQ(server_->underWay(), 0U) << "it is not split";
  env_->advance(1s);
  ASSERT_EQ(server_->underWay(), 1U);
  EXPECT_EQ(server_->keys().size(), 4U);
  server_->confirm();
}

// Composed anew it would go by the hash, which the server does not know.
TEST_F(BatchedRenewalsTest, WhatIsLeftOfABatchBringsTheTextAsWell) {
  const std::vector<HoldPtr> holds = take(2);
  env_->advance(10s);
  ASSERT_EQ(server_->keys().size(), 2U);
  engine_->holds().releasing(*holds[0], 0, env_->now());
  server_->refuse("NOSCRIPT No matching script. Please use EVAL.");
  ASSERT_EQ(server_->underWay(), 1U);
  EXPECT_EQ(server_->oldest().front(), "EVAL");
  EXPECT_EQ(server_->keys(), std::vector<std::string>{"lock1"});
  server_->confirm();
}

/// Counts the renewals that came late.
class LateRenewals final : public Observer {
 public:
  void renewedLate(const RenewedLateEvent& /*event*/) override { ++told; }

  int told = 0;
};

TEST(RenewalLag, IsToldFromASixthOfTheLeaseOn) {
  const auto observer = std::make_shared<LateRenewals>();
  Options options = Options::fromUri("redis://host");
  options.observer = observer;
  PendingEngine world(options);
  world.connect();
  HoldKeeper::GrantTerms terms = grantedNow(*world.engine);
  terms.watched = true;
  takeHold(*world.engine, std::make_shared<const LockScripts>("orders"), 1, terms);
  world.env->runPosted();
  for (const auto& [lag, told] : {std::pair(5s - 1ms, 0), std::pair(5'000ms, 1)}) {
    // The next one is due so long after this one was sent.
    while (world.server->underWay() == 0) {
      world.env->expire();
    }
    world.env->advance(lag);
    world.server->confirm();
    world.env->runPosted();
    EXPECT_EQ(observer->told, told) << lag.count();
  }
}

/// The script catches the refusal of each write, so that the reply as a whole is none.
TEST_F(RenewalsTest, AServerThatTakesNoWritesIsLeft) {
  take(1);
  env_->advance(10s);
  ASSERT_EQ(server_->underWay(), 1U);
  Reply answer = server_->toEach(0);
  answer.elements[0].type = Reply::Type::string;
  answer.elements[0].text = "OOM command not allowed when used memory > 'maxmemory'.";
  server_->answer(answer);
  EXPECT_EQ(server_->abandoned(), 0) << "another server would be no better";
  env_->advance(10s);
  ASSERT_GT(server_->underWay(), 0U);
  answer.elements[0].text = "READONLY You can't write against a read only replica.";
  server_->answer(answer);
  EXPECT_EQ(server_->abandoned(), 1);
  EXPECT_EQ(engine_->stats().holds, 1U) << "it is renewed at the next server";
}

}  // namespace
}  // namespace renewals_test
}  // namespace rlock::detail
