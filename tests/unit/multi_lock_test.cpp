// SPDX-License-Identifier: Apache-2.0
#include "unit/fake_env.hpp"
#include "unit/manual_env.hpp"
#include <rlock/detail/group/multi_lock.hpp>
#include <rlock/detail/group/red_lock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace multi_lock_test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// What the loop threads would do, in the test's thread.
using Queue = std::deque<UniqueFunction<void()>>;

void runAll(Queue& queue) {
  while (!queue.empty()) {
    auto next = std::move(queue.front());
    queue.pop_front();
    next();
  }
}

/// Grants whatever it is asked for, and keeps account.
class FakeMember final : public LockMember {
 public:
  FakeMember(std::string name, Queue& queue)
      : FakeMember(std::move(name), queue, queue, std::make_shared<FakeEnv>()) {}
  /// @param later  for what is to be called at a point in time
  FakeMember(std::string name, Queue& queue, Queue& later, std::shared_ptr<Env> env)
      : env_(std::move(env)), name_(std::move(name)), queue_(queue), later_(later) {}

  /// Called in the moment of a grant.
  std::function<void()> onGrant;
  IntrusivePtr<HoldHandle> last;
  std::vector<IntrusivePtr<HoldHandle>> grants;
  /// What it answers to a release.
  std::optional<Error> refusal;
  int granted = 0;
  int released = 0;
  int releasedQuietly = 0;

  void loseAll(LossReason reason) {
    for (const auto& hold : grants) {
      if (hold->markLost(reason)) {
        hold->signalLoss();
      }
    }
  }

  const std::string& name() const noexcept override { return name_; }
  LockPlace place() const override { return {"node", 0, name_, HoldKind::lock, ""}; }

  void acquireAsync(AcquireParams /*params*/, Handler<Acquired> handler) override {
    queue_.push_back([this, handler = std::move(handler)]() mutable {
      last = makeIntrusive<HoldHandle>(static_cast<std::uint64_t>(++granted));
      last->setValidUntil(now() + 1min);
      grants.push_back(last);
      if (onGrant) {
        onGrant();
      }
      handler(Acquired(Grant{last, {}, 1}));
    });
  }
  void releaseAsync(ReleaseTarget /*target*/, Handler<ReleaseOutcome> handler) override {
    queue_.push_back([this, handler = std::move(handler)]() mutable {
      ++released;
      handler(refusal ? Result<ReleaseOutcome>(*refusal) : ReleaseOutcome::released);
    });
  }
  void releaseQuietly(ReleaseTarget /*target*/) override { ++releasedQuietly; }
  void callAt(Clock::time_point /*when*/, UniqueFunction<void()> function) override {
    later_.push_back(std::move(function));
  }
  void runHandler(UniqueFunction<void()> handler) override { queue_.push_back(std::move(handler)); }
  const std::shared_ptr<Env>& env() const noexcept override { return env_; }
  Clock::time_point now() const noexcept override { return env_->now(); }
  LockLimits limits() const override { return {30s, 1s, 1s, 1s}; }
  bool refusesBlocking() const noexcept override { return false; }
  bool keeps(OwnerId /*owner*/) const override { return false; }

  // Not asked.
  Result<Acquired> acquire(AcquireParams /*params*/) override { return none(); }
  Result<ReleaseOutcome> release(ReleaseTarget /*target*/) override { return none(); }
  Result<bool> forceRelease() override { return none(); }
  void forceReleaseAsync(Handler<bool> /*handler*/) override {}
  Result<bool> isLocked() override { return none(); }
  void isLockedAsync(Handler<bool> /*handler*/) override {}
  Result<int> holdCount(OwnerId /*owner*/) override { return none(); }
  void holdCountAsync(OwnerId /*owner*/, Handler<int> /*handler*/) override {}
  Result<TimeToLive> timeToLive() override { return none(); }
  void timeToLiveAsync(Handler<TimeToLive> /*handler*/) override {}

 private:
  static Error none() { return Error(Errc::serverError, "not asked"); }

  const std::shared_ptr<Env> env_;
  const std::string name_;
  Queue& queue_;
  Queue& later_;
};

struct Members {
  Queue queue;
  std::shared_ptr<FakeMember> first = std::make_shared<FakeMember>("a", queue);
  std::shared_ptr<FakeMember> second = std::make_shared<FakeMember>("b", queue);
  std::shared_ptr<MultiLock> lock = std::make_shared<MultiLock>(GroupLock::Members{first, second});

  /// What an acquisition came to when nothing is left to do.
  std::optional<Result<LockBackend::Acquired>> acquire(Duration wait, OwnerId owner = newOwner()) {
    AcquireParams params;
    params.owner = owner;
    params.wait = wait;
    params.wantsHandle = true;
    std::optional<Result<LockBackend::Acquired>> answer;
    lock->acquireAsync(std::move(params),
                       [&](Result<LockBackend::Acquired> result) { answer = std::move(result); });
    runAll(queue);
    return answer;
  }
};

TEST(MultiLockOfMembers, IsHeldWithAllOfThem) {
  Members members;
  const auto answer = members.acquire(Duration::zero());
  ASSERT_TRUE(answer);
  ASSERT_TRUE(answer->has_value());
  ASSERT_TRUE(answer->value());
  EXPECT_TRUE((**answer)->hold->heldAt(Clock::now()));
  EXPECT_EQ(members.first->granted, 1);
  EXPECT_EQ(members.second->granted, 1);
  EXPECT_EQ(members.first->released + members.second->released, 0);
}

// Somebody else may have the first by the time the second is granted.
TEST(MultiLockOfMembers, OneThatRanOutMeanwhileIsTakenAgain) {
  Members members;
  members.second->onGrant = [&] {
    if (members.second->granted == 1) {
      members.first->last->setValidUntil(Clock::now() - 1ms);
    }
  };
  const auto answer = members.acquire(Duration(10s));
  ASSERT_TRUE(answer);
  ASSERT_TRUE(answer->has_value());
  ASSERT_TRUE(answer->value());
  EXPECT_TRUE((**answer)->hold->heldAt(Clock::now()));
  EXPECT_EQ(members.first->granted, 2);
  EXPECT_EQ(members.second->granted, 2);
  EXPECT_EQ(members.first->released, 1);
  EXPECT_EQ(members.second->released, 1);
}

// All that its owner has of the others goes back, also what was to be released after a request that
// fails.
TEST(MultiLockOfMembers, TheLossOfOneIsTheLossOfAll) {
  Members members;
  const OwnerId owner = newOwner();
  const auto once = members.acquire(Duration::zero(), owner);
  const auto twice = members.acquire(Duration::zero(), owner);
  ASSERT_TRUE(once && once->has_value() && once->value());
  ASSERT_TRUE(twice && twice->has_value() && twice->value());
  members.second->refusal.emplace(Errc::connectionFailed, "away");
  members.first->loseAll(LossReason::refused);
  EXPECT_EQ((**once)->hold->reason(), LossReason::refused);
  EXPECT_TRUE((**twice)->hold->lostToken().stop_requested());
  runAll(members.queue);
  EXPECT_EQ(members.second->released, 1);
  EXPECT_EQ(members.second->releasedQuietly, 1);
}

TEST(RedLockOfMembers, AMemberThatIsObtainedAgainAfterTheReleaseIsGivenBack) {
  Queue queue;
  Queue later;
  const auto env = std::make_shared<ManualEnv>();
  std::vector<std::shared_ptr<FakeMember>> members;
  for (const char* name : {"a", "b", "c"}) {
    members.push_back(std::make_shared<FakeMember>(name, queue, later, env));
  }
  const auto lock = std::make_shared<RedLock>(GroupLock::Members(members.begin(), members.end()));
  AcquireParams params;
  params.owner = newOwner();
  params.wantsHandle = true;
  const OwnerId owner = params.owner;
  IntrusivePtr<HoldHandle> hold;
  lock->acquireAsync(std::move(params), [&](const Result<LockBackend::Acquired>& result) {
    hold = result.has_value() && *result ? (**result).hold : nullptr;
  });
  runAll(queue);
  ASSERT_TRUE(hold);
  members[2]->loseAll(LossReason::expired);
  ASSERT_TRUE(hold->heldAt(env->now())) << "two are left";
  // A third of the watchdog timeout: the lock looks at its hold.
  env->advance(10s);
  Queue due = std::exchange(later, {});
  runAll(due);
  // The member is asked for, and its grant is still to come.
  lock->releaseAsync({owner, 0}, [](const Result<ReleaseOutcome>& /*result*/) {});
  runAll(queue);
  EXPECT_EQ(members[2]->granted, 2);
  EXPECT_EQ(members[2]->releasedQuietly, 1);
}

// A client that is closed makes its calls at once.
TEST(GroupMembersTest, WhatAClosedClientWasToCallIsCalledByTheNext) {
  Queue closed;
  Queue open;
  const auto group =
      std::make_shared<GroupMembers>("group",
                                     GroupMembers::List{std::make_shared<FakeMember>("a", closed),
                                                        std::make_shared<FakeMember>("b", open)},
                                     2U);
  int calls = 0;
  group->callAt(Clock::now() + 1h, [&] { ++calls; });
  runAll(closed);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(open.size(), 1U);
  runAll(open);
  EXPECT_EQ(calls, 1) << "the last one is closed, too";
}

TEST(GroupHoldsTest, LostHoldsThatNobodyReleasesDoNotPileUp) {
  Members members;
  GroupHolds holds(std::make_shared<GroupMembers>(
      "group", GroupMembers::List{members.first, members.second}, 2U));
  const auto alive = std::make_shared<int>();
  const auto book = [&] {
    MemberGrants grants(2);
    for (Grant& grant : grants) {
      grant.hold = makeIntrusive<HoldHandle>();
      grant.hold->setValidUntil(Clock::now() + 1h);
      grant.count = 1;
    }
    GroupHold::Terms terms;
    terms.owner = newOwner();
    holds.book(
        grants, terms, [alive](const IntrusivePtr<GroupHold>& /*hold*/) {}, nullptr);
    return std::pair(terms.owner, grants);
  };
  const OwnerId stays = book().first;
  for (int i = 0; i < 1000; ++i) {
    const auto lost = book();
    for (const Grant& grant : lost.second) {
      grant.hold->markLost(LossReason::unreachable);
    }
  }
  EXPECT_LT(alive.use_count(), 200);
  EXPECT_TRUE(holds.takePlan({stays, 0})) << "it is not lost";
}

}  // namespace
}  // namespace multi_lock_test
}  // namespace rlock::detail
