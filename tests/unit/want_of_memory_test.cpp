// SPDX-License-Identifier: Apache-2.0

// Holds that are booked and given back, and a call that is stopped, while there is no memory.

#include "unit/engine_fixture.hpp"
#include "unit/pending_commands.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/engine/acquire_task.hpp>
#include <rlock/detail/engine/hold_keeper.hpp>
#include <rlock/detail/engine/release_task.hpp>
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>
#include <rlock/sync_policy.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace want_of_memory_test {
namespace {

using namespace std::chrono_literals;

class WantOfMemory : public EngineFixture {
 protected:
  using EngineFixture::EngineFixture;

  /// An owner takes the lock for so long, by a request that is sent now.
  IntrusivePtr<HoldHandle> take(std::uint64_t owner, std::chrono::milliseconds lease) {
    HoldKeeper::GrantTerms terms = grantedNow(*engine_);
    terms.lease = lease;
    terms.watched = false;
    return takeHold(*engine_, scripts_, owner, terms);
  }

  NoGateWaiter waiter_;
};

TEST_F(WantOfMemory, WhoeverIsDueFirstSetsTheTimer) {
  const auto later = take(1, 10s);
  const auto sooner = take(3, 1s);
  env_->runPosted();
  env_->advance(2s);
  EXPECT_EQ(sooner->reason(), LossReason::expired);
  EXPECT_EQ(later->reason(), LossReason::none);
  env_->advance(9s);
  EXPECT_EQ(later->reason(), LossReason::expired);
}

// The book says from the first hold on that the timer is set, so that no later one would set it.
TEST_F(WantOfMemory, TheTimerIsSetAlsoWithoutMemory) {
  env_->setFull(true);
  IntrusivePtr<HoldHandle> first;
  EXPECT_NO_THROW(first = take(1, 1s));
  env_->setFull(false);
  const auto second = take(3, 2s);
  env_->runPosted();
  env_->advance(3s);
  ASSERT_TRUE(first);
  EXPECT_EQ(first->reason(), LossReason::expired);
  EXPECT_EQ(second->reason(), LossReason::expired);
}

TEST_F(WantOfMemory, TheTimerIsSetForAShorterRestAlsoWithoutMemory) {
  const auto handle = take(1, 10s);
  env_->runPosted();
  env_->setFull(true);
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, OwnerId{1}, waiter_);
  EXPECT_NO_THROW(engine_->holds().limit(*gate.hold, env_->now(), 1s));
  engine_->gates().leave(*gate.hold);
  env_->setFull(false);
  env_->runPosted();
  env_->advance(2s);
  EXPECT_EQ(handle->reason(), LossReason::expired);
}

// The stop cannot reach the loop.
TEST_F(WantOfMemory, ACallThatCannotBeStoppedIsAnsweredInItsTime) {
  std::stop_source stop;
  AcquireParams params;
  params.owner = OwnerId{1};
  params.wait = 10s;
  params.stop = stop.get_token();
  int answers = 0;
  makeIntrusive<AcquireTask>(engine_, scripts_, std::move(params))
      ->startInBackground(
          [&answers](const Result<LockBackend::Acquired>& /*result*/) { ++answers; });
  env_->runPosted();
  env_->setFull(true);
  stop.request_stop();
  env_->setFull(false);
  env_->runPosted();
  EXPECT_EQ(answers, 0);
  env_->advance(11s);
  env_->runPosted();
  EXPECT_EQ(answers, 1);
}

// Many gates may be passed on while the loop stands, each to a call that nobody else would tell.
TEST_F(WantOfMemory, AGateIsPassedOnAlsoWithoutMemory) {
  constexpr std::uint64_t kOwners = 100;
  std::vector<HoldPtr> inside;
  std::uint64_t answers = 0;
  for (std::uint64_t owner = 1; owner <= kOwners; ++owner) {
    inside.push_back(engine_->gates().enter(scripts_, OwnerId{owner}, waiter_).hold);
    AcquireParams params;
    params.owner = OwnerId{owner};
    params.wait = 10s;
    makeIntrusive<AcquireTask>(engine_, scripts_, std::move(params))
        ->startInBackground([&answers](const Result<LockBackend::Acquired>& result) {
          EXPECT_FALSE(result.has_value());
          ++answers;
        });
  }
  env_->runPosted();
  env_->setFull(true);
  for (const HoldPtr& hold : inside) {
    EXPECT_NO_THROW(engine_->gates().leave(*hold));
  }
  env_->setFull(false);
  env_->runPosted();
  EXPECT_EQ(answers, 0U) << "they have their turns, and wait for a connection";
  env_->advance(11s);
  env_->runPosted();
  EXPECT_EQ(answers, kOwners);
}

// The loop is late with closing, so that another thread tells the waiters. One in the background
// has a timer, which belongs to the loop.
TEST(WantOfMemoryToClose, AWaiterInTheBackgroundIsToldByTheLoop) {
  PendingEngine world(Options::fromUri("redis://host"));
  world.connect();
  AcquireParams params;
  params.owner = OwnerId{1};
  params.wait = 1h;
  std::optional<Errc> told;
  ScriptedLock lock(
      world.engine, std::make_shared<const LockScripts>("orders"), HandlerPlace::loop);
  lock.acquireAsync(std::move(params), [&told](const Result<LockBackend::Acquired>& result) {
    ASSERT_FALSE(result.has_value());
    told = result.error().errc();
  });
  world.env->runPosted();
  ASSERT_EQ(world.server->underWay(), 1U);
  world.server->answer(test::numberReply(100'000));
  world.env->runPosted();
  ASSERT_EQ(world.engine->stats().waiters, 1U);
  world.engine->markClosed();
  world.env->setOnLoopThread(false);
  world.env->setFull(true);
  world.engine->endWaits();
  EXPECT_EQ(told, std::nullopt);
  world.env->setOnLoopThread(true);
  world.engine->disconnect();
  world.env->setFull(false);
  EXPECT_EQ(told, Errc::closed);
}

// All calls at all gates are told at once, more than the loop keeps room for.
TEST_F(WantOfMemory, CallsAtAGateAreAnsweredWhenTheClientIsClosed) {
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, OwnerId{1}, waiter_);
  int answers = 0;
  for (int i = 0; i < 3; ++i) {
    AcquireParams params;
    params.owner = OwnerId{1};
    params.wait = 10s;
    makeIntrusive<AcquireTask>(engine_, scripts_, std::move(params))
        ->startInBackground([&answers](const Result<LockBackend::Acquired>& result) {
          EXPECT_EQ(result.error().errc(), Errc::closed);
          ++answers;
        });
  }
  env_->runPosted();
  EXPECT_EQ(answers, 0);
  env_->setFull(true);
  engine_->markClosed();
  engine_->gates().dismissAll();
  env_->setFull(false);
  env_->runPosted();
  EXPECT_EQ(answers, 3);
  engine_->gates().leave(*gate.hold);
}

/// A connection that takes no request for want of memory.
class FullCommands final : public NoCommands {
 public:
  bool submit(net::Request& /*request*/,
              std::span<const std::string_view> /*argv*/,
              Mode /*mode*/) override {
    throw std::bad_alloc();
  }
  [[nodiscard]] bool up() const noexcept override { return true; }
};

class WantOfMemoryToSend : public WantOfMemory {
 protected:
  WantOfMemoryToSend() : WantOfMemory(std::make_shared<FullCommands>()) {}
};

// Nobody is there any more to whom an exception would say that the gate is still held.
TEST_F(WantOfMemoryToSend, AReleaseThatNobodyAwaitsLeavesTheGate) {
  const auto handle = take(1, 10s);
  env_->runPosted();
  env_->setOnLoopThread(false);
  EXPECT_NO_THROW(
      ReleaseTask::releaseQuietly(engine_, scripts_, {OwnerId{1}, handle->incarnation()}));
  const HoldGates::Gate gate = engine_->gates().enter(scripts_, OwnerId{1}, waiter_);
  EXPECT_TRUE(gate.entered);
  engine_->gates().leave(*gate.hold);
  env_->setOnLoopThread(true);
  env_->runPosted();
  env_->advance(11s);
  EXPECT_EQ(handle->reason(), LossReason::expired) << "it is watched as before";
}

bool hasMemory = true;

/// Its reconciliations can be composed while there is memory.
class LargeScripts final : public LockScripts {
 public:
  using LockScripts::LockScripts;
  void composeReconcile(Call& call, const ReconcileRequest& request) const override {
    if (!hasMemory) {
      throw std::bad_alloc();
    }
    LockScripts::composeReconcile(call, request);
  }
};

class WantOfMemoryToReconcile : public testing::Test {
 protected:
  WantOfMemoryToReconcile() { world_.connect(true); }
  ~WantOfMemoryToReconcile() override { hasMemory = true; }

  static Options settings() {
    Options options = Options::fromUri("redis://host");
    options.handOverLimit = 16;
    return options;
  }
  static LockTraits handsOver() {
    LockTraits traits;
    traits.handsOver = true;
    return traits;
  }

  void acquire(OwnerId owner) {
    AcquireParams params;
    params.owner = owner;
    params.wait = 1h;
    params.wantsHandle = true;
    lock_.acquireAsync(std::move(params), [this](const Result<LockBackend::Acquired>& result) {
      ++answers_;
      granted_ += result.has_value() && *result ? 1 : 0;
      error_ = result.has_value() ? std::nullopt : std::optional(result.error().errc());
    });
    world_.env->runPosted();
  }
  void release(OwnerId owner) {
    lock_.releaseAsync({owner}, [this](const Result<ReleaseOutcome>& /*result*/) { ++released_; });
    world_.env->runPosted();
  }
  void answer(Reply reply) {
    world_.server->answer(std::move(reply));
    world_.env->runPosted();
  }
  /// The connection is lost, and another one made, by which the first was closed.
  void reconnect() {
    world_.reconnect();
    ASSERT_EQ(world_.server->underWay(), 1U);
    ASSERT_EQ(world_.server->oldest()[0], "CLIENT");
    answer(test::numberReply(1));
  }
  void getMemory() {
    hasMemory = true;
    world_.env->advance(20ms);
    world_.env->runPosted();
  }
  [[nodiscard]] bool asks(const lua::Script& script) const {
    return world_.server->underWay() == 1 &&
           (world_.server->oldest()[1] == script.sha1 || world_.server->oldest()[1] == script.body);
  }
  /// The holds of an owner before and after, and for how long.
  static Reply counts(std::int64_t before, std::int64_t now) {
    return test::listReply({test::numberReply(before),
                            test::numberReply(now),
                            test::numberReply(now > 0 ? 9'000 : -2)});
  }

  static constexpr OwnerId kFirst{1};
  static constexpr OwnerId kNext{3};

  PendingEngine world_{settings()};
  ScriptedLock lock_{world_.engine,
                     std::make_shared<const LargeScripts>("orders", handsOver()),
                     HandlerPlace::loop};
  int answers_ = 0;
  int granted_ = 0;
  int released_ = 0;
  std::optional<Errc> error_;
};

// A hold that nobody knows of would keep others out for its lease, and its owner for ever.
TEST_F(WantOfMemoryToReconcile, ALostAcquisitionIsReconciledWhenThereIsSome) {
  acquire(kFirst);
  ASSERT_TRUE(asks(lua::lock_acquire));
  hasMemory = false;
  reconnect();
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(error_, Errc::overloaded);
  acquire(kFirst);
  EXPECT_EQ(world_.server->underWay(), 0U) << "it waits at the gate";
  getMemory();
  ASSERT_TRUE(asks(lua::lock_reconcile));
  answer(counts(1, 0));
  ASSERT_TRUE(asks(lua::lock_acquire)) << "the gate is passed on";
  answer(test::listReply({test::numberReply(1)}));
  EXPECT_EQ(answers_, 2);
  EXPECT_EQ(granted_, 1);
}

TEST_F(WantOfMemoryToReconcile, ALostReleaseIsReconciledWhenThereIsSome) {
  acquire(kFirst);
  answer(test::listReply({test::numberReply(1)}));
  release(kFirst);
  ASSERT_TRUE(asks(lua::lock_release));
  hasMemory = false;
  reconnect();
  EXPECT_EQ(released_, 1) << "it is told that there is no memory";
  acquire(kFirst);
  EXPECT_EQ(world_.server->underWay(), 0U) << "it waits at the gate";
  getMemory();
  ASSERT_TRUE(asks(lua::lock_reconcile));
  answer(counts(1, 0));
  EXPECT_TRUE(asks(lua::lock_acquire)) << "the gate is passed on";
  EXPECT_EQ(released_, 1);
}

// The request was another owner's, so that nothing of its own says where it would go.
TEST_F(WantOfMemoryToReconcile, AHandOverThatIsLostLeavesTheGateOfTheNextOwner) {
  acquire(kFirst);
  answer(test::listReply({test::numberReply(1)}));
  acquire(kNext);
  answer(test::numberReply(100'000));
  ASSERT_EQ(answers_, 1);
  release(kFirst);
  ASSERT_TRUE(asks(lua::lock_hand_over));
  hasMemory = false;
  reconnect();
  EXPECT_EQ(answers_, 2);
  EXPECT_EQ(error_, Errc::overloaded);
  getMemory();
  ASSERT_TRUE(asks(lua::lock_reconcile)) << "the first owner's";
  answer(counts(0, 0));
  acquire(kNext);
  EXPECT_TRUE(asks(lua::lock_acquire));
}

// The grant is given back when it is seen that there are no acknowledgements.
TEST_F(WantOfMemoryToReconcile, ACallerThatIsStoppedBeforeTheAcknowledgementsIsAnswered) {
  std::stop_source stop;
  AcquireParams params;
  params.owner = kFirst;
  params.wait = 1s;
  params.sync = SyncPolicy::replicas(1);
  params.stop = stop.get_token();
  lock_.acquireAsync(std::move(params), [this](const Result<LockBackend::Acquired>& result) {
    ++answers_;
    error_ = result.has_value() ? std::nullopt : std::optional(result.error().errc());
  });
  world_.env->runPosted();
  answer(test::listReply({test::numberReply(1)}));
  ASSERT_EQ(answers_, 0);
  stop.request_stop();
  world_.env->setFull(true);
  world_.env->runPosted();
  world_.env->setFull(false);
  EXPECT_EQ(answers_, 1);
  EXPECT_EQ(error_, Errc::cancelled);
  world_.env->advance(1s);
  EXPECT_TRUE(asks(lua::lock_reconcile));
}

// Another thread than the loop's has the answer, and cannot tell the loop.
TEST_F(WantOfMemoryToReconcile, AGrantIsToldAlsoWithoutMemoryForTheLoop) {
  acquire(kFirst);
  answer(test::listReply({test::numberReply(1)}));
  acquire(kNext);
  answer(test::numberReply(100'000));
  ASSERT_EQ(granted_, 1);
  release(kFirst);
  ASSERT_TRUE(asks(lua::lock_hand_over));
  world_.env->setOnLoopThread(false);
  world_.env->setFull(true);
  world_.server->answer(test::listReply({test::numberReply(1)}));
  world_.env->setOnLoopThread(true);
  world_.env->setFull(false);
  world_.env->runPosted();
  EXPECT_EQ(granted_, 2);
}

}  // namespace
}  // namespace want_of_memory_test
}  // namespace rlock::detail
