// SPDX-License-Identifier: Apache-2.0
#include "unit/fake_env.hpp"
#include "unit/fake_member.hpp"
#include <rlock/detail/group/multi_lock.hpp>
#include <rlock/detail/group/red_lock.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace multi_lock_test {
namespace {

using namespace std::chrono_literals;
using namespace group_test;

struct Members {
  Queue queue;
  std::shared_ptr<FakeMember> first = std::make_shared<FakeMember>("a", queue);
  std::shared_ptr<FakeMember> second = std::make_shared<FakeMember>("b", queue);
  std::shared_ptr<MultiLock> lock = std::make_shared<MultiLock>(GroupLock::Members{first, second});

  /// The answer to an acquisition when nothing is left to do.
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

// The work that the thread began may go on elsewhere.
TEST(MultiLockOfMembers, WhatAnEndedThreadHeldIsLeftToExpire) {
  Members members;
  const auto answer = members.acquire(Duration::zero());
  ASSERT_TRUE(answer && answer->has_value() && answer->value());
  members.first->loseAll(LossReason::threadEnded);
  runAll(members.queue);
  EXPECT_EQ((**answer)->hold->reason(), LossReason::threadEnded);
  EXPECT_EQ(members.second->released + members.second->releasedQuietly, 0);
}

// A member that is asked once more and not stopped would wait without a limit.
TEST(MultiLockOfMembers, AStopBetweenTwoRoundsStopsTheNextOne) {
  MembersInTime<MultiLock> members;
  members.list[2]->instead = away();
  std::stop_source stop;
  AcquireParams params;
  params.wait = Duration::max();
  params.stop = stop.get_token();
  members.acquire(std::move(params));
  EXPECT_FALSE(members.answer);
  EXPECT_FALSE(members.list[0]->cameStopped);
  stop.request_stop();
  members.goOn();
  ASSERT_TRUE(members.answer);
  ASSERT_FALSE(members.answer->has_value());
  EXPECT_EQ(members.answer->error().errc(), Errc::cancelled);
  EXPECT_TRUE(members.list[0]->waits.size() == 1 || members.list[0]->cameStopped);
}

TEST(MultiLockOfMembers, AStopEndsThePauseBetweenTwoRounds) {
  MembersInTime<MultiLock> members;
  members.list[2]->instead = away();
  std::stop_source stop;
  AcquireParams params;
  params.wait = Duration::max();
  params.stop = stop.get_token();
  members.acquire(std::move(params));
  EXPECT_FALSE(members.answer);
  EXPECT_FALSE(members.later.empty()) << "a pause";
  stop.request_stop();
  runAll(members.queue);
  ASSERT_TRUE(members.answer);
  ASSERT_FALSE(members.answer->has_value());
  EXPECT_EQ(members.answer->error().errc(), Errc::cancelled);
  // The event that was to end the pause comes later, and begins no other round.
  const std::size_t asked = members.list[0]->waits.size();
  members.goOn();
  EXPECT_EQ(members.list[0]->waits.size(), asked);
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
  members.expectAnOutageToEndACallWith(Errc::connectionFailed, 60s);
}

// The client of the member that is away gives up earlier.
TEST(MultiLockOfMembers, AnOutageEndsACallWithoutALeaseAfterTheLongestTimeoutOfTheMembers) {
  MembersInTime<MultiLock> members;
  members.list[2]->instead = away();
  members.list[2]->times.outageTimeout = 300ms;
  members.expectAnOutageToEndACallWith(Errc::connectionFailed, std::nullopt);
}

/// The first member's node hangs once it has granted, and the caller stops while the second is
/// asked.
template <class Members>
void expectAStopToBeAnsweredInTime(Members& members, Queue& hung) {
  std::stop_source stop;
  members.list[0]->releases = &hung;
  members.list[1]->onRequest = [&] { stop.request_stop(); };
  members.list[1]->instead = stopped();
  AcquireParams params;
  params.wait = Duration::max();
  params.stop = stop.get_token();
  members.acquire(std::move(params));
  EXPECT_EQ(hung.size(), 1U);
  EXPECT_FALSE(members.answer) << "the first is being given back";
  members.pass(kMemberGrace);
  ASSERT_TRUE(members.answer);
  ASSERT_FALSE(members.answer->has_value());
  EXPECT_EQ(members.answer->error().errc(), Errc::cancelled);
}

TEST(MultiLockOfMembers, AStopIsAnsweredInTimeThoughANodeThatGrantedHangs) {
  MembersInTime<MultiLock> members;
  Queue hung;
  expectAStopToBeAnsweredInTime(members, hung);
  runAll(hung);
  runAll(members.queue);
  EXPECT_EQ(members.list[0]->released, 1);
}

// A node that was slow once is asked without a wait. Once it has answered it is waited for again.
TEST(MultiLockOfMembers, OnlyTheRoundAfterASlowAnswerDoesNotWait) {
  MembersInTime<MultiLock> members;
  FakeMember& slow = *members.list[1];
  slow.onRequest = [&] {
    switch (slow.waits.size()) {
      case 1:
        slow.instead = Answer(Error(Errc::timedOut, "slow"));
        return;
      case 2:
        slow.instead = refused();
        return;
      default:
        slow.instead.reset();
    }
  };
  AcquireParams params;
  params.wait = Duration(10min);
  params.lease = 40s;
  members.acquire(std::move(params));
  members.goOn();
  members.goOn();
  ASSERT_TRUE(members.hold());
  EXPECT_EQ(slow.waits, (std::vector<Duration>{Duration(20s), Duration::zero(), Duration(20s)}));
}

// A grant that came later would last longer than the rest.
TEST(RedLockOfMembers, AMemberThatDoesNotAnswerIsAskedNoLongerThanTheOthersWere) {
  Queue queue;
  Queue later;
  Queue silent;
  const auto env = std::make_shared<ManualEnv>();
  const auto first = std::make_shared<FakeMember>("a", queue, later, env);
  const auto second = std::make_shared<FakeMember>("b", queue, later, env);
  const auto third = std::make_shared<FakeMember>("c", silent, later, env);
  const auto lock = std::make_shared<RedLock>(GroupLock::Members{first, second, third});
  AcquireParams params;
  params.owner = newOwner();
  params.wantsHandle = true;
  std::optional<Answer> answer;
  lock->acquireAsync(std::move(params), [&](Answer result) { answer = std::move(result); });
  runAll(queue);
  ASSERT_TRUE(answer && answer->has_value() && answer->value()) << "two are enough";
  EXPECT_FALSE(third->stop.stop_requested());
  env->advance(Quorum::patience(30s, 1s));
  Queue due = std::exchange(later, {});
  runAll(due);
  EXPECT_TRUE(third->stop.stop_requested());
}

// The node of the only one that has granted hangs while that is given back.
TEST(RedLockOfMembers, TheNextAttemptDoesNotWaitForANodeThatHangs) {
  MembersInTime<RedLock> members;
  Queue hung;
  members.list[0]->releases = &hung;
  members.list[1]->instead = refused();
  members.list[2]->instead = refused();
  AcquireParams params;
  params.wait = Duration::max();
  members.acquire(std::move(params));
  EXPECT_EQ(hung.size(), 1U);
  members.list[1]->instead.reset();
  members.list[2]->instead.reset();
  members.pass(1s);
  members.goOn();
  EXPECT_TRUE(members.hold());
  runAll(hung);
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
  members.expectAnOutageToEndACallWith(Errc::noQuorum, 60s);
}

TEST(RedLockOfMembers, AStopIsAnsweredInTimeThoughANodeThatGrantedHangs) {
  MembersInTime<RedLock> members;
  Queue hung;
  expectAStopToBeAnsweredInTime(members, hung);
}

/// Its clock does something when it is read.
class BusyClock final : public FakeEnv {
 public:
  std::function<void()> onNow;

  [[nodiscard]] Clock::time_point now() const noexcept override {
    onNow();
    return FakeEnv::now();
  }
};

TEST(RedLockOfMembers, AStopBetweenTheDecisionForAnAttemptAndTheAttemptEndsTheCall) {
  Queue queue;
  const auto env = std::make_shared<BusyClock>();
  std::stop_source stop;
  int times = 0;
  // The call reads the clock when it begins, and then when it is about to ask the members.
  env->onNow = [&] {
    if (++times == 2) {
      stop.request_stop();
    }
  };
  std::vector<std::shared_ptr<FakeMember>> list;
  for (const char* name : {"a", "b", "c"}) {
    list.push_back(std::make_shared<FakeMember>(name, queue, queue, env));
  }
  const auto lock = std::make_shared<RedLock>(GroupLock::Members(list.begin(), list.end()));
  AcquireParams params;
  params.owner = newOwner();
  params.wait = Duration::max();
  params.stop = stop.get_token();
  std::optional<Answer> answer;
  lock->acquireAsync(std::move(params), [&](Answer result) { answer = std::move(result); });
  runAll(queue);
  ASSERT_TRUE(answer);
  ASSERT_FALSE(answer->has_value());
  EXPECT_EQ(answer->error().errc(), Errc::cancelled);
  for (const auto& member : list) {
    EXPECT_EQ(member->waits.size(), 0U) << member->name();
  }
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

TEST(RedLockOfMembers, WhatItsOwnerHasGivenBackByOtherWaysIsNoLoss) {
  MembersInTime<RedLock> members;
  members.acquire();
  const auto hold = members.hold();
  ASSERT_TRUE(hold);
  for (const auto& member : members.list) {
    member->grants.front()->setReleased();
  }
  members.pass(10s);
  EXPECT_EQ(hold->reason(), LossReason::none);
  EXPECT_TRUE(hold->released());
}

TEST(RedLockOfMembers, AMemberThatIsObtainedAgainAfterTheReleaseIsGivenBack) {
  MembersInTime<RedLock> members;
  members.acquire();
  const auto hold = members.hold();
  ASSERT_TRUE(hold);
  members.list[2]->loseAll(LossReason::expired);
  ASSERT_TRUE(hold->heldAt(members.env->now())) << "two are left";
  // A third of the watchdog timeout: the lock looks at its hold.
  members.env->advance(10s);
  Queue due = std::exchange(members.later, {});
  runAll(due);
  // The member is asked for, and its grant is still to come.
  members.release();
  EXPECT_EQ(members.list[2]->granted, 2);
  EXPECT_EQ(members.list[2]->releasedQuietly, 1);
}

TEST(RedLockOfMembers, AMemberThatIsObtainedLaterFollowsThePolicyOfTheAcquisition) {
  MembersInTime<RedLock> members;
  AcquireParams params;
  params.sync = SyncPolicy::replicas(2);
  members.acquire(std::move(params));
  ASSERT_TRUE(members.hold());
  FakeMember& again = *members.list[2];
  again.sync.reset();
  again.loseAll(LossReason::expired);
  members.pass(10s);
  EXPECT_EQ(again.granted, 2);
  EXPECT_EQ(again.sync, SyncPolicy::replicas(2));
}

// The shortest of three does not count; of two it does, and its client tells of its end only after
// the end of the whole.
TEST(RedLockOfMembers, ALossIsToldInTimeWhenALongerMemberWasLostBefore) {
  MembersInTime<RedLock> members;
  members.acquire();
  const auto hold = members.hold();
  ASSERT_TRUE(hold);
  members.list[2]->last->setValidUntil(members.env->now() + 5s);
  members.list[0]->loseAll(LossReason::forced);
  EXPECT_EQ(hold->reason(), LossReason::none) << "two are left";
  members.pass(hold->validUntil() - members.env->now());
  EXPECT_EQ(hold->reason(), LossReason::unreachable);
  EXPECT_TRUE(hold->lostToken().stop_requested());
}

TEST(RedLockOfMembers, ALossIsToldInTimeWhenALongerAcquisitionWasReleased) {
  MembersInTime<RedLock> members;
  const auto acquireFor = [&](Duration lease) {
    AcquireParams params;
    params.lease = lease;
    members.acquire(std::move(params));
  };
  acquireFor(20s);
  acquireFor(60s);
  const auto hold = members.hold();
  ASSERT_TRUE(hold);
  // The next look at it is 10 s after the second of these.
  members.pass(7s);
  members.pass(10s);
  members.release();
  members.pass(hold->validUntil() - members.env->now());
  EXPECT_EQ(hold->reason(), LossReason::expired);
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
        grants, terms, {[alive](const IntrusivePtr<GroupHold>& /*hold*/) {}, nullptr}, nullptr);
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
