// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/waiter_hub.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace rlock::detail {
namespace {

using std::chrono::milliseconds;
using TimePoint = WaiterHub::TimePoint;

constexpr milliseconds kPoll{1000};
constexpr milliseconds kLinger{10'000};
constexpr milliseconds kUnknown{-1};
constexpr TimePoint kNever = TimePoint::max();
constexpr std::nullopt_t kNoMark = std::nullopt;
constexpr WaitTerms kReaders{.channel = "c", .rule = WakeRule::each};
constexpr WaitTerms kWriters{.channel = "c", .lane = 1, .poll = milliseconds(500)};

TimePoint at(std::int64_t ms) {
  return TimePoint(milliseconds(ms));
}

/// The only one who has a turn, or null.
Waiter* one(const WaiterHub::Turns& turns) {
  EXPECT_LE(turns.size(), 1U);
  return turns.empty() ? nullptr : turns.front();
}

using List = std::vector<Waiter*>;

/// Those who have a turn, in order.
List listed(const WaiterHub::Turns& turns) {
  return {turns.begin(), turns.end()};
}

class FakeWaiter final : public Waiter {
 public:
  void turn() noexcept override { ++turns; }
  void shutDown() noexcept override {}
  void waiterAddRef() noexcept override { ++references; }
  void waiterDropRef() noexcept override { --references; }

  int turns = 0;
  int references = 0;
};

class WaiterHubTest : public ::testing::Test {
 protected:
  /// A first try was refused, so the waiter goes to sleep.
  Waiter* sleep(FakeWaiter& waiter, TimePoint now = at(0), milliseconds remaining = kUnknown) {
    return one(hub.queue(waiter, {"c"}, WaiterHub::Mark{}, true, remaining, now));
  }
  /// A try that was a turn was refused.
  Waiter* sleepAgain(FakeWaiter& waiter, TimePoint now = at(0), milliseconds remaining = kUnknown) {
    return one(hub.queue(waiter, {"c"}, kNoMark, true, remaining, now));
  }
  /// The channel is subscribed and `waiter` sleeps first in its queue.
  void sleepSubscribed(FakeWaiter& waiter) {
    ASSERT_EQ(sleep(waiter), nullptr);
    ASSERT_EQ(one(hub.subscribed("c")), &waiter);
    drop(waiter);
    ASSERT_EQ(sleepAgain(waiter), nullptr);
  }
  /// The reference that comes with every turn.
  static void drop(FakeWaiter& waiter) { waiter.waiterDropRef(); }

  /// A first try in a lane was refused.
  WaiterHub::Turns in(const WaitTerms& terms,
                      FakeWaiter& waiter,
                      milliseconds remaining = kUnknown) {
    return hub.queue(waiter, terms, WaiterHub::Mark{}, true, remaining, at(0));
  }
  /// A try that was a turn was refused.
  Waiter* again(const WaitTerms& terms, FakeWaiter& waiter) {
    return one(hub.queue(waiter, terms, kNoMark, true, kUnknown, at(0)));
  }
  /// Three readers sleep in their order, and the channel is subscribed.
  void readersSleep() {
    one(in(kReaders, a));
    one(in(kReaders, b));
    one(in(kReaders, c));
    ASSERT_EQ(one(hub.subscribed("c")), &a);
    drop(a);
    ASSERT_EQ(again(kReaders, a), nullptr);
  }

  std::vector<std::string> changes() {
    std::vector<std::string> result;
    for (const WaiterHub::Change& change : hub.takeChanges()) {
      result.push_back((change.subscribe ? "+" : "-") + change.channel);
    }
    return result;
  }

  WaiterHub hub{kPoll, kLinger};
  FakeWaiter a;
  FakeWaiter b;
  FakeWaiter c;
};

using Changes = std::vector<std::string>;

// ---- Going to sleep

TEST_F(WaiterHubTest, IsIdleAtFirst) {
  EXPECT_TRUE(hub.idle());
  EXPECT_EQ(hub.waiting(), 0U);
  EXPECT_EQ(hub.channels(), 0U);
  EXPECT_FALSE(hub.hasChanges());
  EXPECT_EQ(hub.nextDue(), kNever);
  EXPECT_EQ(one(hub.poll(at(1'000'000))), nullptr);
  EXPECT_EQ(one(hub.message("c")), nullptr);
  EXPECT_EQ(one(hub.subscribed("c")), nullptr);
  hub.refused("c");
  hub.disconnected();
  EXPECT_FALSE(hub.mark("c").othersWait);
}

TEST_F(WaiterHubTest, FirstWaiterSubscribes) {
  EXPECT_EQ(sleep(a), nullptr);
  EXPECT_EQ(a.references, 1);
  EXPECT_FALSE(hub.idle());
  EXPECT_EQ(hub.waiting(), 1U);
  EXPECT_EQ(hub.channels(), 1U);
  EXPECT_TRUE(hub.hasChanges());
  EXPECT_EQ(changes(), (Changes{"+c"}));
  EXPECT_FALSE(hub.hasChanges());
  EXPECT_EQ(sleep(b), nullptr);
  EXPECT_EQ(changes(), (Changes{}));
  EXPECT_TRUE(hub.mark("c").othersWait);
}

TEST_F(WaiterHubTest, WaiterThatHasNotTriedGetsItsTurnWhenNobodyIsBeforeIt) {
  EXPECT_EQ(one(hub.queue(a, {"c"}, kNoMark, false, kUnknown, at(0))), &a);
  EXPECT_EQ(a.references, 2);
  EXPECT_EQ(a.turns, 0) << "the caller gives the turn";
}

TEST_F(WaiterHubTest, WaiterThatHasNotTriedWaitsBehindOthers) {
  sleepSubscribed(a);
  EXPECT_EQ(one(hub.queue(b, {"c"}, kNoMark, false, kUnknown, at(0))), nullptr);
  EXPECT_EQ(one(hub.leave(a, false, at(1))), nullptr) << "it had no turn to hand on";
  EXPECT_EQ(one(hub.message("c")), &b);
}

TEST_F(WaiterHubTest, ConfirmedSubscriptionGivesTheFirstATurn) {
  sleep(a);
  sleep(b);
  EXPECT_EQ(one(hub.subscribed("c")), &a);
  EXPECT_EQ(a.references, 2);
  EXPECT_EQ(b.references, 1);
}

// ---- News

TEST_F(WaiterHubTest, MessageGivesTheFirstATurnAndNobodyElse) {
  sleepSubscribed(a);
  sleep(b);
  EXPECT_EQ(one(hub.message("c")), &a);
  EXPECT_EQ(one(hub.message("c")), nullptr) << "one of them tries at a time";
  EXPECT_EQ(one(hub.subscribed("c")), nullptr);
}

TEST_F(WaiterHubTest, MessagesOfOtherChannelsAreNotNews) {
  sleepSubscribed(a);
  one(hub.queue(b, {"d"}, WaiterHub::Mark{}, true, kUnknown, at(0)));
  EXPECT_EQ(one(hub.message("d")), &b);
  EXPECT_EQ(one(hub.message("unheard of")), nullptr);
  EXPECT_EQ(one(hub.message("c")), &a);
}

TEST_F(WaiterHubTest, MessageDuringATryMeansAnotherTry) {
  sleepSubscribed(a);
  ASSERT_EQ(one(hub.message("c")), &a);
  drop(a);
  ASSERT_EQ(one(hub.message("c")), nullptr);
  EXPECT_EQ(sleepAgain(a), &a);
  drop(a);
  EXPECT_EQ(sleepAgain(a), nullptr) << "once is enough";
}

TEST_F(WaiterHubTest, AnyNumberOfMessagesDuringATryMeansOneMoreTry) {
  sleepSubscribed(a);
  one(hub.message("c"));
  drop(a);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(one(hub.message("c")), nullptr);
  }
  EXPECT_EQ(sleepAgain(a), &a);
  drop(a);
  EXPECT_EQ(sleepAgain(a), nullptr);
}

TEST_F(WaiterHubTest, MessageDuringTheFirstTryIsFoundByTheMark) {
  sleepSubscribed(a);
  EXPECT_EQ(one(hub.leave(a, true, at(0))), nullptr);
  const WaiterHub::Mark mark = hub.mark("c");
  EXPECT_FALSE(mark.othersWait);
  ASSERT_EQ(one(hub.message("c")), nullptr);
  EXPECT_EQ(one(hub.queue(b, {"c"}, mark, true, kUnknown, at(0))), &b);
}

TEST_F(WaiterHubTest, NoNewsSinceTheMarkMeansSleep) {
  sleepSubscribed(a);
  one(hub.leave(a, true, at(0)));
  const WaiterHub::Mark mark = hub.mark("c");
  EXPECT_EQ(one(hub.queue(b, {"c"}, mark, true, kUnknown, at(0))), nullptr);
}

TEST_F(WaiterHubTest, MarkFromBeforeTheChannelIsOutdatedByItsSubscription) {
  const WaiterHub::Mark mark = hub.mark("c");
  sleepSubscribed(a);
  one(hub.leave(a, true, at(0)));
  EXPECT_EQ(one(hub.queue(b, {"c"}, mark, true, kUnknown, at(0))), &b);
}

TEST_F(WaiterHubTest, NewsOfTheFirstTryCountWhenTheWaiterBecomesFirst) {
  sleepSubscribed(a);
  const WaiterHub::Mark mark = hub.mark("c");
  EXPECT_TRUE(mark.othersWait);
  one(hub.message("c"));
  drop(a);
  EXPECT_EQ(one(hub.queue(b, {"c"}, mark, true, kUnknown, at(0))), nullptr)
      << "not before its turn";
  EXPECT_EQ(one(hub.leave(a, false, at(0))), &b);
}

TEST_F(WaiterHubTest, NewsWithoutASubscriptionWaitForItsConfirmation) {
  sleep(a);
  ASSERT_EQ(one(hub.message("c")), &a);
  drop(a);
  one(hub.message("c"));
  EXPECT_EQ(sleepAgain(a), nullptr) << "its confirmation will bring a turn";
  EXPECT_EQ(one(hub.subscribed("c")), &a);
}

// ---- Leaving

TEST_F(WaiterHubTest, LeavesWithoutEverHavingQueued) {
  EXPECT_EQ(one(hub.leave(a, true, at(0))), nullptr);
  EXPECT_EQ(a.references, 0);
}

TEST_F(WaiterHubTest, UnusedTurnIsHandedOn) {
  sleepSubscribed(a);
  sleep(b);
  sleep(c);
  ASSERT_EQ(one(hub.message("c")), &a);
  drop(a);
  EXPECT_EQ(one(hub.leave(a, false, at(0))), &b);
  EXPECT_EQ(a.references, 0);
  EXPECT_EQ(b.references, 2);
  drop(b);
  EXPECT_EQ(one(hub.leave(b, false, at(0))), &c);
  drop(c);
  EXPECT_EQ(one(hub.leave(c, false, at(0))), nullptr);
  EXPECT_EQ(hub.waiting(), 0U);
}

TEST_F(WaiterHubTest, UsedTurnIsNotHandedOn) {
  sleepSubscribed(a);
  sleep(b);
  one(hub.message("c"));
  drop(a);
  EXPECT_EQ(one(hub.leave(a, true, at(50))), nullptr);
  EXPECT_EQ(hub.nextDue(), at(50) + kPoll) << "but the next one looks again some time";
  EXPECT_EQ(one(hub.message("c")), &b);
}

TEST_F(WaiterHubTest, TheEndOfAShortLeaseIsLookedFor) {
  sleepSubscribed(a);
  sleep(b);
  one(hub.message("c"));
  drop(a);
  EXPECT_EQ(one(hub.leave(a, true, at(50), kPoll / 2)), nullptr);
  EXPECT_EQ(hub.nextDue(), at(51) + kPoll / 2);
  EXPECT_EQ(one(hub.poll(at(51) + kPoll / 2)), &b);
}

TEST_F(WaiterHubTest, NewsDuringASuccessfulTryAreForTheNext) {
  sleepSubscribed(a);
  sleep(b);
  ASSERT_EQ(one(hub.message("c")), &a);
  drop(a);
  // Granted, lost again by force, taken and freed by others: all before the reply arrives.
  ASSERT_EQ(one(hub.message("c")), nullptr);
  EXPECT_EQ(one(hub.leave(a, true, at(0))), &b);
}

TEST_F(WaiterHubTest, WaiterThatSleepsHasNoTurnToHandOn) {
  sleepSubscribed(a);
  sleep(b);
  EXPECT_EQ(one(hub.leave(a, false, at(0))), nullptr);
  EXPECT_EQ(hub.nextDue(), at(0) + kPoll) << "the poll is for whoever is first";
  EXPECT_EQ(one(hub.poll(at(0) + kPoll)), &b);
}

TEST_F(WaiterHubTest, WaiterLeavesFromTheMiddle) {
  sleepSubscribed(a);
  sleep(b);
  sleep(c);
  one(hub.message("c"));
  drop(a);
  EXPECT_EQ(one(hub.leave(b, false, at(0))), nullptr);
  EXPECT_EQ(b.references, 0);
  EXPECT_EQ(one(hub.leave(a, false, at(0))), &c);
}

TEST_F(WaiterHubTest, TurnThatNeverBeganIsHandedOnToo) {
  sleepSubscribed(a);
  sleep(b);
  ASSERT_EQ(one(hub.message("c")), &a);
  // Its time was up before it could be told.
  EXPECT_EQ(one(hub.leave(a, false, at(0))), &b);
  EXPECT_EQ(a.references, 1) << "the reference of the turn";
}

TEST_F(WaiterHubTest, KeepsTheOrderOfArrival) {
  sleepSubscribed(a);
  sleep(b);
  sleep(c);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(one(hub.message("c")), &a);
    drop(a);
    ASSERT_EQ(sleepAgain(a), nullptr);
  }
  one(hub.leave(a, false, at(0)));
  ASSERT_EQ(one(hub.message("c")), &b);
  drop(b);
  sleep(a);
  EXPECT_EQ(one(hub.leave(b, false, at(0))), &c);
  drop(c);
  EXPECT_EQ(one(hub.leave(c, false, at(0))), &a) << "who comes back is the last";
}

// ---- Polling

TEST_F(WaiterHubTest, LooksAgainAfterTheSafetyPoll) {
  sleepSubscribed(a);
  EXPECT_EQ(hub.nextDue(), at(0) + kPoll);
  EXPECT_EQ(one(hub.poll(at(999))), nullptr);
  EXPECT_EQ(one(hub.poll(at(1000))), &a);
  drop(a);
  EXPECT_EQ(one(hub.poll(at(5000))), nullptr) << "it tries already";
  EXPECT_EQ(sleepAgain(a, at(1005)), nullptr);
  EXPECT_EQ(hub.nextDue(), at(1005) + kPoll);
}

TEST_F(WaiterHubTest, LooksAgainWhenTheHoldersLeaseEnds) {
  sleepSubscribed(a);
  one(hub.message("c"));
  drop(a);
  sleepAgain(a, at(100), milliseconds(300));
  EXPECT_EQ(hub.nextDue(), at(401)) << "the server drops it a millisecond later";
  one(hub.poll(at(401)));
  drop(a);
  sleepAgain(a, at(500), milliseconds(0));
  EXPECT_EQ(hub.nextDue(), at(501));
  one(hub.poll(at(501)));
  drop(a);
  sleepAgain(a, at(600), milliseconds(30'000));
  EXPECT_EQ(hub.nextDue(), at(600) + kPoll) << "the safety poll bounds every sleep";
}

TEST_F(WaiterHubTest, PollsBeforeTheSubscriptionIsConfirmed) {
  sleep(a, at(0), milliseconds(50));
  EXPECT_EQ(hub.nextDue(), at(51));
  EXPECT_EQ(one(hub.poll(at(51))), &a);
}

TEST_F(WaiterHubTest, PollsEveryChannelThatIsDue) {
  one(hub.queue(a, {"c"}, WaiterHub::Mark{}, true, milliseconds(10), at(0)));
  one(hub.queue(b, {"d"}, WaiterHub::Mark{}, true, milliseconds(20), at(0)));
  one(hub.queue(c, {"e"}, WaiterHub::Mark{}, true, milliseconds(30), at(0)));
  EXPECT_EQ(listed(hub.poll(at(25))), (List{&a, &b}));
  EXPECT_TRUE(hub.poll(at(25)).empty());
  EXPECT_EQ(hub.nextDue(), at(31));
}

TEST_F(WaiterHubTest, MessageBeforeThePollTakesItsPlace) {
  sleepSubscribed(a);
  one(hub.message("c"));
  drop(a);
  EXPECT_EQ(one(hub.poll(at(0) + kPoll)), nullptr);
  EXPECT_EQ(sleepAgain(a, at(1100)), nullptr);
  EXPECT_EQ(hub.nextDue(), at(1100) + kPoll);
}

// ---- Subscriptions

TEST_F(WaiterHubTest, ChannelLingersAndIsThenUnsubscribed) {
  sleepSubscribed(a);
  changes();
  one(hub.leave(a, true, at(100)));
  EXPECT_EQ(hub.channels(), 1U);
  EXPECT_EQ(hub.nextDue(), at(100) + kLinger) << "nobody is left to poll";
  hub.expireLingering(at(100) + kLinger - milliseconds(1));
  EXPECT_EQ(hub.channels(), 1U);
  EXPECT_FALSE(hub.hasChanges());

  hub.expireLingering(at(100) + kLinger);
  EXPECT_EQ(hub.channels(), 0U);
  EXPECT_TRUE(hub.idle());
  EXPECT_EQ(changes(), (Changes{"-c"}));
  EXPECT_EQ(hub.nextDue(), kNever);
}

TEST_F(WaiterHubTest, AChannelThatNobodyElseCanUseEndsWithItsLastWaiter) {
  const WaitTerms own{.channel = "own", .rule = WakeRule::each, .lingers = false};
  one(in(own, a));
  one(in(own, b));
  EXPECT_EQ(changes(), (Changes{"+own"}));
  one(hub.leave(a, true, at(5)));
  hub.expireLingering(at(5));
  EXPECT_EQ(hub.channels(), 1U);
  one(hub.leave(b, false, at(6)));
  EXPECT_EQ(hub.nextDue(), at(6));
  hub.expireLingering(at(6));
  EXPECT_EQ(hub.channels(), 0U);
  EXPECT_EQ(changes(), (Changes{"-own"}));
}

TEST_F(WaiterHubTest, WaiterWithinTheLingerKeepsTheSubscription) {
  sleepSubscribed(a);
  changes();
  one(hub.leave(a, true, at(100)));
  sleep(b, at(5'000));
  hub.expireLingering(at(60'000));
  EXPECT_EQ(hub.channels(), 1U);
  EXPECT_EQ(changes(), (Changes{}));
  one(hub.leave(b, false, at(60'000)));
  hub.expireLingering(at(60'000) + kLinger);
  EXPECT_EQ(changes(), (Changes{"-c"}));
}

TEST_F(WaiterHubTest, WaiterAfterTheLingerSubscribesAgain) {
  sleepSubscribed(a);
  one(hub.leave(a, true, at(0)));
  hub.expireLingering(at(0) + kLinger);
  EXPECT_EQ(sleep(b, at(20'000)), nullptr);
  EXPECT_EQ(changes(), (Changes{"+c", "-c", "+c"})) << "in this order";
  EXPECT_EQ(one(hub.subscribed("c")), &b);
}

TEST_F(WaiterHubTest, WithoutLingerAChannelGoesAtOnce) {
  WaiterHub eager(kPoll, milliseconds(0));
  one(eager.queue(a, {"c"}, WaiterHub::Mark{}, true, kUnknown, at(0)));
  one(eager.leave(a, false, at(5)));
  EXPECT_EQ(eager.nextDue(), at(5));
  eager.expireLingering(at(5));
  EXPECT_EQ(eager.channels(), 0U);
}

TEST_F(WaiterHubTest, ManyChannelsLingerEachForItself) {
  for (int i = 0; i < 100; ++i) {
    one(hub.queue(a, {"c" + std::to_string(i)}, WaiterHub::Mark{}, true, kUnknown, at(i)));
    one(hub.leave(a, false, at(i)));
  }
  EXPECT_EQ(hub.channels(), 100U);
  hub.takeChanges();
  hub.expireLingering(at(49) + kLinger);
  EXPECT_EQ(hub.channels(), 50U);
  EXPECT_EQ(hub.takeChanges().size(), 50U);
  hub.expireLingering(at(99) + kLinger);
  EXPECT_TRUE(hub.idle());
  EXPECT_EQ(a.references, 0);
}

TEST_F(WaiterHubTest, NewsOfAForgottenChannelAreNobodys) {
  sleepSubscribed(a);
  one(hub.leave(a, true, at(0)));
  hub.expireLingering(at(0) + kLinger);
  EXPECT_EQ(one(hub.message("c")), nullptr);
  EXPECT_EQ(one(hub.subscribed("c")), nullptr);
  EXPECT_EQ(hub.channels(), 0U);
}

TEST_F(WaiterHubTest, RefusedSubscriptionLeavesPollingUntilItIsConfirmed) {
  sleep(a);
  changes();
  EXPECT_TRUE(hub.refused("c"));
  EXPECT_EQ(one(hub.poll(at(0) + kPoll)), &a);
  drop(a);
  EXPECT_EQ(sleepAgain(a, at(1000)), nullptr);
  EXPECT_EQ(hub.nextDue(), at(2000));
  EXPECT_FALSE(hub.refused("c")) << "known already";
  EXPECT_EQ(one(hub.subscribed("c")), &a);
  drop(a);
  EXPECT_EQ(sleepAgain(a, at(1000)), nullptr);
  EXPECT_EQ(one(hub.message("c")), &a);
  drop(a);
  EXPECT_EQ(sleepAgain(a, at(1000)), nullptr);
  EXPECT_TRUE(hub.refused("c")) << "it worked meanwhile";
  one(hub.leave(a, true, at(1500)));
  hub.expireLingering(at(1500) + kLinger);
  EXPECT_EQ(hub.channels(), 0U);
  EXPECT_EQ(changes(), (Changes{"-c"})) << "what is refused is asked for again unless given up";
}

TEST_F(WaiterHubTest, EveryReconnectionMakesTheFirstLookAgain) {
  sleepSubscribed(a);
  for (int i = 0; i < 3; ++i) {
    hub.disconnected();
    EXPECT_EQ(one(hub.subscribed("c")), &a);
    drop(a);
    EXPECT_EQ(sleepAgain(a), nullptr);
  }
}

TEST_F(WaiterHubTest, ReconnectionDuringATryMeansAnotherTry) {
  sleepSubscribed(a);
  one(hub.message("c"));
  drop(a);
  hub.disconnected();
  EXPECT_EQ(one(hub.subscribed("c")), nullptr);
  EXPECT_EQ(sleepAgain(a), &a);
}

TEST_F(WaiterHubTest, DisconnectionDuringATryLeavesItToTheReconnection) {
  sleepSubscribed(a);
  one(hub.message("c"));
  drop(a);
  hub.disconnected();
  EXPECT_EQ(sleepAgain(a, at(10)), nullptr);
  EXPECT_EQ(hub.nextDue(), at(10) + kPoll) << "or to the poll";
  EXPECT_EQ(one(hub.subscribed("c")), &a);
}

TEST_F(WaiterHubTest, ReconnectionReachesEveryChannel) {
  one(hub.queue(a, {"c"}, WaiterHub::Mark{}, true, kUnknown, at(0)));
  one(hub.queue(b, {"d"}, WaiterHub::Mark{}, true, kUnknown, at(0)));
  hub.disconnected();
  EXPECT_EQ(one(hub.subscribed("d")), &b);
  EXPECT_EQ(one(hub.subscribed("c")), &a);
}

// ---- Lanes

TEST_F(WaiterHubTest, NewsGiveTheFirstOfEachLaneATurn) {
  one(in(kReaders, a));
  one(in(kReaders, b));
  one(in(kWriters, c));
  EXPECT_EQ(changes(), (Changes{"+c"})) << "one subscription for both";
  EXPECT_EQ(listed(hub.subscribed("c")), (List{&a, &c}));
  drop(a);
  drop(c);
  EXPECT_EQ(again(kReaders, a), nullptr);
  EXPECT_EQ(again(kWriters, c), nullptr);
  EXPECT_EQ(listed(hub.message("c")), (List{&a, &c}));
}

TEST_F(WaiterHubTest, TheMarkSaysWhoWaitsInTheSameLane) {
  one(in(kReaders, a));
  EXPECT_TRUE(hub.mark("c", kReaders.lane).othersWait);
  EXPECT_FALSE(hub.mark("c", kWriters.lane).othersWait) << "a writer does not queue behind readers";
  one(hub.leave(a, false, at(0)));
  one(in(kWriters, b));
  EXPECT_FALSE(hub.mark("c", kReaders.lane).othersWait);
  EXPECT_TRUE(hub.mark("c", kWriters.lane).othersWait);
}

TEST_F(WaiterHubTest, ATurnIsHandedOnWithinItsLane) {
  one(in(kWriters, a));
  one(in(kReaders, b));
  one(in(kWriters, c));
  hub.subscribed("c");
  drop(a);
  drop(b);
  EXPECT_EQ(one(hub.leave(a, false, at(0))), &c);
  drop(c);
  EXPECT_EQ(one(hub.leave(c, false, at(0))), nullptr);
  EXPECT_EQ(again(kReaders, b), nullptr);
}

TEST_F(WaiterHubTest, LanesPollEachInTheirTime) {
  one(in(kReaders, a, milliseconds(300)));
  one(in(kWriters, b));
  EXPECT_EQ(hub.nextDue(), at(301));
  EXPECT_EQ(one(hub.poll(at(301))), &a);
  EXPECT_EQ(hub.nextDue(), at(0) + kWriters.poll) << "shorter than the safety poll";
  EXPECT_EQ(one(hub.poll(at(500))), &b);
}

TEST_F(WaiterHubTest, AChannelLingersWhenBothLanesAreEmpty) {
  one(in(kReaders, a));
  one(in(kWriters, b));
  one(hub.leave(a, true, at(10)));
  hub.expireLingering(at(10) + kLinger);
  EXPECT_EQ(hub.channels(), 1U);
  one(hub.leave(b, true, at(20)));
  hub.expireLingering(at(20) + kLinger);
  EXPECT_EQ(hub.channels(), 0U);
}

TEST_F(WaiterHubTest, NamesTheWaitersOfBothLanes) {
  one(in(kReaders, a));
  one(in(kWriters, b));
  EXPECT_EQ(hub.all(), (std::vector<Waiter*>{&a, &b}));
  drop(a);
  drop(b);
}

// ---- WakeRule::each

TEST_F(WaiterHubTest, WhenTheFirstReaderGetsInAllOthersTryAtOnce) {
  readersSleep();
  ASSERT_EQ(one(hub.message("c")), &a) << "one finds out for all";
  drop(a);
  EXPECT_EQ(listed(hub.leave(a, true, at(0))), (List{&b, &c}));
  drop(b);
  drop(c);
  EXPECT_EQ(one(hub.leave(c, true, at(0))), nullptr) << "b tries already";
  EXPECT_EQ(one(hub.leave(b, true, at(0))), nullptr);
  EXPECT_EQ(hub.waiting(), 0U);
}

TEST_F(WaiterHubTest, AReaderThatIsRefusedWakesNobody) {
  readersSleep();
  one(hub.message("c"));
  drop(a);
  EXPECT_EQ(again(kReaders, a), nullptr);
  EXPECT_EQ(b.references, 1);
  EXPECT_EQ(hub.nextDue(), at(0) + kPoll);
}

TEST_F(WaiterHubTest, AReaderThatGivesUpHandsItsTurnToOne) {
  readersSleep();
  one(hub.message("c"));
  drop(a);
  EXPECT_EQ(one(hub.leave(a, false, at(0))), &b);
  drop(b);
  EXPECT_EQ(one(hub.leave(b, true, at(0))), &c);
}

TEST_F(WaiterHubTest, AReaderThatComesWhileOthersTryIsLetInWithThem) {
  readersSleep();
  one(hub.message("c"));
  drop(a);
  FakeWaiter late;
  EXPECT_EQ(one(hub.queue(late, kReaders, kNoMark, false, kUnknown, at(0))), nullptr);
  EXPECT_EQ(listed(hub.leave(a, true, at(0))), (List{&b, &c, &late}));
  for (FakeWaiter* waiter : {&b, &c, &late}) {
    drop(*waiter);
    one(hub.leave(*waiter, true, at(0)));
  }
}

TEST_F(WaiterHubTest, AReaderThatIsRefusedInTheMiddleKeepsItsPlace) {
  readersSleep();
  one(hub.message("c"));
  drop(a);
  hub.leave(a, true, at(0));
  drop(b);
  drop(c);
  // A writer came in between: both are refused, and sleep in their order.
  EXPECT_EQ(again(kReaders, c), nullptr);
  EXPECT_EQ(again(kReaders, b), nullptr);
  EXPECT_EQ(one(hub.message("c")), &b);
}

TEST_F(WaiterHubTest, ReadersThatGetInDoNotWakeWriters) {
  one(in(kReaders, a));
  one(in(kReaders, b));
  one(in(kWriters, c));
  hub.subscribed("c");
  drop(a);
  drop(c);
  EXPECT_EQ(again(kWriters, c), nullptr);
  EXPECT_EQ(listed(hub.leave(a, true, at(0))), (List{&b}));
}

TEST_F(WaiterHubTest, AReaderThatTriedWhileTheOthersWereLetInTriesAgain) {
  readersSleep();
  one(hub.message("c"));
  // Its first try began before the others were let in, and was refused before that.
  const WaiterHub::Mark mark = hub.mark("c");
  EXPECT_EQ(listed(hub.leave(a, true, at(0))), (List{&b, &c}));
  FakeWaiter late;
  EXPECT_EQ(one(hub.queue(late, kReaders, mark, true, kUnknown, at(0))), &late);
  EXPECT_EQ(again(kReaders, late), nullptr) << "once is enough";
  one(hub.leave(b, true, at(0)));
  one(hub.leave(c, true, at(0)));
  EXPECT_EQ(hub.nextDue(), at(0) + kPoll) << "the first looks again in its time";
  EXPECT_EQ(one(hub.message("c")), &late);
  one(hub.leave(late, true, at(0)));
}

TEST_F(WaiterHubTest, ReadersOfOneWaveDoNotWakeThoseWhoWereRefusedInIt) {
  readersSleep();
  one(hub.message("c"));
  hub.leave(a, true, at(0));
  EXPECT_EQ(again(kReaders, c), nullptr) << "a writer came in between";
  EXPECT_EQ(one(hub.leave(b, true, at(0))), nullptr) << "it got in before that writer";
  EXPECT_EQ(hub.nextDue(), at(0) + kPoll);
  EXPECT_EQ(one(hub.message("c")), &c);
}

TEST_F(WaiterHubTest, NewsThatTheFirstReaderCouldNotUseAreForTheNext) {
  readersSleep();
  one(hub.message("c"));
  hub.leave(a, true, at(0));
  ASSERT_EQ(one(hub.message("c")), nullptr) << "b is first and tries";
  EXPECT_EQ(again(kReaders, c), nullptr) << "not first";
  EXPECT_EQ(one(hub.leave(b, true, at(0))), &c);
}

TEST_F(WaiterHubTest, TheEndOfAHoldIsLookedForByWhoeverIsFirst) {
  readersSleep();
  one(hub.message("c"));
  hub.leave(a, true, at(0));
  EXPECT_EQ(one(hub.queue(c, kReaders, kNoMark, true, milliseconds(70), at(0))), nullptr);
  EXPECT_EQ(one(hub.leave(b, true, at(10))), nullptr);
  EXPECT_EQ(hub.nextDue(), at(71));
  EXPECT_EQ(one(hub.poll(at(71))), &c);
}

/// Time of this thread for a crowd that is woken and leaves one after the other.
double millisecondsFor(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) / 1e6;
  };
  double best = std::numeric_limits<double>::max();
  for (int i = 0; i < 3; ++i) {
    const double began = now();
    work();
    best = std::min(best, now() - began);
  }
  return best;
}

/// Whether eight times as many cost about eight times as much, and not 64 times.
void expectLinear(const std::function<void(std::size_t)>& wakeAll) {
  constexpr std::size_t kFew = 1000;
  const double few = millisecondsFor([&] { wakeAll(kFew); });
  const double many = millisecondsFor([&] { wakeAll(8 * kFew); });
  EXPECT_LT(many, 24 * few) << "a crowd of " << kFew << ": " << few << " ms; of " << 8 * kFew
                            << ": " << many << " ms";
}

/// Everybody who has a turn gets in and leaves; returns how many turns that took.
std::size_t letIn(WaiterHub& hub, WaiterHub::Turns turns) {
  std::size_t given = 0;
  while (Waiter* const waiter = turns.popFront()) {
    waiter->waiterDropRef();
    ++given;
    WaiterHub::Turns more = hub.leave(*waiter, true, at(0));
    turns.append(more);
  }
  return given;
}

TEST_F(WaiterHubTest, WakingACrowdOfReadersIsLinear) {
  expectLinear([](std::size_t count) {
    WaiterHub crowd(kPoll, kLinger);
    std::vector<FakeWaiter> readers(count);
    for (FakeWaiter& reader : readers) {
      static_cast<void>(crowd.queue(reader, kReaders, WaiterHub::Mark{}, true, kUnknown, at(0)));
    }
    EXPECT_EQ(letIn(crowd, crowd.message("c")), count);
    EXPECT_EQ(crowd.waiting(), 0U);
  });
}

TEST_F(WaiterHubTest, OpeningForACrowdIsLinearHoweverOftenItIsSaid) {
  expectLinear([](std::size_t count) {
    WaiterHub crowd(kPoll, kLinger);
    std::vector<FakeWaiter> waiters(count);
    const WaitTerms terms{.channel = "c", .rule = WakeRule::each, .opensOn = "open"};
    for (FakeWaiter& waiter : waiters) {
      static_cast<void>(crowd.queue(waiter, terms, WaiterHub::Mark{}, true, kUnknown, at(0)));
    }
    static_cast<void>(crowd.takeChanges());
    WaiterHub::Turns turns = crowd.subscribed("c");
    for (std::size_t i = 0; i < count; ++i) {
      WaiterHub::Turns more = crowd.message("c", "open");
      turns.append(more);
    }
    EXPECT_EQ(letIn(crowd, turns), count);
    EXPECT_EQ(crowd.waiting(), 0U);
  });
}

// ---- Waiting alone

class WaiterHubAloneTest : public WaiterHubTest {
 protected:
  /// A try was refused; the waiter looks again by itself after `pause`.
  void sleepAlone(FakeWaiter& waiter,
                  milliseconds pause,
                  TimePoint now = at(0),
                  milliseconds remaining = kUnknown) {
    const WaitTerms terms{.channel = "c", .rule = WakeRule::alone, .poll = pause};
    EXPECT_TRUE(hub.queue(waiter, terms, WaiterHub::Mark{}, true, remaining, now).empty());
  }
};

TEST_F(WaiterHubAloneTest, LooksAgainWhenItsOwnTimeComes) {
  sleepAlone(a, milliseconds(10));
  sleepAlone(b, milliseconds(3));
  EXPECT_EQ(hub.waiting(), 2U);
  EXPECT_FALSE(hub.idle());
  EXPECT_EQ(hub.nextDue(), at(3));
  EXPECT_TRUE(hub.poll(at(2)).empty());
  EXPECT_EQ(one(hub.poll(at(3))), &b);
  EXPECT_EQ(b.references, 2);
  EXPECT_EQ(hub.nextDue(), at(10)) << "who tries has no alarm";
  drop(b);
  sleepAlone(b, milliseconds(6), at(4));
  EXPECT_EQ(b.references, 1) << "it was in the queue already";
  EXPECT_EQ(hub.waiting(), 2U);
  EXPECT_EQ(listed(hub.poll(at(10))), (List{&a, &b}));
  EXPECT_EQ(hub.nextDue(), kNever);
}

TEST_F(WaiterHubAloneTest, NeedsNoChannelAndHearsNoNews) {
  sleepAlone(a, milliseconds(10));
  EXPECT_EQ(hub.channels(), 0U);
  EXPECT_EQ(changes(), (Changes{}));
  EXPECT_FALSE(hub.mark("c").othersWait);
  // Others wait for the same lock by its channel.
  sleepSubscribed(b);
  EXPECT_EQ(one(hub.message("c")), &b);
  drop(b);
  EXPECT_EQ(a.references, 1);
  EXPECT_EQ(one(hub.leave(b, true, at(1))), nullptr);
  EXPECT_EQ(one(hub.poll(at(10))), &a);
}

TEST_F(WaiterHubAloneTest, SleepsNoLongerThanTheHolderHasIt) {
  sleepAlone(a, milliseconds(500), at(0), milliseconds(20));
  EXPECT_EQ(hub.nextDue(), at(21));
  sleepAlone(a, milliseconds(500), at(21), milliseconds(0));
  EXPECT_EQ(hub.nextDue(), at(22));
  sleepAlone(a, milliseconds(500), at(22));
  EXPECT_EQ(hub.nextDue(), at(522)) << "a hold without end";
  sleepAlone(a, milliseconds(3000), at(522));
  EXPECT_EQ(hub.nextDue(), at(3522)) << "the safety poll is for those who rely on messages";
  sleepAlone(a, milliseconds(0), at(600));
  EXPECT_EQ(hub.nextDue(), at(1600)) << "no pause of its own";
}

TEST_F(WaiterHubAloneTest, LeavesNothingBehind) {
  sleepAlone(a, milliseconds(10));
  EXPECT_TRUE(hub.leave(a, false, at(1)).empty());
  EXPECT_EQ(a.references, 0);
  EXPECT_TRUE(hub.idle());
  EXPECT_EQ(hub.waiting(), 0U);
  EXPECT_EQ(hub.nextDue(), kNever);
  EXPECT_TRUE(hub.poll(at(10)).empty());
  EXPECT_TRUE(hub.leave(a, false, at(11)).empty()) << "twice";
  // In the middle of its turn, which nobody else gets.
  sleepAlone(a, milliseconds(10), at(20));
  sleepAlone(b, milliseconds(50), at(20));
  EXPECT_EQ(one(hub.poll(at(30))), &a);
  EXPECT_TRUE(hub.leave(a, true, at(30)).empty());
  drop(a);
  EXPECT_EQ(a.references, 0);
  EXPECT_EQ(hub.nextDue(), at(70));
  // It may wait for something else next, in the ordinary way.
  EXPECT_EQ(sleep(a, at(31)), nullptr);
  EXPECT_EQ(hub.channels(), 1U);
  EXPECT_EQ(one(hub.leave(a, false, at(32))), nullptr);
  EXPECT_EQ(a.references, 0);
}

TEST_F(WaiterHubAloneTest, IsToldOfTheEnd) {
  sleepAlone(a, milliseconds(10));
  sleep(b);
  const std::vector<Waiter*> all = hub.all();
  EXPECT_EQ(all.size(), 2U);
  EXPECT_EQ(a.references, 2);
  EXPECT_EQ(b.references, 2);
}

// ---- Closing

TEST_F(WaiterHubTest, NamesEverybodyWhoWaits) {
  sleep(a);
  sleep(b);
  one(hub.queue(c, {"d"}, WaiterHub::Mark{}, true, kUnknown, at(0)));
  std::vector<Waiter*> all = hub.all();
  EXPECT_EQ(all.size(), 3U);
  EXPECT_EQ(hub.waiting(), 3U);
  for (FakeWaiter* waiter : {&a, &b, &c}) {
    EXPECT_EQ(waiter->references, 2);
    waiter->waiterDropRef();
    one(hub.leave(*waiter, false, at(0)));
    if (waiter->references > 0) {
      // A turn that was handed on to it.
      drop(*waiter);
    }
    EXPECT_EQ(waiter->references, 0);
  }
  EXPECT_EQ(hub.waiting(), 0U);
}

TEST_F(WaiterHubTest, OneWaiterMayWaitAgainAndAgain) {
  for (int i = 0; i < 10; ++i) {
    sleep(a, at(i));
    EXPECT_EQ(a.references, 1);
    one(hub.leave(a, i % 2 == 0, at(i)));
    EXPECT_EQ(a.references, 0);
  }
  EXPECT_EQ(hub.channels(), 1U);
  EXPECT_EQ(changes(), (Changes{"+c"}));
}

// ---- Waiters that need different amounts

class FittingTest : public WaiterHubTest {
 protected:
  static WaitTerms terms(int need) {
    WaitTerms result;
    result.channel = "c";
    result.rule = WakeRule::fitting;
    result.need = need;
    return result;
  }
  /// Queues behind the others without a try.
  WaiterHub::Turns arrive(FakeWaiter& waiter, int need, TimePoint now = at(0)) {
    return hub.queue(waiter, terms(need), kNoMark, false, kUnknown, now);
  }
  /// A try that was a turn was refused.
  WaiterHub::Turns refused(FakeWaiter& waiter, int need, TimePoint now = at(0)) {
    return hub.queue(waiter, terms(need), kNoMark, true, kUnknown, now);
  }
  /// `a` needs 5, `b` 3, `c` 1; all were refused and sleep, subscribed.
  void allAsleep() {
    EXPECT_EQ(one(arrive(a, 5)), &a);
    EXPECT_EQ(one(hub.subscribed("c")), nullptr);
    EXPECT_EQ(one(refused(a, 5)), &a) << "the confirmation is news";
    EXPECT_EQ(one(refused(a, 5)), nullptr);
    EXPECT_EQ(one(arrive(b, 3)), &b);
    EXPECT_EQ(one(refused(b, 3)), nullptr);
    EXPECT_EQ(one(arrive(c, 1)), &c);
    EXPECT_EQ(one(refused(c, 1)), nullptr);
  }
};

TEST_F(FittingTest, RefusedTurnGoesToTheNextThatNeedsLess) {
  allAsleep();
  EXPECT_EQ(one(hub.message("c")), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(refused(b, 3)), &c);
  EXPECT_EQ(one(refused(c, 1)), nullptr);
  EXPECT_EQ(one(hub.message("c")), &a) << "and again with the next news";
}

TEST_F(FittingTest, WhoeverNeedsAsMuchAsWasRefusedSleepsOn) {
  allAsleep();
  FakeWaiter another;
  EXPECT_EQ(one(arrive(another, 1)), nullptr);
  FakeWaiter larger;
  EXPECT_EQ(one(arrive(larger, 4)), nullptr);
  EXPECT_EQ(one(hub.message("c")), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(refused(b, 3)), &c);
  EXPECT_EQ(one(refused(c, 1)), nullptr);
  hub.leave(another, false, at(0));
  hub.leave(larger, false, at(0));
}

TEST_F(FittingTest, NewcomerTriesWhenItNeedsLessThanWasRefused) {
  EXPECT_EQ(one(arrive(a, 5)), &a);
  EXPECT_EQ(one(arrive(b, 1)), nullptr) << "somebody tries: what is refused is not known yet";
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(refused(b, 1)), nullptr);
}

TEST_F(FittingTest, GrantGoesOnToTheNextThatFits) {
  allAsleep();
  FakeWaiter last;
  EXPECT_EQ(one(arrive(last, 2)), nullptr);
  EXPECT_EQ(one(hub.message("c")), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(hub.leave(b, true, at(0))), &c);
  EXPECT_EQ(one(hub.leave(c, true, at(0))), &last);
  EXPECT_EQ(one(refused(last, 2)), nullptr);
  EXPECT_EQ(hub.waiting(), 2U);
  hub.leave(last, false, at(0));
}

TEST_F(FittingTest, FirstThatIsServedHandsOn) {
  allAsleep();
  EXPECT_EQ(one(hub.message("c")), &a);
  EXPECT_EQ(one(hub.leave(a, true, at(0))), &b);
  EXPECT_EQ(one(hub.leave(b, true, at(0))), &c);
  EXPECT_EQ(one(hub.leave(c, true, at(0))), nullptr);
}

TEST_F(FittingTest, PassedOnTurnThatIsNotUsedGoesOn) {
  allAsleep();
  EXPECT_EQ(one(hub.message("c")), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(hub.leave(b, false, at(0))), &c) << "its time was up";
}

TEST_F(FittingTest, NewsDuringATryBehindTheFirstMeansAnotherTry) {
  allAsleep();
  EXPECT_EQ(one(hub.message("c")), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(refused(b, 3)), &c);
  // While c tries, something becomes free: a is asked again, c cannot be, it is trying.
  EXPECT_EQ(one(hub.message("c")), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(refused(b, 3)), nullptr);
  EXPECT_EQ(one(refused(c, 1)), &c) << "its try was before the news";
}

TEST_F(FittingTest, NewsDuringAFirstTryAreFoundByTheMark) {
  allAsleep();
  const WaiterHub::Mark mark = hub.mark("c");
  EXPECT_EQ(one(hub.message("c")), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(refused(b, 3)), &c);
  EXPECT_EQ(one(refused(c, 1)), nullptr);
  FakeWaiter late;
  EXPECT_EQ(one(hub.queue(late, terms(1), mark, true, kUnknown, at(0))), &late);
  EXPECT_EQ(one(refused(late, 1)), nullptr);
  hub.leave(late, false, at(0));
}

TEST_F(FittingTest, AfterASpanOfPassingTheFirstHasOneForItself) {
  allAsleep();
  // b and c passed from 0 on.
  EXPECT_EQ(one(hub.poll(at(1000))), &a);
  EXPECT_EQ(one(refused(a, 5, at(1000))), nullptr) << "what becomes free is to add up";
  EXPECT_EQ(one(hub.message("c")), &a);
  EXPECT_EQ(one(refused(a, 5, at(1500))), nullptr);
  FakeWaiter newcomer;
  EXPECT_EQ(one(arrive(newcomer, 1, at(1600))), nullptr);
  EXPECT_EQ(one(hub.poll(at(2500))), &a);
  EXPECT_EQ(one(refused(a, 5, at(2500))), &b) << "and the others have the next";
  hub.leave(newcomer, false, at(2500));
}

TEST_F(FittingTest, NobodyIsPassedWhileNobodyCan) {
  EXPECT_EQ(one(arrive(a, 5)), &a);
  EXPECT_EQ(one(refused(a, 5)), nullptr);
  // However long it has waited alone, a newcomer passes at once.
  EXPECT_EQ(one(arrive(b, 1, at(1500))), &b);
  EXPECT_EQ(one(refused(b, 1, at(1500))), nullptr);
}

TEST_F(FittingTest, WhatWasKeptForTheFirstIsFreeWhenItLeaves) {
  allAsleep();
  EXPECT_EQ(one(hub.message("c")), &a);
  EXPECT_EQ(one(refused(a, 5, at(1200))), nullptr) << "its own span";
  EXPECT_EQ(one(hub.leave(a, false, at(1300))), &b) << "without a turn of its own";
  EXPECT_EQ(one(refused(b, 3, at(1300))), &c);
  EXPECT_EQ(one(hub.leave(c, true, at(1300))), nullptr);
}

TEST_F(FittingTest, ACrowdThatNeedsTheSameIsLinear) {
  expectLinear([](std::size_t count) {
    WaiterHub crowd(kPoll, kLinger);
    std::vector<FakeWaiter> waiters(count);
    for (FakeWaiter& waiter : waiters) {
      WaiterHub::Turns turns =
          crowd.queue(waiter, terms(1), WaiterHub::Mark{}, false, kUnknown, at(0));
      while (Waiter* const next = turns.popFront()) {
        next->waiterDropRef();
        WaiterHub::Turns more = crowd.queue(*next, terms(1), kNoMark, true, kUnknown, at(0));
        turns.append(more);
      }
    }
    // One is served with each message, and the next is refused.
    for (std::size_t i = 0; i < count; ++i) {
      WaiterHub::Turns turns = crowd.message("c");
      ASSERT_EQ(turns.size(), 1U);
      Waiter* const first = turns.popFront();
      first->waiterDropRef();
      WaiterHub::Turns handedOn = crowd.leave(*first, true, at(0));
      while (Waiter* const next = handedOn.popFront()) {
        next->waiterDropRef();
        WaiterHub::Turns more = crowd.queue(*next, terms(1), kNoMark, true, kUnknown, at(0));
        handedOn.append(more);
      }
    }
    EXPECT_EQ(crowd.waiting(), 0U);
  });
}

// ---- A message that opens

class OpeningTest : public WaiterHubTest {
 protected:
  class Listener final : public Waiter {
   public:
    void turn() noexcept override { heard = happened(); }
    void shutDown() noexcept override {}
    void waiterAddRef() noexcept override {}
    void waiterDropRef() noexcept override {}
    bool heard = false;
  };

  WaiterHub::Turns queue(Waiter& waiter, std::optional<WaiterHub::Mark> mark = kNoMark) {
    WaitTerms terms;
    terms.channel = "c";
    terms.rule = WakeRule::each;
    terms.opensOn = "open";
    return hub.queue(waiter, terms, mark, true, kUnknown, at(0));
  }
  static void give(const WaiterHub::Turns& turns) {
    for (Waiter* waiter : turns) {
      waiter->turn();
    }
  }
  /// How many confirmations go out now.
  std::size_t sent() {
    std::size_t count = 0;
    for (const WaiterHub::Change& change : hub.takeChanges()) {
      EXPECT_TRUE(change.subscribe);
      ++count;
    }
    return count;
  }
  /// x and y sleep, and messages are meant for both.
  void sleepSubscribed() {
    EXPECT_EQ(one(queue(x, WaiterHub::Mark{})), nullptr);
    EXPECT_EQ(one(queue(y, hub.mark("c"))), nullptr);
    EXPECT_EQ(sent(), 1U) << "one for both";
    EXPECT_EQ(one(hub.subscribed("c")), &x);
    EXPECT_EQ(one(queue(x)), nullptr);
  }

  Listener x;
  Listener y;
};

TEST_F(OpeningTest, EverybodyHearsTheMessage) {
  sleepSubscribed();
  const auto turns = hub.message("c", "open");
  EXPECT_EQ(listed(turns), (List{&x, &y}));
  give(turns);
  EXPECT_TRUE(x.heard);
  EXPECT_TRUE(y.heard);
  EXPECT_EQ(one(hub.leave(x, true, at(0))), nullptr) << "all have their turn already";
  EXPECT_EQ(one(hub.leave(y, true, at(0))), nullptr);
}

TEST_F(OpeningTest, ALaneWhoseWaitersWereToldIsNotPolledOnceItsChannelIsForgotten) {
  sleepSubscribed();
  ASSERT_NE(hub.nextDue(), kNever) << "x was to look again";
  const auto turns = hub.message("c", "open");
  give(turns);
  ASSERT_EQ(one(hub.leave(x, true, at(0))), nullptr);
  ASSERT_EQ(one(hub.leave(y, true, at(0))), nullptr);
  hub.expireLingering(at(0) + kLinger);
  EXPECT_EQ(hub.channels(), 0U);
  EXPECT_EQ(hub.nextDue(), kNever);
}

TEST_F(OpeningTest, OtherMessagesAreNews) {
  sleepSubscribed();
  const auto turns = hub.message("c", "closed");
  EXPECT_EQ(one(turns), &x);
  give(turns);
  EXPECT_FALSE(x.heard);
  EXPECT_EQ(one(queue(x)), nullptr);
}

TEST_F(OpeningTest, MessageDuringATryIsHeardAfterIt) {
  sleepSubscribed();
  EXPECT_EQ(one(hub.message("c")), &x);
  EXPECT_EQ(one(hub.message("c", "open")), &y);
  const auto turns = queue(x);
  EXPECT_EQ(one(turns), &x);
  give(turns);
  EXPECT_TRUE(x.heard);
}

TEST_F(OpeningTest, MessageDuringTheFirstTryIsHeardOnceConfirmed) {
  sleepSubscribed();
  Listener z;
  const WaiterHub::Mark mark = hub.expect("c");
  EXPECT_EQ(sent(), 1U);
  EXPECT_EQ(one(hub.subscribed("c")), &x);
  hub.message("c", "open");
  hub.leave(x, true, at(0));
  hub.leave(y, true, at(0));
  const auto turns = queue(z, mark);
  EXPECT_EQ(one(turns), &z);
  give(turns);
  EXPECT_TRUE(z.heard);
  hub.leave(z, true, at(0));
}

TEST_F(OpeningTest, MessageBeforeTheConfirmationIsNews) {
  sleepSubscribed();
  Listener z;
  const WaiterHub::Mark mark = hub.expect("c");
  EXPECT_EQ(sent(), 1U);
  hub.message("c", "open");
  hub.leave(x, true, at(0));
  hub.leave(y, true, at(0));
  const auto turns = queue(z, mark);
  EXPECT_EQ(one(turns), &z) << "it may look whether that was for it";
  give(turns);
  EXPECT_FALSE(z.heard);
  EXPECT_EQ(one(queue(z)), nullptr);
  EXPECT_EQ(one(hub.subscribed("c")), &z);
  EXPECT_EQ(one(queue(z)), nullptr);
  give(hub.message("c", "open"));
  EXPECT_TRUE(z.heard);
  hub.leave(z, true, at(0));
}

TEST_F(OpeningTest, MessageWhileItSleepsUnconfirmedIsForOthers) {
  sleepSubscribed();
  Listener z;
  EXPECT_EQ(one(queue(z, hub.mark("c"))), nullptr);
  EXPECT_EQ(sent(), 1U);
  EXPECT_EQ(listed(hub.message("c", "open")), (List{&x, &y, &z}))
      << "the last may look whether that was for it";
  EXPECT_FALSE(z.heard);
  EXPECT_EQ(one(hub.leave(x, true, at(0))), nullptr);
  EXPECT_EQ(one(hub.leave(y, true, at(0))), nullptr);
  EXPECT_EQ(one(queue(z)), nullptr);
  hub.leave(z, true, at(0));
}

TEST_F(OpeningTest, MessageBeforeTheWaitDoesNotCount) {
  sleepSubscribed();
  hub.message("c", "open");
  hub.leave(x, true, at(0));
  hub.leave(y, true, at(0));
  Listener z;
  const WaiterHub::Mark mark = hub.expect("c");
  EXPECT_EQ(sent(), 1U);
  EXPECT_EQ(one(queue(z, mark)), nullptr);
  // Nor one on a channel that was forgotten in between.
  hub.leave(z, false, at(0));
  const WaiterHub::Mark old = hub.expect("c");
  hub.takeChanges();
  hub.subscribed("c");
  hub.expireLingering(at(100'000));
  EXPECT_EQ(hub.channels(), 0U);
  hub.takeChanges();
  EXPECT_EQ(one(queue(z, old)), nullptr);
  EXPECT_EQ(sent(), 1U);
  EXPECT_EQ(one(hub.subscribed("c")), &z);
  EXPECT_EQ(one(queue(z)), nullptr);
  give(hub.message("c", "open"));
  EXPECT_TRUE(z.heard);
  hub.leave(z, false, at(0));
}

TEST_F(OpeningTest, AConfirmationIsForThoseWhoCameBeforeItsRequest) {
  sleepSubscribed();
  Listener early;
  Listener late;
  const WaiterHub::Mark first = hub.expect("c");
  EXPECT_EQ(one(hub.subscribed("c")), &x) << "of a new connection";
  EXPECT_EQ(one(queue(x)), nullptr);
  EXPECT_EQ(sent(), 1U);
  const WaiterHub::Mark second = hub.expect("c");
  EXPECT_EQ(sent(), 0U) << "one at a time";
  EXPECT_EQ(one(hub.subscribed("c")), &x);
  EXPECT_EQ(one(queue(x)), nullptr);
  EXPECT_EQ(sent(), 1U);
  hub.message("c", "open");
  hub.leave(x, true, at(0));
  hub.leave(y, true, at(0));
  const auto turns = queue(early, first);
  give(turns);
  EXPECT_TRUE(early.heard);
  hub.leave(early, true, at(0));
  give(queue(late, second));
  EXPECT_FALSE(late.heard);
  EXPECT_EQ(one(queue(late)), nullptr);
  EXPECT_EQ(one(hub.subscribed("c")), &late);
  EXPECT_EQ(one(queue(late)), nullptr);
  give(hub.message("c", "open"));
  EXPECT_TRUE(late.heard);
  hub.leave(late, true, at(0));
  EXPECT_EQ(sent(), 0U);
}

}  // namespace
}  // namespace rlock::detail
