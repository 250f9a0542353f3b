// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/wakeup_queues.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {
namespace wakeup_queues_test {
namespace {

using std::chrono::milliseconds;
using TimePoint = WakeupQueues::TimePoint;

constexpr milliseconds kPoll{1000};
constexpr milliseconds kLinger{10'000};
constexpr milliseconds kUnknown{-1};
constexpr TimePoint kNever = TimePoint::max();
constexpr std::nullopt_t kNoMark = std::nullopt;
constexpr WaitTerms kReaders{.channel = "c", .rule = WakeRule::broadcast};
constexpr WaitTerms kWriters{.channel = "c", .wakeupQueue = 1, .poll = milliseconds(500)};

TimePoint at(std::int64_t ms) {
  return TimePoint(milliseconds(ms));
}

/// The only one who has a turn, or null.
Waiter* one(const WakeupQueues::Turns& turns) {
  EXPECT_LE(turns.size(), 1U);
  return turns.empty() ? nullptr : turns.front();
}

using List = std::vector<Waiter*>;

/// The waiters that have a turn, in order.
List listed(const WakeupQueues::Turns& turns) {
  return {turns.begin(), turns.end()};
}

class FakeWaiter final : public Waiter {
 public:
  void turn() noexcept override { ++turns; }
  bool shutDown() noexcept override { return true; }
  void waiterAddRef() noexcept override { ++references; }
  void waiterDropRef() noexcept override { --references; }

  int turns = 0;
  int references = 0;
};

class WakeupQueuesTest : public ::testing::Test {
 protected:
  explicit WakeupQueuesTest(bool countsAll = true) : queues(kPoll, kLinger, countsAll) {}

  /// A first try was refused, so the waiter goes to sleep.
  Waiter* sleep(FakeWaiter& waiter, TimePoint now = at(0), milliseconds remaining = kUnknown) {
    return one(queues.queue(waiter, {"c"}, WakeupQueues::Mark{}, true, remaining, now));
  }
  /// A try that was a turn was refused.
  Waiter* sleepAgain(FakeWaiter& waiter, TimePoint now = at(0), milliseconds remaining = kUnknown) {
    return one(queues.queue(waiter, {"c"}, kNoMark, true, remaining, now));
  }
  /// The channel is subscribed and `waiter` sleeps first in its queue.
  void sleepSubscribed(FakeWaiter& waiter) {
    ASSERT_EQ(sleep(waiter), nullptr);
    ASSERT_EQ(one(queues.subscribed("c")), &waiter);
    drop(waiter);
    ASSERT_EQ(sleepAgain(waiter), nullptr);
  }
  /// The reference that comes with every turn.
  static void drop(FakeWaiter& waiter) { waiter.waiterDropRef(); }

  /// A first try in a wake-up queue was refused.
  WakeupQueues::Turns in(const WaitTerms& terms,
                         FakeWaiter& waiter,
                         milliseconds remaining = kUnknown) {
    return queues.queue(waiter, terms, WakeupQueues::Mark{}, true, remaining, at(0));
  }
  /// A try that was a turn was refused.
  Waiter* again(const WaitTerms& terms, FakeWaiter& waiter) {
    return one(queues.queue(waiter, terms, kNoMark, true, kUnknown, at(0)));
  }
  /// Three readers sleep in their order, and the channel is subscribed.
  void readersSleep() {
    one(in(kReaders, a));
    one(in(kReaders, b));
    one(in(kReaders, c));
    ASSERT_EQ(one(queues.subscribed("c")), &a);
    drop(a);
    ASSERT_EQ(again(kReaders, a), nullptr);
  }

  std::vector<std::string> changes() {
    std::vector<std::string> result;
    for (const WakeupQueues::Change& change : queues.takeChanges()) {
      result.push_back((change.subscribe ? "+" : "-") + change.channel);
    }
    return result;
  }

  WakeupQueues queues;
  FakeWaiter a;
  FakeWaiter b;
  FakeWaiter c;
};

using Changes = std::vector<std::string>;

// ---- Going to sleep

// The subscription may be confirmed by the new server while requests still go to the old one.
TEST_F(WakeupQueuesTest, TheFirstOfEachChannelLooksWhenRequestsGoToAnotherServer) {
  sleepSubscribed(a);
  ASSERT_EQ(sleep(b), nullptr);
  ASSERT_EQ(one(queues.queue(c, {"d"}, WakeupQueues::Mark{}, true, kUnknown, at(0))), nullptr);
  const List turns = listed(queues.serverReplaced());
  EXPECT_EQ(turns.size(), 2U);
  EXPECT_EQ(std::count(turns.begin(), turns.end(), &a), 1);
  EXPECT_EQ(std::count(turns.begin(), turns.end(), &c), 1);
  drop(a);
  drop(c);
  EXPECT_EQ(sleepAgain(a), nullptr) << "it has looked at the new one";
}

TEST_F(WakeupQueuesTest, IsIdleAtFirst) {
  EXPECT_TRUE(queues.idle());
  EXPECT_EQ(queues.waiting(), 0U);
  EXPECT_EQ(queues.channels(), 0U);
  EXPECT_FALSE(queues.hasChanges());
  EXPECT_EQ(queues.nextDue(), kNever);
  EXPECT_EQ(one(queues.poll(at(1'000'000))), nullptr);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), nullptr);
  EXPECT_EQ(one(queues.subscribed("c")), nullptr);
  queues.refused("c");
  queues.disconnected();
  EXPECT_FALSE(queues.mark("c").othersWait);
}

TEST_F(WakeupQueuesTest, FirstWaiterSubscribes) {
  EXPECT_EQ(sleep(a), nullptr);
  EXPECT_EQ(a.references, 1);
  EXPECT_FALSE(queues.idle());
  EXPECT_EQ(queues.waiting(), 1U);
  EXPECT_EQ(queues.channels(), 1U);
  EXPECT_TRUE(queues.hasChanges());
  EXPECT_EQ(changes(), (Changes{"+c"}));
  EXPECT_FALSE(queues.hasChanges());
  EXPECT_EQ(sleep(b), nullptr);
  EXPECT_EQ(changes(), (Changes{}));
  EXPECT_TRUE(queues.mark("c").othersWait);
}

TEST_F(WakeupQueuesTest, WaiterThatHasNotTriedGetsItsTurnWhenNobodyIsBeforeIt) {
  EXPECT_EQ(one(queues.queue(a, {"c"}, kNoMark, false, kUnknown, at(0))), &a);
  EXPECT_EQ(a.references, 2);
  EXPECT_EQ(a.turns, 0) << "the caller gives the turn";
}

TEST_F(WakeupQueuesTest, WaiterThatHasNotTriedWaitsBehindOthers) {
  sleepSubscribed(a);
  EXPECT_EQ(one(queues.queue(b, {"c"}, kNoMark, false, kUnknown, at(0))), nullptr);
  EXPECT_EQ(one(queues.leave(a, false, at(1))), nullptr) << "it had no turn to hand on";
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &b);
}

TEST_F(WakeupQueuesTest, ConfirmedSubscriptionGivesTheFirstATurn) {
  sleep(a);
  sleep(b);
  EXPECT_EQ(one(queues.subscribed("c")), &a);
  EXPECT_EQ(a.references, 2);
  EXPECT_EQ(b.references, 1);
}

// ---- News

TEST_F(WakeupQueuesTest, MessageGivesTheFirstATurnAndNobodyElse) {
  sleepSubscribed(a);
  sleep(b);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), nullptr) << "one of them tries at a time";
  EXPECT_EQ(one(queues.subscribed("c")), nullptr);
}

TEST_F(WakeupQueuesTest, MessagesOfOtherChannelsAreNotNews) {
  sleepSubscribed(a);
  one(queues.queue(b, {"d"}, WakeupQueues::Mark{}, true, kUnknown, at(0)));
  EXPECT_EQ(one(queues.message("d", {}, at(0))), &b);
  EXPECT_EQ(one(queues.message("unheard of", {}, at(0))), nullptr);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
}

TEST_F(WakeupQueuesTest, MessageDuringATryMeansAnotherTry) {
  sleepSubscribed(a);
  ASSERT_EQ(one(queues.message("c", {}, at(0))), &a);
  drop(a);
  ASSERT_EQ(one(queues.message("c", {}, at(0))), nullptr);
  EXPECT_EQ(sleepAgain(a), &a);
  drop(a);
  EXPECT_EQ(sleepAgain(a), nullptr) << "once is enough";
}

TEST_F(WakeupQueuesTest, AnyNumberOfMessagesDuringATryMeansOneMoreTry) {
  sleepSubscribed(a);
  one(queues.message("c", {}, at(0)));
  drop(a);
  for (int i = 0; i < 1000; ++i) {
    EXPECT_EQ(one(queues.message("c", {}, at(0))), nullptr);
  }
  EXPECT_EQ(sleepAgain(a), &a);
  drop(a);
  EXPECT_EQ(sleepAgain(a), nullptr);
}

TEST_F(WakeupQueuesTest, MessageDuringTheFirstTryIsFoundByTheMark) {
  sleepSubscribed(a);
  EXPECT_EQ(one(queues.leave(a, true, at(0))), nullptr);
  const WakeupQueues::Mark mark = queues.mark("c");
  EXPECT_FALSE(mark.othersWait);
  ASSERT_EQ(one(queues.message("c", {}, at(0))), nullptr);
  EXPECT_EQ(one(queues.queue(b, {"c"}, mark, true, kUnknown, at(0))), &b);
}

TEST_F(WakeupQueuesTest, NoNewsSinceTheMarkMeansSleep) {
  sleepSubscribed(a);
  one(queues.leave(a, true, at(0)));
  const WakeupQueues::Mark mark = queues.mark("c");
  EXPECT_EQ(one(queues.queue(b, {"c"}, mark, true, kUnknown, at(0))), nullptr);
}

TEST_F(WakeupQueuesTest, MarkFromBeforeTheChannelIsOutdatedByItsSubscription) {
  const WakeupQueues::Mark mark = queues.mark("c");
  sleepSubscribed(a);
  one(queues.leave(a, true, at(0)));
  EXPECT_EQ(one(queues.queue(b, {"c"}, mark, true, kUnknown, at(0))), &b);
}

TEST_F(WakeupQueuesTest, NewsOfTheFirstTryCountWhenTheWaiterBecomesFirst) {
  sleepSubscribed(a);
  const WakeupQueues::Mark mark = queues.mark("c");
  EXPECT_TRUE(mark.othersWait);
  one(queues.message("c", {}, at(0)));
  drop(a);
  EXPECT_EQ(one(queues.queue(b, {"c"}, mark, true, kUnknown, at(0))), nullptr)
      << "not before its turn";
  EXPECT_EQ(one(queues.leave(a, false, at(0))), &b);
}

TEST_F(WakeupQueuesTest, NewsWithoutASubscriptionWaitForItsConfirmation) {
  sleep(a);
  ASSERT_EQ(one(queues.message("c", {}, at(0))), &a);
  drop(a);
  one(queues.message("c", {}, at(0)));
  EXPECT_EQ(sleepAgain(a), nullptr) << "its confirmation will bring a turn";
  EXPECT_EQ(one(queues.subscribed("c")), &a);
}

// ---- Leaving

TEST_F(WakeupQueuesTest, LeavesWithoutEverHavingQueued) {
  EXPECT_EQ(one(queues.leave(a, true, at(0))), nullptr);
  EXPECT_EQ(a.references, 0);
}

TEST_F(WakeupQueuesTest, UnusedTurnIsHandedOn) {
  sleepSubscribed(a);
  sleep(b);
  sleep(c);
  ASSERT_EQ(one(queues.message("c", {}, at(0))), &a);
  drop(a);
  EXPECT_EQ(one(queues.leave(a, false, at(0))), &b);
  EXPECT_EQ(a.references, 0);
  EXPECT_EQ(b.references, 2);
  drop(b);
  EXPECT_EQ(one(queues.leave(b, false, at(0))), &c);
  drop(c);
  EXPECT_EQ(one(queues.leave(c, false, at(0))), nullptr);
  EXPECT_EQ(queues.waiting(), 0U);
}

TEST_F(WakeupQueuesTest, UsedTurnIsNotHandedOn) {
  sleepSubscribed(a);
  sleep(b);
  one(queues.message("c", {}, at(0)));
  drop(a);
  EXPECT_EQ(one(queues.leave(a, true, at(50))), nullptr);
  EXPECT_EQ(queues.nextDue(), at(50) + kPoll) << "but the next one looks again some time";
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &b);
}

TEST_F(WakeupQueuesTest, TheEndOfAShortLeaseIsLookedFor) {
  sleepSubscribed(a);
  sleep(b);
  one(queues.message("c", {}, at(0)));
  drop(a);
  EXPECT_EQ(one(queues.leave(a, true, at(50), kPoll / 2)), nullptr);
  EXPECT_EQ(queues.nextDue(), at(51) + kPoll / 2);
  EXPECT_EQ(one(queues.poll(at(51) + kPoll / 2)), &b);
}

TEST_F(WakeupQueuesTest, NewsDuringASuccessfulTryAreForTheNext) {
  sleepSubscribed(a);
  sleep(b);
  ASSERT_EQ(one(queues.message("c", {}, at(0))), &a);
  drop(a);
  // Granted, lost again by force, taken and freed by others: all before the reply arrives.
  ASSERT_EQ(one(queues.message("c", {}, at(0))), nullptr);
  EXPECT_EQ(one(queues.leave(a, true, at(0))), &b);
}

TEST_F(WakeupQueuesTest, WaiterThatSleepsHasNoTurnToHandOn) {
  sleepSubscribed(a);
  sleep(b);
  EXPECT_EQ(one(queues.leave(a, false, at(0))), nullptr);
  EXPECT_EQ(queues.nextDue(), at(0) + kPoll) << "the poll is for whoever is first";
  EXPECT_EQ(one(queues.poll(at(0) + kPoll)), &b);
}

TEST_F(WakeupQueuesTest, WaiterLeavesFromTheMiddle) {
  sleepSubscribed(a);
  sleep(b);
  sleep(c);
  one(queues.message("c", {}, at(0)));
  drop(a);
  EXPECT_EQ(one(queues.leave(b, false, at(0))), nullptr);
  EXPECT_EQ(b.references, 0);
  EXPECT_EQ(one(queues.leave(a, false, at(0))), &c);
}

TEST_F(WakeupQueuesTest, TurnThatNeverBeganIsHandedOnToo) {
  sleepSubscribed(a);
  sleep(b);
  ASSERT_EQ(one(queues.message("c", {}, at(0))), &a);
  // Its time was up before it could be told.
  EXPECT_EQ(one(queues.leave(a, false, at(0))), &b);
  EXPECT_EQ(a.references, 1) << "the reference of the turn";
}

TEST_F(WakeupQueuesTest, KeepsTheOrderOfArrival) {
  sleepSubscribed(a);
  sleep(b);
  sleep(c);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(one(queues.message("c", {}, at(0))), &a);
    drop(a);
    ASSERT_EQ(sleepAgain(a), nullptr);
  }
  one(queues.leave(a, false, at(0)));
  ASSERT_EQ(one(queues.message("c", {}, at(0))), &b);
  drop(b);
  sleep(a);
  EXPECT_EQ(one(queues.leave(b, false, at(0))), &c);
  drop(c);
  EXPECT_EQ(one(queues.leave(c, false, at(0))), &a) << "who comes back is the last";
}

// ---- Polling

TEST_F(WakeupQueuesTest, LooksAgainAfterTheSafetyPoll) {
  sleepSubscribed(a);
  EXPECT_EQ(queues.nextDue(), at(0) + kPoll);
  EXPECT_EQ(one(queues.poll(at(999))), nullptr);
  EXPECT_EQ(one(queues.poll(at(1000))), &a);
  drop(a);
  EXPECT_EQ(one(queues.poll(at(5000))), nullptr) << "it tries already";
  EXPECT_EQ(sleepAgain(a, at(1005)), nullptr);
  EXPECT_EQ(queues.nextDue(), at(1005) + kPoll);
}

TEST_F(WakeupQueuesTest, LooksAgainWhenTheHoldersLeaseEnds) {
  sleepSubscribed(a);
  one(queues.message("c", {}, at(0)));
  drop(a);
  sleepAgain(a, at(100), milliseconds(300));
  EXPECT_EQ(queues.nextDue(), at(401)) << "the server drops it a millisecond later";
  one(queues.poll(at(401)));
  drop(a);
  sleepAgain(a, at(500), milliseconds(0));
  EXPECT_EQ(queues.nextDue(), at(501));
  one(queues.poll(at(501)));
  drop(a);
  sleepAgain(a, at(600), milliseconds(30'000));
  EXPECT_EQ(queues.nextDue(), at(600) + kPoll) << "the safety poll bounds every sleep";
}

TEST_F(WakeupQueuesTest, PollsBeforeTheSubscriptionIsConfirmed) {
  sleep(a, at(0), milliseconds(50));
  EXPECT_EQ(queues.nextDue(), at(51));
  EXPECT_EQ(one(queues.poll(at(51))), &a);
}

TEST_F(WakeupQueuesTest, PollsEveryChannelThatIsDue) {
  one(queues.queue(a, {"c"}, WakeupQueues::Mark{}, true, milliseconds(10), at(0)));
  one(queues.queue(b, {"d"}, WakeupQueues::Mark{}, true, milliseconds(20), at(0)));
  one(queues.queue(c, {"e"}, WakeupQueues::Mark{}, true, milliseconds(30), at(0)));
  EXPECT_EQ(listed(queues.poll(at(25))), (List{&a, &b}));
  EXPECT_TRUE(queues.poll(at(25)).empty());
  EXPECT_EQ(queues.nextDue(), at(31));
}

TEST_F(WakeupQueuesTest, MessageBeforeThePollTakesItsPlace) {
  sleepSubscribed(a);
  one(queues.message("c", {}, at(0)));
  drop(a);
  EXPECT_EQ(one(queues.poll(at(0) + kPoll)), nullptr);
  EXPECT_EQ(sleepAgain(a, at(1100)), nullptr);
  EXPECT_EQ(queues.nextDue(), at(1100) + kPoll);
}

// ---- Subscriptions

TEST_F(WakeupQueuesTest, ChannelLingersAndIsThenUnsubscribed) {
  sleepSubscribed(a);
  changes();
  one(queues.leave(a, true, at(100)));
  EXPECT_EQ(queues.channels(), 1U);
  EXPECT_EQ(queues.nextDue(), at(100) + kLinger) << "nobody is left to poll";
  queues.expireLingering(at(100) + kLinger - milliseconds(1));
  EXPECT_EQ(queues.channels(), 1U);
  EXPECT_FALSE(queues.hasChanges());

  queues.expireLingering(at(100) + kLinger);
  EXPECT_EQ(queues.channels(), 0U);
  EXPECT_TRUE(queues.idle());
  EXPECT_EQ(changes(), (Changes{"-c"}));
  EXPECT_EQ(queues.nextDue(), kNever);
}

TEST_F(WakeupQueuesTest, AChannelThatNobodyElseCanUseEndsWithItsLastWaiter) {
  const WaitTerms own{.channel = "own", .rule = WakeRule::broadcast, .lingers = false};
  one(in(own, a));
  one(in(own, b));
  EXPECT_EQ(changes(), (Changes{"+own"}));
  one(queues.leave(a, true, at(5)));
  queues.expireLingering(at(5));
  EXPECT_EQ(queues.channels(), 1U);
  one(queues.leave(b, false, at(6)));
  EXPECT_EQ(queues.nextDue(), at(6));
  queues.expireLingering(at(6));
  EXPECT_EQ(queues.channels(), 0U);
  EXPECT_EQ(changes(), (Changes{"-own"}));
}

TEST_F(WakeupQueuesTest, WaiterWithinTheLingerKeepsTheSubscription) {
  sleepSubscribed(a);
  changes();
  one(queues.leave(a, true, at(100)));
  sleep(b, at(5'000));
  queues.expireLingering(at(60'000));
  EXPECT_EQ(queues.channels(), 1U);
  EXPECT_EQ(changes(), (Changes{}));
  one(queues.leave(b, false, at(60'000)));
  queues.expireLingering(at(60'000) + kLinger);
  EXPECT_EQ(changes(), (Changes{"-c"}));
}

TEST_F(WakeupQueuesTest, WaiterAfterTheLingerSubscribesAgain) {
  sleepSubscribed(a);
  one(queues.leave(a, true, at(0)));
  queues.expireLingering(at(0) + kLinger);
  EXPECT_EQ(sleep(b, at(20'000)), nullptr);
  EXPECT_EQ(changes(), (Changes{"+c", "-c", "+c"})) << "in this order";
  EXPECT_EQ(one(queues.subscribed("c")), &b);
}

TEST_F(WakeupQueuesTest, WithoutLingerAChannelGoesAtOnce) {
  WakeupQueues eager(kPoll, milliseconds(0));
  one(eager.queue(a, {"c"}, WakeupQueues::Mark{}, true, kUnknown, at(0)));
  one(eager.leave(a, false, at(5)));
  EXPECT_EQ(eager.nextDue(), at(5));
  eager.expireLingering(at(5));
  EXPECT_EQ(eager.channels(), 0U);
}

TEST_F(WakeupQueuesTest, ManyChannelsLingerEachForItself) {
  for (int i = 0; i < 100; ++i) {
    one(queues.queue(a, {"c" + std::to_string(i)}, WakeupQueues::Mark{}, true, kUnknown, at(i)));
    one(queues.leave(a, false, at(i)));
  }
  EXPECT_EQ(queues.channels(), 100U);
  queues.takeChanges();
  queues.expireLingering(at(49) + kLinger);
  EXPECT_EQ(queues.channels(), 50U);
  EXPECT_EQ(queues.takeChanges().size(), 50U);
  queues.expireLingering(at(99) + kLinger);
  EXPECT_TRUE(queues.idle());
  EXPECT_EQ(a.references, 0);
}

TEST_F(WakeupQueuesTest, NewsOfAForgottenChannelAreNobodys) {
  sleepSubscribed(a);
  one(queues.leave(a, true, at(0)));
  queues.expireLingering(at(0) + kLinger);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), nullptr);
  EXPECT_EQ(one(queues.subscribed("c")), nullptr);
  EXPECT_EQ(queues.channels(), 0U);
}

TEST_F(WakeupQueuesTest, RefusedSubscriptionLeavesPollingUntilItIsConfirmed) {
  sleep(a);
  changes();
  EXPECT_TRUE(queues.refused("c"));
  EXPECT_EQ(one(queues.poll(at(0) + kPoll)), &a);
  drop(a);
  EXPECT_EQ(sleepAgain(a, at(1000)), nullptr);
  EXPECT_EQ(queues.nextDue(), at(2000));
  EXPECT_FALSE(queues.refused("c")) << "known already";
  EXPECT_EQ(one(queues.subscribed("c")), &a);
  drop(a);
  EXPECT_EQ(sleepAgain(a, at(1000)), nullptr);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  drop(a);
  EXPECT_EQ(sleepAgain(a, at(1000)), nullptr);
  EXPECT_TRUE(queues.refused("c")) << "it worked meanwhile";
  one(queues.leave(a, true, at(1500)));
  queues.expireLingering(at(1500) + kLinger);
  EXPECT_EQ(queues.channels(), 0U);
  EXPECT_EQ(changes(), (Changes{"-c"})) << "what is refused is asked for again unless given up";
}

TEST_F(WakeupQueuesTest, EveryReconnectionMakesTheFirstLookAgain) {
  sleepSubscribed(a);
  for (int i = 0; i < 3; ++i) {
    queues.disconnected();
    EXPECT_EQ(one(queues.subscribed("c")), &a);
    drop(a);
    EXPECT_EQ(sleepAgain(a), nullptr);
  }
}

TEST_F(WakeupQueuesTest, ReconnectionDuringATryMeansAnotherTry) {
  sleepSubscribed(a);
  one(queues.message("c", {}, at(0)));
  drop(a);
  queues.disconnected();
  EXPECT_EQ(one(queues.subscribed("c")), nullptr);
  EXPECT_EQ(sleepAgain(a), &a);
}

TEST_F(WakeupQueuesTest, DisconnectionDuringATryLeavesItToTheReconnection) {
  sleepSubscribed(a);
  one(queues.message("c", {}, at(0)));
  drop(a);
  queues.disconnected();
  EXPECT_EQ(sleepAgain(a, at(10)), nullptr);
  EXPECT_EQ(queues.nextDue(), at(10) + kPoll) << "or to the poll";
  EXPECT_EQ(one(queues.subscribed("c")), &a);
}

TEST_F(WakeupQueuesTest, ReconnectionReachesEveryChannel) {
  one(queues.queue(a, {"c"}, WakeupQueues::Mark{}, true, kUnknown, at(0)));
  one(queues.queue(b, {"d"}, WakeupQueues::Mark{}, true, kUnknown, at(0)));
  queues.disconnected();
  EXPECT_EQ(one(queues.subscribed("d")), &b);
  EXPECT_EQ(one(queues.subscribed("c")), &a);
}

// ---- Lanes

TEST_F(WakeupQueuesTest, NewsGiveTheFirstOfEachLaneATurn) {
  one(in(kReaders, a));
  one(in(kReaders, b));
  one(in(kWriters, c));
  EXPECT_EQ(changes(), (Changes{"+c"})) << "one subscription for both";
  EXPECT_EQ(listed(queues.subscribed("c")), (List{&a, &c}));
  drop(a);
  drop(c);
  EXPECT_EQ(again(kReaders, a), nullptr);
  EXPECT_EQ(again(kWriters, c), nullptr);
  EXPECT_EQ(listed(queues.message("c", {}, at(0))), (List{&a, &c}));
}

TEST_F(WakeupQueuesTest, TheMarkSaysWhoWaitsInTheSameLane) {
  one(in(kReaders, a));
  EXPECT_TRUE(queues.mark("c", kReaders.wakeupQueue).othersWait);
  EXPECT_FALSE(queues.mark("c", kWriters.wakeupQueue).othersWait)
      << "a writer does not queue behind readers";
  one(queues.leave(a, false, at(0)));
  one(in(kWriters, b));
  EXPECT_FALSE(queues.mark("c", kReaders.wakeupQueue).othersWait);
  EXPECT_TRUE(queues.mark("c", kWriters.wakeupQueue).othersWait);
}

TEST_F(WakeupQueuesTest, ATurnIsHandedOnWithinItsLane) {
  one(in(kWriters, a));
  one(in(kReaders, b));
  one(in(kWriters, c));
  queues.subscribed("c");
  drop(a);
  drop(b);
  EXPECT_EQ(one(queues.leave(a, false, at(0))), &c);
  drop(c);
  EXPECT_EQ(one(queues.leave(c, false, at(0))), nullptr);
  EXPECT_EQ(again(kReaders, b), nullptr);
}

TEST_F(WakeupQueuesTest, LanesPollEachInTheirTime) {
  one(in(kReaders, a, milliseconds(300)));
  one(in(kWriters, b));
  EXPECT_EQ(queues.nextDue(), at(301));
  EXPECT_EQ(one(queues.poll(at(301))), &a);
  EXPECT_EQ(queues.nextDue(), at(0) + kWriters.poll) << "shorter than the safety poll";
  EXPECT_EQ(one(queues.poll(at(500))), &b);
}

TEST_F(WakeupQueuesTest, AChannelLingersWhenBothLanesAreEmpty) {
  one(in(kReaders, a));
  one(in(kWriters, b));
  one(queues.leave(a, true, at(10)));
  queues.expireLingering(at(10) + kLinger);
  EXPECT_EQ(queues.channels(), 1U);
  one(queues.leave(b, true, at(20)));
  queues.expireLingering(at(20) + kLinger);
  EXPECT_EQ(queues.channels(), 0U);
}

TEST_F(WakeupQueuesTest, NamesTheWaitersOfBothLanes) {
  one(in(kReaders, a));
  one(in(kWriters, b));
  for (FakeWaiter* const waiter : {&a, &b}) {
    EXPECT_EQ(queues.takeOne(at(0)).waiter, waiter);
    drop(*waiter);
  }
  EXPECT_EQ(queues.takeOne(at(0)).waiter, nullptr);
}

// ---- WakeRule::broadcast

TEST_F(WakeupQueuesTest, WhenTheFirstReaderGetsInAllOthersTryAtOnce) {
  readersSleep();
  ASSERT_EQ(one(queues.message("c", {}, at(0))), &a) << "one finds out for all";
  drop(a);
  EXPECT_EQ(listed(queues.leave(a, true, at(0))), (List{&b, &c}));
  drop(b);
  drop(c);
  EXPECT_EQ(one(queues.leave(c, true, at(0))), nullptr) << "b tries already";
  EXPECT_EQ(one(queues.leave(b, true, at(0))), nullptr);
  EXPECT_EQ(queues.waiting(), 0U);
}

TEST_F(WakeupQueuesTest, AReaderThatIsRefusedWakesNobody) {
  readersSleep();
  one(queues.message("c", {}, at(0)));
  drop(a);
  EXPECT_EQ(again(kReaders, a), nullptr);
  EXPECT_EQ(b.references, 1);
  EXPECT_EQ(queues.nextDue(), at(0) + kPoll);
}

TEST_F(WakeupQueuesTest, AReaderThatGivesUpHandsItsTurnToOne) {
  readersSleep();
  one(queues.message("c", {}, at(0)));
  drop(a);
  EXPECT_EQ(one(queues.leave(a, false, at(0))), &b);
  drop(b);
  EXPECT_EQ(one(queues.leave(b, true, at(0))), &c);
}

TEST_F(WakeupQueuesTest, AReaderThatComesWhileOthersTryIsLetInWithThem) {
  readersSleep();
  one(queues.message("c", {}, at(0)));
  drop(a);
  FakeWaiter late;
  EXPECT_EQ(one(queues.queue(late, kReaders, kNoMark, false, kUnknown, at(0))), nullptr);
  EXPECT_EQ(listed(queues.leave(a, true, at(0))), (List{&b, &c, &late}));
  for (FakeWaiter* waiter : {&b, &c, &late}) {
    drop(*waiter);
    one(queues.leave(*waiter, true, at(0)));
  }
}

TEST_F(WakeupQueuesTest, AReaderThatIsRefusedInTheMiddleKeepsItsPlace) {
  readersSleep();
  one(queues.message("c", {}, at(0)));
  drop(a);
  queues.leave(a, true, at(0));
  drop(b);
  drop(c);
  // A writer came in between: both are refused, and sleep in their order.
  EXPECT_EQ(again(kReaders, c), nullptr);
  EXPECT_EQ(again(kReaders, b), nullptr);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &b);
}

TEST_F(WakeupQueuesTest, ReadersThatGetInDoNotWakeWriters) {
  one(in(kReaders, a));
  one(in(kReaders, b));
  one(in(kWriters, c));
  queues.subscribed("c");
  drop(a);
  drop(c);
  EXPECT_EQ(again(kWriters, c), nullptr);
  EXPECT_EQ(listed(queues.leave(a, true, at(0))), (List{&b}));
}

TEST_F(WakeupQueuesTest, AReaderThatTriedWhileTheOthersWereLetInTriesAgain) {
  readersSleep();
  one(queues.message("c", {}, at(0)));
  // Its first try began before the others were let in, and was refused before that.
  const WakeupQueues::Mark mark = queues.mark("c");
  EXPECT_EQ(listed(queues.leave(a, true, at(0))), (List{&b, &c}));
  FakeWaiter late;
  EXPECT_EQ(one(queues.queue(late, kReaders, mark, true, kUnknown, at(0))), &late);
  EXPECT_EQ(again(kReaders, late), nullptr) << "once is enough";
  one(queues.leave(b, true, at(0)));
  one(queues.leave(c, true, at(0)));
  EXPECT_EQ(queues.nextDue(), at(0) + kPoll) << "the first looks again in its time";
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &late);
  one(queues.leave(late, true, at(0)));
}

TEST_F(WakeupQueuesTest, AReaderThatTriedWhileTheOthersWereLetInTriesAgainThoughItIsFirst) {
  readersSleep();
  one(queues.message("c", {}, at(0)));
  const WakeupQueues::Mark mark = queues.mark("c");
  queues.leave(a, true, at(0));
  one(queues.leave(b, true, at(0)));
  FakeWaiter late;
  FakeWaiter later;
  one(in(kReaders, later));
  one(queues.leave(c, true, at(0)));
  one(queues.leave(later, true, at(0)));
  EXPECT_EQ(one(queues.queue(late, kReaders, mark, true, kUnknown, at(0))), &late);
  EXPECT_EQ(again(kReaders, late), nullptr) << "once is enough";
  one(queues.leave(late, true, at(0)));
}

TEST_F(WakeupQueuesTest, ReadersOfOneWaveDoNotWakeThoseWhoWereRefusedInIt) {
  readersSleep();
  one(queues.message("c", {}, at(0)));
  queues.leave(a, true, at(0));
  EXPECT_EQ(again(kReaders, c), nullptr) << "a writer came in between";
  EXPECT_EQ(one(queues.leave(b, true, at(0))), nullptr) << "it got in before that writer";
  EXPECT_EQ(queues.nextDue(), at(0) + kPoll);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &c);
}

TEST_F(WakeupQueuesTest, NewsThatTheFirstReaderCouldNotUseAreForTheNext) {
  readersSleep();
  one(queues.message("c", {}, at(0)));
  queues.leave(a, true, at(0));
  ASSERT_EQ(one(queues.message("c", {}, at(0))), nullptr) << "b is first and tries";
  EXPECT_EQ(again(kReaders, c), nullptr) << "not first";
  EXPECT_EQ(one(queues.leave(b, true, at(0))), &c);
}

TEST_F(WakeupQueuesTest, TheEndOfAHoldIsLookedForByWhoeverIsFirst) {
  readersSleep();
  one(queues.message("c", {}, at(0)));
  queues.leave(a, true, at(0));
  EXPECT_EQ(one(queues.queue(c, kReaders, kNoMark, true, milliseconds(70), at(0))), nullptr);
  EXPECT_EQ(one(queues.leave(b, true, at(10))), nullptr);
  EXPECT_EQ(queues.nextDue(), at(71));
  EXPECT_EQ(one(queues.poll(at(71))), &c);
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
std::size_t letIn(WakeupQueues& queues, WakeupQueues::Turns turns) {
  std::size_t given = 0;
  while (Waiter* const waiter = turns.popFront()) {
    waiter->waiterDropRef();
    ++given;
    WakeupQueues::Turns more = queues.leave(*waiter, true, at(0));
    turns.append(more);
  }
  return given;
}

TEST_F(WakeupQueuesTest, WakingACrowdOfReadersIsLinear) {
  expectLinear([](std::size_t count) {
    WakeupQueues crowd(kPoll, kLinger);
    std::vector<FakeWaiter> readers(count);
    for (FakeWaiter& reader : readers) {
      static_cast<void>(crowd.queue(reader, kReaders, WakeupQueues::Mark{}, true, kUnknown, at(0)));
    }
    EXPECT_EQ(letIn(crowd, crowd.message("c", {}, at(0))), count);
    EXPECT_EQ(crowd.waiting(), 0U);
  });
}

TEST_F(WakeupQueuesTest, OpeningForACrowdIsLinearHoweverOftenItIsSaid) {
  expectLinear([](std::size_t count) {
    WakeupQueues crowd(kPoll, kLinger);
    std::vector<FakeWaiter> waiters(count);
    const WaitTerms terms{.channel = "c", .rule = WakeRule::broadcast, .opensOn = "open"};
    for (FakeWaiter& waiter : waiters) {
      static_cast<void>(crowd.queue(waiter, terms, WakeupQueues::Mark{}, true, kUnknown, at(0)));
    }
    static_cast<void>(crowd.takeChanges());
    WakeupQueues::Turns turns = crowd.subscribed("c");
    for (std::size_t i = 0; i < count; ++i) {
      WakeupQueues::Turns more = crowd.message("c", "open", at(0));
      turns.append(more);
    }
    EXPECT_EQ(letIn(crowd, turns), count);
    EXPECT_EQ(crowd.waiting(), 0U);
  });
}

// ---- Waiting alone

class WakeupQueuesAloneTest : public WakeupQueuesTest {
 protected:
  /// A try was refused; the waiter looks again by itself after `pause`.
  void sleepAlone(FakeWaiter& waiter,
                  milliseconds pause,
                  TimePoint now = at(0),
                  milliseconds remaining = kUnknown) {
    const WaitTerms terms{.channel = "c", .rule = WakeRule::polling, .poll = pause};
    EXPECT_TRUE(queues.queue(waiter, terms, WakeupQueues::Mark{}, true, remaining, now).empty());
  }
};

TEST_F(WakeupQueuesAloneTest, LooksAgainWhenItsOwnTimeComes) {
  sleepAlone(a, milliseconds(10));
  sleepAlone(b, milliseconds(3));
  EXPECT_EQ(queues.waiting(), 2U);
  EXPECT_FALSE(queues.idle());
  EXPECT_EQ(queues.nextDue(), at(3));
  EXPECT_TRUE(queues.poll(at(2)).empty());
  EXPECT_EQ(one(queues.poll(at(3))), &b);
  EXPECT_EQ(b.references, 2);
  EXPECT_EQ(queues.nextDue(), at(10)) << "who tries has no alarm";
  drop(b);
  sleepAlone(b, milliseconds(6), at(4));
  EXPECT_EQ(b.references, 1) << "it was in the queue already";
  EXPECT_EQ(queues.waiting(), 2U);
  EXPECT_EQ(listed(queues.poll(at(10))), (List{&a, &b}));
  EXPECT_EQ(queues.nextDue(), kNever);
}

TEST_F(WakeupQueuesAloneTest, NeedsNoChannelAndHearsNoNews) {
  sleepAlone(a, milliseconds(10));
  EXPECT_EQ(queues.channels(), 0U);
  EXPECT_EQ(changes(), (Changes{}));
  EXPECT_FALSE(queues.mark("c").othersWait);
  // Others wait for the same lock by its channel.
  sleepSubscribed(b);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &b);
  drop(b);
  EXPECT_EQ(a.references, 1);
  EXPECT_EQ(one(queues.leave(b, true, at(1))), nullptr);
  EXPECT_EQ(one(queues.poll(at(10))), &a);
}

TEST_F(WakeupQueuesAloneTest, SleepsNoLongerThanTheHolderHasIt) {
  sleepAlone(a, milliseconds(500), at(0), milliseconds(20));
  EXPECT_EQ(queues.nextDue(), at(21));
  sleepAlone(a, milliseconds(500), at(21), milliseconds(0));
  EXPECT_EQ(queues.nextDue(), at(22));
  sleepAlone(a, milliseconds(500), at(22));
  EXPECT_EQ(queues.nextDue(), at(522)) << "a hold without end";
  sleepAlone(a, milliseconds(3000), at(522));
  EXPECT_EQ(queues.nextDue(), at(3522)) << "the safety poll is for those who rely on messages";
  sleepAlone(a, milliseconds(0), at(600));
  EXPECT_EQ(queues.nextDue(), at(1600)) << "no pause of its own";
}

TEST_F(WakeupQueuesAloneTest, LeavesNothingBehind) {
  sleepAlone(a, milliseconds(10));
  EXPECT_TRUE(queues.leave(a, false, at(1)).empty());
  EXPECT_EQ(a.references, 0);
  EXPECT_TRUE(queues.idle());
  EXPECT_EQ(queues.waiting(), 0U);
  EXPECT_EQ(queues.nextDue(), kNever);
  EXPECT_TRUE(queues.poll(at(10)).empty());
  EXPECT_TRUE(queues.leave(a, false, at(11)).empty()) << "twice";
  // In the middle of its turn, which nobody else gets.
  sleepAlone(a, milliseconds(10), at(20));
  sleepAlone(b, milliseconds(50), at(20));
  EXPECT_EQ(one(queues.poll(at(30))), &a);
  EXPECT_TRUE(queues.leave(a, true, at(30)).empty());
  drop(a);
  EXPECT_EQ(a.references, 0);
  EXPECT_EQ(queues.nextDue(), at(70));
  // It may wait for something else next, in the ordinary way.
  EXPECT_EQ(sleep(a, at(31)), nullptr);
  EXPECT_EQ(queues.channels(), 1U);
  EXPECT_EQ(one(queues.leave(a, false, at(32))), nullptr);
  EXPECT_EQ(a.references, 0);
}

TEST_F(WakeupQueuesAloneTest, IsToldOfTheEnd) {
  sleepAlone(a, milliseconds(10));
  sleep(b);
  EXPECT_EQ(queues.takeOne(at(0)).waiter, &a);
  EXPECT_EQ(queues.takeOne(at(0)).waiter, &b);
  EXPECT_EQ(queues.takeOne(at(0)).waiter, nullptr);
  EXPECT_EQ(a.references, 1);
  EXPECT_EQ(b.references, 1);
}

// ---- Closing

TEST_F(WakeupQueuesTest, NamesEverybodyWhoWaits) {
  sleep(a);
  sleep(b);
  one(queues.queue(c, {"d"}, WakeupQueues::Mark{}, true, kUnknown, at(0)));
  EXPECT_EQ(queues.waiting(), 3U);
  while (Waiter* const waiter = queues.takeOne(at(0)).waiter) {
    waiter->waiterDropRef();
    EXPECT_EQ(one(queues.leave(*waiter, false, at(0))), nullptr) << "it has left";
  }
  EXPECT_EQ(queues.waiting(), 0U);
  EXPECT_TRUE(queues.idle());
  for (const FakeWaiter* waiter : {&a, &b, &c}) {
    EXPECT_EQ(waiter->references, 0);
    EXPECT_EQ(waiter->turns, 0);
  }
}

TEST_F(WakeupQueuesTest, OneWaiterMayWaitAgainAndAgain) {
  for (int i = 0; i < 10; ++i) {
    sleep(a, at(i));
    EXPECT_EQ(a.references, 1);
    one(queues.leave(a, i % 2 == 0, at(i)));
    EXPECT_EQ(a.references, 0);
  }
  EXPECT_EQ(queues.channels(), 1U);
  EXPECT_EQ(changes(), (Changes{"+c"}));
}

// ---- Waiters that need different amounts

class FittingTest : public WakeupQueuesTest {
 protected:
  static WaitTerms terms(int need) {
    WaitTerms result;
    result.channel = "c";
    result.rule = WakeRule::bestFit;
    result.need = need;
    return result;
  }
  /// Queues behind the others without a try.
  WakeupQueues::Turns arrive(FakeWaiter& waiter, int need, TimePoint now = at(0)) {
    return queues.queue(waiter, terms(need), kNoMark, false, kUnknown, now);
  }
  /// A try that was a turn was refused.
  WakeupQueues::Turns refused(FakeWaiter& waiter, int need, TimePoint now = at(0)) {
    return queues.queue(waiter, terms(need), kNoMark, true, kUnknown, now);
  }
  /// `a` needs 5, `b` 3, `c` 1; all were refused and sleep, subscribed.
  void allAsleep() {
    EXPECT_EQ(one(arrive(a, 5)), &a);
    EXPECT_EQ(one(queues.subscribed("c")), nullptr);
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
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(refused(b, 3)), &c);
  EXPECT_EQ(one(refused(c, 1)), nullptr);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a) << "and again with the next news";
}

TEST_F(FittingTest, WhoeverNeedsAsMuchAsWasRefusedSleepsOn) {
  allAsleep();
  FakeWaiter another;
  EXPECT_EQ(one(arrive(another, 1)), nullptr);
  FakeWaiter larger;
  EXPECT_EQ(one(arrive(larger, 4)), nullptr);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(refused(b, 3)), &c);
  EXPECT_EQ(one(refused(c, 1)), nullptr);
  queues.leave(another, false, at(0));
  queues.leave(larger, false, at(0));
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
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(queues.leave(b, true, at(0))), &c);
  EXPECT_EQ(one(queues.leave(c, true, at(0))), &last);
  EXPECT_EQ(one(refused(last, 2)), nullptr);
  EXPECT_EQ(queues.waiting(), 2U);
  queues.leave(last, false, at(0));
}

TEST_F(FittingTest, FirstThatIsServedHandsOn) {
  allAsleep();
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  EXPECT_EQ(one(queues.leave(a, true, at(0))), &b);
  EXPECT_EQ(one(queues.leave(b, true, at(0))), &c);
  EXPECT_EQ(one(queues.leave(c, true, at(0))), nullptr);
}

TEST_F(FittingTest, PassedOnTurnThatIsNotUsedGoesOn) {
  allAsleep();
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(queues.leave(b, false, at(0))), &c) << "its time was up";
}

TEST_F(FittingTest, NewsDuringATryBehindTheFirstMeansAnotherTry) {
  allAsleep();
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(refused(b, 3)), &c);
  // While c tries, something becomes free: a is asked again, c cannot be, it is trying.
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(refused(b, 3)), nullptr);
  EXPECT_EQ(one(refused(c, 1)), &c) << "its try was before the news";
}

TEST_F(FittingTest, NewsDuringAFirstTryAreFoundByTheMark) {
  allAsleep();
  const WakeupQueues::Mark mark = queues.mark("c");
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  EXPECT_EQ(one(refused(a, 5)), &b);
  EXPECT_EQ(one(refused(b, 3)), &c);
  EXPECT_EQ(one(refused(c, 1)), nullptr);
  FakeWaiter late;
  EXPECT_EQ(one(queues.queue(late, terms(1), mark, true, kUnknown, at(0))), &late);
  EXPECT_EQ(one(refused(late, 1)), nullptr);
  queues.leave(late, false, at(0));
}

TEST_F(FittingTest, AfterASpanOfPassingTheFirstHasOneForItself) {
  allAsleep();
  // b and c passed from 0 on.
  EXPECT_EQ(one(queues.poll(at(1000))), &a);
  EXPECT_EQ(one(refused(a, 5, at(1000))), nullptr) << "what becomes free is to add up";
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  EXPECT_EQ(one(refused(a, 5, at(1500))), nullptr);
  FakeWaiter newcomer;
  EXPECT_EQ(one(arrive(newcomer, 1, at(1600))), nullptr);
  EXPECT_EQ(one(queues.poll(at(2500))), &a);
  EXPECT_EQ(one(refused(a, 5, at(2500))), &b) << "and the others have the next";
  queues.leave(newcomer, false, at(2500));
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
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  EXPECT_EQ(one(refused(a, 5, at(1200))), nullptr) << "its own span";
  EXPECT_EQ(one(queues.leave(a, false, at(1300))), &b) << "without a turn of its own";
  EXPECT_EQ(one(refused(b, 3, at(1300))), &c);
  EXPECT_EQ(one(queues.leave(c, true, at(1300))), nullptr);
}

TEST_F(FittingTest, ACrowdThatNeedsTheSameIsLinear) {
  expectLinear([](std::size_t count) {
    WakeupQueues crowd(kPoll, kLinger);
    std::vector<FakeWaiter> waiters(count);
    for (FakeWaiter& waiter : waiters) {
      WakeupQueues::Turns turns =
          crowd.queue(waiter, terms(1), WakeupQueues::Mark{}, false, kUnknown, at(0));
      while (Waiter* const next = turns.popFront()) {
        next->waiterDropRef();
        WakeupQueues::Turns more = crowd.queue(*next, terms(1), kNoMark, true, kUnknown, at(0));
        turns.append(more);
      }
    }
    // One is served with each message, and the next is refused.
    for (std::size_t i = 0; i < count; ++i) {
      WakeupQueues::Turns turns = crowd.message("c", {}, at(0));
      ASSERT_EQ(turns.size(), 1U);
      Waiter* const first = turns.popFront();
      first->waiterDropRef();
      WakeupQueues::Turns handedOn = crowd.leave(*first, true, at(0));
      while (Waiter* const next = handedOn.popFront()) {
        next->waiterDropRef();
        WakeupQueues::Turns more = crowd.queue(*next, terms(1), kNoMark, true, kUnknown, at(0));
        handedOn.append(more);
      }
    }
    EXPECT_EQ(crowd.waiting(), 0U);
  });
}

// ---- A message that opens

class OpeningTest : public WakeupQueuesTest {
 protected:
  class Listener final : public Waiter {
   public:
    void turn() noexcept override { heard = happened(); }
    bool shutDown() noexcept override { return true; }
    void waiterAddRef() noexcept override {}
    void waiterDropRef() noexcept override {}
    bool heard = false;
  };

  WakeupQueues::Turns queue(Waiter& waiter, std::optional<WakeupQueues::Mark> mark = kNoMark) {
    WaitTerms terms;
    terms.channel = "c";
    terms.rule = WakeRule::broadcast;
    terms.opensOn = "open";
    return queues.queue(waiter, terms, mark, true, kUnknown, at(0));
  }
  static void give(const WakeupQueues::Turns& turns) {
    for (Waiter* waiter : turns) {
      waiter->turn();
    }
  }
  /// How many confirmations go out now.
  std::size_t sent() {
    std::size_t count = 0;
    for (const WakeupQueues::Change& change : queues.takeChanges()) {
      EXPECT_TRUE(change.subscribe);
      ++count;
    }
    return count;
  }
  /// x and y sleep, and messages are meant for both.
  void sleepSubscribed() {
    EXPECT_EQ(one(queue(x, WakeupQueues::Mark{})), nullptr);
    EXPECT_EQ(one(queue(y, queues.mark("c"))), nullptr);
    EXPECT_EQ(sent(), 1U) << "one for both";
    EXPECT_EQ(one(queues.subscribed("c")), &x);
    EXPECT_EQ(one(queue(x)), nullptr);
  }

  Listener x;
  Listener y;
};

TEST_F(OpeningTest, PB01_EverybodyHearsTheMessage) {
  sleepSubscribed();
  const auto turns = queues.message("c", "open", at(0));
  EXPECT_EQ(listed(turns), (List{&x, &y}));
  give(turns);
  EXPECT_TRUE(x.heard);
  EXPECT_TRUE(y.heard);
  EXPECT_EQ(one(queues.leave(x, true, at(0))), nullptr) << "all have their turn already";
  EXPECT_EQ(one(queues.leave(y, true, at(0))), nullptr);
}

TEST_F(OpeningTest, ALaneWhoseWaitersWereToldIsNotPolledOnceItsChannelIsForgotten) {
  sleepSubscribed();
  ASSERT_NE(queues.nextDue(), kNever) << "x was to look again";
  const auto turns = queues.message("c", "open", at(0));
  give(turns);
  ASSERT_EQ(one(queues.leave(x, true, at(0))), nullptr);
  ASSERT_EQ(one(queues.leave(y, true, at(0))), nullptr);
  queues.expireLingering(at(0) + kLinger);
  EXPECT_EQ(queues.channels(), 0U);
  EXPECT_EQ(queues.nextDue(), kNever);
}

TEST_F(OpeningTest, OtherMessagesAreNews) {
  sleepSubscribed();
  const auto turns = queues.message("c", "closed", at(0));
  EXPECT_EQ(one(turns), &x);
  give(turns);
  EXPECT_FALSE(x.heard);
  EXPECT_EQ(one(queue(x)), nullptr);
}

TEST_F(OpeningTest, MessageDuringATryIsHeardAfterIt) {
  sleepSubscribed();
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &x);
  EXPECT_EQ(one(queues.message("c", "open", at(0))), &y);
  const auto turns = queue(x);
  EXPECT_EQ(one(turns), &x);
  give(turns);
  EXPECT_TRUE(x.heard);
}

TEST_F(OpeningTest, MessageDuringTheFirstTryIsHeardOnceConfirmed) {
  sleepSubscribed();
  Listener z;
  const WakeupQueues::Mark mark = queues.expect("c");
  EXPECT_EQ(sent(), 1U);
  EXPECT_EQ(one(queues.subscribed("c")), &x);
  queues.message("c", "open", at(0));
  queues.leave(x, true, at(0));
  queues.leave(y, true, at(0));
  const auto turns = queue(z, mark);
  EXPECT_EQ(one(turns), &z);
  give(turns);
  EXPECT_TRUE(z.heard);
  queues.leave(z, true, at(0));
}

TEST_F(OpeningTest, MessageBeforeTheConfirmationIsNews) {
  sleepSubscribed();
  Listener z;
  const WakeupQueues::Mark mark = queues.expect("c");
  EXPECT_EQ(sent(), 1U);
  queues.message("c", "open", at(0));
  queues.leave(x, true, at(0));
  queues.leave(y, true, at(0));
  const auto turns = queue(z, mark);
  EXPECT_EQ(one(turns), &z) << "it may look whether that was for it";
  give(turns);
  EXPECT_FALSE(z.heard);
  EXPECT_EQ(one(queue(z)), nullptr);
  EXPECT_EQ(one(queues.subscribed("c")), &z);
  EXPECT_EQ(one(queue(z)), nullptr);
  give(queues.message("c", "open", at(0)));
  EXPECT_TRUE(z.heard);
  queues.leave(z, true, at(0));
}

TEST_F(OpeningTest, MessageWhileItSleepsUnconfirmedIsForOthers) {
  sleepSubscribed();
  Listener z;
  EXPECT_EQ(one(queue(z, queues.mark("c"))), nullptr);
  EXPECT_EQ(sent(), 1U);
  EXPECT_EQ(listed(queues.message("c", "open", at(0))), (List{&x, &y, &z}))
      << "the last may look whether that was for it";
  EXPECT_FALSE(z.heard);
  EXPECT_EQ(one(queues.leave(x, true, at(0))), nullptr);
  EXPECT_EQ(one(queues.leave(y, true, at(0))), nullptr);
  EXPECT_EQ(one(queue(z)), nullptr);
  queues.leave(z, true, at(0));
}

TEST_F(OpeningTest, MessageBeforeTheWaitDoesNotCount) {
  sleepSubscribed();
  queues.message("c", "open", at(0));
  queues.leave(x, true, at(0));
  queues.leave(y, true, at(0));
  Listener z;
  const WakeupQueues::Mark mark = queues.expect("c");
  EXPECT_EQ(sent(), 1U);
  EXPECT_EQ(one(queue(z, mark)), nullptr);
  // Nor one on a channel that was forgotten in between.
  queues.leave(z, false, at(0));
  const WakeupQueues::Mark old = queues.expect("c");
  queues.takeChanges();
  queues.subscribed("c");
  queues.expireLingering(at(100'000));
  EXPECT_EQ(queues.channels(), 0U);
  queues.takeChanges();
  EXPECT_EQ(one(queue(z, old)), nullptr);
  EXPECT_EQ(sent(), 1U);
  EXPECT_EQ(one(queues.subscribed("c")), &z);
  EXPECT_EQ(one(queue(z)), nullptr);
  give(queues.message("c", "open", at(0)));
  EXPECT_TRUE(z.heard);
  queues.leave(z, false, at(0));
}

TEST_F(OpeningTest, AConfirmationIsForThoseWhoCameBeforeItsRequest) {
  sleepSubscribed();
  Listener early;
  Listener late;
  const WakeupQueues::Mark first = queues.expect("c");
  EXPECT_EQ(one(queues.subscribed("c")), &x) << "of a new connection";
  EXPECT_EQ(one(queue(x)), nullptr);
  EXPECT_EQ(sent(), 1U);
  const WakeupQueues::Mark second = queues.expect("c");
  EXPECT_EQ(sent(), 0U) << "one at a time";
  EXPECT_EQ(one(queues.subscribed("c")), &x);
  EXPECT_EQ(one(queue(x)), nullptr);
  EXPECT_EQ(sent(), 1U);
  queues.message("c", "open", at(0));
  queues.leave(x, true, at(0));
  queues.leave(y, true, at(0));
  const auto turns = queue(early, first);
  give(turns);
  EXPECT_TRUE(early.heard);
  queues.leave(early, true, at(0));
  give(queue(late, second));
  EXPECT_FALSE(late.heard);
  EXPECT_EQ(one(queue(late)), nullptr);
  EXPECT_EQ(one(queues.subscribed("c")), &late);
  EXPECT_EQ(one(queue(late)), nullptr);
  give(queues.message("c", "open", at(0)));
  EXPECT_TRUE(late.heard);
  queues.leave(late, true, at(0));
  EXPECT_EQ(sent(), 0U);
}

// ---- The lock from the hands of its holder

constexpr HandOverLimits kHandOvers{2, milliseconds(50)};

WaitTerms takingOver(std::string_view lock) {
  WaitTerms terms{"c"};
  terms.takesOver = lock;
  return terms;
}

TEST_F(WakeupQueuesTest, TheFirstTakesTheLockFromItsHoldersHands) {
  EXPECT_EQ(one(in(takingOver("lock"), a)), nullptr);
  EXPECT_EQ(one(in(takingOver("lock"), b)), nullptr);
  EXPECT_EQ(queues.takeSuccessor("c", 0, "lock", kHandOvers, at(0)).waiter, &a);
  // It has a turn: whatever comes is not for another one.
  EXPECT_EQ(one(queues.message("c", {}, at(0))), nullptr);
  EXPECT_EQ(queues.takeSuccessor("c", 0, "lock", kHandOvers, at(0)).waiter, nullptr);
  EXPECT_EQ(one(queues.leave(a, true, at(0))), nullptr);
  drop(a);
  EXPECT_EQ(a.references, 0);
  EXPECT_EQ(queues.takeSuccessor("c", 0, "lock", kHandOvers, at(0)).waiter, &b);
  // Without the lock it hands its turn on.
  EXPECT_EQ(one(in(takingOver("lock"), c)), nullptr);
  EXPECT_EQ(one(queues.leave(b, false, at(0))), &c);
  drop(b);
}

TEST_F(WakeupQueuesTest, NobodyTakesOverWhoWaitsForAnotherLockOrTries) {
  EXPECT_EQ(queues.takeSuccessor("c", 0, "lock", kHandOvers, at(0)).waiter, nullptr);
  EXPECT_EQ(sleep(a), nullptr);
  EXPECT_EQ(one(in(takingOver("lock"), b)), nullptr);
  EXPECT_EQ(queues.takeSuccessor("c", 0, "lock", kHandOvers, at(0)).waiter, nullptr);
  EXPECT_EQ(one(queues.leave(a, false, at(0))), nullptr);
  EXPECT_EQ(queues.takeSuccessor("c", 0, "other", kHandOvers, at(0)).waiter, nullptr);
  EXPECT_EQ(one(queues.subscribed("c")), &b);
  // It is trying, and may have been refused before the lock is free.
  EXPECT_EQ(queues.takeSuccessor("c", 0, "lock", kHandOvers, at(0)).waiter, nullptr);
  drop(b);
}

TEST_F(WakeupQueuesTest, AfterSomeHandOversTheLockIsForEverybody) {
  std::array<FakeWaiter, 5> crowd;
  for (FakeWaiter& waiter : crowd) {
    one(in(takingOver("lock"), waiter));
  }
  for (int i = 0; i < 2; ++i) {
    FakeWaiter& next = crowd[static_cast<std::size_t>(i)];
    ASSERT_EQ(queues.takeSuccessor("c", 0, "lock", kHandOvers, at(0)).waiter, &next);
    one(queues.leave(next, true, at(0)));
    drop(next);
  }
  EXPECT_EQ(queues.takeSuccessor("c", 0, "lock", kHandOvers, at(0)).waiter, nullptr);
  ASSERT_EQ(queues.takeSuccessor("c", 0, "lock", kHandOvers, at(0)).waiter, &crowd[2]);
  one(queues.leave(crowd[2], true, at(0)));
  drop(crowd[2]);
  EXPECT_EQ(queues.takeSuccessor("c", 0, "lock", kHandOvers, at(50)).waiter, nullptr);
}

// ---- Other clients go first when the lock has been handed over often enough

class PrecedenceTest : public WakeupQueuesTest {
 protected:
  explicit PrecedenceTest(bool countsAll = true) : WakeupQueuesTest(countsAll) {}
  /// The channel is subscribed, and of the crowd two have had the lock, so that the next release is
  /// for everybody; the others sleep.
  void SetUp() override {
    for (FakeWaiter& waiter : crowd) {
      one(in(takingOver("lock"), waiter));
    }
    ASSERT_EQ(one(queues.subscribed("c")), crowd.data());
    drop(crowd[0]);
    ASSERT_EQ(again(takingOver("lock"), crowd[0]), nullptr);
    chain(0);
  }
  /// Hands the lock to the n-th and the next.
  void chain(std::size_t n, TimePoint now = at(0)) {
    for (std::size_t i = n; i < n + 2; ++i) {
      ASSERT_EQ(queues.takeSuccessor("c", 0, "lock", kHandOvers, now).waiter, &crowd[i]);
      one(queues.leave(crowd[i], true, now));
      drop(crowd[i]);
    }
  }
  std::uint64_t release(TimePoint now = at(0)) {
    const Succession succession = queues.takeSuccessor("c", 0, "lock", kHandOvers, now);
    EXPECT_EQ(succession.waiter, nullptr);
    return succession.pause;
  }
  Waiter* answer(std::uint64_t pause,
                 std::optional<std::int64_t> receivers,
                 TimePoint now = at(0)) {
    return one(queues.releasedForAll("c", 0, pause, receivers, now));
  }
  /// A pause at the end of which the lock is still free.
  void unusedPause(std::size_t next, TimePoint now) {
    const std::uint64_t pause = release(now);
    ASSERT_NE(pause, 0U);
    ASSERT_EQ(answer(pause, 2, now), nullptr);
    ASSERT_EQ(one(queues.poll(now + Precedence::kPause)), &crowd[next]);
    one(queues.leave(crowd[next], true, now + Precedence::kPause));
    drop(crowd[next]);
  }

  std::array<FakeWaiter, 12> crowd;
};

/// As where a pause would never end.
TEST_F(PrecedenceTest, AClientMayBeOneThatDoesNotStandBack) {
  HandOverLimits limits = kHandOvers;
  limits.standsBack = false;
  const Succession succession = queues.takeSuccessor("c", 0, "lock", limits, at(0));
  EXPECT_EQ(succession.waiter, nullptr);
  EXPECT_EQ(succession.pause, 0U);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &crowd[2]);
  drop(crowd[2]);
}

/// The message is this client's own, whether it comes before the answer or after it.
TEST_F(PrecedenceTest, WhereNobodyElseHearsTheFirstOneTriesAtTheMessage) {
  ASSERT_EQ(answer(release(), 1), nullptr);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &crowd[2]);
  drop(crowd[2]);
  one(queues.leave(crowd[2], true, at(0)));
  chain(3);
  const std::uint64_t pause = release();
  ASSERT_NE(pause, 0U);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), nullptr);
  EXPECT_EQ(answer(pause, 1), &crowd[5]);
  drop(crowd[5]);
}

TEST_F(PrecedenceTest, WhereOthersHearTheFirstOneTriesAfterAPause) {
  ASSERT_EQ(answer(release(), 2, at(1)), nullptr);
  EXPECT_EQ(one(queues.message("c", {}, at(3))), nullptr);
  EXPECT_EQ(one(queues.poll(at(5))), nullptr);
  EXPECT_EQ(one(queues.poll(at(6))), &crowd[2]);
  drop(crowd[2]);
}

/// A server of a cluster does not know who hears it at another one.
class UncountedPrecedenceTest : public PrecedenceTest {
 protected:
  UncountedPrecedenceTest() : PrecedenceTest(false) {}
};

TEST_F(UncountedPrecedenceTest, OthersMayHearWhereOnlyThisOneIsCounted) {
  for (const std::int64_t receivers : {1, 0}) {
    const std::uint64_t pause = release();
    ASSERT_NE(pause, 0U);
    EXPECT_EQ(answer(pause, receivers, at(1)), nullptr);
    EXPECT_EQ(one(queues.message("c", {}, at(2))), nullptr);
    FakeWaiter& next = crowd[receivers == 1 ? 2 : 5];
    EXPECT_EQ(one(queues.message("c", {}, at(3))), &next) << "another one has had it";
    drop(next);
    one(queues.leave(next, true, at(3)));
    chain(receivers == 1 ? 3 : 6);
  }
}

TEST_F(UncountedPrecedenceTest, AReleaseThatFailedWasHeardByNobody) {
  const std::uint64_t pause = release();
  Waiter* const next = answer(pause, std::nullopt);
  EXPECT_EQ(next, &crowd[2]);
  drop(crowd[2]);
}

/// The answer may be lost, or late.
TEST_F(PrecedenceTest, ThePauseBeginsWithTheMessage) {
  const std::uint64_t pause = release();
  EXPECT_EQ(one(queues.message("c", {}, at(1))), nullptr);
  EXPECT_EQ(answer(pause, 2, at(4)), nullptr);
  EXPECT_EQ(one(queues.poll(at(5))), nullptr);
  EXPECT_EQ(one(queues.poll(at(6))), &crowd[2]);
  drop(crowd[2]);
  EXPECT_EQ(answer(pause, 2, at(7)), nullptr);
}

/// Another client has had the lock and has released it.
TEST_F(PrecedenceTest, TheSecondMessageEndsThePause) {
  for (const bool answered : {true, false}) {
    const std::uint64_t pause = release();
    ASSERT_NE(pause, 0U) << "the last one was used";
    if (answered) {
      EXPECT_EQ(answer(pause, 2), nullptr);
    }
    EXPECT_EQ(one(queues.message("c", {}, at(0))), nullptr);
    FakeWaiter& next = crowd[answered ? 2 : 5];
    EXPECT_EQ(one(queues.message("c", {}, at(0))), &next);
    drop(next);
    EXPECT_EQ(answer(pause, 2), nullptr) << "it is over";
    one(queues.leave(next, true, at(0)));
    chain(answered ? 3 : 6);
  }
}

TEST_F(PrecedenceTest, AConfirmationOrAnotherServerEndsThePause) {
  static_cast<void>(answer(release(), 2));
  EXPECT_EQ(one(queues.subscribed("c")), &crowd[2]);
  drop(crowd[2]);
  one(queues.leave(crowd[2], true, at(0)));
  chain(3);
  static_cast<void>(answer(release(), 2));
  EXPECT_EQ(one(queues.serverReplaced()), &crowd[5]);
  drop(crowd[5]);
}

/// A release that fails, or whose reply is lost.
TEST_F(PrecedenceTest, WithoutAnAnswerTheFirstOneTriesAtOnce) {
  EXPECT_EQ(answer(release(), std::nullopt), &crowd[2]);
  drop(crowd[2]);
}

TEST_F(PrecedenceTest, OthersMayHearWhileThisClientDoesNot) {
  queues.disconnected();
  EXPECT_EQ(answer(release(), 1), nullptr);
  EXPECT_EQ(one(queues.poll(at(5))), &crowd[2]);
  drop(crowd[2]);
}

TEST_F(PrecedenceTest, TheNextOneIsFirstIfTheFirstLeavesInThePause) {
  static_cast<void>(answer(release(), 2));
  EXPECT_EQ(one(queues.leave(crowd[2], false, at(1))), nullptr);
  EXPECT_EQ(one(queues.poll(at(5))), &crowd[3]);
  drop(crowd[3]);
}

TEST_F(PrecedenceTest, WhoComesAfterEverybodyHasLeftDoesNotStandBack) {
  static_cast<void>(answer(release(), 2));
  for (std::size_t i = 2; i < crowd.size(); ++i) {
    one(queues.leave(crowd[i], false, at(1)));
  }
  ASSERT_EQ(one(in(takingOver("lock"), a)), &a) << "a message came since its last try";
  drop(a);
  ASSERT_EQ(again(takingOver("lock"), a), nullptr);
  EXPECT_EQ(one(queues.message("c", {}, at(0))), &a);
  drop(a);
}

/// An answer that comes after the next pause has begun.
TEST_F(PrecedenceTest, ALateAnswerIsNotThatOfTheNextPause) {
  const std::uint64_t first = release();
  ASSERT_EQ(one(queues.message("c", {}, at(0))), nullptr);
  EXPECT_EQ(answer(first, 1), &crowd[2]);
  drop(crowd[2]);
  one(queues.leave(crowd[2], true, at(0)));
  chain(3);
  const std::uint64_t second = release();
  ASSERT_NE(second, 0U);
  ASSERT_EQ(one(queues.message("c", {}, at(0))), nullptr);
  EXPECT_EQ(answer(first, 1), nullptr);
  EXPECT_EQ(answer(second, 1), &crowd[5]);
  drop(crowd[5]);
}

/// Clients that do not wait any more hear it, too.
TEST_F(PrecedenceTest, NoPausesForAWhileAfterOneThatNobodyUsed) {
  unusedPause(2, at(0));
  chain(3, at(5));
  EXPECT_EQ(release(at(14)), 0U);
  chain(5, at(15));
  unusedPause(7, at(15));
  // Twice as long.
  chain(8, at(20));
  EXPECT_EQ(release(at(39)), 0U);
  chain(10, at(39));
}

TEST_F(PrecedenceTest, APauseThatWasUsedIsFollowedByMore) {
  unusedPause(2, at(0));
  chain(3, at(15));
  ASSERT_EQ(answer(release(at(15)), 2, at(15)), nullptr);
  ASSERT_EQ(one(queues.poll(at(20))), &crowd[5]);
  drop(crowd[5]);
  // Somebody has it.
  ASSERT_EQ(one(queues.queue(crowd[5], takingOver("lock"), kNoMark, true, kUnknown, at(20))),
            nullptr);
  chain(5, at(20));
  EXPECT_NE(release(at(20)), 0U);
}

TEST_F(PrecedenceTest, NoPauseWhereNothingIsHandedOver) {
  EXPECT_EQ(queues.takeSuccessor("c", 0, "lock", {0, milliseconds(50)}, at(0)).pause, 0U);
  EXPECT_EQ(queues.takeSuccessor("c", 0, "lock", {2, milliseconds(0)}, at(0)).pause, 0U);
}

}  // namespace
}  // namespace wakeup_queues_test
}  // namespace rlock::detail
