// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/group/quorum_fsm.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <ostream>
#include <vector>

namespace rlock::detail {

inline void PrintTo(QuorumFsm::Step step, std::ostream* out) {
  static constexpr const char* kNames[]{
      "none", "attempt", "giveBack", "pause", "finish", "finishEarly", "end"};
  *out << kNames[static_cast<int>(step)];
}

inline void PrintTo(QuorumFsm::Result result, std::ostream* out) {
  static constexpr const char* kNames[]{"pending", "granted", "refused", "failed"};
  *out << kNames[static_cast<int>(result)];
}

namespace quorum_fsm_test {
namespace {

using namespace std::chrono_literals;
using Step = QuorumFsm::Step;
using Result = QuorumFsm::Result;
using TimePoint = Quorum::Clock::time_point;

constexpr bool kValid = true;
constexpr bool kTimeLeft = true;

Error unreachable() {
  return Error(Errc::connectionFailed);
}
Error stop() {
  return Error(Errc::cancelled);
}

void expectFailed(const QuorumFsm& fsm, Errc errc) {
  EXPECT_EQ(fsm.result(), Result::failed);
  ASSERT_TRUE(fsm.error().has_value());
  EXPECT_EQ(fsm.error()->errc(), errc);
}

QuorumFsm started(std::size_t members, bool oneAttempt = false) {
  QuorumFsm fsm(members, oneAttempt);
  EXPECT_EQ(fsm.start(), Step::attempt);
  return fsm;
}

// ---- Arithmetic

TEST(Quorum, AMajorityOfAnyTwoHasAMemberInCommon) {
  EXPECT_EQ(Quorum::majority(1), 1U);
  EXPECT_EQ(Quorum::majority(2), 2U);
  EXPECT_EQ(Quorum::majority(3), 2U);
  EXPECT_EQ(Quorum::majority(4), 3U);
  EXPECT_EQ(Quorum::majority(5), 3U);
  for (std::size_t n = 1; n < 20; ++n) {
    EXPECT_GT(2 * Quorum::majority(n), n);
  }
}

TEST(Quorum, DriftIsOnePerCentAndTwoMilliseconds) {
  EXPECT_EQ(Quorum::drift(10s), 102ms);
  EXPECT_EQ(Quorum::drift(0s), 2ms);
}

TEST(Quorum, PatienceIsSmallAgainstTheLease) {
  EXPECT_EQ(Quorum::patience(2s, 3s), 200ms);
  EXPECT_EQ(Quorum::patience(20ms, 3s), 10ms);
  EXPECT_EQ(Quorum::patience(30s, 3s), 1s);
  EXPECT_EQ(Quorum::patience(30s, 200ms), 200ms);
}

TEST(Quorum, ValidityIsThatOfTheLastMemberNeeded) {
  const TimePoint start{};
  std::vector<TimePoint> until{
      start + 5s, TimePoint::min(), start + 1s, start + 3s, TimePoint::min()};
  EXPECT_EQ(Quorum::validUntil(until, 3), start + 1s);
  EXPECT_EQ(Quorum::validUntil(until, 2), start + 3s);
  EXPECT_EQ(Quorum::validUntil(until, 1), start + 5s);
  EXPECT_EQ(Quorum::validUntil(until, 4), TimePoint::min());
  EXPECT_EQ(Quorum::validUntil(until, 6), TimePoint::min());
}

// ---- Acquiring

TEST(QuorumFsm, AMajorityIsEnough) {
  QuorumFsm fsm = started(5);
  EXPECT_EQ(fsm.granted(0, kValid), Step::none);
  EXPECT_EQ(fsm.failed(1, unreachable()), Step::none);
  EXPECT_EQ(fsm.granted(2, kValid), Step::none);
  EXPECT_EQ(fsm.refused(3), Step::none);
  EXPECT_EQ(fsm.granted(4, kValid), Step::finish);
  EXPECT_EQ(fsm.result(), Result::granted);
}

TEST(QuorumFsm, HalfIsNotAMajority) {
  QuorumFsm fsm = started(4, true);
  EXPECT_EQ(fsm.granted(0, kValid), Step::none);
  EXPECT_EQ(fsm.granted(1, kValid), Step::none);
  EXPECT_EQ(fsm.refused(2), Step::none) << "three of four would be enough";
  EXPECT_EQ(fsm.refused(3), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(!kTimeLeft), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

TEST(QuorumFsm, EndsAsSoonAsNoMajorityCanCome) {
  QuorumFsm fsm = started(3);
  EXPECT_EQ(fsm.refused(0), Step::none);
  EXPECT_EQ(fsm.refused(1), Step::giveBack);
  EXPECT_EQ(fsm.refused(2), Step::none) << "too late to count";
}

TEST(QuorumFsm, AnAnswerCountsOnce) {
  QuorumFsm fsm = started(3);
  EXPECT_EQ(fsm.granted(0, kValid), Step::none);
  EXPECT_EQ(fsm.granted(0, kValid), Step::none);
  EXPECT_EQ(fsm.refused(0), Step::none);
  EXPECT_TRUE(fsm.asking());
  EXPECT_NE(fsm.granted(1, kValid), Step::none) << "the first one's grant stands";

  QuorumFsm other = started(3);
  EXPECT_EQ(other.refused(0), Step::none);
  EXPECT_EQ(other.granted(0, kValid), Step::none);
  EXPECT_EQ(other.granted(1, kValid), Step::none) << "the first one's refusal stands";
}

TEST(QuorumFsm, AMajorityThatCameTooLateIsGivenBack) {
  QuorumFsm fsm = started(3);
  EXPECT_EQ(fsm.granted(0, !kValid), Step::none);
  EXPECT_EQ(fsm.granted(1, !kValid), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::pause);
}

TEST(QuorumFsm, PausesAfterGivingBackAndAsksEverybodyAgain) {
  QuorumFsm fsm = started(3);
  static_cast<void>(fsm.refused(0));
  static_cast<void>(fsm.refused(1));
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::pause);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::none) << "said twice";
  EXPECT_EQ(fsm.pauseOver(kTimeLeft), Step::attempt);
  EXPECT_EQ(fsm.pauseOver(kTimeLeft), Step::none);
  EXPECT_EQ(fsm.granted(0, kValid), Step::none);
  EXPECT_EQ(fsm.granted(2, kValid), Step::finish);
  EXPECT_EQ(fsm.attempts(), 2);
}

TEST(QuorumFsm, TimeThatIsUpIsARefusalWhereAMajorityAnswered) {
  QuorumFsm fsm = started(3);
  static_cast<void>(fsm.refused(0));
  static_cast<void>(fsm.refused(1));
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::pause);
  EXPECT_EQ(fsm.pauseOver(!kTimeLeft), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

// ---- Nodes that cannot be reached

TEST(QuorumFsm, TooManyUnreachableNodesAreNoQuorum) {
  QuorumFsm fsm = started(5, true);
  EXPECT_EQ(fsm.granted(0, kValid), Step::none);
  EXPECT_EQ(fsm.failed(1, unreachable()), Step::none);
  EXPECT_EQ(fsm.failed(2, unreachable()), Step::none);
  EXPECT_EQ(fsm.failed(3, unreachable()), Step::giveBack);
  EXPECT_TRUE(fsm.outOfReach());
  EXPECT_EQ(fsm.givenBack(!kTimeLeft), Step::finish);
  expectFailed(fsm, Errc::noQuorum);
}

TEST(QuorumFsm, RefusalsOfReachableNodesAreNot) {
  QuorumFsm fsm = started(5, true);
  static_cast<void>(fsm.failed(0, unreachable()));
  static_cast<void>(fsm.failed(1, unreachable()));
  EXPECT_EQ(fsm.refused(2), Step::giveBack);
  EXPECT_FALSE(fsm.outOfReach());
  EXPECT_EQ(fsm.givenBack(!kTimeLeft), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

TEST(QuorumFsm, WhoDoesNotAnswerInTimeIsUnreachable) {
  QuorumFsm fsm = started(3, true);
  static_cast<void>(fsm.granted(0, kValid));
  EXPECT_EQ(fsm.limitReached(false), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(!kTimeLeft), Step::finish);
  expectFailed(fsm, Errc::noQuorum);
}

TEST(QuorumFsm, TheCallersOwnLimitSaysNothingAboutNodesThatAnsweredBefore) {
  QuorumFsm fsm = started(3);
  static_cast<void>(fsm.refused(0));
  static_cast<void>(fsm.refused(1));
  static_cast<void>(fsm.givenBack(kTimeLeft));
  static_cast<void>(fsm.pauseOver(kTimeLeft));
  EXPECT_EQ(fsm.limitReached(true), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(!kTimeLeft), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

TEST(QuorumFsm, ALimitAfterTheOutcomeIsNothing) {
  QuorumFsm fsm = started(1);
  EXPECT_EQ(fsm.granted(0, kValid), Step::finish);
  EXPECT_EQ(fsm.limitReached(false), Step::none);
  EXPECT_EQ(fsm.result(), Result::granted);
}

TEST(QuorumFsm, WhatWillNotChangeIsToldAtOnce) {
  QuorumFsm fsm = started(3);
  EXPECT_EQ(fsm.failed(0, Error(Errc::closed)), Step::none);
  EXPECT_EQ(fsm.failed(1, Error(Errc::closed)), Step::giveBack);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::finish);
  expectFailed(fsm, Errc::closed);
}

TEST(QuorumFsm, AMinorityThatRefusesForGoodDoesNotMatter) {
  QuorumFsm fsm = started(3);
  static_cast<void>(fsm.failed(0, Error(Errc::wrongType)));
  static_cast<void>(fsm.granted(1, kValid));
  EXPECT_EQ(fsm.granted(2, kValid), Step::finish);
}

// ---- Callers that leave

TEST(QuorumFsm, AStopWhileAskingGivesBackFirst) {
  QuorumFsm fsm = started(3);
  static_cast<void>(fsm.granted(0, kValid));
  EXPECT_EQ(fsm.stopped(stop()), Step::giveBack);
  EXPECT_FALSE(fsm.answered());
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::finish);
  expectFailed(fsm, Errc::cancelled);
}

TEST(QuorumFsm, AStopInAPauseEndsIt) {
  QuorumFsm fsm = started(1);
  static_cast<void>(fsm.refused(0));
  static_cast<void>(fsm.givenBack(kTimeLeft));
  EXPECT_EQ(fsm.stopped(stop()), Step::finish);
  expectFailed(fsm, Errc::cancelled);
}

TEST(QuorumFsm, AStopBeforeTheStartAsksNobody) {
  QuorumFsm fsm(3, false);
  EXPECT_EQ(fsm.stopped(stop()), Step::none);
  EXPECT_EQ(fsm.start(), Step::finish);
  expectFailed(fsm, Errc::cancelled);
}

TEST(QuorumFsm, ACallerWhoLeavesWhileAskingIsToldOnceGivingBackHasBegun) {
  QuorumFsm fsm = started(3);
  static_cast<void>(fsm.granted(0, kValid));
  EXPECT_EQ(fsm.expired(), Step::giveBack);
  EXPECT_EQ(fsm.expired(), Step::finishEarly);
  expectFailed(fsm, Errc::noQuorum);
  EXPECT_EQ(fsm.givenBack(kTimeLeft), Step::end);
}

TEST(QuorumFsm, ACallerWhoLeavesInAPauseIsRefused) {
  QuorumFsm fsm = started(1);
  static_cast<void>(fsm.refused(0));
  static_cast<void>(fsm.givenBack(kTimeLeft));
  EXPECT_EQ(fsm.expired(), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

// ---- Releasing

}  // namespace
}  // namespace quorum_fsm_test
}  // namespace rlock::detail
