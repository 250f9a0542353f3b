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
#include <initializer_list>
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

/// Grants whatever it is asked for, unless it is told not to, and keeps account.
class FakeMember final : public LockMember {
 public:
  FakeMember(std::string name, Queue& queue)
      : FakeMember(std::move(name), queue, queue, std::make_shared<FakeEnv>()) {}
  /// @param later  for what is to be called at a point in time
  FakeMember(std::string name, Queue& queue, Queue& later, std::shared_ptr<Env> env)
      : env_(std::move(env)), name_(std::move(name)), queue_(queue), later_(later) {
    where.name = name_;
  }

  LockPlace where{"node", 0, "", HoldKind::lock, ""};
  LockLimits times{30s, 1s, 1s, 1s};
  bool kept = false;
  /// Called before it answers a request.
  std::function<void()> onRequest;
  /// What it answers to requests instead of grants.
  std::optional<Result<Acquired>> instead;
  /// How long it was to wait, for each request.
  std::vector<Duration> waits;
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
  LockPlace place() const override { return where; }

  void acquireAsync(AcquireParams params, Handler<Acquired> handler) override {
    waits.push_back(params.wait);
    const Duration lease = params.lease.value_or(times.watchdogTimeout);
    queue_.push_back([this, lease, handler = std::move(handler)]() mutable {
      if (onRequest) {
        onRequest();
      }
      if (instead) {
        handler(*instead);
        return;
      }
      last = makeIntrusive<HoldHandle>(static_cast<std::uint64_t>(++granted));
      last->setValidUntil(now() + lease.nanoseconds());
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
  LockLimits limits() const override { return times; }
  bool refusesBlocking() const noexcept override { return false; }
  bool keeps(OwnerId /*owner*/) const override { return kept; }

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

using Answer = Result<LockBackend::Acquired>;

Answer refused() {
  return LockBackend::Acquired();
}
Answer away() {
  return Error(Errc::connectionFailed, "away");
}

/// Three members on a clock that the test sets.
template <class Lock>
struct MembersInTime {
  Queue queue;
  Queue later;
  std::shared_ptr<ManualEnv> env = std::make_shared<ManualEnv>();
  std::vector<std::shared_ptr<FakeMember>> list;
  std::shared_ptr<Lock> lock;
  std::optional<Answer> answer;

  MembersInTime() {
    for (const char* name : {"a", "b", "c"}) {
      list.push_back(std::make_shared<FakeMember>(name, queue, later, env));
    }
    lock = std::make_shared<Lock>(GroupLock::Members(list.begin(), list.end()));
  }

  /// Goes as far as that is possible at once.
  void acquire(AcquireParams params = {}) {
    params.owner = newOwner();
    params.wantsHandle = true;
    lock->acquireAsync(std::move(params), [this](Answer result) { answer = std::move(result); });
    runAll(queue);
  }
  /// Time passes, more than between two attempts, and what was planned happens.
  void goOn() {
    env->advance(400ms);
    Queue due = std::exchange(later, {});
    runAll(due);
    runAll(queue);
  }
  /// A call without a time limit begins in an outage, which lasts.
  void expectAnOutageToEndACallWith(Errc error) {
    AcquireParams params;
    params.wait = Duration::max();
    params.lease = 60s;
    acquire(std::move(params));
    for (int i = 0; i < 2; ++i) {
      goOn();
      EXPECT_FALSE(answer) << i;
    }
    goOn();
    ASSERT_TRUE(answer);
    ASSERT_FALSE(answer->has_value());
    EXPECT_EQ(answer->error().errc(), error);
  }
  /// Null: there is no hold.
  IntrusivePtr<HoldHandle> hold() const {
    return answer && answer->has_value() && **answer ? (**answer)->hold : nullptr;
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

// The others are held meanwhile, and a hold that is nearly over is of no use.
TEST(MultiLockOfMembers, AtMostHalfOfTheMaxHoldIsSpentOnWaiting) {
  MembersInTime<MultiLock> members;
  members.list[1]->onRequest = [&] { members.env->advance(300ms); };
  AcquireParams params;
  params.wait = Duration::max();
  params.maxHold = 2s;
  members.acquire(std::move(params));
  ASSERT_TRUE(members.hold());
  EXPECT_EQ(members.list[0]->waits, std::vector<Duration>{Duration::max()});
  EXPECT_EQ(members.list[1]->waits, std::vector<Duration>{Duration(1s)});
  EXPECT_EQ(members.list[2]->waits, std::vector<Duration>{Duration(700ms)});
}

TEST(MultiLockOfMembers, AtMostHalfOfTheLeaseIsSpentOnWaiting) {
  MembersInTime<MultiLock> members;
  members.list[1]->onRequest = [&] { members.env->advance(300ms); };
  AcquireParams params;
  params.wait = Duration::max();
  params.lease = 40s;
  members.acquire(std::move(params));
  ASSERT_TRUE(members.hold());
  EXPECT_EQ(members.list[0]->waits, std::vector<Duration>{Duration::max()});
  EXPECT_EQ(members.list[1]->waits, std::vector<Duration>{Duration(20s)});
  EXPECT_EQ(members.list[2]->waits, std::vector<Duration>{Duration(19'700ms)});
}

TEST(MultiLockOfMembers, TwoOutagesAreNotOneLongOne) {
  MembersInTime<MultiLock> members;
  FakeMember& last = *members.list[2];
  int requests = 0;
  last.onRequest = [&] {
    switch (++requests) {
      case 1:
      case 3:
        last.instead = away();
        return;
      case 2:
        // Its node is there, but somebody else holds it for longer than the outage timeout.
        members.env->advance(2s);
        last.instead = refused();
        return;
      default:
        last.instead.reset();
    }
  };
  AcquireParams params;
  params.wait = Duration::max();
  params.lease = 60s;
  members.acquire(std::move(params));
  EXPECT_EQ(requests, 1);
  members.goOn();
  EXPECT_EQ(requests, 3);
  EXPECT_FALSE(members.answer) << "the second one has just begun";
  members.goOn();
  EXPECT_TRUE(members.hold());
}

TEST(MultiLockOfMembers, AnOutageThatLastsEndsACallWithoutATimeLimit) {
  MembersInTime<MultiLock> members;
  members.list[2]->instead = away();
  members.expectAnOutageToEndACallWith(Errc::connectionFailed);
}

TEST(RedLockOfMembers, TwoOutagesAreNotOneLongOne) {
  MembersInTime<RedLock> members;
  const auto both = [&](const std::optional<Answer>& instead) {
    members.list[0]->instead = instead;
    members.list[1]->instead = instead;
  };
  both(away());
  AcquireParams params;
  params.wait = Duration::max();
  members.acquire(std::move(params));
  // Their nodes are there, but somebody else holds them for longer than the outage timeout.
  both(refused());
  for (int i = 0; i < 4; ++i) {
    members.goOn();
  }
  both(away());
  members.goOn();
  EXPECT_FALSE(members.answer) << "the second one has just begun";
  both(std::nullopt);
  members.goOn();
  EXPECT_TRUE(members.hold());
}

TEST(RedLockOfMembers, AnOutageThatLastsEndsACallWithoutATimeLimit) {
  MembersInTime<RedLock> members;
  members.list[0]->instead = away();
  members.list[1]->instead = away();
  members.expectAnOutageToEndACallWith(Errc::noQuorum);
}

TEST(RedLockOfMembers, IsValidAsLongAsItsMajorityEachWithItsOwnDrift) {
  const auto validity = [](std::initializer_list<std::chrono::milliseconds> watchdogs) {
    MembersInTime<RedLock> members;
    std::size_t i = 0;
    for (const std::chrono::milliseconds watchdog : watchdogs) {
      members.list[i++]->times.watchdogTimeout = watchdog;
    }
    members.acquire();
    const auto hold = members.hold();
    return hold ? hold->validUntil() - members.env->now() : Clock::duration::min();
  };
  const auto shortOne = 30s - Quorum::drift(30s);
  const auto longOne = 1h - Quorum::drift(1h);
  EXPECT_EQ(validity({30s, 30s, 30s}), Clock::duration(shortOne));
  // A hundredth of an hour is longer than the short ones.
  EXPECT_EQ(validity({1h, 30s, 30s}), Clock::duration(shortOne));
  EXPECT_EQ(validity({30s, 30s, 1h}), Clock::duration(shortOne));
  EXPECT_EQ(validity({1h, 1h, 30s}), Clock::duration(longOne));
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

// Two programs that took them in different orders would wait for each other.
TEST(GroupMembersTest, TheOrderIsThatOfThePlacesWhateverTheClients) {
  Queue queue;
  const auto at = [&](const LockPlace& place) {
    auto member = std::make_shared<FakeMember>(place.name, queue);
    member->where = place;
    return member;
  };
  const auto expectOrder = [&](LockPlace first, LockPlace second) {
    // The ids of the clients are in the opposite order in one of the programs.
    for (const bool opposite : {false, true}) {
      first.client = opposite ? "client 2" : "client 1";
      second.client = opposite ? "client 1" : "client 2";
      const GroupMembers members("group", GroupMembers::List{at(second), at(first)}, 2U);
      EXPECT_EQ(members[0]->place().client, first.client) << second.node << " " << opposite;
    }
  };
  expectOrder({"one", 0, "m", HoldKind::lock, ""}, {"two", 0, "m", HoldKind::lock, ""});
  expectOrder({"one", 0, "m", HoldKind::lock, ""}, {"one", 1, "m", HoldKind::lock, ""});
  expectOrder({"two", 0, "a", HoldKind::lock, ""}, {"one", 0, "b", HoldKind::lock, ""});
  expectOrder({"one", 0, "m", HoldKind::write, ""}, {"one", 0, "m", HoldKind::read, ""});
}

TEST(GroupMembersTest, AnOwnerKeepsTheLockIfNobodyElseCanHaveEnough) {
  Queue queue;
  const auto first = std::make_shared<FakeMember>("a", queue);
  const auto second = std::make_shared<FakeMember>("b", queue);
  const GroupMembers::List list{first, second, std::make_shared<FakeMember>("c", queue)};
  const GroupMembers majority("group", list, 2U);
  const GroupMembers all("group", list, 3U);
  const OwnerId owner = newOwner();
  EXPECT_FALSE(majority.keep(owner));
  EXPECT_FALSE(all.keep(owner));
  first->kept = true;
  EXPECT_FALSE(majority.keep(owner)) << "two are left for others";
  EXPECT_TRUE(all.keep(owner));
  second->kept = true;
  EXPECT_TRUE(majority.keep(owner));
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
