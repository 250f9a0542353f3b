// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/group/multi_fsm.hpp>

#include <gtest/gtest.h>

#include <ostream>

namespace rlock::detail {

inline void PrintTo(MultiFsm::Step step, std::ostream* out) {
  static constexpr const char* kNames[]{"none", "take", "giveBack", "finish", "finishEarly", "end"};
  *out << kNames[static_cast<int>(step)];
}

inline void PrintTo(MultiFsm::Result result, std::ostream* out) {
  static constexpr const char* kNames[]{"pending", "granted", "refused", "failed"};
  *out << kNames[static_cast<int>(result)];
}

namespace multi_fsm_test {
namespace {

using Step = MultiFsm::Step;
using Result = MultiFsm::Result;

constexpr bool kValid = true;
constexpr bool kTimeLeft = true;

Error stop() {
  return Error(Errc::cancelled);
}
Error late() {
  return Error(Errc::timedOut);
}

void expectFailed(const MultiFsm& fsm, Errc errc) {
  EXPECT_EQ(fsm.result(), Result::failed);
  ASSERT_TRUE(fsm.error().has_value());
  EXPECT_EQ(fsm.error()->errc(), errc);
}

/// One that waits for its second member of three.
MultiFsm holdingOne() {
  MultiFsm fsm(3, false);
  static_cast<void>(fsm.start());
  static_cast<void>(fsm.granted(kValid));
  return fsm;
}

TEST(MultiFsm, TakesTheMembersOneAfterTheOther) {
  MultiFsm fsm(3, false);
  EXPECT_EQ(fsm.start(), Step::take);
  EXPECT_EQ(fsm.next(), 0U);
  EXPECT_EQ(fsm.granted(kValid), Step::take);
  EXPECT_EQ(fsm.next(), 1U);
  EXPECT_EQ(fsm.granted(kValid), Step::take);
  EXPECT_EQ(fsm.next(), 2U);
  EXPECT_EQ(fsm.granted(kValid), Step::finish);
  EXPECT_EQ(fsm.result(), Result::granted);
}

TEST(MultiFsm, ARefusalGivesBackBeforeTheCallerIsTold) {
  MultiFsm fsm = holdingOne();
  EXPECT_EQ(fsm.refused(!kTimeLeft), Step::giveBack);
  EXPECT_EQ(fsm.taken(), 1U);
  EXPECT_FALSE(fsm.answered());
  EXPECT_EQ(fsm.givenBack(!kTimeLeft), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

TEST(MultiFsm, ARefusalOfTheFirstLeavesNothingToGiveBack) {
  MultiFsm fsm(3, false);
  static_cast<void>(fsm.start());
  EXPECT_EQ(fsm.refused(!kTimeLeft), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

TEST(MultiFsm, ARefusalWithTimeLeftBeginsAgainAfterGivingBack) {
  MultiFsm fsm = holdingOne();
  EXPECT_EQ(fsm.refused(kTimeLeft), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::take);
  EXPECT_EQ(fsm.next(), 0U);
}

TEST(MultiFsm, TimeThatIsUpAfterGivingBackIsARefusal) {
  MultiFsm fsm = holdingOne();
  EXPECT_EQ(fsm.refused(kTimeLeft), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(!kTimeLeft), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

TEST(MultiFsm, OneAttemptDoesNotTryAgain) {
  MultiFsm fsm(2, true);
  static_cast<void>(fsm.start());
  static_cast<void>(fsm.granted(kValid));
  EXPECT_EQ(fsm.refused(!kTimeLeft), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

TEST(MultiFsm, AMemberThatRanOutMeanwhileMakesTheGrantWorthless) {
  MultiFsm fsm(2, false);
  static_cast<void>(fsm.start());
  static_cast<void>(fsm.granted(kValid));
  EXPECT_EQ(fsm.granted(!kValid), Step::giveBack);
  EXPECT_EQ(fsm.taken(), 2U);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::take);
}

TEST(MultiFsm, OneAttemptWithAMemberThatRanOutIsRefused) {
  MultiFsm fsm(1, true);
  static_cast<void>(fsm.start());
  EXPECT_EQ(fsm.granted(!kValid), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(!kTimeLeft), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

TEST(MultiFsm, ALossWhileWaitingBeginsAgain) {
  MultiFsm fsm = holdingOne();
  EXPECT_EQ(fsm.lost(), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::take);
  EXPECT_EQ(fsm.next(), 0U);
}

TEST(MultiFsm, AnErrorOfAMemberIsTheErrorOfTheWhole) {
  MultiFsm fsm = holdingOne();
  EXPECT_EQ(fsm.failed(Error(Errc::wrongType)), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::finish);
  expectFailed(fsm, Errc::wrongType);
}

TEST(MultiFsm, ANodeThatIsAwayIsTheReasonWhenTheTimeIsUp) {
  for (const bool whileGivingBack : {true, false}) {
    MultiFsm fsm = holdingOne();
    EXPECT_EQ(fsm.away(Error(Errc::connectionFailed)), Step::giveBack);
    if (whileGivingBack) {
      EXPECT_EQ(fsm.givenBack(!kTimeLeft), Step::finish);
    } else {
      EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::take);
      EXPECT_EQ(fsm.timeUp(), Step::finish);
    }
    expectFailed(fsm, Errc::connectionFailed);
  }
}

TEST(MultiFsm, ANodeThatHasComeBackIsNot) {
  MultiFsm fsm = holdingOne();
  EXPECT_EQ(fsm.away(Error(Errc::connectionFailed)), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::take);
  EXPECT_EQ(fsm.granted(kValid), Step::take);
  EXPECT_EQ(fsm.refused(kTimeLeft), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(!kTimeLeft), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
  EXPECT_FALSE(fsm.error().has_value());
}

TEST(MultiFsm, AStopEndsItAfterGivingBack) {
  MultiFsm fsm = holdingOne();
  EXPECT_EQ(fsm.stopped(stop()), Step::none) << "the member under way says when it is over";
  EXPECT_EQ(fsm.failed(Error(Errc::cancelled)), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::finish);
  expectFailed(fsm, Errc::cancelled);
}

TEST(MultiFsm, AGrantAfterAStopIsGivenBack) {
  MultiFsm fsm = holdingOne();
  static_cast<void>(fsm.stopped(stop()));
  EXPECT_EQ(fsm.granted(kValid), Step::giveBack);
  EXPECT_EQ(fsm.taken(), 2U);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::finish);
  expectFailed(fsm, Errc::cancelled);
}

TEST(MultiFsm, AStopWhileGivingBackKeepsItFromBeginningAgain) {
  MultiFsm fsm = holdingOne();
  static_cast<void>(fsm.refused(kTimeLeft));
  EXPECT_EQ(fsm.stopped(stop()), Step::none);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::finish);
  expectFailed(fsm, Errc::cancelled);
}

TEST(MultiFsm, AStopBeforeTheStartTakesNothing) {
  MultiFsm fsm(2, false);
  static_cast<void>(fsm.stopped(stop()));
  EXPECT_EQ(fsm.start(), Step::finish);
  expectFailed(fsm, Errc::cancelled);
}

TEST(MultiFsm, ACallerWhoLeavesIsToldAndEverythingIsGivenBack) {
  MultiFsm fsm = holdingOne();
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  expectFailed(fsm, Errc::timedOut);
  EXPECT_EQ(fsm.granted(kValid), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::end);
}

TEST(MultiFsm, ACallerWhoLeavesWhileGivingBackHearsWhatWasDecided) {
  MultiFsm fsm = holdingOne();
  static_cast<void>(fsm.refused(!kTimeLeft));
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  EXPECT_EQ(fsm.result(), Result::refused);
  EXPECT_EQ(fsm.givenBack(!kTimeLeft), Step::end);
}

TEST(MultiFsm, ASuccessIsNotTakenBack) {
  MultiFsm fsm(1, false);
  static_cast<void>(fsm.start());
  static_cast<void>(fsm.granted(kValid));
  EXPECT_EQ(fsm.expired(late()), Step::none);
  EXPECT_EQ(fsm.stopped(stop()), Step::none);
  EXPECT_EQ(fsm.result(), Result::granted);
}

}  // namespace
}  // namespace multi_fsm_test
}  // namespace rlock::detail
