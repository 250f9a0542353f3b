// SPDX-License-Identifier: Apache-2.0

// A grant whose reply was lost and that a reconciliation has found: how long it lasts, and how its
// gate is left.

#include "unit/pending_commands.hpp"
#include "unit/replies.hpp"
#include <rlock/detail/engine/scripted_lock.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace reconciled_grant_test {
namespace {

using namespace std::chrono_literals;

Reply listOf(std::initializer_list<std::int64_t> values) {
  Reply::Elements elements;
  for (const std::int64_t value : values) {
    elements.push_back(test::numberReply(value));
  }
  return test::listReply(std::move(elements));
}

class ReconciledGrant : public testing::Test {
 protected:
  ReconciledGrant() {
    world_.connect(true);
    // With this hold the client listens and has set its timer, so that the next grant needs nothing
    // of the loop and may leave its gate in the step that books it.
    acquire(other_, Duration(2s));
    answer(listOf({1}));
    acquire(lock_);
  }

  void acquire(ScriptedLock& lock, std::optional<Duration> lease = std::nullopt) {
    AcquireParams params;
    params.owner = OwnerId{1};
    params.lease = lease;
    params.wantsHandle = true;
    lock.acquireAsync(std::move(params), [this](const Result<LockBackend::Acquired>& result) {
      if (result.has_value() && result->has_value()) {
        ++granted_;
        hold_ = (*result)->hold;
      }
    });
    world_.env->runPosted();
  }
  void answer(Reply reply) {
    world_.server->answer(std::move(reply));
    world_.env->runPosted();
  }
  /// The reply to the request at hand is lost, its connection is closed, and it is reconciled.
  void reconcile() {
    world_.reconnect();
    ASSERT_EQ(world_.server->underWay(), 1U);
    ASSERT_EQ(world_.server->oldest()[0], "CLIENT");
    answer(test::numberReply(1));
    ASSERT_EQ(world_.server->underWay(), 1U);
    ASSERT_TRUE(runs(lua::lock_reconcile)) << world_.server->oldest()[0];
  }
  /// Whether the request at hand does.
  [[nodiscard]] bool runs(const lua::Script& script) const {
    const std::vector<std::string>& words = world_.server->oldest();
    return words.size() > 1 && (words[1] == script.sha1 || words[1] == script.body);
  }

  PendingEngine world_{Options::fromUri("redis://host")};
  ScriptedLock other_{
      world_.engine, std::make_shared<const LockScripts>("invoices"), HandlerPlace::loop};
  ScriptedLock lock_{
      world_.engine, std::make_shared<const LockScripts>("orders"), HandlerPlace::loop};
  int granted_ = 0;
  IntrusivePtr<HoldHandle> hold_;  // of the latest grant
};

/// A booking that leaves the gate is the last word about the hold, and this one is not.
TEST_F(ReconciledGrant, LastsNoLongerThanTheServerSays) {
  ASSERT_NO_FATAL_FAILURE(reconcile());
  answer(listOf({1, 1, 5'000}));
  ASSERT_EQ(granted_, 2);
  EXPECT_LE(hold_->validUntil(), world_.env->now() + 5s);
  EXPECT_GT(hold_->validUntil(), world_.env->now() + 4s);
}

/// The server keeps it without end, so that nothing is left to be said of it.
TEST_F(ReconciledGrant, PassesItsGateOnOnce) {
  ASSERT_NO_FATAL_FAILURE(reconcile());
  acquire(lock_);
  acquire(lock_);
  ASSERT_EQ(world_.server->underWay(), 1U) << "its owner's other requests wait for their turns";
  answer(listOf({1, 1, -1}));
  EXPECT_EQ(granted_, 2);
  EXPECT_GT(hold_->validUntil(), world_.env->now() + 20s);
  for (int count = 2; count <= 3; ++count) {
    ASSERT_EQ(world_.server->underWay(), 1U) << count;
    ASSERT_TRUE(runs(lua::lock_acquire)) << count;
    answer(listOf({count}));
    EXPECT_EQ(granted_, count + 1);
  }
  EXPECT_EQ(world_.server->underWay(), 0U);
}

}  // namespace
}  // namespace reconciled_grant_test
}  // namespace rlock::detail
