// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/engine/watchdog.hpp>
#include <rlock/detail/executor/idempotency_key_pool.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {
namespace watchdog_test {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using TimePoint = Watchdog::TimePoint;

// With a timeout of 30 s: renewed every 10 s, valid for 29 969 ms, its loss told 100 ms before.
constexpr milliseconds kTimeout{30'000};
constexpr milliseconds kPeriod{10'000};
constexpr milliseconds kValid{29'969};
constexpr milliseconds kTold{29'869};
constexpr milliseconds kGone{30'100};
constexpr TimePoint kNever = TimePoint::max();

TimePoint at(std::int64_t ms) {
  return TimePoint(milliseconds(ms));
}
TimePoint at(milliseconds ms) {
  return TimePoint(ms);
}

HoldPtr makeHold(int count = 1) {
  static const auto name = std::make_shared<const std::string>("orders");
  auto hold = makeIntrusive<Hold>(name, HoldKind::lock, *name, OwnerId{1});
  hold->count = count;
  hold->handle = makeIntrusive<HoldHandle>();
  return hold;
}

/// A hold that the watchdog renews, granted by a request sent at `sentAt`.
HoldPtr watched(Watchdog& watchdog, TimePoint sentAt = at(0), TimePoint maxHoldUntil = kNever) {
  HoldPtr hold = makeHold();
  watchdog.granted(*hold, sentAt, kTimeout, true, maxHoldUntil);
  return hold;
}

HoldPtr leased(Watchdog& watchdog, milliseconds lease, TimePoint sentAt = at(0)) {
  HoldPtr hold = makeHold();
  watchdog.granted(*hold, sentAt, lease, false, kNever);
  return hold;
}

void expectNothing(const Watchdog::Work& work) {
  EXPECT_TRUE(work.renew.empty());
  EXPECT_TRUE(work.verify.empty());
  EXPECT_TRUE(work.lost.empty());
  EXPECT_TRUE(work.gone.empty());
}

void expectRenewal(const Watchdog::Work& work, const HoldPtr& hold) {
  ASSERT_EQ(work.renew.size(), 1U);
  EXPECT_EQ(work.renew.front(), hold);
  EXPECT_TRUE(work.lost.empty());
  EXPECT_TRUE(work.gone.empty());
  EXPECT_TRUE(hold->renewing);
}

void expectLoss(const Watchdog::Work& work, const HoldPtr& hold, LossReason reason) {
  EXPECT_TRUE(work.renew.empty());
  ASSERT_EQ(work.lost.size(), 1U);
  EXPECT_EQ(work.lost.front().hold, hold);
  EXPECT_EQ(work.lost.front().reason, reason);
  EXPECT_TRUE(hold->lost);
}

// ---- Figures

TEST(Watchdog, CountsAMillisecondAndAThousandthOfEachLeaseAsOver) {
  EXPECT_EQ(Validity::allowance(kTimeout), milliseconds(31));
  EXPECT_EQ(Validity::allowance(milliseconds(1)), microseconds(1001));
  EXPECT_EQ(Validity::allowance(milliseconds(100)), microseconds(1100));
}

TEST(Watchdog, TellsLossesATwentiethOfTheLeaseAheadWithinLimits) {
  EXPECT_EQ(Validity::notice(milliseconds(1)), milliseconds(1));
  EXPECT_EQ(Validity::notice(milliseconds(20)), milliseconds(1));
  EXPECT_EQ(Validity::notice(milliseconds(100)), milliseconds(5));
  EXPECT_EQ(Validity::notice(milliseconds(2000)), milliseconds(100));
  EXPECT_EQ(Validity::notice(kTimeout), milliseconds(100));
}

TEST(Watchdog, HasNothingToDoAtFirst) {
  Watchdog watchdog(kTimeout);
  EXPECT_EQ(watchdog.timeout(), kTimeout);
  EXPECT_EQ(watchdog.nextDue(), kNever);
  EXPECT_EQ(watchdog.size(), 0U);
  expectNothing(watchdog.collect(at(1'000'000)));
}

// ---- Renewal

TEST(Watchdog, RenewsAtAThirdOfTheLeaseCountedFromTheRequest) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog, at(500));
  EXPECT_EQ(hold->validUntil, at(500) + kValid);
  EXPECT_EQ(hold->handle->validUntil(), at(500) + kValid);
  EXPECT_EQ(watchdog.nextDue(), at(500) + kPeriod);
  expectNothing(watchdog.collect(at(500) + kPeriod - milliseconds(1)));

  expectRenewal(watchdog.collect(at(500) + kPeriod), hold);
  EXPECT_EQ(watchdog.nextDue(), at(500) + kTold) << "one renewal at a time";
  expectNothing(watchdog.collect(at(12'000)));

  watchdog.renewed(*hold, at(500) + kPeriod);
  EXPECT_FALSE(hold->renewing);
  EXPECT_EQ(hold->validUntil, at(500) + kPeriod + kValid);
  EXPECT_EQ(hold->handle->validUntil(), at(500) + kPeriod + kValid);
  EXPECT_EQ(watchdog.nextDue(), at(500) + 2 * kPeriod);
}

// Holds that have a lease each, as those of a reader: a later one leaves the earlier ones as they
// are.
TEST(Watchdog, ALaterHoldDoesNotPutOffTheRenewalOfAnEarlierOne) {
  Watchdog watchdog{kTimeout};
  HoldPtr hold = makeHold();
  hold->parts.emplace_back();
  watchdog.granted(*hold, at(0), kTimeout, true, kNever);
  hold->parts.emplace_back();
  hold->count = 2;
  watchdog.granted(*hold, at(8000), kTimeout, true, kNever);
  EXPECT_EQ(watchdog.nextDue(), at(kPeriod));
  // Once the earlier ones are over, its own time counts.
  std::vector<HoldPart> left;
  left.push_back(std::move(hold->parts.back()));
  hold->parts.keepOnly(std::move(left));
  hold->count = 1;
  watchdog.granted(*hold, at(9000), kTimeout, true, kNever);
  EXPECT_EQ(watchdog.nextDue(), at(9000) + kPeriod);
}

TEST(Watchdog, SlowReplyDoesNotDelayTheNextRenewal) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  expectRenewal(watchdog.collect(at(kPeriod)), hold);
  // The reply comes 12 s later.
  watchdog.renewed(*hold, at(kPeriod));
  EXPECT_EQ(watchdog.nextDue(), at(2 * kPeriod));
  expectRenewal(watchdog.collect(at(22'000)), hold);
}

TEST(Watchdog, GivesRenewalsInTheOrderOfTheirDeadlines) {
  Watchdog watchdog(kTimeout);
  const HoldPtr third = watched(watchdog, at(30));
  const HoldPtr first = watched(watchdog, at(10));
  const HoldPtr second = watched(watchdog, at(20));
  const HoldPtr notYet = watched(watchdog, at(40));
  const auto work = watchdog.collect(at(30) + kPeriod);
  EXPECT_EQ(work.renew, (std::vector<HoldPtr>{first, second, third}));
  EXPECT_EQ(watchdog.nextDue(), at(40) + kPeriod);
}

TEST(Watchdog, DoesNotRenewAnExplicitLease) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(10'000));
  EXPECT_EQ(hold->validUntil, at(10'000 - 11));
  EXPECT_EQ(watchdog.nextDue(), at(10'000 - 11 - 100));
  expectNothing(watchdog.collect(at(9'888)));
  expectLoss(watchdog.collect(at(9'889)), hold, LossReason::expired);
}

// ---- A renewal that fails

TEST(Watchdog, RetriesAFailedRenewalSoonAndThenLessOften) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  auto now = at(kPeriod);
  for (const int pause : {100, 200, 400, 800, 1250, 1250, 1250, 1250}) {
    expectRenewal(watchdog.collect(now), hold);
    watchdog.renewalFailed(*hold, now);
    EXPECT_FALSE(hold->renewing);
    EXPECT_EQ(watchdog.nextDue(), now + milliseconds(pause));
    now += milliseconds(pause);
  }
  EXPECT_EQ(hold->validUntil, at(kValid)) << "a failure neither ends nor extends the validity";
}

TEST(Watchdog, StartsOverWithShortPausesAfterASuccess) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  watchdog.collect(at(10'000));
  watchdog.renewalFailed(*hold, at(10'000));
  watchdog.collect(at(10'100));
  watchdog.renewalFailed(*hold, at(10'100));
  watchdog.collect(at(10'300));
  watchdog.renewed(*hold, at(10'300));
  EXPECT_EQ(hold->renewalFailures, 0);
  watchdog.collect(at(20'300));
  watchdog.renewalFailed(*hold, at(20'300));
  EXPECT_EQ(watchdog.nextDue(), at(20'400));
}

TEST(Watchdog, RetriesUntilTheLocalDeadlineAndThenTellsTheLoss) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  int renewals = 0;
  TimePoint toldAt{};
  while (toldAt == TimePoint{}) {
    const TimePoint now = watchdog.nextDue();
    ASSERT_LE(now, at(kTold));
    const auto work = watchdog.collect(now);
    if (!work.lost.empty()) {
      expectLoss(work, hold, LossReason::unreachable);
      toldAt = now;
      break;
    }
    expectRenewal(work, hold);
    ++renewals;
    watchdog.renewalFailed(*hold, now);
  }
  EXPECT_EQ(toldAt, at(kTold));
  EXPECT_LT(toldAt, at(0) + kTimeout - Validity::allowance(kTimeout));
  EXPECT_GT(renewals, 10);
}

TEST(Watchdog, TellsTheLossWhileARenewalIsUnderWay) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  expectRenewal(watchdog.collect(at(29'000)), hold);
  EXPECT_EQ(watchdog.nextDue(), at(kTold));
  expectLoss(watchdog.collect(at(kTold)), hold, LossReason::unreachable);
  // The reply comes too late then, whatever it says.
  watchdog.renewed(*hold, at(29'000));
  EXPECT_TRUE(hold->lost);
  EXPECT_EQ(hold->validUntil, at(kValid));
  EXPECT_EQ(watchdog.nextDue(), at(kGone));
  watchdog.renewalFailed(*hold, at(29'900));
  EXPECT_EQ(watchdog.nextDue(), at(kGone));
}

// ---- Loss

TEST(Watchdog, TellsEveryLossBeforeTheServerCanDropTheHold) {
  for (const int lease : {5, 10, 20, 50, 100, 1'000, 60'000}) {
    Watchdog watchdog(kTimeout);
    const HoldPtr hold = leased(watchdog, milliseconds(lease), at(0));
    const TimePoint told = watchdog.nextDue();
    EXPECT_LT(told, hold->validUntil) << lease;
    // The server's clock may be faster by a thousandth.
    EXPECT_LE(hold->validUntil, at(0) + nanoseconds(milliseconds(lease)) * 1000 / 1001) << lease;
    expectLoss(watchdog.collect(told), hold, LossReason::expired);
  }
}

TEST(Watchdog, ShortestLeasesAreLostFromTheBeginning) {
  for (const int lease : {1, 2}) {
    Watchdog watchdog(kTimeout);
    const HoldPtr hold = leased(watchdog, milliseconds(lease), at(1000));
    EXPECT_LE(watchdog.nextDue(), at(1000)) << lease;
    expectLoss(watchdog.collect(at(1000)), hold, LossReason::expired);
  }
}

TEST(Watchdog, GrantThatComesTooLateIsLostAtOnce) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog, at(0));
  // The reply was under way for a minute.
  const auto work = watchdog.collect(at(60'000));
  expectLoss(work, hold, LossReason::unreachable);
  ASSERT_EQ(work.gone.size(), 1U);
  EXPECT_EQ(work.gone.front(), hold);
  EXPECT_EQ(watchdog.nextDue(), kNever);
}

TEST(Watchdog, TellsALossOnceAndLetsGoOfTheHoldLater) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  expectLoss(watchdog.collect(at(kTold)), hold, LossReason::unreachable);
  EXPECT_EQ(watchdog.size(), 1U);
  EXPECT_EQ(watchdog.nextDue(), at(kGone));
  expectNothing(watchdog.collect(at(kGone) - milliseconds(1)));

  const auto work = watchdog.collect(at(kGone));
  EXPECT_TRUE(work.renew.empty());
  EXPECT_TRUE(work.lost.empty());
  ASSERT_EQ(work.gone.size(), 1U);
  EXPECT_EQ(work.gone.front(), hold);
  EXPECT_EQ(watchdog.size(), 0U);
  EXPECT_EQ(watchdog.nextDue(), kNever);
}

TEST(Watchdog, LossesComeBeforeRenewalsThatAreDueTogether) {
  Watchdog watchdog(kTimeout);
  const HoldPtr lost = watched(watchdog, at(0));
  const HoldPtr kept = watched(watchdog, at(10'000));
  const auto work = watchdog.collect(at(kTold));
  ASSERT_EQ(work.lost.size(), 1U);
  EXPECT_EQ(work.lost.front().hold, lost);
  EXPECT_EQ(work.renew, (std::vector<HoldPtr>{kept}));
}

// ---- maxHold

TEST(Watchdog, MaxHoldBoundsTheValidityOfAWatchedHold) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog, at(0), at(15'000));
  EXPECT_EQ(hold->handle->validUntil(), at(15'000));
  expectRenewal(watchdog.collect(at(kPeriod)), hold);
  watchdog.renewed(*hold, at(kPeriod));
  EXPECT_EQ(hold->handle->validUntil(), at(15'000)) << "renewed or not";
  EXPECT_EQ(watchdog.nextDue(), at(15'000)) << "no renewal is due before";
  expectLoss(watchdog.collect(at(15'000)), hold, LossReason::maxHold);
}

TEST(Watchdog, SmallerOfMaxHoldAndLeaseCounts) {
  {
    Watchdog watchdog(kTimeout);
    const HoldPtr hold = makeHold();
    watchdog.granted(*hold, at(0), milliseconds(5'000), false, at(2'000));
    expectLoss(watchdog.collect(at(2'000)), hold, LossReason::maxHold);
  }
  {
    Watchdog watchdog(kTimeout);
    const HoldPtr hold = makeHold();
    watchdog.granted(*hold, at(0), milliseconds(2'000), false, at(5'000));
    expectLoss(watchdog.collect(at(1'897)), hold, LossReason::expired);
  }
}

TEST(Watchdog, SmallestMaxHoldOfNestedHoldsCounts) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog, at(0), at(20'000));
  hold->count = 2;
  watchdog.granted(*hold, at(100), kTimeout, true, at(8'000));
  hold->count = 3;
  watchdog.granted(*hold, at(200), kTimeout, true, kNever);
  EXPECT_EQ(hold->handle->validUntil(), at(8'000));
  expectLoss(watchdog.collect(at(8'000)), hold, LossReason::maxHold);
}

// ---- Nested holds

TEST(Watchdog, ExplicitLeaseInsideAWatchedHoldLeavesItWatched) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog, at(0));
  hold->count = 2;
  watchdog.granted(*hold, at(1'000), milliseconds(5'000), false, kNever);
  EXPECT_TRUE(hold->watched);
  EXPECT_EQ(hold->validUntil, at(kValid)) << "never shorter";
  EXPECT_EQ(watchdog.nextDue(), at(kPeriod)) << "the renewals keep their rhythm";
}

TEST(Watchdog, LongLeaseInsideAWatchedHoldExtendsIt) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog, at(0));
  hold->count = 2;
  watchdog.granted(*hold, at(1'000), milliseconds(60'000), false, kNever);
  EXPECT_EQ(hold->validUntil, at(1'000 + 60'000 - 61));
  EXPECT_EQ(hold->lease, milliseconds(60'000));
  expectRenewal(watchdog.collect(at(kPeriod)), hold);
  watchdog.renewed(*hold, at(kPeriod));
  EXPECT_EQ(hold->validUntil, at(1'000 + 60'000 - 61)) << "a renewal never shortens";
}

TEST(Watchdog, WatchedHoldInsideAnExplicitLeaseIsRenewed) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(15'000), at(0));
  hold->count = 2;
  watchdog.granted(*hold, at(1'000), kTimeout, true, kNever);
  EXPECT_TRUE(hold->watched);
  EXPECT_EQ(hold->validUntil, at(1'000) + kValid);
  EXPECT_EQ(watchdog.nextDue(), at(1'000) + kPeriod);
  expectRenewal(watchdog.collect(at(1'000) + kPeriod), hold);
}

TEST(Watchdog, WatchedHoldInsideALongExplicitLeaseDoesNotShortenIt) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(60'000), at(0));
  hold->count = 2;
  watchdog.granted(*hold, at(1'000), kTimeout, true, kNever);
  EXPECT_EQ(hold->validUntil, at(60'000 - 61));
  EXPECT_EQ(watchdog.nextDue(), at(1'000) + kPeriod);
}

TEST(Watchdog, GrantDuringARenewalWaitsForItsReply) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog, at(0));
  expectRenewal(watchdog.collect(at(kPeriod)), hold);
  hold->count = 2;
  watchdog.granted(*hold, at(10'001), kTimeout, true, kNever);
  EXPECT_TRUE(hold->renewing);
  EXPECT_EQ(watchdog.nextDue(), at(10'001) + kTold);
  watchdog.renewed(*hold, at(kPeriod));
  EXPECT_EQ(hold->validUntil, at(10'001) + kValid);
  EXPECT_EQ(watchdog.nextDue(), at(2 * kPeriod));
}

// ---- The end of a hold

TEST(Watchdog, RetiredHoldIsNeitherRenewedNorLost) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  watchdog.retire(*hold);
  EXPECT_EQ(watchdog.size(), 0U);
  EXPECT_EQ(watchdog.nextDue(), kNever);
  expectNothing(watchdog.collect(at(100'000)));
  watchdog.retire(*hold);
}

TEST(Watchdog, ReplyToARenewalAfterTheReleaseChangesNothing) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  watchdog.collect(at(kPeriod));
  watchdog.retire(*hold);
  EXPECT_FALSE(hold->renewing);
  watchdog.renewed(*hold, at(kPeriod));
  EXPECT_EQ(hold->validUntil, at(kValid));
  watchdog.renewalFailed(*hold, at(11'000));
  EXPECT_EQ(watchdog.size(), 0U);
  EXPECT_EQ(watchdog.nextDue(), kNever);
}

TEST(Watchdog, ResumesAHoldWhoseReleaseWasNotExecuted) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  watchdog.retire(*hold);
  watchdog.resume(*hold);
  EXPECT_EQ(watchdog.nextDue(), at(kPeriod));
  expectRenewal(watchdog.collect(at(kPeriod)), hold);
}

TEST(Watchdog, ResumesLateWithARenewalAtOnce) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  watchdog.retire(*hold);
  watchdog.resume(*hold);
  expectRenewal(watchdog.collect(at(15'000)), hold);
}

TEST(Watchdog, ResumesTooLateWithTheLoss) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  watchdog.retire(*hold);
  watchdog.resume(*hold);
  expectLoss(watchdog.collect(at(29'900)), hold, LossReason::unreachable);
}

TEST(Watchdog, HoldThatNobodyWantsRunsOut) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  watchdog.retire(*hold);
  hold->watched = false;
  watchdog.resume(*hold);
  EXPECT_EQ(watchdog.nextDue(), at(kTold));
  expectLoss(watchdog.collect(at(kTold)), hold, LossReason::expired);
}

TEST(Watchdog, DoesNotResumeWhatIsNotHeld) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  watchdog.retire(*hold);
  hold->count = 0;
  watchdog.resume(*hold);
  EXPECT_EQ(watchdog.size(), 0U);
}

TEST(Watchdog, ReleaseOfOneOfSeveralHoldsKeepsTheRhythm) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  hold->count = 2;
  watchdog.granted(*hold, at(4'000), kTimeout, true, kNever);
  hold->count = 1;
  watchdog.resume(*hold);
  EXPECT_EQ(watchdog.nextDue(), at(4'000) + kPeriod);
}

// ---- The same object again

TEST(Watchdog, NewHoldOnAUsedObjectOwesNothingToTheOldOne) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog, at(0), at(50'000));
  watchdog.collect(at(kPeriod));
  watchdog.renewalFailed(*hold, at(kPeriod));
  watchdog.retire(*hold);
  hold->count = 1;
  watchdog.granted(*hold, at(12'000), milliseconds(1'000), false, kNever);
  EXPECT_FALSE(hold->watched);
  EXPECT_EQ(hold->renewalFailures, 0);
  EXPECT_EQ(hold->maxHoldUntil, kNever);
  EXPECT_EQ(hold->validUntil, at(12'000 + 1'000 - 2));
  EXPECT_EQ(watchdog.nextDue(), at(12'000 + 1'000 - 2 - 50));
}

TEST(Watchdog, GrantAfterALossBeginsAnew) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog, at(0), at(5'000));
  expectLoss(watchdog.collect(at(5'000)), hold, LossReason::maxHold);
  // The server had not dropped it yet and counts two; the first one stays lost.
  hold->count = 2;
  hold->handle = makeIntrusive<HoldHandle>();
  watchdog.granted(*hold, at(6'000), milliseconds(2'000), false, kNever);
  EXPECT_FALSE(hold->lost);
  EXPECT_FALSE(hold->watched);
  EXPECT_EQ(hold->validUntil, at(6'000 + 2'000 - 3));
  EXPECT_EQ(hold->handle->validUntil(), at(6'000 + 2'000 - 3));
  EXPECT_EQ(watchdog.nextDue(), at(6'000 + 2'000 - 3 - 100));
}

// ---- After a reconnection

TEST(Watchdog, EveryWatchedHoldIsDueAfterAReconnection) {
  Watchdog watchdog(kTimeout);
  const HoldPtr renewed = watched(watchdog);
  const HoldPtr kept = leased(watchdog, kTimeout);
  watchdog.renewAll(at(5), false);
  expectRenewal(watchdog.collect(at(5)), renewed);
  EXPECT_FALSE(kept->renewing);
}

TEST(Watchdog, ALostHoldIsNotRenewedAfterAReconnection) {
  Watchdog watchdog(kTimeout);
  const HoldPtr lost = watched(watchdog);
  std::vector<HoldLoss> losses;
  lose(*lost, LossReason::unreachable, losses);
  watchdog.linger(*lost);
  const TimePoint due = watchdog.nextDue();
  watchdog.renewAll(at(5), true);
  EXPECT_EQ(watchdog.nextDue(), due) << "it is kept until the server must have dropped it";
  expectNothing(watchdog.collect(at(5)));
}

TEST(Watchdog, IsNotRenewedForAMaxHoldThatEndsBefore) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog, at(0), at(9'000));
  EXPECT_EQ(watchdog.nextDue(), at(9'000));
  watchdog.renewed(*hold, at(100), at(101));
  EXPECT_EQ(watchdog.nextDue(), at(9'000));
  expectLoss(watchdog.collect(at(9'000)), hold, LossReason::maxHold);
}

// ---- Another lease

TEST(Watchdog, AnotherLeaseCountsFromWhenItIsAskedFor) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(10'000));
  watchdog.changeLease(*hold, at(1000), milliseconds(100), false);
  EXPECT_EQ(hold->validUntil, at(1100) - Validity::allowance(milliseconds(100)));
  watchdog.changeLease(*hold, at(1000), milliseconds(50'000), false);
  EXPECT_EQ(hold->validUntil, at(1100) - Validity::allowance(milliseconds(100)))
      << "longer only when that is confirmed";
}

TEST(Watchdog, AConfirmedLeaseIsTheHolds) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(1000));
  watchdog.changeLease(*hold, at(100), milliseconds(50'000), false);
  watchdog.leaseChanged(*hold, at(100), milliseconds(50'000));
  EXPECT_EQ(hold->validUntil, at(50'100) - Validity::allowance(milliseconds(50'000)));
}

// Nobody knows in which order the server had them.
TEST(Watchdog, OfTwoLeasesAtATimeTheShorterCounts) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(1000));
  watchdog.changeLease(*hold, at(100), milliseconds(500), false);
  watchdog.changeLease(*hold, at(100), milliseconds(50'000), false);
  const TimePoint until = hold->validUntil;
  watchdog.leaseChanged(*hold, at(100), milliseconds(500));
  watchdog.leaseChanged(*hold, at(100), milliseconds(50'000));
  EXPECT_EQ(hold->validUntil, until);
  // Once both are over the next counts again.
  watchdog.changeLease(*hold, at(200), milliseconds(2000), false);
  watchdog.leaseChanged(*hold, at(200), milliseconds(2000));
  EXPECT_EQ(hold->validUntil, at(2200) - Validity::allowance(milliseconds(2000)));
}

IdempotencyKeyPool::Loan someKey() {
  return std::make_shared<IdempotencyKeyPool::Key>();
}

TEST(Watchdog, ALeaseThatIsNotGivenLeavesTheShorterOneAndTheNextCounts) {
  for (const bool mayBe : {false, true}) {
    SCOPED_TRACE(mayBe);
    Watchdog watchdog(kTimeout);
    const HoldPtr hold = leased(watchdog, milliseconds(10'000));
    watchdog.changeLease(*hold, at(100), milliseconds(500), false);
    Watchdog::leaseNotChanged(*hold, mayBe ? someKey() : nullptr);
    EXPECT_EQ(hold->validUntil, at(600) - Validity::allowance(milliseconds(500)));
    watchdog.changeLease(*hold, at(200), milliseconds(50'000), false);
    watchdog.leaseChanged(*hold, at(200), milliseconds(50'000));
    EXPECT_EQ(hold->validUntil, at(50'200) - Validity::allowance(milliseconds(50'000)));
    EXPECT_EQ(hold->handle->validUntil(), hold->validUntil);
    EXPECT_EQ(watchdog.nextDue(), Validity::lossAt(*hold));
  }
}

// It may still take effect, but not after another one with its key.
TEST(Watchdog, TheKeyOfALostLeaseIsTheNextOnes) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(10'000));
  EXPECT_EQ(watchdog.changeLease(*hold, at(0), milliseconds(500), false), nullptr);
  const IdempotencyKeyPool::Loan key = someKey();
  Watchdog::leaseNotChanged(*hold, key);
  EXPECT_EQ(watchdog.changeLease(*hold, at(1), milliseconds(5000), false), key);
  EXPECT_EQ(watchdog.changeLease(*hold, at(2), milliseconds(5000), false), nullptr)
      << "one at a time has it";
}

// The next one rules out one of them, and the other may take effect at any time.
TEST(Watchdog, OfTwoLeasesThatAreLostAtATimeTheShorterCountsForGood) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(10'000));
  watchdog.changeLease(*hold, at(100), milliseconds(500), false);
  watchdog.changeLease(*hold, at(100), milliseconds(50'000), false);
  const TimePoint until = hold->validUntil;
  Watchdog::leaseNotChanged(*hold, someKey());
  Watchdog::leaseNotChanged(*hold, someKey());
  watchdog.changeLease(*hold, at(200), milliseconds(50'000), false);
  watchdog.leaseChanged(*hold, at(200), milliseconds(50'000));
  EXPECT_EQ(hold->validUntil, until);
}

TEST(Watchdog, AShorterLeaseIsShownAndDueBeforeItIsConfirmed) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(10'000));
  watchdog.changeLease(*hold, at(1000), milliseconds(100), false);
  EXPECT_EQ(hold->handle->validUntil(), at(1100) - Validity::allowance(milliseconds(100)));
  EXPECT_EQ(watchdog.nextDue(), Validity::lossAt(*hold));
  expectLoss(watchdog.collect(at(1100)), hold, LossReason::expired);
}

// The server had it before the other lease.
TEST(Watchdog, ARenewalThatWasUnderWayBeforeAnotherLeaseDoesNotCount) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  expectRenewal(watchdog.collect(at(kPeriod)), hold);
  const TimePoint asked = at(kPeriod) + milliseconds(1);
  watchdog.changeLease(*hold, asked, milliseconds(100), false);
  EXPECT_FALSE(hold->renewing) << "its answer is not booked any more";
  EXPECT_EQ(hold->validUntil, asked + milliseconds(100) - Validity::allowance(milliseconds(100)));
}

TEST(Watchdog, AnotherLeaseBeginsNoRenewals) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, kTimeout);
  watchdog.changeLease(*hold, at(0), kTimeout, true);
  EXPECT_FALSE(hold->watched);
  const HoldPtr other = watched(watchdog);
  watchdog.changeLease(*other, at(0), kTimeout, false);
  EXPECT_FALSE(other->watched);
}

// The request may have taken effect, and then the server has the hold for longer than it is valid.
TEST(Watchdog, AHoldWhoseOtherLeaseIsInDoubtLingersForTheLongestOne) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(30'000));
  watchdog.changeLease(*hold, at(100), milliseconds(500), false);
  EXPECT_EQ(hold->doubtfulLease(), milliseconds(30'000));
  // The loss is told ahead by a twentieth of the shorter lease.
  EXPECT_EQ(watchdog.nextDue(), hold->validUntil - milliseconds(25));
  expectLoss(watchdog.collect(hold->validUntil), hold, LossReason::expired);
  EXPECT_EQ(watchdog.nextDue(),
            hold->validUntil + milliseconds(30'000) + milliseconds(25) + milliseconds(31));
}

TEST(Watchdog, TheLongestOfSeveralLeasesIsInDoubtUntilOneCounts) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(1000));
  watchdog.changeLease(*hold, at(100), milliseconds(50'000), false);
  EXPECT_EQ(hold->doubtfulLease(), milliseconds(50'000));
  Watchdog::leaseNotChanged(*hold, someKey());
  watchdog.changeLease(*hold, at(200), milliseconds(500), false);
  EXPECT_EQ(hold->doubtfulLease(), milliseconds(50'000));
  watchdog.leaseChanged(*hold, at(200), milliseconds(500));
  EXPECT_EQ(hold->doubtfulLease(), milliseconds(0)) << "the server has this one";
}

// ---- Several leases in one hold

TEST(Watchdog, WhatTheServerSaysLimitsEachLease) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = makeHold(2);
  for (const std::int64_t lease : {10'000, 20'000}) {
    hold->parts.emplace_back();
    watchdog.granted(*hold, at(0), milliseconds(lease), false, kNever);
  }
  watchdog.limit(*hold, at(15'000));
  EXPECT_EQ(hold->validUntil, at(15'000));
  EXPECT_EQ(hold->parts[0].validUntil, at(10'000) - Validity::allowance(milliseconds(10'000)));
  EXPECT_EQ(hold->parts[1].validUntil, at(15'000));
}

/// The renewal ran before the second one was taken, and its answer is booked after that grant.
TEST(Watchdog, ALateAnswerMakesNoLaterLeaseLonger) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = makeHold(2);
  for (const std::int64_t taken : {0, 10'000}) {
    HoldPart& part = hold->parts.emplace_back();
    part.grantedAt = at(taken);
    watchdog.granted(*hold, at(taken), taken == 0 ? kTimeout : milliseconds(1000), false, kNever);
  }
  watchdog.renewed(*hold, at(10'000), at(10'002));
  EXPECT_EQ(hold->parts[0].validUntil, at(10'000) + kTimeout - Validity::allowance(kTimeout));
  EXPECT_EQ(hold->parts[1].validUntil, at(11'000) - Validity::allowance(milliseconds(1000)));
  watchdog.renewed(*hold, at(10'001), at(10'003));
  EXPECT_EQ(hold->parts[1].validUntil, at(10'001) + kTimeout - Validity::allowance(kTimeout));
}

TEST(Watchdog, EachLeaseHasAMaxHoldOfItsOwn) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = makeHold(2);
  for (const std::int64_t most : {1000, 2000}) {
    hold->parts.emplace_back().handle = makeIntrusive<HoldHandle>();
    watchdog.granted(*hold, at(0), kTimeout, true, at(most));
  }
  Watchdog::Work work = watchdog.collect(at(1000));
  ASSERT_EQ(work.lost.size(), 1U);
  EXPECT_EQ(work.lost.front().reason, LossReason::maxHold);
  EXPECT_TRUE(hold->parts[0].lost);
  EXPECT_FALSE(hold->lost);
  work = watchdog.collect(at(2000));
  ASSERT_EQ(work.lost.size(), 1U);
  EXPECT_EQ(work.lost.front().reason, LossReason::maxHold);
  EXPECT_TRUE(hold->lost);
}

/// A hold that is watched, and one inside it with a lease of its own.
HoldPtr leasedInsideWatched(Watchdog& watchdog, milliseconds lease, bool withObject) {
  HoldPtr hold = makeHold();
  hold->parts.emplace_back();
  watchdog.granted(*hold, at(0), kTimeout, true, kNever);
  HoldPart& inner = hold->parts.emplace_back();
  if (withObject) {
    inner.handle = makeIntrusive<HoldHandle>();
  }
  hold->count = 2;
  watchdog.granted(*hold, at(0), lease, false, kNever);
  return hold;
}

TEST(Watchdog, ALeaseInsideAWatchedHoldExpires) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leasedInsideWatched(watchdog, milliseconds(2000), true);
  const Watchdog::Work work = watchdog.collect(at(2000));
  ASSERT_EQ(work.lost.size(), 1U);
  EXPECT_EQ(work.lost.front().reason, LossReason::expired) << "no renewal was due before its end";
  EXPECT_TRUE(hold->parts[1].lost);
  EXPECT_FALSE(hold->lost);
}

TEST(Watchdog, ALeaseWithoutAnObjectInsideAWatchedHoldJustEnds) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leasedInsideWatched(watchdog, milliseconds(2000), false);
  expectNothing(watchdog.collect(at(2000)));
  EXPECT_TRUE(hold->parts[1].lost);
  EXPECT_FALSE(hold->lost);
  EXPECT_EQ(watchdog.nextDue(), at(kPeriod));
}

TEST(Watchdog, ALeaseThatWasRenewedWithAWatchedHoldIsLostLikeIt) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leasedInsideWatched(watchdog, milliseconds(15'000), true);
  expectRenewal(watchdog.collect(at(kPeriod)), hold);
  watchdog.renewed(*hold, at(kPeriod), at(kPeriod));
  const Watchdog::Work work = watchdog.collect(at(kPeriod) + kTold);
  ASSERT_EQ(work.lost.size(), 2U);
  EXPECT_EQ(work.lost[0].reason, LossReason::unreachable);
  EXPECT_EQ(work.lost[1].reason, LossReason::unreachable);
  EXPECT_TRUE(hold->lost);
}

/// Nobody is left that was to be renewed: the other one asked for its own lease.
TEST(Watchdog, ALeaseEndsByItselfWhenTheWatchedHoldBesideItIsOver) {
  for (const bool released : {true, false}) {
    SCOPED_TRACE(released ? "released" : "its maxHold is over");
    Watchdog watchdog(kTimeout);
    const HoldPtr hold = leasedInsideWatched(watchdog, milliseconds(15'000), true);
    if (released) {
      hold->parts[0].lost = true;
      watchdog.partsEnded(*hold);
      watchdog.resume(*hold);
    } else {
      hold->parts[0].maxHoldUntil = at(1000);
      watchdog.resume(*hold);
      EXPECT_EQ(watchdog.collect(at(1000)).lost.size(), 1U);
    }
    EXPECT_FALSE(hold->watched);
    const Watchdog::Work work = watchdog.collect(at(15'000));
    EXPECT_TRUE(work.renew.empty());
    ASSERT_EQ(work.lost.size(), 1U);
    EXPECT_EQ(work.lost.front().reason, LossReason::expired);
  }
}

TEST(Watchdog, WorksWithoutAHandle) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = makeHold();
  hold->handle = nullptr;
  watchdog.granted(*hold, at(0), kTimeout, true, kNever);
  expectRenewal(watchdog.collect(at(kPeriod)), hold);
  watchdog.renewed(*hold, at(kPeriod));
  EXPECT_EQ(hold->validUntil, at(kPeriod) + kValid);
}

TEST(Watchdog, ServesShortTimeoutsWithoutBusyLoops) {
  Watchdog watchdog(milliseconds(100));
  const HoldPtr hold = makeHold();
  watchdog.granted(*hold, at(0), milliseconds(100), true, kNever);
  int renewals = 0;
  TimePoint last = at(0);
  for (;;) {
    const TimePoint now = watchdog.nextDue();
    EXPECT_GE(now - last, milliseconds(1));
    last = now;
    const auto work = watchdog.collect(now);
    if (!work.lost.empty()) {
      break;
    }
    ++renewals;
    watchdog.renewalFailed(*hold, now);
  }
  EXPECT_GE(renewals, 10);
  EXPECT_LE(renewals, 70);
}

// ---- Many

TEST(Watchdog, XSCL3_KeepsAHundredThousandHoldsOverTwoPeriods) {
  constexpr std::size_t kHolds = 100'000;
  Watchdog watchdog(kTimeout);
  std::vector<HoldPtr> holds;
  holds.reserve(kHolds);
  for (std::size_t i = 0; i < kHolds; ++i) {
    holds.push_back(makeHold());
    holds.back()->handle = nullptr;
    watchdog.granted(*holds.back(), TimePoint(microseconds(50 * i)), kTimeout, true, kNever);
  }
  ASSERT_EQ(watchdog.size(), kHolds);

  for (int round = 1; round <= 2; ++round) {
    std::size_t renewed = 0;
    TimePoint last = at(0);
    while (renewed < kHolds) {
      const TimePoint now = watchdog.nextDue() + milliseconds(5);
      const auto work = watchdog.collect(now);
      ASSERT_TRUE(work.lost.empty());
      ASSERT_FALSE(work.renew.empty());
      for (const HoldPtr& hold : work.renew) {
        ASSERT_LE(last, hold->renewAt) << "in order of the deadlines";
        last = hold->renewAt;
        ++renewed;
        watchdog.renewed(*hold, now);
      }
    }
  }
  for (const HoldPtr& hold : holds) {
    watchdog.retire(*hold);
  }
  EXPECT_EQ(watchdog.size(), 0U);
  EXPECT_EQ(watchdog.nextDue(), kNever);
}

TEST(Watchdog, ANewConnectionToTheSameServerRenewsWhatIsWatched) {
  Watchdog watchdog(kTimeout);
  const HoldPtr kept = watched(watchdog);
  const HoldPtr other = leased(watchdog, milliseconds(60'000));
  watchdog.renewAll(at(5), false);
  const auto work = watchdog.collect(at(5));
  EXPECT_EQ(work.renew, std::vector<HoldPtr>{kept});
  EXPECT_TRUE(work.verify.empty());
  EXPECT_EQ(goneReason(*kept), LossReason::refused);
  EXPECT_EQ(goneReason(*other), LossReason::refused);
}

TEST(Watchdog, AnotherServerIsAskedForEveryHold) {
  Watchdog watchdog(kTimeout);
  const HoldPtr kept = watched(watchdog);
  const HoldPtr other = leased(watchdog, milliseconds(60'000));
  watchdog.renewAll(at(5), true);
  const auto work = watchdog.collect(at(5));
  EXPECT_EQ(work.renew, std::vector<HoldPtr>{kept});
  EXPECT_EQ(work.verify, std::vector<HoldPtr>{other});
  EXPECT_EQ(goneReason(*kept), LossReason::failover);
  EXPECT_EQ(goneReason(*other), LossReason::failover);
  const auto until = other->validUntil;
  watchdog.renewed(*kept, at(6), at(7));
  watchdog.verified(*other, at(6));
  EXPECT_EQ(other->validUntil, until) << "a question is no renewal";
  EXPECT_EQ(goneReason(*kept), LossReason::refused);
  EXPECT_EQ(goneReason(*other), LossReason::refused);
  expectNothing(watchdog.collect(at(9000)));
}

TEST(Watchdog, ManyThatAreDueAreGivenOutInParts) {
  Watchdog watchdog(kTimeout);
  std::vector<HoldPtr> holds;
  for (int i = 0; i < 5; ++i) {
    holds.push_back(watched(watchdog, at(10 - i)));
  }
  EXPECT_EQ(watchdog.collect(at(20'000), 2).renew, (std::vector{holds[4], holds[3]}));
  EXPECT_LE(watchdog.nextDue(), at(20'000)) << "the rest is due at once";
  EXPECT_EQ(watchdog.size(), 5U);
  EXPECT_FALSE(holds[2]->renewing);
  EXPECT_EQ(watchdog.collect(at(20'000), 2).renew, (std::vector{holds[2], holds[1]}));
  EXPECT_EQ(watchdog.collect(at(20'000), 2).renew, std::vector{holds[0]});
  EXPECT_EQ(watchdog.nextDue(), at(6) + kTold);
}

TEST(Watchdog, ALossIsToldOnTimeWhileManyWaitForTheirTurn) {
  Watchdog watchdog(kTimeout);
  const HoldPtr waiting = watched(watchdog, at(20));
  const HoldPtr first = watched(watchdog, at(0));
  const HoldPtr other = leased(watchdog, milliseconds(20'000), at(10'000));
  EXPECT_EQ(watchdog.collect(at(15'000), 1).renew, std::vector{first});
  // Nothing more is taken, and nothing is answered.
  auto work = watchdog.collect(Validity::lossAt(*other), 0);
  ASSERT_EQ(work.lost.size(), 2U);
  EXPECT_EQ(work.lost[0].hold, first);
  EXPECT_EQ(work.lost[1].hold, other);
  EXPECT_TRUE(work.renew.empty());
  work = watchdog.collect(at(20) + kTold, 0);
  expectLoss(work, waiting, LossReason::unreachable);
}

TEST(Watchdog, AfterAReconnectionThoseComeFirstThatWouldBeLostFirst) {
  Watchdog watchdog(kTimeout);
  const HoldPtr second = watched(watchdog, at(200));
  const HoldPtr third = watched(watchdog, at(300));
  // Tried again later than the others are due.
  EXPECT_EQ(watchdog.collect(at(200) + kPeriod).renew, std::vector{second});
  watchdog.renewalFailed(*second, at(10'250));
  watchdog.renewAll(at(10'251), false);
  EXPECT_EQ(watchdog.collect(at(10'252), 1).renew, std::vector{second});
  EXPECT_EQ(watchdog.collect(at(10'252), 1).renew, std::vector{third});
}

TEST(Watchdog, AHoldThatIsReleasedDoesNotWaitForItsTurn) {
  Watchdog watchdog(kTimeout);
  const HoldPtr stays = watched(watchdog, at(0));
  const HoldPtr goes = watched(watchdog, at(1));
  const HoldPtr again = watched(watchdog, at(2));
  watchdog.renewAll(at(100), false);
  expectNothing(watchdog.collect(at(100), 0));
  watchdog.retire(*goes);
  watchdog.retire(*again);
  EXPECT_EQ(watchdog.size(), 1U);
  watchdog.granted(*again, at(101), kTimeout, true, kNever);
  expectRenewal(watchdog.collect(at(102)), stays);
  EXPECT_EQ(watchdog.nextDue(), at(101) + kPeriod);
}

TEST(Watchdog, ASecondReconnectionFindsThoseThatWait) {
  Watchdog watchdog(kTimeout);
  const HoldPtr first = watched(watchdog, at(0));
  const HoldPtr second = watched(watchdog, at(1));
  const HoldPtr other = leased(watchdog, milliseconds(60'000));
  watchdog.renewAll(at(100), false);
  EXPECT_EQ(watchdog.collect(at(100), 1).renew, std::vector{first});
  watchdog.renewAll(at(200), true);
  EXPECT_EQ(watchdog.size(), 3U);
  EXPECT_EQ(goneReason(*second), LossReason::failover);
  const auto work = watchdog.collect(at(200));
  EXPECT_EQ(work.renew, std::vector{second}) << "the first is under way";
  EXPECT_EQ(work.verify, std::vector{other});
  EXPECT_EQ(watchdog.nextDue(), at(0) + kTold);
}

TEST(Watchdog, ARenewalMayComeBeforeItMust) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  expectRenewal(watchdog.collect(at(kPeriod)), hold);
  watchdog.renewed(*hold, at(kPeriod), at(10'001), milliseconds(300));
  EXPECT_EQ(watchdog.nextDue(), at(2 * kPeriod) - milliseconds(300));
  EXPECT_EQ(hold->validUntil, at(kPeriod) + kValid);
}

TEST(Watchdog, ALateRenewalIsAsLateAsAllItsFailuresHaveMadeIt) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  EXPECT_EQ(watchdog.dueOf(*hold), at(kPeriod));
  expectRenewal(watchdog.collect(at(kPeriod)), hold);
  watchdog.renewalFailed(*hold, at(kPeriod));
  expectRenewal(watchdog.collect(watchdog.nextDue()), hold);
  EXPECT_EQ(watchdog.dueOf(*hold), at(kPeriod));
}

// From here on it has the watchdog's lease, by which it is known when a renewal was due.
TEST(Watchdog, ARenewalThatOutlastsALongLeaseReplacesIt) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(60'000));
  hold->count = 2;
  watchdog.granted(*hold, at(1000), kTimeout, true, kNever);
  watchdog.renewed(*hold, at(40'000), at(40'001));
  EXPECT_EQ(hold->validUntil, at(40'000) + kValid);
  EXPECT_EQ(hold->lease, kTimeout);
}

// The answer says that the owner has a hold, not that this one had not ended before the script ran.
TEST(Watchdog, ARenewalMakesNoHoldLongerWhosePartsWereOver) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = makeHold();
  hold->parts.emplace_back();
  watchdog.granted(*hold, at(0), kTimeout, true, kNever);
  watchdog.renewed(*hold, at(kPeriod), at(kValid));
  EXPECT_EQ(hold->parts[0].validUntil, at(kValid));
  EXPECT_EQ(hold->validUntil, at(kValid));
  EXPECT_EQ(hold->handle->validUntil(), at(kValid));
}

TEST(Watchdog, APartThatIsRenewedHasTheLeaseOfTheRenewal) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = makeHold();
  hold->parts.emplace_back();
  watchdog.granted(*hold, at(0), milliseconds(500), true, kNever);
  watchdog.renewed(*hold, at(100), at(101));
  EXPECT_EQ(hold->parts[0].lease, kTimeout);
  EXPECT_EQ(watchdog.collect(at(100) + kTold).lost.size(), 1U) << "told 100 ms ahead";
}

// A second answer about it is no second loss, and the server may have it still.
TEST(Watchdog, ALimitForgetsNoLostHold) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  expectLoss(watchdog.collect(at(kTold)), hold, LossReason::unreachable);
  watchdog.limit(*hold, at(29'900));
  EXPECT_EQ(watchdog.nextDue(), at(kGone));
}

TEST(Watchdog, ALimitBringsTheLossForward) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  watchdog.limit(*hold, at(5000));
  EXPECT_EQ(hold->handle->validUntil(), at(5000));
  EXPECT_EQ(watchdog.nextDue(), at(4900));
}

// Its renewal was due, and was given to nobody while the connection was away.
TEST(Watchdog, AnOverdueHoldWhoseMaxHoldIsOverIsToldAfterTheReconnection) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog, at(0), at(10'500));
  const HoldPtr other = watched(watchdog, at(0));
  expectNothing(watchdog.collect(at(kPeriod), 0));
  watchdog.renewAll(at(10'600), false);
  EXPECT_EQ(watchdog.size(), 2U);
  const auto work = watchdog.collect(at(10'600), 0);
  ASSERT_EQ(work.lost.size(), 1U);
  EXPECT_EQ(work.lost.front().hold, hold);
  EXPECT_EQ(work.lost.front().reason, LossReason::maxHold);
  EXPECT_EQ(watchdog.collect(at(10'600)).renew, std::vector<HoldPtr>{other});
}

TEST(Watchdog, AnAnswerEndsTheLongPausesBetweenQuestions) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(60'000));
  watchdog.renewAll(at(5), true);
  for (int i = 0; i < 4; ++i) {
    const TimePoint now = watchdog.nextDue();
    EXPECT_EQ(watchdog.collect(now).verify.size(), 1U);
    watchdog.renewalFailed(*hold, now);
  }
  watchdog.verified(*hold, watchdog.nextDue());
  watchdog.renewAll(at(20'000), true);
  EXPECT_EQ(watchdog.collect(at(20'000)).verify.size(), 1U);
  watchdog.renewalFailed(*hold, at(20'000));
  EXPECT_EQ(watchdog.nextDue(), at(20'100));
}

TEST(Watchdog, AQuestionWithoutAnswerIsAskedAgain) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(60'000));
  watchdog.renewAll(at(5), true);
  EXPECT_EQ(watchdog.collect(at(5)).verify.size(), 1U);
  watchdog.renewalFailed(*hold, at(6));
  EXPECT_EQ(watchdog.nextDue(), at(106));
  EXPECT_EQ(watchdog.collect(at(106)).verify.size(), 1U);
}

/// The connection to the new server breaks before the question is answered.
TEST(Watchdog, AQuestionIsAskedAgainOverTheNextConnection) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(60'000));
  watchdog.renewAll(at(5), true);
  EXPECT_EQ(watchdog.collect(at(5)).verify, std::vector<HoldPtr>{hold});
  watchdog.renewalFailed(*hold, at(6));
  watchdog.renewAll(at(7), false);
  EXPECT_EQ(goneReason(*hold), LossReason::failover) << "nobody knows yet whether it is there";
  EXPECT_EQ(watchdog.collect(at(7)).verify, std::vector<HoldPtr>{hold});
}

TEST(Watchdog, AnAnsweredQuestionIsAskedAgainWhenTheServerIsAnotherOnceMore) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(60'000));
  watchdog.renewAll(at(5), true);
  EXPECT_EQ(watchdog.collect(at(5)).verify, std::vector<HoldPtr>{hold});
  watchdog.verified(*hold, at(6));
  watchdog.renewAll(at(20), true);
  EXPECT_EQ(watchdog.collect(at(20)).verify, std::vector<HoldPtr>{hold});
}

TEST(Watchdog, AnAnswerAboutAHoldThatWasReleasedMeanwhileKeepsNothing) {
  Watchdog watchdog(kTimeout);
  const HoldPtr asked = leased(watchdog, milliseconds(60'000));
  watchdog.renewAll(at(5), true);
  EXPECT_EQ(watchdog.collect(at(5)).verify.size(), 1U);
  watchdog.retire(*asked);
  watchdog.verified(*asked, at(6));
  EXPECT_EQ(watchdog.size(), 0U);
  const HoldPtr limited = watched(watchdog);
  watchdog.retire(*limited);
  watchdog.limit(*limited, at(5000));
  EXPECT_EQ(watchdog.size(), 0U);
  const HoldPtr changed = leased(watchdog, milliseconds(10'000));
  watchdog.changeLease(*changed, at(0), milliseconds(5000), false);
  watchdog.retire(*changed);
  watchdog.leaseChanged(*changed, at(0), milliseconds(5000));
  EXPECT_EQ(watchdog.size(), 0U);
}

TEST(Watchdog, AnAnswerAboutALostHoldLeavesItLost) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(10'000));
  watchdog.renewAll(at(5), true);
  EXPECT_EQ(watchdog.collect(at(5)).verify.size(), 1U);
  expectLoss(watchdog.collect(at(9990)), hold, LossReason::expired);
  const TimePoint gone = watchdog.nextDue();
  watchdog.verified(*hold, at(6));
  EXPECT_EQ(watchdog.nextDue(), gone);
  EXPECT_EQ(watchdog.collect(gone).gone, std::vector<HoldPtr>{hold});
  watchdog.changeLease(*hold, gone, milliseconds(5000), false);
  EXPECT_EQ(watchdog.size(), 0U) << "the server has dropped it";
}

TEST(Watchdog, WorkIsDueFromWhenItWasFirstLeftUndone) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = watched(watchdog);
  expectNothing(watchdog.collect(at(kPeriod), 0));
  EXPECT_EQ(watchdog.nextDue(), at(kPeriod));
  watchdog.renewAll(at(20'000), false);
  EXPECT_EQ(watchdog.nextDue(), at(20'000));
}

TEST(Watchdog, ALeaseThatIsLostDoesNotCoverOneThatTheServerRefused) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(10'000));
  watchdog.changeLease(*hold, at(100), milliseconds(5000), false);
  watchdog.changeLease(*hold, at(100), milliseconds(5000), false);
  Watchdog::leaseNotChanged(*hold, someKey());
  Watchdog::leaseNotChanged(*hold, nullptr);
  EXPECT_EQ(hold->leaseChanges->underWay, 0);
}

TEST(Watchdog, AConfirmedLongerLeaseIsToldAsLongAheadAsLongOnesAre) {
  Watchdog watchdog(kTimeout);
  const HoldPtr hold = leased(watchdog, milliseconds(1000));
  watchdog.changeLease(*hold, at(100), milliseconds(50'000), false);
  EXPECT_EQ(hold->lease, milliseconds(1000));
  watchdog.leaseChanged(*hold, at(100), milliseconds(50'000));
  EXPECT_EQ(hold->lease, milliseconds(50'000));
}

/// The reply was read before the new connection, and is booked after it.
TEST(Watchdog, AGrantOfTheServerBeforeIsRenewedAtOnce) {
  Watchdog watchdog(kTimeout);
  watchdog.renewAll(at(10), true);
  const HoldPtr late = watched(watchdog, at(5));
  EXPECT_EQ(goneReason(*late), LossReason::failover);
  expectRenewal(watchdog.collect(at(20)), late);
}

TEST(Watchdog, AnAnswerOfTheServerBeforeProvesNothing) {
  Watchdog watchdog(kTimeout);
  const HoldPtr early = watched(watchdog);
  EXPECT_EQ(watchdog.collect(at(kPeriod)).renew.size(), 1U);
  watchdog.renewAll(at(kPeriod) + milliseconds(10), true);
  // The answer is booked late.
  watchdog.renewed(*early, at(kPeriod), at(kPeriod) + milliseconds(20));
  EXPECT_EQ(goneReason(*early), LossReason::failover);
  EXPECT_EQ(watchdog.collect(at(kPeriod) + milliseconds(20)).renew.size(), 1U);
  // So is a grant.
  const HoldPtr late = leased(watchdog, milliseconds(60'000), at(kPeriod));
  EXPECT_EQ(goneReason(*late), LossReason::failover);
  EXPECT_EQ(watchdog.collect(at(kPeriod) + milliseconds(20)).verify.size(), 1U);
  // A grant of the new one is beyond doubt.
  const HoldPtr fresh = leased(watchdog, milliseconds(60'000), at(kPeriod) + milliseconds(10));
  EXPECT_EQ(goneReason(*fresh), LossReason::refused);
}

}  // namespace
}  // namespace watchdog_test
}  // namespace rlock::detail
