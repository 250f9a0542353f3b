// SPDX-License-Identifier: Apache-2.0
#include "unit/call_step_printer.hpp"
#include <rlock/detail/engine/release_fsm.hpp>

#include <gtest/gtest.h>

#include <ostream>

namespace rlock::detail {

inline void PrintTo(ReleaseFsm::Result result, std::ostream* out) {
  static constexpr const char* kNames[]{"pending", "released", "stillHeld", "notOwner", "failed"};
  *out << kNames[static_cast<int>(result)];
}

namespace release_fsm_test {
namespace {

using Step = ReleaseFsm::Step;
using Result = ReleaseFsm::Result;

Error late() {
  return Error(Errc::timedOut);
}
Error broken() {
  return Error(Errc::connectionFailed);
}

void expectFailed(const ReleaseFsm& fsm, Errc errc) {
  EXPECT_EQ(fsm.result(), Result::failed);
  ASSERT_TRUE(fsm.error().has_value());
  EXPECT_EQ(fsm.error()->errc(), errc);
}

// ---- Answers of the server

TEST(ReleaseFsm, LastHoldIsReleased) {
  ReleaseFsm fsm;
  EXPECT_FALSE(fsm.answered());
  EXPECT_EQ(fsm.start(), Step::attempt);
  EXPECT_EQ(fsm.released(true, 0, false), Step::finish);
  EXPECT_EQ(fsm.result(), Result::released);
  EXPECT_TRUE(fsm.answered());
  EXPECT_FALSE(fsm.error().has_value());
}

TEST(ReleaseFsm, OneOfSeveralHoldsIsReleased) {
  ReleaseFsm fsm;
  fsm.start();
  EXPECT_EQ(fsm.released(true, 2, false), Step::finish);
  EXPECT_EQ(fsm.result(), Result::stillHeld);
}

TEST(ReleaseFsm, ServerKnowsOfNoHold) {
  ReleaseFsm fsm;
  fsm.start();
  EXPECT_EQ(fsm.notOwner(), Step::finish);
  EXPECT_EQ(fsm.result(), Result::notOwner);
}

TEST(ReleaseFsm, HoldThatTheOwnerDidNotKnowIsNotItsOwn) {
  ReleaseFsm fsm;
  fsm.start();
  EXPECT_EQ(fsm.released(false, 0, false), Step::finish);
  EXPECT_EQ(fsm.result(), Result::notOwner);
}

TEST(ReleaseFsm, HoldsThatNobodyKnewAreReconciled) {
  ReleaseFsm fsm;
  fsm.start();
  EXPECT_EQ(fsm.released(false, 0, true), Step::reconcileBack);
  EXPECT_FALSE(fsm.answered());
  EXPECT_EQ(fsm.reconciled(Result::released), Step::finish);
  EXPECT_EQ(fsm.result(), Result::notOwner);
}

TEST(ReleaseFsm, TooManyHoldsAreReconciledBeforeTheAnswer) {
  {
    ReleaseFsm fsm;
    fsm.start();
    EXPECT_EQ(fsm.released(true, 0, true), Step::reconcileBack);
    EXPECT_EQ(fsm.reconciled(Result::notOwner), Step::finish);
    EXPECT_EQ(fsm.result(), Result::released) << "what the release amounts to was known already";
  }
  {
    ReleaseFsm fsm;
    fsm.start();
    EXPECT_EQ(fsm.released(true, 1, true), Step::reconcileBack);
    EXPECT_EQ(fsm.reconciled(Result::stillHeld), Step::finish);
    EXPECT_EQ(fsm.result(), Result::stillHeld);
  }
}

// ---- Lost replies

TEST(ReleaseFsm, LostReplyIsReconciled) {
  for (const Result outcome : {Result::released, Result::stillHeld, Result::notOwner}) {
    ReleaseFsm fsm;
    fsm.start();
    EXPECT_EQ(fsm.unknown(), Step::reconcileBack);
    EXPECT_FALSE(fsm.answered());
    EXPECT_EQ(fsm.reconciled(outcome), Step::finish);
    EXPECT_EQ(fsm.result(), outcome);
  }
}

TEST(ReleaseFsm, ReconcileThatFails) {
  ReleaseFsm fsm;
  fsm.start();
  fsm.unknown();
  // The caller is told; the hold must go all the same.
  EXPECT_EQ(fsm.reconcileFailed(broken()), Step::finishAndReconcileBack);
  expectFailed(fsm, Errc::connectionFailed);
  EXPECT_EQ(fsm.reconciled(Result::released), Step::end);
  expectFailed(fsm, Errc::connectionFailed);
}

// ---- Failures

TEST(ReleaseFsm, FailureEndsTheCall) {
  ReleaseFsm fsm;
  fsm.start();
  EXPECT_EQ(fsm.failed(Error(Errc::readOnly)), Step::finish);
  expectFailed(fsm, Errc::readOnly);
}

TEST(ReleaseFsm, FailureForGoodGoesOnWithoutTheCaller) {
  ReleaseFsm fsm;
  fsm.start();
  EXPECT_EQ(fsm.failedForGood(broken()), Step::finishAndReconcileBack);
  expectFailed(fsm, Errc::connectionFailed);
  EXPECT_EQ(fsm.reconciled(Result::released), Step::end);
  expectFailed(fsm, Errc::connectionFailed);
}

TEST(ReleaseFsm, FailureForGoodThatCannotBeReconciled) {
  ReleaseFsm fsm;
  fsm.start();
  fsm.failedForGood(broken());
  EXPECT_EQ(fsm.reconcileFailed(late()), Step::end);
  expectFailed(fsm, Errc::connectionFailed);
}

// ---- The time is up

TEST(ReleaseFsm, TimeIsUpBeforeTheAnswer) {
  ReleaseFsm fsm;
  fsm.start();
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  expectFailed(fsm, Errc::timedOut);
  EXPECT_TRUE(fsm.answered());
  EXPECT_EQ(fsm.released(true, 0, false), Step::end);
  expectFailed(fsm, Errc::timedOut);
}

TEST(ReleaseFsm, TimeIsUpAndTheServerKnowsOfNoHold) {
  ReleaseFsm fsm;
  fsm.start();
  fsm.expired(late());
  EXPECT_EQ(fsm.notOwner(), Step::end);
}

TEST(ReleaseFsm, TimeIsUpAndTheServerCountsTooMany) {
  ReleaseFsm fsm;
  fsm.start();
  fsm.expired(late());
  EXPECT_EQ(fsm.released(true, 0, true), Step::reconcileBack);
  EXPECT_EQ(fsm.reconciled(Result::released), Step::end);
}

TEST(ReleaseFsm, TimeIsUpAndTheReplyGetsLost) {
  ReleaseFsm fsm;
  fsm.start();
  fsm.expired(late());
  EXPECT_EQ(fsm.unknown(), Step::reconcileBack);
  EXPECT_EQ(fsm.reconciled(Result::released), Step::end);
  expectFailed(fsm, Errc::timedOut);
}

TEST(ReleaseFsm, TimeIsUpAndTheRequestFails) {
  ReleaseFsm fsm;
  fsm.start();
  fsm.expired(late());
  EXPECT_EQ(fsm.failed(broken()), Step::end);
  expectFailed(fsm, Errc::timedOut);
}

TEST(ReleaseFsm, TimeIsUpAndTheRequestFailsForGood) {
  ReleaseFsm fsm;
  fsm.start();
  fsm.expired(late());
  EXPECT_EQ(fsm.failedForGood(broken()), Step::reconcileBack);
  EXPECT_EQ(fsm.reconciled(Result::released), Step::end);
  expectFailed(fsm, Errc::timedOut);
}

TEST(ReleaseFsm, TimeIsUpDuringAReconcile) {
  ReleaseFsm fsm;
  fsm.start();
  fsm.unknown();
  EXPECT_EQ(fsm.expired(late()), Step::finishEarly);
  EXPECT_EQ(fsm.expired(late()), Step::none);
  // It was given up for the sake of a caller who has left: it goes on without.
  EXPECT_FALSE(fsm.reconcilesForGood());
  EXPECT_EQ(fsm.reconcileFailed(broken()), Step::reconcileBack);
  EXPECT_TRUE(fsm.reconcilesForGood());
  EXPECT_EQ(fsm.reconcileFailed(broken()), Step::end);
  expectFailed(fsm, Errc::timedOut);
}

TEST(ReleaseFsm, TimeIsUpAfterTheAnswer) {
  ReleaseFsm fsm;
  fsm.start();
  fsm.released(true, 0, false);
  EXPECT_EQ(fsm.expired(late()), Step::none);
  EXPECT_EQ(fsm.result(), Result::released);
}

}  // namespace
}  // namespace release_fsm_test
}  // namespace rlock::detail
