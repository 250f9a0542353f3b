// SPDX-License-Identifier: Apache-2.0
#include "unit/call_step_printer.hpp"
#include <rlock/detail/engine/acquisition.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <ostream>
#include <string>
#include <utility>

namespace rlock::detail {

inline void PrintTo(AcquisitionFinding::Kind kind, std::ostream* out) {
  static constexpr const char* kNames[]{"refused",
                                        "tooLate",
                                        "happened",
                                        "leftover",
                                        "granted",
                                        "resolved",
                                        "unresolved",
                                        "lost",
                                        "notSent",
                                        "failed"};
  *out << kNames[static_cast<int>(kind)];
}

namespace {

using namespace std::chrono_literals;

using Clock = Acquisition::Clock;
using Finding = Acquisition::Finding;
using Kind = Finding::Kind;
using Late = Call::Late;
using Step = CallStep;

constexpr std::chrono::milliseconds kLease = 1000ms;
constexpr std::chrono::milliseconds kCallTimeout = 300ms;
constexpr std::chrono::milliseconds kOutage = 5s;
constexpr Clock::time_point kStart = Clock::time_point() + 1h;
constexpr Clock::time_point kNever = Clock::time_point::max();

AcquireReply grantOf(std::int64_t count) {
  AcquireReply reply;
  reply.granted = true;
  reply.count = count;
  return reply;
}
AcquireReply refusal(std::chrono::milliseconds remaining) {
  AcquireReply reply;
  reply.remaining = remaining;
  return reply;
}

/// An acquisition with its state machine, at the moment its first request is sent.
class Case {
 public:
  struct Setting {
    LockTraits traits{};
    Duration wait = 10h;
    bool lease = false;
    bool willRetry = false;
    bool forEver = false;
    std::chrono::milliseconds leaseTime = kLease;
    Clock::time_point deadline = kNever;
  };

  explicit Case(Setting setting) : traits_(setting.traits) {
    params_.wait = setting.wait;
    params_.willRetry = setting.willRetry;
    params_.forEver = setting.forEver;
    if (setting.lease) {
      params_.lease = Duration(setting.leaseTime);
    }
    it.emplace(AcquisitionTerms(traits_, params_, setting.leaseTime, setting.deadline));
    fsm.emplace(!it->terms().waits());
    fsm->start(false);
  }
  Case() : Case(Setting()) {}

  Case& attempt(int before = 0, const std::string& tombstone = {}, Clock::time_point at = kStart) {
    it->beginAttempt(before, tombstone);
    it->sentAt(at);
    return *this;
  }
  Step decide(Finding finding, bool closed = false) {
    return AcquisitionDecision::decide(*fsm, std::move(finding), closed).step();
  }
  /// Until when it may be sent.
  Clock::time_point reconcile(bool keep, Clock::time_point now = kStart) {
    return it->beginReconciling(keep, now, kCallTimeout, kOutage);
  }
  [[nodiscard]] std::optional<Errc> error() const {
    return fsm->error() ? std::optional(fsm->error()->errc()) : std::nullopt;
  }

  const LockTraits traits_;
  AcquireParams params_;
  std::optional<Acquisition> it;
  std::optional<AcquireFsm> fsm;
};

LockTraits semaphore() {
  LockTraits traits;
  traits.holdKind = HoldKind::none;
  traits.reconcileWithin = 120s;
  return traits;
}
LockTraits latch() {
  LockTraits traits;
  traits.holdKind = HoldKind::none;
  traits.wakeRule = WakeRule::broadcast;
  traits.changesState = false;
  return traits;
}
LockTraits fair() {
  LockTraits traits;
  traits.queuesOnServer = true;
  return traits;
}
LockTraits ids() {
  LockTraits traits;
  traits.holdKind = HoldKind::permit;
  traits.ownIds = true;
  return traits;
}

// ---- The turn of an attempt

TEST(Acquisition, StandsBehindOthersOnlyWhereOneGetsIn) {
  for (const auto& [rule, queues] : {std::pair(WakeRule::fifo, true),
                                     std::pair(WakeRule::bestFit, true),
                                     std::pair(WakeRule::broadcast, false),
                                     std::pair(WakeRule::polling, false)}) {
    LockTraits traits;
    traits.wakeRule = rule;
    EXPECT_EQ(Case({.traits = traits}).it->terms().queuesBehindOthers(), queues);
  }
}

// ---- Requests

TEST(Acquisition, RequestSaysWhatIsKnown) {
  Case c;
  c.attempt(2, "t");
  const AcquireRequest request = c.it->attempt("me");
  EXPECT_EQ(request.owner, "me");
  EXPECT_EQ(request.lease, kLease);
  EXPECT_EQ(request.tombstone, "t");
  EXPECT_TRUE(request.waits);
  EXPECT_TRUE(request.again);
  EXPECT_FALSE(request.enrolled);
  EXPECT_FALSE(Case({.wait = Duration::zero()}).attempt().it->attempt("me").waits);
  EXPECT_FALSE(Case().attempt(0).it->attempt("me").again);
}

TEST(Acquisition, EachRequestHasATombstoneOfItsOwn) {
  Case c;
  c.attempt(0, "first");
  c.it->beginAttempt(0, "");
  EXPECT_FALSE(c.it->hasTombstone());
  EXPECT_EQ(c.it->attempt("me").tombstone, "");
}

TEST(Acquisition, WaiterEnrolsOnceWhereTheServerHasAQueue) {
  Case c({.traits = fair()});
  c.it->beginAttempt(0, "");
  EXPECT_TRUE(c.it->enrols());
  EXPECT_FALSE(c.it->attempt("me").enrolled);
  c.it->sentAt(kStart);
  EXPECT_FALSE(c.it->attempt("me").enrolled) << "the same request, sent again";
  c.it->beginAttempt(0, "");
  EXPECT_FALSE(c.it->enrols());
  EXPECT_TRUE(c.it->attempt("me").enrolled);
  c.it->sentAt(kStart);
  EXPECT_TRUE(c.it->takeQueueEntry());
  EXPECT_FALSE(c.it->takeQueueEntry()) << "it was given up";
}

TEST(Acquisition, NobodyEnrolsWithoutAWaitOrAQueue) {
  EXPECT_FALSE(Case({.traits = fair(), .wait = Duration::zero()}).attempt().it->takeQueueEntry());
  EXPECT_FALSE(Case().attempt().it->takeQueueEntry());
}

TEST(Acquisition, PlaceThatCouldNotBeBookedIsNotTaken) {
  Case c({.traits = fair()});
  c.it->beginAttempt(0, "");
  EXPECT_FALSE(c.it->takeQueueEntry()) << "before it is sent";
}

TEST(Acquisition, LateRequestIsHarmlessOnlyIfItsKindOrATombstoneSaysSo) {
  EXPECT_EQ(Case().attempt().it->late(), Late::adds);
  EXPECT_EQ(Case().attempt(0, "t").it->late(), Late::harmless);
  EXPECT_EQ(Case({.traits = latch()}).attempt().it->late(), Late::harmless);
  EXPECT_EQ(Case({.traits = semaphore()}).attempt().it->late(), Late::harmless);
  EXPECT_EQ(Case({.traits = ids()}).attempt().it->late(), Late::adds);
}

TEST(Acquisition, LateReconcilingTakesALaterHold) {
  Case c;
  c.attempt().reconcile(false);
  EXPECT_EQ(c.it->late(), Late::takes);
  Case marked;
  marked.attempt(0, "t").reconcile(false);
  EXPECT_EQ(marked.it->late(), Late::harmless);
  Case named({.traits = ids()});
  named.attempt().reconcile(false);
  EXPECT_EQ(named.it->late(), Late::harmless) << "no id is used twice";
}

TEST(Acquisition, SendsUntilTheDeadline) {
  const Case c({.deadline = kStart + 10s});
  EXPECT_FALSE(c.it->terms().limitedByOutage());
  EXPECT_EQ(c.it->terms().sendBefore(kStart, kOutage), kStart + 10s);
}

TEST(Acquisition, AnOutageLimitsACallWithoutEnd) {
  const Case endless;
  EXPECT_TRUE(endless.it->terms().limitedByOutage());
  EXPECT_EQ(endless.it->terms().sendBefore(kStart, kOutage), kStart + kOutage);
  const Case forEver({.forEver = true, .deadline = kStart + 10s});
  EXPECT_EQ(forEver.it->terms().sendBefore(kStart, kOutage), kStart + kOutage);
  EXPECT_EQ(forEver.it->terms().sendBefore(kStart + 8s, kOutage), kStart + 10s);
}

// ---- The meaning of a reply

TEST(Acquisition, GrantIsTheCallersUntilItIsBooked) {
  Case c;
  Finding finding = c.attempt().it->replied(grantOf(1), kStart + 1ms);
  EXPECT_EQ(finding.kind, Kind::granted);
  EXPECT_FALSE(finding.tooMany);
  EXPECT_FALSE(finding.leavesGate()) << "not before it is booked";
  EXPECT_TRUE(finding.leavesQueueEntry);
  EXPECT_EQ(finding.count, 1);
  const Step step = c.decide(std::move(finding));
  EXPECT_EQ(step, Step::finish);
  EXPECT_TRUE(AcquisitionDecision(Kind::granted, step).obtains());
  EXPECT_TRUE(AcquisitionDecision(Kind::granted, step).leavesGate());
  EXPECT_EQ(c.it->validFrom(), kStart);
}

TEST(Acquisition, RefusalLeavesTheGateAndKeepsThePlace) {
  Case c({.traits = fair()});
  Finding finding = c.attempt().it->replied(refusal(70ms), kStart);
  EXPECT_EQ(finding.kind, Kind::refused);
  EXPECT_TRUE(finding.leavesGate());
  EXPECT_FALSE(finding.leavesQueueEntry);
  EXPECT_EQ(c.it->remaining(), 70ms);
  EXPECT_EQ(c.decide(std::move(finding)), Step::queue);
  EXPECT_TRUE(c.it->takeTried());
  EXPECT_FALSE(c.it->takeTried());
}

// The server lets an owner in that holds the lock.
TEST(Acquisition, RefusalOfAReentryLeavesNothingOfTheHold) {
  Case c;
  EXPECT_EQ(c.attempt(0).it->replied(refusal(70ms), kStart).left, std::nullopt);
  EXPECT_EQ(c.attempt(2).it->replied(refusal(70ms), kStart).left, 0);
}

TEST(Acquisition, GrantThatComesWhenItsLeaseIsOverIsNone) {
  const auto end = kStart + kLease - Validity::allowance(kLease);
  EXPECT_EQ(Case().attempt().it->replied(grantOf(1), end - 1ns).kind, Kind::granted);
  Case c;
  Finding finding = c.attempt().it->replied(grantOf(1), end);
  EXPECT_EQ(finding.kind, Kind::tooLate);
  EXPECT_TRUE(finding.leavesGate());
  EXPECT_TRUE(finding.leavesQueueEntry);
  EXPECT_EQ(c.it->remaining(), 0ms) << "it tries again at once";
  EXPECT_EQ(c.decide(std::move(finding)), Step::queue);
}

TEST(Acquisition, VeryShortLeaseIsNeverTooLate) {
  EXPECT_EQ(
      Case({.lease = true, .leaseTime = 10ms}).attempt().it->replied(grantOf(1), kStart + 1h).kind,
      Kind::granted);
  EXPECT_EQ(
      Case({.lease = true, .leaseTime = 11ms}).attempt().it->replied(grantOf(1), kStart + 1h).kind,
      Kind::tooLate);
}

TEST(Acquisition, CountWithoutALeaseIsNeverTooLate) {
  EXPECT_FALSE(Case({.traits = semaphore()}).it->terms().expires());
  EXPECT_EQ(Case({.traits = semaphore()}).attempt().it->replied(grantOf(1), kStart + 1h).kind,
            Kind::granted);
  EXPECT_TRUE(Case({.traits = semaphore(), .lease = true}).it->terms().expires());
  EXPECT_EQ(Case({.traits = semaphore(), .lease = true})
                .attempt()
                .it->replied(grantOf(1), kStart + 1h)
                .kind,
            Kind::tooLate);
}

TEST(Acquisition, ReentryIsOneMoreThanBefore) {
  Case c;
  const Finding finding = c.attempt(2).it->replied(grantOf(3), kStart);
  EXPECT_EQ(finding.kind, Kind::granted);
  EXPECT_FALSE(finding.tooMany);
  EXPECT_EQ(c.it->before(), 2);
}

TEST(Acquisition, MoreThanExpectedIsReconciled) {
  Case c;
  Finding finding = c.attempt(1).it->replied(grantOf(3), kStart);
  EXPECT_TRUE(finding.tooMany);
  const Step step = c.decide(std::move(finding));
  EXPECT_EQ(step, Step::reconcileKeep);
  EXPECT_FALSE(AcquisitionDecision(Kind::granted, step).obtains());
  EXPECT_FALSE(AcquisitionDecision(Kind::granted, step).leavesGate());
  c.reconcile(true);
  EXPECT_EQ(c.it->reconciling("me").target, 2);
}

TEST(Acquisition, HoldWithTheTokenOfALostOneGoesFirst) {
  AcquireReply reply = grantOf(2);
  reply.token = 7;
  Case c;
  Finding finding = c.attempt().it->replied(reply, kStart);
  EXPECT_EQ(finding.kind, Kind::leftover);
  EXPECT_FALSE(finding.leavesGate());
  EXPECT_EQ(c.decide(std::move(finding)), Step::reconcileKeep);
  c.reconcile(true);
  EXPECT_FALSE(c.it->keeps());
  EXPECT_EQ(c.it->reconciling("me").target, 0);
  EXPECT_EQ(c.decide(c.it->reconciled({2, 0}, false, kStart)), Step::attempt);
  // Only once.
  finding = c.attempt().it->replied(reply, kStart);
  EXPECT_EQ(finding.kind, Kind::granted);
  EXPECT_TRUE(finding.tooMany);
  EXPECT_EQ(c.decide(std::move(finding)), Step::reconcileKeep);
  c.reconcile(true);
  EXPECT_TRUE(c.it->keeps());
}

TEST(Acquisition, TokenOfAHoldThatWasLostMeanwhileGoesFirst) {
  AcquireReply reply = grantOf(2);
  reply.token = 7;
  Case c;
  c.attempt(1).it->heldStill(0);
  Finding finding = c.it->replied(reply, kStart);
  EXPECT_EQ(finding.kind, Kind::leftover);
  EXPECT_FALSE(finding.leavesGate());
  EXPECT_EQ(c.decide(std::move(finding)), Step::reconcileKeep);
  c.reconcile(true);
  EXPECT_FALSE(c.it->keeps());
  EXPECT_EQ(c.it->reconciling("me").target, 0) << "the old hold stays";
  EXPECT_EQ(c.decide(c.it->reconciled({2, 0}, false, kStart)), Step::attempt);
  EXPECT_EQ(c.attempt().it->replied(reply, kStart).kind, Kind::granted) << "more than once";
}

TEST(Acquisition, ReconciledTokenOfAHoldThatWasLostMeanwhileGoesFirst) {
  Case c;
  EXPECT_EQ(c.decide(c.attempt(1).it->lost()), Step::reconcileKeep);
  c.reconcile(true);
  EXPECT_EQ(c.it->reconciling("me").target, 2);
  ReconcileReply reply{2, 2};
  reply.token = 7;
  c.it->heldStill(0);
  EXPECT_EQ(c.decide(c.it->reconciled(reply, false, kStart)), Step::reconcileKeep);
  c.reconcile(true);
  EXPECT_EQ(c.it->reconciling("me").target, 0);
  EXPECT_EQ(c.decide(c.it->reconciled({2, 0}, false, kStart)), Step::attempt);
}

/// The reconciliation has taken one of two holds away: what is left has the token of the first.
TEST(Acquisition, ReconciledTokenOfAHoldThatWasLostBeforeGoesFirst) {
  Case c;
  EXPECT_EQ(c.decide(c.attempt().it->lost()), Step::reconcileKeep);
  c.reconcile(true);
  EXPECT_EQ(c.it->reconciling("me").target, 1);
  ReconcileReply reply{2, 1};
  reply.token = 7;
  EXPECT_EQ(c.decide(c.it->reconciled(reply, false, kStart)), Step::reconcileKeep);
  c.reconcile(true);
  EXPECT_EQ(c.it->reconciling("me").target, 0);
  EXPECT_EQ(c.decide(c.it->reconciled({1, 0}, false, kStart)), Step::attempt);
}

TEST(Acquisition, HoldThatTheServerHadDroppedHasATokenOfItsOwn) {
  AcquireReply reply = grantOf(1);
  reply.token = 8;
  Case c;
  c.attempt(1).it->heldStill(0);
  EXPECT_EQ(c.it->replied(reply, kStart).kind, Kind::granted);
}

TEST(Acquisition, LossMeanwhileIsForgottenByTheNextAttempt) {
  AcquireReply reply = grantOf(2);
  reply.token = 7;
  Case c;
  c.attempt(1).it->heldStill(0);
  EXPECT_EQ(c.attempt(1).it->replied(reply, kStart).kind, Kind::granted);
}

TEST(Acquisition, TokenOfAHoldThatIsKnownStays) {
  AcquireReply reply = grantOf(3);
  reply.token = 7;
  EXPECT_EQ(Case().attempt(1).it->replied(reply, kStart).kind, Kind::granted);
  Case c;
  reply.count = 1;
  EXPECT_EQ(c.attempt().it->replied(reply, kStart).kind, Kind::granted);
  EXPECT_EQ(c.it->obtained().token, 7U);
}

TEST(Acquisition, OpenLatchLeavesNothingBehind) {
  Case c({.traits = latch()});
  Finding finding = c.attempt().it->replied(grantOf(1), kStart);
  EXPECT_EQ(finding.kind, Kind::happened);
  EXPECT_TRUE(finding.leavesGate());
  const Step step = c.decide(std::move(finding));
  EXPECT_EQ(step, Step::finish);
  EXPECT_TRUE(AcquisitionDecision(Kind::happened, step).obtains());
}

TEST(Acquisition, OpenLatchForACallerThatLeftIsNotGivenBack) {
  Case c({.traits = latch()});
  c.attempt();
  c.fsm->expired(Error(Errc::timedOut));
  EXPECT_EQ(c.decide(c.it->replied(grantOf(1), kStart)), Step::end);
}

TEST(Acquisition, GrantForACallerThatLeftIsGivenBack) {
  Case c;
  c.attempt();
  c.fsm->expired(Error(Errc::timedOut));
  const Step step = c.decide(c.it->replied(grantOf(1), kStart));
  EXPECT_EQ(step, Step::reconcileBack);
  EXPECT_FALSE(AcquisitionDecision(Kind::granted, step).leavesGate());
  c.reconcile(false);
  EXPECT_EQ(c.it->reconciling("me").target, 0);
}

// ---- Closing

TEST(Acquisition, GrantOfAClosedClientIsGivenBack) {
  Case c;
  const Step step = c.decide(c.attempt().it->replied(grantOf(1), kStart), true);
  EXPECT_EQ(step, Step::finishAndReconcileBack);
  EXPECT_EQ(c.error(), Errc::closed);
  EXPECT_FALSE(AcquisitionDecision(Kind::granted, step).obtains());
  EXPECT_FALSE(AcquisitionDecision(Kind::granted, step).leavesGate());
  EXPECT_EQ(c.fsm->reconciled(false), Step::end);
}

TEST(Acquisition, GrantOfAClosedClientForACallerThatLeftIsGivenBack) {
  Case c;
  c.attempt();
  c.fsm->stopped(Error(Errc::cancelled));
  EXPECT_EQ(c.decide(c.it->replied(grantOf(1), kStart), true), Step::reconcileBack);
  EXPECT_EQ(c.error(), Errc::cancelled);
}

TEST(Acquisition, RefusalOfAClosedClientIsARefusal) {
  Case c;
  EXPECT_EQ(c.decide(c.attempt().it->replied(refusal(1ms), kStart), true), Step::queue);
}

TEST(Acquisition, TurnedAwayFailsAlsoAfterAReconciliation) {
  Case c;
  c.attempt().reconcile(true);
  Finding finding = c.it->turnedAway(closedError());
  EXPECT_EQ(finding.kind, Kind::failed);
  EXPECT_TRUE(finding.leavesGate());
  c.fsm->reconciled(false);
  EXPECT_EQ(c.decide(std::move(finding)), Step::finish);
  EXPECT_EQ(c.error(), Errc::closed);
}

// ---- Lost replies

TEST(Acquisition, LostReplyIsReconciled) {
  Case c;
  Finding finding = c.attempt().it->lost();
  EXPECT_EQ(finding.kind, Kind::lost);
  EXPECT_FALSE(finding.leavesGate());
  EXPECT_EQ(c.decide(std::move(finding)), Step::reconcileKeep);
}

TEST(Acquisition, LostReplyOfWhatChangesNothingIsAFailure) {
  Case c({.traits = latch()});
  Finding finding = c.attempt().it->lost();
  EXPECT_EQ(finding.kind, Kind::failed);
  EXPECT_TRUE(finding.leavesGate());
  EXPECT_EQ(c.decide(std::move(finding)), Step::finish);
  EXPECT_EQ(c.error(), Errc::connectionFailed);
}

TEST(Acquisition, ReconciliationsOfOneRequestAreNumbered) {
  Case c;
  c.attempt(2, "t").reconcile(true);
  const ReconcileRequest first = c.it->reconciling("me");
  EXPECT_EQ(first.target, 3);
  EXPECT_EQ(first.tombstone, "t");
  EXPECT_EQ(first.number, 1);
  EXPECT_EQ(first.lost, ReconcileRequest::Of::acquisition);
  EXPECT_EQ(first.before, 2);
  c.reconcile(false);
  const ReconcileRequest second = c.it->reconciling("me");
  EXPECT_EQ(second.target, 2);
  EXPECT_EQ(second.tombstone, "t");
  EXPECT_EQ(second.number, 2);
  EXPECT_EQ(second.lost, ReconcileRequest::Of::unwanted);
  EXPECT_EQ(second.before, 2);
  c.attempt(2, "u").reconcile(true);
  EXPECT_EQ(c.it->reconciling("me").number, 1);
}

TEST(Acquisition, ReconcilingToKeepEndsWithTheCallersTime) {
  Case c({.deadline = kStart + 10s});
  static_cast<void>(c.attempt().it->lost());
  EXPECT_EQ(c.reconcile(true), kStart + 10s);
  Case endless;
  static_cast<void>(endless.attempt().it->lost());
  EXPECT_EQ(endless.reconcile(true), kStart + kOutage);
}

/// A reply that came at the last moment says that it was granted: nothing is in doubt.
TEST(Acquisition, AGrantWithHoldsTooManyHasTheGraceOfAReply) {
  Case c({.deadline = kStart + 10s});
  c.attempt();
  ASSERT_EQ(c.decide(c.it->replied(grantOf(2), kStart + 10ms)), Step::reconcileKeep);
  EXPECT_EQ(c.reconcile(true, kStart + 10s), kStart + 10s + kReplyGrace);
  static_cast<void>(c.it->lost());
  EXPECT_EQ(c.reconcile(true, kStart + 10s), kStart + 10s)
      << "nobody knows whether it was executed";
}

TEST(Acquisition, ReconcilingBackEndsWhenTheLeaseIsOver) {
  Case c({.deadline = kStart + 1ms});
  EXPECT_EQ(c.attempt().reconcile(false), kStart + kLease + kCallTimeout);
}

TEST(Acquisition, ReconcilingOfACountEndsWhenTheServerHasForgotten) {
  Case c({.traits = semaphore()});
  static_cast<void>(c.attempt().it->lost());
  EXPECT_EQ(c.reconcile(true), kStart + kOutage);
  EXPECT_EQ(c.reconcile(false, kStart + 50s), kStart + 120s) << "counted from the request";
  EXPECT_EQ(c.reconcile(true, kStart + 118s), kStart + 120s);
}

// The process may have stood still meanwhile, or have waited for acknowledgements.
TEST(Acquisition, ReconcilingOfACountEndsSoLongAfterTheRequest) {
  for (const bool lost : {true, false}) {
    SCOPED_TRACE(lost);
    Case c({.traits = semaphore()});
    c.attempt();
    static_cast<void>(lost ? c.it->lost() : c.it->replied(grantOf(1), kStart + 1ms));
    EXPECT_EQ(c.reconcile(false, kStart + 100s), kStart + 120s);
    EXPECT_EQ(c.reconcile(true, kStart + 130s), kStart + 120s);
  }
}

TEST(Acquisition, ReconcilingOfSomethingWithoutEndHasNone) {
  LockTraits traits = semaphore();
  traits.reconcileWithin = 0ms;
  Case c({.traits = traits});
  EXPECT_EQ(c.attempt().reconcile(false), kNever);
  Case leased({.traits = traits, .lease = true});
  EXPECT_EQ(leased.attempt().reconcile(false), kStart + kLease + kCallTimeout);
}

TEST(Acquisition, ReconciledGrantIsTheCallers) {
  Case c;
  c.attempt();
  c.decide(c.it->lost());
  c.reconcile(true);
  ReconcileReply reply{1, 1};
  reply.token = 9;
  reply.remaining = 400ms;
  Finding finding = c.it->reconciled(reply, false, kStart + 500ms);
  EXPECT_EQ(finding.kind, Kind::granted);
  EXPECT_EQ(finding.count, 1);
  EXPECT_TRUE(finding.leavesQueueEntry);
  EXPECT_EQ(c.it->obtained().token, 9U);
  EXPECT_EQ(c.it->obtained().remaining, 400ms);
  EXPECT_EQ(c.decide(std::move(finding)), Step::finish);
}

TEST(Acquisition, WhatAReconciliationFoundDoesNotCountForTheNextAttempt) {
  Case c;
  c.attempt().reconcile(true);
  ReconcileReply reply{1, 1};
  reply.remaining = 400ms;
  static_cast<void>(c.it->reconciled(reply, false, kStart));
  c.attempt();
  EXPECT_FALSE(c.it->obtained().remaining);
}

/// Where each hold has a lease of its own, those before the request may be over.
TEST(Acquisition, ReconciledHoldIsThereIfTheServerSaysSo) {
  Case c;
  c.attempt(2);
  c.decide(c.it->lost());
  c.reconcile(true);
  Finding finding = c.it->reconciled({.before = 1, .now = 1, .taken = 5s}, false, kStart);
  EXPECT_EQ(finding.kind, Kind::granted);
  EXPECT_EQ(finding.count, 1);
  EXPECT_FALSE(finding.tooMany);
  EXPECT_EQ(c.it->obtained().lasts, 5s);
  // The caller has its answer already.
  finding = c.it->reconciled({.before = 1, .now = 1, .taken = 5s}, true, kStart);
  EXPECT_EQ(finding.kind, Kind::resolved);
  EXPECT_TRUE(finding.held);
  EXPECT_EQ(finding.left, 0);
  finding =
      c.it->reconciled({.before = 3, .now = 3, .remaining = 700ms, .taken = 0s}, false, kStart);
  EXPECT_EQ(finding.kind, Kind::resolved);
  EXPECT_FALSE(finding.held);
  EXPECT_EQ(finding.left, 2);
  EXPECT_EQ(finding.lasts, 700ms);
  finding = c.it->reconciled({.before = 0, .now = 0, .remaining = 0ms, .taken = 0s}, false, kStart);
  EXPECT_FALSE(finding.lasts);
}

TEST(Acquisition, ReconciledGrantOfAClosedClientIsGivenBack) {
  Case c;
  c.attempt();
  c.decide(c.it->lost());
  c.reconcile(true);
  EXPECT_EQ(c.decide(c.it->reconciled({1, 1}, false, kStart), true), Step::finishAndReconcileBack);
  EXPECT_EQ(c.error(), Errc::closed);
}

TEST(Acquisition, ReconciledGrantThatIsTooLateIsNone) {
  Case c;
  c.attempt();
  c.decide(c.it->lost());
  c.reconcile(true);
  Finding finding = c.it->reconciled({1, 1}, false, kStart + kLease);
  EXPECT_EQ(finding.kind, Kind::resolved);
  EXPECT_FALSE(finding.held);
  const Step step = c.decide(std::move(finding));
  EXPECT_EQ(step, Step::attempt);
  EXPECT_TRUE(AcquisitionDecision(Kind::resolved, step).leavesGate());
}

TEST(Acquisition, ReconciledGrantForACallerThatLeftIsGivenBack) {
  Case c;
  c.attempt();
  c.decide(c.it->lost());
  c.reconcile(true);
  c.fsm->expired(Error(Errc::timedOut));
  Finding finding = c.it->reconciled({1, 1}, true, kStart);
  EXPECT_EQ(finding.kind, Kind::resolved);
  EXPECT_TRUE(finding.held);
  EXPECT_FALSE(finding.undone);
  Step step = c.decide(std::move(finding));
  EXPECT_EQ(step, Step::reconcileBack);
  EXPECT_FALSE(AcquisitionDecision(Kind::resolved, step).leavesGate());
  c.reconcile(false);
  finding = c.it->reconciled({1, 0}, true, kStart);
  EXPECT_TRUE(finding.undone);
  step = c.decide(std::move(finding));
  EXPECT_EQ(step, Step::end);
  EXPECT_TRUE(AcquisitionDecision(Kind::resolved, step).leavesGate());
}

TEST(Acquisition, NothingIsKeptThatWasThereBefore) {
  Case c;
  c.attempt(2);
  c.decide(c.it->lost());
  c.reconcile(true);
  EXPECT_EQ(c.decide(c.it->reconciled({2, 2}, false, kStart)), Step::attempt);
}

TEST(Acquisition, ReconcilingThatFailsLeavesADoubt) {
  Case c;
  c.attempt();
  c.decide(c.it->lost());
  c.reconcile(true);
  Finding finding = c.it->failed(Error(Errc::connectionFailed));
  EXPECT_EQ(finding.kind, Kind::unresolved);
  EXPECT_FALSE(finding.leavesGate());
  Step step = c.decide(std::move(finding));
  EXPECT_EQ(step, Step::finishAndReconcileBack);
  EXPECT_FALSE(AcquisitionDecision(Kind::unresolved, step).leavesGate());
  ASSERT_TRUE(c.fsm->error());
  EXPECT_NE(c.fsm->error()->message().find("not known"), std::string::npos);
  c.reconcile(false);
  step = c.decide(c.it->failed(Error(Errc::connectionFailed)));
  EXPECT_EQ(step, Step::end);
  EXPECT_TRUE(AcquisitionDecision(Kind::unresolved, step).leavesGate());
}

// ---- Failures

TEST(Acquisition, FailureIsTheCallers) {
  Case c;
  Finding finding = c.attempt().it->failed(Error(Errc::wrongType));
  EXPECT_EQ(finding.kind, Kind::failed);
  EXPECT_TRUE(finding.leavesGate());
  EXPECT_EQ(c.decide(std::move(finding)), Step::finish);
  EXPECT_EQ(c.error(), Errc::wrongType);
}

TEST(Acquisition, ReentryWithoutAHoldIsALeftoverOnce) {
  Case c;
  Finding finding = c.attempt().it->failed(Error(Errc::reentry));
  EXPECT_EQ(finding.kind, Kind::leftover);
  EXPECT_FALSE(finding.leavesGate());
  EXPECT_EQ(c.decide(std::move(finding)), Step::reconcileKeep);
  c.reconcile(true);
  EXPECT_FALSE(c.it->keeps());
  EXPECT_EQ(c.it->reconciling("me").target, 0);
  EXPECT_EQ(c.decide(c.it->reconciled({1, 0}, false, kStart)), Step::attempt);
  EXPECT_EQ(c.attempt().it->failed(Error(Errc::reentry)).kind, Kind::failed);
}

TEST(Acquisition, ReentryOfAHoldThatIsKnownIsAnError) {
  Case c;
  EXPECT_EQ(c.decide(c.attempt(1).it->failed(Error(Errc::reentry))), Step::finish);
  EXPECT_EQ(c.error(), Errc::reentry);
}

TEST(Acquisition, WaitForItselfIsARefusalForACallerThatDoesNotWait) {
  const Error error(Errc::wouldDeadlock);
  EXPECT_EQ(Case({.wait = Duration::zero()}).attempt().it->failed(error).kind, Kind::refused);
  EXPECT_EQ(Case({.wait = Duration::zero(), .willRetry = true}).attempt().it->failed(error).kind,
            Kind::failed);
  EXPECT_EQ(Case().attempt().it->failed(error).kind, Kind::failed);
}

TEST(Acquisition, NoTimeToSendIsTheEndOfTheWait) {
  Case c({.traits = fair(), .deadline = kStart + 1s});
  Finding finding = c.attempt().it->notSent(Error(Errc::connectionFailed));
  EXPECT_EQ(finding.kind, Kind::notSent);
  EXPECT_TRUE(finding.leavesGate());
  EXPECT_TRUE(finding.leavesQueueEntry) << "it was never taken";
  EXPECT_EQ(c.decide(std::move(finding)), Step::finish);
  EXPECT_EQ(c.fsm->result(), AcquireFsm::Result::refused);
}

TEST(Acquisition, NoTimeToSendKeepsAPlaceThatWasTakenBefore) {
  Case c({.traits = fair(), .deadline = kStart + 1s});
  c.attempt().attempt();
  EXPECT_FALSE(c.it->notSent(Error(Errc::connectionFailed)).leavesQueueEntry);
}

TEST(Acquisition, NoTimeToSendIsAFailureWithoutAWaitThatCouldEnd) {
  const Error error(Errc::connectionFailed);
  EXPECT_EQ(Case().attempt().it->notSent(error).kind, Kind::failed);
  EXPECT_EQ(
      Case({.wait = Duration::zero(), .deadline = kStart + 1s}).attempt().it->notSent(error).kind,
      Kind::failed);
  Case reconciles({.deadline = kStart + 1s});
  reconciles.attempt().reconcile(true);
  EXPECT_EQ(reconciles.it->notSent(error).kind, Kind::unresolved);
}

// ---- No memory

TEST(Acquisition, WithoutMemoryACallEnds) {
  Case c;
  c.attempt();
  c.decide(c.it->replied(refusal(1ms), kStart));
  EXPECT_EQ(AcquisitionDecision::withoutMemory(*c.fsm, false), Step::finish);
  EXPECT_EQ(c.error(), Errc::overloaded);
}

TEST(Acquisition, WithoutMemoryARequestThatMayHaveBeenExecutedIsReconciled) {
  Case c;
  c.attempt();
  EXPECT_EQ(AcquisitionDecision::withoutMemory(*c.fsm, true), Step::finishAndReconcileBack);
  EXPECT_EQ(c.error(), Errc::overloaded);
  EXPECT_EQ(c.fsm->reconciled(false), Step::end);
  Case left;
  left.attempt();
  left.fsm->expired(Error(Errc::timedOut));
  EXPECT_EQ(AcquisitionDecision::withoutMemory(*left.fsm, true), Step::reconcileBack);
  EXPECT_EQ(left.error(), Errc::timedOut);
}

TEST(Acquisition, WithoutMemoryToBookAGrantItIsGivenBackAndTheCallerTold) {
  Case c;
  ASSERT_EQ(c.decide(c.attempt().it->replied(grantOf(1), kStart)), Step::finish);
  EXPECT_EQ(AcquisitionDecision::withoutMemory(*c.fsm, true), Step::finishAndReconcileBack);
  EXPECT_EQ(c.fsm->result(), AcquireFsm::Result::failed);
  EXPECT_EQ(c.error(), Errc::overloaded);
}

// ---- Effects of an attempt on the next

// Its caller waits for the rest of an answer that was seen, whatever became of an earlier request.
TEST(Acquisition, ALostAttemptIsNotHeldAgainstTheNextOne) {
  Case c({.deadline = kStart + 10s});
  c.attempt();
  EXPECT_EQ(c.decide(c.it->lost()), Step::reconcileKeep);
  EXPECT_EQ(c.reconcile(true), kStart + 10s);
  EXPECT_EQ(c.decide(c.it->reconciled({0, 0}, false, kStart)), Step::attempt);
  EXPECT_EQ(c.decide(c.attempt().it->replied(grantOf(2), kStart)), Step::reconcileKeep);
  EXPECT_EQ(c.reconcile(true), kStart + 10s + kReplyGrace);
}

// The lost request may have made the entry, so that it is withdrawn and not taken for none.
TEST(Acquisition, ALostRequestMayHaveTakenItsPlaceInTheServersQueue) {
  Case c({.traits = fair()});
  EXPECT_TRUE(c.attempt().it->enrols());
  static_cast<void>(c.it->lost());
  EXPECT_FALSE(c.it->enrols());
  EXPECT_TRUE(c.it->takeQueueEntry());
}

// Pauses between attempts get longer with their number.
TEST(Acquisition, CountsEachAttemptOnce) {
  Case c;
  EXPECT_EQ(c.it->attempts(), 0);
  EXPECT_EQ(c.attempt().it->attempts(), 1);
  static_cast<void>(c.it->lost());
  c.reconcile(true);
  EXPECT_EQ(c.it->attempts(), 1) << "a reconciliation is none";
  EXPECT_EQ(c.attempt().it->attempts(), 2);
}

}  // namespace
}  // namespace rlock::detail
