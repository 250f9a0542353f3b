// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/waiter_hub.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
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

TimePoint at(std::int64_t ms) {
  return TimePoint(milliseconds(ms));
}

/// The only one who has a turn, or null.
Waiter* one(const WaiterHub::Turns& turns) {
  EXPECT_LE(turns.size(), 1U);
  return turns.empty() ? nullptr : turns.front();
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
  EXPECT_EQ(hub.poll(at(25)), (WaiterHub::Turns{&a, &b}));
  EXPECT_EQ(hub.poll(at(25)), WaiterHub::Turns());
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

TEST_F(WaiterHubTest, RefusedSubscriptionLeavesPolling) {
  sleep(a);
  changes();
  hub.refused("c");
  EXPECT_EQ(one(hub.poll(at(0) + kPoll)), &a);
  drop(a);
  EXPECT_EQ(sleepAgain(a, at(1000)), nullptr);
  EXPECT_EQ(hub.nextDue(), at(2000));
  one(hub.leave(a, true, at(1500)));
  hub.expireLingering(at(1500) + kLinger);
  EXPECT_EQ(hub.channels(), 0U);
  EXPECT_EQ(changes(), (Changes{})) << "what was refused need not be given up";
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

}  // namespace
}  // namespace rlock::detail
