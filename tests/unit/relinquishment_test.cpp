// SPDX-License-Identifier: Apache-2.0
#include "unit/call_step_printer.hpp"
#include <rlock/detail/engine/relinquishment.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace rlock::detail {

inline void PrintTo(Relinquishment::Finding::Kind kind, std::ostream* out) {
  static constexpr const char* kNames[]{"released",
                                        "notOwner",
                                        "reconciled",
                                        "unreconciled",
                                        "goesOn",
                                        "otherData",
                                        "notReleased",
                                        "lost"};
  *out << kNames[static_cast<int>(kind)];
}

namespace relinquishment_test {
namespace {

using namespace std::chrono_literals;

using Finding = Relinquishment::Finding;
using Kind = Finding::Kind;
using Late = Call::Late;
using Plan = Relinquishment::Plan;
using Outcome = ReleaseFsm::Result;
using Step = CallStep;

ReleaseReply released(std::int64_t remain) {
  ReleaseReply reply;
  reply.owned = true;
  reply.remain = remain;
  return reply;
}

/// A release with its state machine, when its request is sent.
struct Case {
  explicit Case(const Plan& plan,
                bool validWhenSent = true,
                const std::string& tombstone = {},
                const LockTraits& kind = {})
      : traits(kind), it(traits) {
    it.beginAttempt(plan, tombstone, validWhenSent);
    fsm.start();
  }
  Step decide(Finding finding) { return Relinquishment::decide(fsm, std::move(finding)); }
  /// A reply was lost, and what was found is this.
  Outcome reconciled(ReconcileReply reply) {
    decide({.kind = Kind::lost});
    it.beginReconciling();
    EXPECT_EQ(decide(it.reconciled(reply)), Step::finish);
    return fsm.result();
  }
  [[nodiscard]] std::optional<Errc> error() const {
    return fsm.error() ? std::optional(fsm.error()->errc()) : std::nullopt;
  }

  const LockTraits traits;
  Relinquishment it;
  ReleaseFsm fsm;
};

Plan held(int before) {
  return {.before = before};
}
Plan lostHold(int before) {
  return {.all = true, .lost = true, .before = before};
}
Plan lostPart(int before, int partIndex) {
  return {.lost = true, .before = before, .partIndex = partIndex};
}

// ---- Requests

TEST(Relinquishment, RequestSaysWhatIsKnown) {
  const Case c({.before = 2, .partIndex = 2, .restore = 30s}, true, "t");
  const ReleaseRequest request = c.it.attempt("me");
  EXPECT_EQ(request.owner, "me");
  EXPECT_EQ(request.restore, 30s);
  EXPECT_EQ(request.tombstone, "t");
  EXPECT_EQ(request.partIndex, 2);
  EXPECT_EQ(request.before, 2);
}

TEST(Relinquishment, LateReleaseTakesALaterHold) {
  LockTraits ids;
  ids.ownIds = true;
  EXPECT_EQ(Case(held(1)).it.late(), Late::takes);
  EXPECT_EQ(Case(held(1), true, "t").it.late(), Late::harmless);
  EXPECT_EQ(Case(held(1), true, {}, ids).it.late(), Late::harmless);
  EXPECT_TRUE(Case(held(1)).it.needsGuard());
  EXPECT_FALSE(Case(held(1), true, {}, ids).it.needsGuard());
}

TEST(Relinquishment, ReconcilingBringsTheCountDownByOne) {
  Case c({.before = 3, .partIndex = 2}, true, "t");
  c.it.beginReconciling();
  const ReconcileRequest first = c.it.reconciling("me");
  EXPECT_EQ(first.target, 2);
  EXPECT_EQ(first.before, 3);
  EXPECT_EQ(first.partIndex, 2);
  EXPECT_EQ(first.tombstone, "t");
  EXPECT_EQ(first.number, 1);
  EXPECT_EQ(first.lost, ReconcileRequest::Of::release);
  EXPECT_EQ(c.it.reconciling("me").number, 2);
}

TEST(Relinquishment, ReconcilingOfALostHoldLeavesNothing) {
  Case c({.all = true, .lost = true, .before = 3, .partIndex = 2});
  c.it.beginReconciling();
  EXPECT_EQ(c.it.reconciling("me").target, 0);
  EXPECT_EQ(c.it.reconciling("me").partIndex, 0);
  EXPECT_EQ(Case(held(0)).it.reconciling("me").target, 0);
}

TEST(Relinquishment, ReconcilingGoesOnUntilTheTombstoneIsWritten) {
  const auto now = Relinquishment::Clock::time_point(100s);
  Case killed({.before = 1});
  EXPECT_EQ(killed.it.reconcilesUntil(now, now + 3s, 2s), now + 5s);
  Case marked({.before = 1}, true, "tombstone");
  EXPECT_EQ(marked.it.reconcilesUntil(now, now + 3s, 2s), now + kTombstoneLife);
  EXPECT_EQ(marked.it.reconcilesUntil(now, now + 1h, 2s), now + 1h + 2s);
}

TEST(Relinquishment, AttemptBeginsAnew) {
  Case c(held(2), true, "t");
  c.it.beginReconciling();
  static_cast<void>(c.it.reconciling("me"));
  c.it.beginAttempt(held(1), "", true);
  EXPECT_FALSE(c.it.reconciles());
  EXPECT_FALSE(c.it.hasTombstone());
  EXPECT_EQ(c.it.reconciling("me").number, 1);
}

// ---- The meaning of a reply

TEST(Relinquishment, LastHold) {
  Case c(held(1));
  Finding finding = c.it.replied(released(0));
  EXPECT_EQ(finding.kind, Kind::released);
  EXPECT_TRUE(finding.booked);
  EXPECT_FALSE(finding.lostHold);
  EXPECT_TRUE(finding.leavesGate());
  EXPECT_EQ(c.decide(std::move(finding)), Step::finish);
  EXPECT_EQ(c.fsm.result(), Outcome::released);
}

TEST(Relinquishment, OneOfSeveralSaysHowLongTheOthersLast) {
  ReleaseReply reply = released(1);
  reply.remaining = 700ms;
  reply.over = {2};
  Case c(held(2));
  Finding finding = c.it.replied(reply);
  EXPECT_EQ(finding.remain, 1);
  EXPECT_EQ(finding.lasts, 700ms);
  EXPECT_EQ(finding.over, reply.over);
  EXPECT_EQ(c.decide(std::move(finding)), Step::finish);
  EXPECT_EQ(c.fsm.result(), Outcome::stillHeld);
  reply.remain = 0;
  EXPECT_FALSE(Case(held(1)).it.replied(reply).lasts) << "nothing is left that could last";
}

TEST(Relinquishment, HoldThatTheServerDoesNotKnowIsLost) {
  Case c(held(1));
  Finding finding = c.it.replied(ReleaseReply());
  EXPECT_EQ(finding.kind, Kind::notOwner);
  EXPECT_TRUE(finding.booked);
  EXPECT_TRUE(finding.lostHold);
  EXPECT_EQ(c.decide(std::move(finding)), Step::finish);
  EXPECT_EQ(c.fsm.result(), Outcome::notOwner);
}

TEST(Relinquishment, HoldThatWasToldLostIsNotToldReleased) {
  Case c(lostHold(1));
  Finding finding = c.it.replied(released(0));
  EXPECT_EQ(finding.kind, Kind::notOwner);
  EXPECT_TRUE(finding.lostHold);
  EXPECT_EQ(c.decide(std::move(finding)), Step::finish);
  EXPECT_EQ(c.fsm.result(), Outcome::notOwner);
}

TEST(Relinquishment, ReconciledOneOfSeveralSaysWhichAreOver) {
  Case c({.before = 3, .partIndex = 1});
  c.it.beginReconciling();
  const PartIndexes over{2};
  EXPECT_EQ(c.it.reconciled({.before = 2, .now = 2, .over = over}).over, over);
}

TEST(Relinquishment, MoreThanExpectedIsReconciledBeforeTheLedgerIsTold) {
  Case c(held(2));
  Finding finding = c.it.replied(released(4));
  EXPECT_EQ(finding.remain, 1);
  EXPECT_TRUE(finding.tooMany);
  EXPECT_FALSE(finding.booked);
  EXPECT_FALSE(finding.leavesGate());
  EXPECT_EQ(c.decide(std::move(finding)), Step::reconcileBack);
}

TEST(Relinquishment, MoreOfALostHoldIsReconciledToo) {
  Case c(lostHold(2));
  Finding finding = c.it.replied(released(1));
  EXPECT_EQ(finding.kind, Kind::released);
  EXPECT_TRUE(finding.tooMany);
  EXPECT_EQ(c.decide(std::move(finding)), Step::reconcileBack);
  c.it.beginReconciling();
  EXPECT_EQ(c.decide(c.it.reconciled({1, 0})), Step::finish);
  EXPECT_EQ(c.fsm.result(), Outcome::notOwner);
}

TEST(Relinquishment, HoldOfAnEarlierProcessIsNotTheCallersOwn) {
  Case c(held(0));
  EXPECT_EQ(c.decide(c.it.replied(released(0))), Step::finish);
  EXPECT_EQ(c.fsm.result(), Outcome::notOwner);
}

// ---- Lost replies

TEST(Relinquishment, ReconciledReleaseIsOne) {
  EXPECT_EQ(Case(held(1)).reconciled({1, 0}), Outcome::released);
  EXPECT_EQ(Case(held(2)).reconciled({2, 1}), Outcome::stillHeld);
  EXPECT_EQ(Case(held(2)).reconciled({1, 1}), Outcome::stillHeld) << "it had been executed";
}

TEST(Relinquishment, HoldThatWasGoneIsReleasedOnlyIfItWasThereWhenTheRequestWasSent) {
  EXPECT_EQ(Case(held(1), true).reconciled({0, 0}), Outcome::released);
  EXPECT_EQ(Case(held(1), false).reconciled({0, 0}), Outcome::notOwner);
  EXPECT_EQ(Case(held(1), false).reconciled({1, 0}), Outcome::released) << "it was there";
}

TEST(Relinquishment, ReconciledReleaseOfWhatIsLostIsNone) {
  EXPECT_EQ(Case(lostHold(1)).reconciled({1, 0}), Outcome::notOwner);
  EXPECT_EQ(Case(lostPart(2, 1)).reconciled({2, 1}), Outcome::notOwner);
  EXPECT_EQ(Case(held(0)).reconciled({1, 0}), Outcome::notOwner);
}

TEST(Relinquishment, ReconcilingSaysWhatToBook) {
  Case c(held(2));
  c.it.beginReconciling();
  ReconcileReply reply{2, 1};
  reply.remaining = 300ms;
  Finding finding = c.it.reconciled(reply);
  EXPECT_TRUE(finding.booked);
  EXPECT_FALSE(finding.lostHold);
  EXPECT_EQ(finding.remain, 1);
  EXPECT_EQ(finding.lasts, 300ms);
  reply.now = 0;
  EXPECT_FALSE(c.it.reconciled(reply).lasts);
  Case gone(held(1), false);
  EXPECT_TRUE(gone.it.reconciled({0, 0}).lostHold);
}

TEST(Relinquishment, ReconcilingThatFailsLeavesADoubt) {
  Case c(held(1));
  c.decide({.kind = Kind::lost});
  c.it.beginReconciling();
  Finding finding = c.it.failed(Error(Errc::connectionFailed), false);
  EXPECT_EQ(finding.kind, Kind::unreconciled);
  EXPECT_FALSE(finding.leavesGate());
  EXPECT_EQ(c.decide(std::move(finding)), Step::finishAndReconcileBack);
  ASSERT_TRUE(c.fsm.error());
  EXPECT_NE(c.fsm.error()->message().find("not known"), std::string::npos);
  EXPECT_EQ(c.decide(c.it.failed(Error(Errc::connectionFailed), false)), Step::end);
}

// ---- Failures

TEST(Relinquishment, ReleaseThatDidNotGetThroughGoesOn) {
  for (const Errc errc : {Errc::connectionFailed, Errc::timedOut}) {
    Case c(held(1));
    Finding finding = c.it.failed(Error(errc), false);
    EXPECT_EQ(finding.kind, Kind::goesOn);
    EXPECT_FALSE(finding.leavesGate());
    EXPECT_EQ(c.decide(std::move(finding)), Step::finishAndReconcileBack);
    EXPECT_EQ(c.error(), errc);
  }
}

TEST(Relinquishment, ServerThatTakesNothingAtTheMomentIsNoReasonToStay) {
  for (const Errc errc : {Errc::connectionFailed, Errc::readOnly, Errc::notSynced}) {
    EXPECT_EQ(Case(held(1)).it.failed(Error(errc), true).kind, Kind::goesOn);
  }
  const auto said = [](std::string words) {
    ErrorContext context;
    context.serverMessage = std::move(words);
    return Error(Errc::serverError, {}, std::move(context));
  };
  for (const char* const words :
       {"BUSY Redis is busy running a script", "TRYAGAIN Multiple keys"}) {
    EXPECT_EQ(Case(held(1)).it.failed(said(words), true).kind, Kind::goesOn) << words;
  }
  EXPECT_EQ(Case(held(1)).it.failed(said("MISCONF Redis cannot save"), true).kind,
            Kind::notReleased);
}

TEST(Relinquishment, RefusalIsTheCallersToDealWith) {
  Case c(held(1));
  Finding finding = c.it.failed(Error(Errc::denied), true);
  EXPECT_EQ(finding.kind, Kind::notReleased);
  EXPECT_FALSE(finding.booked);
  EXPECT_TRUE(finding.leavesGate());
  EXPECT_EQ(c.decide(std::move(finding)), Step::finish);
  EXPECT_EQ(c.error(), Errc::denied);
}

TEST(Relinquishment, RefusalIsNoReasonToStayIfNobodyAsks) {
  Case c(held(1));
  c.it.setNobodyAsks();
  EXPECT_EQ(c.it.failed(Error(Errc::denied), true).kind, Kind::goesOn);
  EXPECT_EQ(c.it.failed(Error(Errc::wrongType), true).kind, Kind::otherData);
  EXPECT_EQ(c.it.failed(Error(Errc::closed), false).kind, Kind::notReleased);
}

/// Such an error says that the release has not begun, and whoever waits for it repeats it.
TEST(Relinquishment, WithoutMemoryARequestThatWasNotSentDoesNotGoOn) {
  Case c(held(2));
  c.it.setMustGo();
  EXPECT_EQ(c.it.failed(memoryError(), false).kind, Kind::notReleased);
  EXPECT_EQ(c.it.failed(Error(Errc::connectionFailed), false).kind, Kind::goesOn);
  Case quiet(held(2));
  quiet.it.setNobodyAsks();
  EXPECT_EQ(quiet.it.failed(memoryError(), false).kind, Kind::goesOn);
}

TEST(Relinquishment, RefusalIsToldToACallerThatCannotAskAgainAndTheReleaseGoesOn) {
  Case c(held(2));
  c.it.setMustGo();
  EXPECT_FALSE(c.it.nobodyAsks()) << "the caller still leaves in time";
  Finding finding = c.it.failed(Error(Errc::denied), true);
  EXPECT_EQ(finding.kind, Kind::goesOn);
  EXPECT_FALSE(finding.leavesGate());
  EXPECT_EQ(c.decide(std::move(finding)), Step::finishAndReconcileBack);
  EXPECT_EQ(c.error(), Errc::denied);
  c.it.beginReconciling();
  EXPECT_EQ(c.it.reconciling("me").target, 1);
}

TEST(Relinquishment, OtherDataInItsPlaceMeansThatTheHoldIsLost) {
  Case c(held(1));
  Finding finding = c.it.failed(Error(Errc::wrongType), true);
  EXPECT_EQ(finding.kind, Kind::otherData);
  EXPECT_TRUE(finding.booked);
  EXPECT_TRUE(finding.lostHold);
  EXPECT_EQ(finding.remain, 0);
  EXPECT_EQ(c.decide(std::move(finding)), Step::finish);
  EXPECT_EQ(c.error(), Errc::wrongType);
}

TEST(Relinquishment, NothingGoesOnForAHoldThatIsNotThereOrAClientThatCloses) {
  EXPECT_EQ(Case(held(0)).it.failed(Error(Errc::connectionFailed), false).kind, Kind::notReleased);
  EXPECT_EQ(Case(held(1)).it.failed(Error(Errc::closed), false).kind, Kind::notReleased);
}

// ---- No memory

TEST(Relinquishment, WithoutMemoryARequestThatMayHaveBeenExecutedIsReconciled) {
  Case c(held(1));
  EXPECT_EQ(Relinquishment::withoutMemory(c.fsm, true), Step::reconcileBack);
  Case unsent(held(1));
  EXPECT_EQ(Relinquishment::withoutMemory(unsent.fsm, false), Step::finish);
  EXPECT_EQ(unsent.error(), Errc::overloaded);
}

}  // namespace
}  // namespace relinquishment_test
}  // namespace rlock::detail
