// SPDX-License-Identifier: Apache-2.0
#include "unit/call_step_printer.hpp"
#include <rlock/detail/engine/acquire_fsm.hpp>

#include <gtest/gtest.h>

namespace rlock::detail {
namespace acquire_fsm_test {
namespace {

using Step = AcquireFsm::Step;
using Result = AcquireFsm::Result;
using State = AcquireFsm::State;

Error late() {
  return Error(Errc::timedOut);
}
Error stop() {
  return Error(Errc::cancelled);
}
Error broken() {
  return Error(Errc::connectionFailed);
}

void expectFailed(const AcquireFsm& fsm, Errc errc) {
  EXPECT_EQ(fsm.result(), Result::failed);
  ASSERT_TRUE(fsm.error().has_value());
  EXPECT_EQ(fsm.error()->errc(), errc);
}

TEST(AcquireFsm, BeginsWithoutAResult) {
  const AcquireFsm fsm(false);
  EXPECT_EQ(fsm.result(), Result::pending);
  EXPECT_FALSE(fsm.answered());
  EXPECT_NE(fsm.state(), State::ended);
  EXPECT_NE(fsm.state(), State::queued);
  EXPECT_FALSE(fsm.contended());
  EXPECT_FALSE(fsm.error().has_value());
}

// ---- The ways that end well

TEST(AcquireFsm, FreeLockIsGrantedAtOnce) {
  AcquireFsm fsm(false);
  EXPECT_EQ(fsm.start(false), Step::attempt);
  EXPECT_EQ(fsm.granted(false), Step::finish);
  EXPECT_EQ(fsm.result(), Result::granted);
  EXPECT_TRUE(fsm.answered());
  EXPECT_EQ(fsm.state(), State::ended);
  EXPECT_FALSE(fsm.contended());
}

TEST(AcquireFsm, AGrantThatMustBeAcknowledgedIsOneWhenItIs) {
  AcquireFsm fsm(false, true);
  EXPECT_EQ(fsm.start(false), Step::attempt);
  EXPECT_EQ(fsm.granted(false), Step::acknowledge);
  EXPECT_EQ(fsm.state(), State::syncing);
  EXPECT_FALSE(fsm.answered());
  EXPECT_EQ(fsm.acknowledged(), Step::finish);
  EXPECT_EQ(fsm.result(), Result::granted);
}

TEST(AcquireFsm, AGrantThatIsNotAcknowledgedIsUndoneBeforeItsCallerIsTold) {
  AcquireFsm fsm(false, true);
  EXPECT_EQ(fsm.start(false), Step::attempt);
  EXPECT_EQ(fsm.granted(false), Step::acknowledge);
  EXPECT_EQ(fsm.notAcknowledged(Error(Errc::notSynced)), Step::reconcileBack);
  EXPECT_EQ(fsm.state(), State::undoing);
  EXPECT_FALSE(fsm.answered());
  EXPECT_EQ(fsm.acknowledged(), Step::none) << "too late";
  EXPECT_EQ(fsm.unknown(), Step::reconcileBack) << "lost, so once more, and never to keep it";
  EXPECT_EQ(fsm.reconciled(false), Step::finish);
  EXPECT_EQ(fsm.result(), Result::failed);
  expectFailed(fsm, Errc::notSynced);
}

TEST(AcquireFsm, AnUndoingThatFailsIsStillTheSameFailure) {
  AcquireFsm fsm(false, true);
  EXPECT_EQ(fsm.start(false), Step::attempt);
  EXPECT_EQ(fsm.granted(false), Step::acknowledge);
  EXPECT_EQ(fsm.notAcknowledged(Error(Errc::notSynced)), Step::reconcileBack);
  EXPECT_EQ(fsm.reconcileFailed(Error(Errc::connectionFailed)), Step::finish);
  expectFailed(fsm, Errc::notSynced);
}

TEST(AcquireFsm, ACallerDoesNotWaitForAnUndoingForEver) {
  AcquireFsm fsm(false, true);
  EXPECT_EQ(fsm.start(false), Step::attempt);
  EXPECT_EQ(fsm.granted(false), Step::acknowledge);
  EXPECT_EQ(fsm.notAcknowledged(Error(Errc::notSynced)), Step::reconcileBack);
  EXPECT_EQ(fsm.expired(Error(Errc::timedOut)), Step::finishEarly);
  expectFailed(fsm, Errc::notSynced);
  EXPECT_EQ(fsm.expired(Error(Errc::timedOut)), Step::none);
  EXPECT_EQ(fsm.reconciled(false), Step::end);
}

TEST(AcquireFsm, ACallerThatLeavesBeforeTheAcknowledgementsHasNothing) {
  for (const bool met : {true, false}) {
    AcquireFsm fsm(false, true);
    EXPECT_EQ(fsm.start(false), Step::attempt);
    EXPECT_EQ(fsm.granted(false), Step::acknowledge);
    EXPECT_EQ(fsm.stopped(Error(Errc::cancelled)), Step::finishEarly);
    expectFailed(fsm, Errc::cancelled);
    EXPECT_EQ(met ? fsm.acknowledged() : fsm.notAcknowledged(Error(Errc::notSynced)),
              Step::reconcileBack);
    EXPECT_EQ(fsm.reconciled(false), Step::end);
    expectFailed(fsm, Errc::cancelled);
  }
}

TEST(AcquireFsm, AGrantOfWhichTheLeaseRanOutMeanwhileIsNone) {
  AcquireFsm fsm(false, true);
  EXPECT_EQ(fsm.start(false), Step::attempt);
  EXPECT_EQ(fsm.granted(false), Step::acknowledge);
  EXPECT_EQ(fsm.refused(), Step::queue);
  EXPECT_EQ(fsm.turn(), Step::attempt);
  EXPECT_EQ(fsm.granted(false), Step::acknowledge);
  EXPECT_EQ(fsm.acknowledged(), Step::finish);
}

TEST(AcquireFsm, WaitsForAHolderAndTriesAgainAtItsTurn) {
  AcquireFsm fsm(false);
  EXPECT_EQ(fsm.start(false), Step::attempt);
  EXPECT_EQ(fsm.refused(), Step::queue);
  EXPECT_EQ(fsm.state(), State::queued);
  EXPECT_TRUE(fsm.contended());
  EXPECT_EQ(fsm.turn(), Step::attempt);
  EXPECT_NE(fsm.state(), State::queued);
  EXPECT_EQ(fsm.refused(), Step::queue);
  EXPECT_EQ(fsm.turn(), Step::attempt);
  EXPECT_EQ(fsm.granted(false), Step::finish);
  EXPECT_EQ(fsm.result(), Result::granted);
  EXPECT_TRUE(fsm.contended());
}

TEST(AcquireFsm, WhatItWaitsForHappensWhileItSleeps) {
  AcquireFsm fsm(false);
  EXPECT_EQ(fsm.start(false), Step::attempt);
  EXPECT_EQ(fsm.happened(), Step::none) << "its try will tell";
  EXPECT_EQ(fsm.refused(), Step::queue);
  EXPECT_EQ(fsm.happened(), Step::finish);
  EXPECT_EQ(fsm.result(), Result::granted);
  EXPECT_EQ(fsm.state(), State::ended);
  EXPECT_EQ(fsm.happened(), Step::none);
  EXPECT_EQ(fsm.turn(), Step::none);
}

TEST(AcquireFsm, DoesNotOvertakeThoseWhoWait) {
  AcquireFsm fsm(false);
  EXPECT_EQ(fsm.start(true), Step::queue);
  EXPECT_EQ(fsm.state(), State::queued);
  EXPECT_TRUE(fsm.contended());
  EXPECT_EQ(fsm.turn(), Step::attempt);
  EXPECT_EQ(fsm.granted(false), Step::finish);
}

TEST(AcquireFsm, OneAttemptTriesThoughOthersWait) {
  AcquireFsm fsm(true);
  EXPECT_EQ(fsm.start(true), Step::attempt);
  EXPECT_EQ(fsm.refused(), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
  EXPECT_EQ(fsm.state(), State::ended);
  EXPECT_TRUE(fsm.contended());
  EXPECT_FALSE(fsm.error().has_value());
}

TEST(AcquireFsm, OneAttemptMayBeGranted) {
  AcquireFsm fsm(true);
  EXPECT_EQ(fsm.start(false), Step::attempt);
  EXPECT_EQ(fsm.granted(false), Step::finish);
  EXPECT_EQ(fsm.result(), Result::granted);
}

TEST(AcquireFsm, TooManyHoldsAreReconciledBeforeTheAnswer) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.granted(true), Step::reconcileKeep);
  EXPECT_FALSE(fsm.answered());
  EXPECT_EQ(fsm.reconciled(true), Step::finish);
  EXPECT_EQ(fsm.result(), Result::granted);
}

TEST(AcquireFsm, GrantThatCannotBeBookedIsGivenBack) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.granted(false), Step::finish);
  EXPECT_EQ(fsm.notBooked(broken()), Step::finishAndReconcileBack);
  expectFailed(fsm, Errc::connectionFailed);
  EXPECT_NE(fsm.state(), State::ended);
  EXPECT_EQ(fsm.reconciled(false), Step::end);
}

// ---- Lost replies

TEST(AcquireFsm, LostReplyOfAGrantIsFoundOut) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.unknown(), Step::reconcileKeep);
  EXPECT_EQ(fsm.reconciled(true), Step::finish);
  EXPECT_EQ(fsm.result(), Result::granted);
}

TEST(AcquireFsm, LostRequestIsMadeAgain) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.unknown(), Step::reconcileKeep);
  EXPECT_EQ(fsm.reconciled(false), Step::attempt);
  EXPECT_EQ(fsm.unknown(), Step::reconcileKeep);
  EXPECT_EQ(fsm.reconciled(false), Step::attempt);
  EXPECT_EQ(fsm.refused(), Step::queue);
  EXPECT_EQ(fsm.turn(), Step::attempt);
  EXPECT_EQ(fsm.granted(false), Step::finish);
}

TEST(AcquireFsm, LostReplyOfOneAttemptIsNotTheEndOfIt) {
  AcquireFsm fsm(true);
  fsm.start(false);
  EXPECT_EQ(fsm.unknown(), Step::reconcileKeep);
  EXPECT_EQ(fsm.reconciled(false), Step::attempt);
  EXPECT_EQ(fsm.refused(), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

TEST(AcquireFsm, ReconcileThatFailsIsTriedOnceMoreInTheBackground) {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.unknown();
  EXPECT_EQ(fsm.reconcileFailed(broken()), Step::finishAndReconcileBack);
  expectFailed(fsm, Errc::connectionFailed);
  EXPECT_NE(fsm.state(), State::ended);
  EXPECT_EQ(fsm.reconciled(false), Step::end);
  EXPECT_EQ(fsm.state(), State::ended);
}

TEST(AcquireFsm, ReconcileThatFailsTwiceIsGivenUp) {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.unknown();
  fsm.reconcileFailed(broken());
  EXPECT_EQ(fsm.reconcileFailed(late()), Step::end);
  expectFailed(fsm, Errc::connectionFailed);
}

// ---- The time is up

TEST(AcquireFsm, TimeIsUpInTheQueue) {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.refused();
  EXPECT_EQ(fsm.expired(late()), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
  EXPECT_FALSE(fsm.error().has_value());
  EXPECT_EQ(fsm.state(), State::ended);
}

TEST(AcquireFsm, TimeIsUpDuringAnAttemptThatIsRefused) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  expectFailed(fsm, Errc::timedOut);
  EXPECT_TRUE(fsm.answered());
  EXPECT_NE(fsm.state(), State::ended);
  EXPECT_EQ(fsm.refused(), Step::end);
  EXPECT_EQ(fsm.state(), State::ended);
}

TEST(AcquireFsm, TimeIsUpDuringAnAttemptThatIsGranted) {
  for (const bool tooMany : {false, true}) {
    AcquireFsm fsm(false);
    fsm.start(false);
    EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
    EXPECT_EQ(fsm.granted(tooMany), Step::reconcileBack);
    EXPECT_NE(fsm.state(), State::ended);
    EXPECT_EQ(fsm.reconciled(false), Step::end);
    expectFailed(fsm, Errc::timedOut);
    EXPECT_EQ(fsm.state(), State::ended);
  }
}

TEST(AcquireFsm, TimeIsUpDuringAnAttemptThatGetsLost) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  EXPECT_EQ(fsm.unknown(), Step::reconcileBack);
  EXPECT_EQ(fsm.reconciled(false), Step::end);
  expectFailed(fsm, Errc::timedOut);
}

TEST(AcquireFsm, TimeIsUpDuringAnAttemptThatFails) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  EXPECT_EQ(fsm.failed(broken()), Step::end);
  expectFailed(fsm, Errc::timedOut);
}

TEST(AcquireFsm, TimeIsUpBeforeAnAttemptIsSent) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.notSent(late()), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
  EXPECT_FALSE(fsm.error().has_value());
}

TEST(AcquireFsm, TimeIsUpWhenALostAttemptHasLeftNothing) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.unknown(), Step::reconcileKeep);
  EXPECT_EQ(fsm.reconciled(false), Step::attempt);
  EXPECT_EQ(fsm.notSent(late()), Step::finish);
  expectFailed(fsm, Errc::timedOut);
}

TEST(AcquireFsm, TimeIsUpBeforeAnAttemptOfWhoLeftIsSent) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  EXPECT_EQ(fsm.notSent(broken()), Step::end);
  expectFailed(fsm, Errc::timedOut);
}

TEST(AcquireFsm, TimeIsUpDuringAReconcileThatFindsAGrant) {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.unknown();
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  EXPECT_EQ(fsm.reconciled(true), Step::reconcileBack);
  EXPECT_EQ(fsm.reconciled(false), Step::end);
  expectFailed(fsm, Errc::timedOut);
}

TEST(AcquireFsm, TimeIsUpDuringAReconcileThatFindsNothing) {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.unknown();
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  EXPECT_EQ(fsm.reconciled(false), Step::end);
  EXPECT_EQ(fsm.state(), State::ended);
}

TEST(AcquireFsm, TimeIsUpDuringAReconcileThatFails) {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.unknown();
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  EXPECT_EQ(fsm.reconcileFailed(broken()), Step::reconcileBack);
  EXPECT_EQ(fsm.reconcileFailed(broken()), Step::end);
  expectFailed(fsm, Errc::timedOut);
}

TEST(AcquireFsm, TimeIsUpWhileGivingBack) {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.expired(late());
  fsm.granted(false);
  EXPECT_EQ(fsm.expired(late()), Step::none);
  EXPECT_EQ(fsm.stopped(stop()), Step::none);
  EXPECT_EQ(fsm.reconcileFailed(broken()), Step::end);
}

// ---- Stopped

TEST(AcquireFsm, StoppedBeforeItBegins) {
  AcquireFsm fsm(false);
  EXPECT_EQ(fsm.stopped(stop()), Step::finish);
  expectFailed(fsm, Errc::cancelled);
  EXPECT_EQ(fsm.state(), State::ended);
}

TEST(AcquireFsm, StoppedInTheQueue) {
  AcquireFsm fsm(false);
  fsm.start(true);
  EXPECT_EQ(fsm.stopped(stop()), Step::finish);
  expectFailed(fsm, Errc::cancelled);
  EXPECT_EQ(fsm.state(), State::ended);
}

TEST(AcquireFsm, StoppedDuringAnAttempt) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.stopped(stop()), Step::finishEarly);
  expectFailed(fsm, Errc::cancelled);
  EXPECT_EQ(fsm.granted(false), Step::reconcileBack);
  EXPECT_EQ(fsm.reconciled(false), Step::end);
}

TEST(AcquireFsm, StoppedDuringAReconcile) {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.unknown();
  EXPECT_EQ(fsm.stopped(stop()), Step::finishEarly);
  EXPECT_EQ(fsm.reconciled(true), Step::reconcileBack);
  EXPECT_EQ(fsm.reconciled(false), Step::end);
  expectFailed(fsm, Errc::cancelled);
}

TEST(AcquireFsm, OnlyTheFirstReasonToLeaveCounts) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.stopped(stop()), Step::finishEarly);
  EXPECT_EQ(fsm.expired(late()), Step::none);
  EXPECT_EQ(fsm.stopped(Error(Errc::closed)), Step::none);
  EXPECT_EQ(fsm.refused(), Step::end);
  expectFailed(fsm, Errc::cancelled);
}

// ---- Failures

TEST(AcquireFsm, FailureOfAnAttemptEndsTheCall) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.failed(Error(Errc::wrongType)), Step::finish);
  expectFailed(fsm, Errc::wrongType);
  EXPECT_EQ(fsm.state(), State::ended);
}

TEST(AcquireFsm, FailureAfterAWaitEndsTheCall) {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.refused();
  fsm.turn();
  EXPECT_EQ(fsm.failed(Error(Errc::outOfMemory)), Step::finish);
  expectFailed(fsm, Errc::outOfMemory);
}

// ---- Events that come too late or for nothing

TEST(AcquireFsm, TurnCountsOnlyInTheQueue) {
  AcquireFsm fsm(false);
  EXPECT_EQ(fsm.turn(), Step::none);
  fsm.start(false);
  EXPECT_EQ(fsm.turn(), Step::none);
  fsm.unknown();
  EXPECT_EQ(fsm.turn(), Step::none);
  EXPECT_EQ(fsm.reconciled(true), Step::finish);
  EXPECT_EQ(fsm.turn(), Step::none);
}

TEST(AcquireFsm, TurnAfterTheTimeWasUpIsIgnored) {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.refused();
  fsm.expired(late());
  EXPECT_EQ(fsm.turn(), Step::none);
  EXPECT_EQ(fsm.result(), Result::refused);
}

TEST(AcquireFsm, NothingChangesAnAnswer) {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.granted(false);
  EXPECT_EQ(fsm.expired(late()), Step::none);
  EXPECT_EQ(fsm.stopped(stop()), Step::none);
  EXPECT_EQ(fsm.result(), Result::granted);
  EXPECT_FALSE(fsm.error().has_value());
}

// ---- The lock from the hands of its holder

AcquireFsm waiting() {
  AcquireFsm fsm(false);
  fsm.start(false);
  fsm.refused();
  return fsm;
}

TEST(AcquireFsm, OnlyAWaiterTakesOver) {
  AcquireFsm fsm(false);
  EXPECT_FALSE(fsm.offered());
  fsm.start(false);
  EXPECT_FALSE(fsm.offered());
  fsm.refused();
  EXPECT_TRUE(fsm.offered());
  EXPECT_EQ(fsm.state(), State::takingOver);
  EXPECT_NE(fsm.state(), State::queued);
  EXPECT_FALSE(fsm.answered());
  // It has its turn already.
  EXPECT_FALSE(fsm.offered());
  EXPECT_EQ(fsm.turn(), Step::none);
}

TEST(AcquireFsm, TakesOver) {
  AcquireFsm fsm = waiting();
  ASSERT_TRUE(fsm.offered());
  EXPECT_EQ(fsm.granted(false), Step::finish);
  EXPECT_EQ(fsm.result(), Result::granted);
  EXPECT_TRUE(fsm.contended());
  EXPECT_NE(fsm.state(), State::takingOver);
}

TEST(AcquireFsm, TriesByItselfIfNothingWasHandedOver) {
  AcquireFsm fsm = waiting();
  ASSERT_TRUE(fsm.offered());
  EXPECT_EQ(fsm.notHandedOver(), Step::attempt);
  EXPECT_EQ(fsm.refused(), Step::queue);
  EXPECT_TRUE(fsm.offered());
}

TEST(AcquireFsm, ReconcilesAHandOverThatWasLost) {
  AcquireFsm fsm = waiting();
  ASSERT_TRUE(fsm.offered());
  EXPECT_EQ(fsm.unknown(), Step::reconcileKeep);
  EXPECT_EQ(fsm.reconciled(true), Step::finish);
  EXPECT_EQ(fsm.result(), Result::granted);

  AcquireFsm nothing = waiting();
  ASSERT_TRUE(nothing.offered());
  EXPECT_EQ(nothing.unknown(), Step::reconcileKeep);
  EXPECT_EQ(nothing.reconciled(false), Step::attempt);
}

TEST(AcquireFsm, LeavesWhileTheLockIsOnItsWay) {
  AcquireFsm fsm = waiting();
  ASSERT_TRUE(fsm.offered());
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  expectFailed(fsm, Errc::timedOut);
  // A grant that comes is given back.
  EXPECT_EQ(fsm.granted(false), Step::reconcileBack);
  EXPECT_EQ(fsm.reconciled(false), Step::end);
  EXPECT_EQ(fsm.state(), State::ended);
  expectFailed(fsm, Errc::timedOut);
}

TEST(AcquireFsm, IsStoppedWhileTheLockIsOnItsWay) {
  AcquireFsm fsm = waiting();
  ASSERT_TRUE(fsm.offered());
  EXPECT_EQ(fsm.stopped(stop()), Step::finishEarly);
  EXPECT_EQ(fsm.notHandedOver(), Step::end);
  EXPECT_EQ(fsm.state(), State::ended);

  AcquireFsm lost = waiting();
  ASSERT_TRUE(lost.offered());
  EXPECT_EQ(lost.stopped(stop()), Step::finishEarly);
  EXPECT_EQ(lost.unknown(), Step::reconcileBack);
  EXPECT_EQ(lost.reconciled(false), Step::end);
  expectFailed(lost, Errc::cancelled);
}

// A hold that a reconciliation saw does not count against a holder that was seen before it.
TEST(AcquireFsm, WhoHasMetAnotherOwnerIsRefusedWhenItsTimeIsUp) {
  AcquireFsm fsm(false);
  fsm.start(false);
  EXPECT_EQ(fsm.refused(), Step::queue);
  EXPECT_EQ(fsm.turn(), Step::attempt);
  EXPECT_EQ(fsm.unknown(), Step::reconcileKeep);
  EXPECT_EQ(fsm.reconciled(false), Step::attempt);
  EXPECT_EQ(fsm.notSent(late()), Step::finish);
  EXPECT_EQ(fsm.result(), Result::refused);
}

}  // namespace
}  // namespace acquire_fsm_test
}  // namespace rlock::detail
