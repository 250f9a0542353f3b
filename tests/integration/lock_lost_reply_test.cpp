// SPDX-License-Identifier: Apache-2.0

// A lost reply changes nothing: each call takes effect once or not at all, and its caller is told
// which, or the hold is undone.

#include "integration/lost_reply_harness.hpp"

namespace rlock::test {
namespace {

class LostReply : public LostReplyTest {};

INSTANTIATE_TEST_SUITE_P(Faults,
                         LostReply,
                         ::testing::Combine(kLostReplyPolicies, kAllFaults),
                         lostReplyName);

TEST_P(LostReply, XAMB1_LockHoldsOnceWhateverBecameOfTheFirstRequest) {
  for (const Face face : kFaces) {
    const std::string name = std::string("amb1-") + rlock::test::toString(face);
    const OwnerId owner = newOwner();
    FaceLock lock(face, client().getLock(name));
    const auto fault = breakOnce(lua::lock_acquire);
    EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(countOnServer(name, owner), "1");
    // The next one counts from there.
    EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
    EXPECT_EQ(countOnServer(name, owner), "2");
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    EXPECT_FALSE(raw().exists(name));
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "notOwner");
  }
  EXPECT_EQ(client().stats().holds, 0U);
}

TEST_P(LostReply, XAMB1_ANestedAcquisition) {
  const OwnerId owner = newOwner();
  FaceLock lock(Face::blocking, client().getLock("nested"));
  lock.lock(owner).value();
  const auto fault = breakOnce(lua::lock_acquire);
  EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
  EXPECT_EQ(fault.hits(), 1U);
  deliverLate();
  EXPECT_EQ(countOnServer("nested", owner), "2");
  lock.unlock(owner).value();
  EXPECT_EQ(countOnServer("nested", owner), "1");
  lock.unlock(owner).value();
  EXPECT_FALSE(raw().exists("nested"));
}

TEST_P(LostReply, XAMB2_ATimedTryLockInItsWaitingLoop) {
  rawHold("amb2", "foreign:1", 60s);
  const OwnerId owner = newOwner();
  const std::int64_t scripts = raw().commandCalls("evalsha");
  auto waiter = inThread([&] {
    FaceLock lock(Face::blocking, client().getLock("amb2"));
    return answerOf(lock.tryLock(owner, 20s));
  });
  // The second look follows the subscription; the one that is broken follows the release.
  ASSERT_EVENTUALLY(kLong, raw().commandCalls("evalsha") >= scripts + 2);
  const auto fault = breakOnce(lua::lock_acquire);
  rawRelease("amb2");
  EXPECT_EQ(waiter.get(), "true");
  EXPECT_EQ(fault.hits(), 1U);
  deliverLate();
  EXPECT_EQ(countOnServer("amb2", owner), "1");
}

TEST_P(LostReply, XAMB2_ATryLockWhoseTimeIsUpFirst) {
  // Long enough that the request goes out in time, and below what a lost reply is waited for.
  constexpr auto kWait = 500ms;
  Options options = settings();
  options.commandTimeout = scaled(1s);
  options.callTimeout = scaled(5s);
  Client patient = Client::connect(options);
  for (const Face face : kFaces) {
    const std::string name = std::string("amb2-") + rlock::test::toString(face);
    const OwnerId owner = newOwner();
    FaceLock lock(face, patient.getLock(name));
    const auto fault = breakOnce(lua::lock_acquire);
    const Stopwatch watch;
    const std::string answer = answerOf(lock.tryLock(owner, kWait));
    EXPECT_LT(watch.elapsedMs(), kWait + scaled(2 * kLate));
    EXPECT_NE(answer, "false") << "nobody else held it";
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    if (answer == "true") {
      EXPECT_EQ(raw().hget(name, ownerField(patient, owner)), "1");
      EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    }
    // Told that it has nothing, or done: nothing is left either way.
    EXPECT_EVENTUALLY(kLong, !raw().exists(name));
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "notOwner");
  }
  EXPECT_EVENTUALLY(kLong, patient.stats().holds == 0);
}

TEST_P(LostReply, XAMB3_UnlockReleasesOnce) {
  for (const Face face : kFaces) {
    const std::string name = std::string("amb3-") + rlock::test::toString(face);
    const OwnerId owner = newOwner();
    FaceLock lock(face, client().getLock(name));
    lock.lock(owner).value();
    lock.lock(owner).value();
    lock.lock(owner).value();
    const auto inner = breakOnce(lua::lock_release);
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    EXPECT_EQ(inner.hits(), 1U);
    deliverLate();
    EXPECT_EQ(countOnServer(name, owner), "2");
    lock.unlock(owner).value();
    const auto last = breakOnce(lua::lock_release);
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    EXPECT_EQ(last.hits(), 1U);
    deliverLate();
    EXPECT_FALSE(raw().exists(name));
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "notOwner");
  }
  EXPECT_EQ(client().stats().holds, 0U);
}

TEST_P(LostReply, XAMB3_ALostReleaseStillWakesAForeignWaiter) {
  RawSubscriber foreign(rawOptions());
  foreign.subscribe(channelOf("amb3"));
  RLock lock = client().getLock("amb3");
  lock.lock();
  breakOnce(lua::lock_release);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_TRUE(foreign.waitFor(1, kLong));
}

TEST_P(LostReply, XAMB3_UnlockByAStranger) {
  const auto fault = breakOnce(lua::lock_release);
  rawHold("strange", "foreign:1", 60s);
  EXPECT_EQ(outcomeOf([&] { client().getLock("strange").unlock(); }), "notOwner");
  EXPECT_EQ(fault.hits(), 1U);
  deliverLate();
  EXPECT_EQ(raw().hgetall("strange"), (std::map<std::string, std::string>{{"foreign:1", "1"}}));
}

TEST_P(LostReply, XAMB5_AnOutageLongerThanTheLeaseReleasesNobodyElse) {
  RLock lock = client().getLock("amb5");
  lock.lock(1500ms);
  const auto fault = breakOnce(lua::lock_release);
  proxy().addRule(running(lua::lock_reconcile), TcpProxy::Action::cutBeforeForward());
  const std::string outcome = outcomeOf([&] { lock.unlock(); });
  EXPECT_NE(outcome, "notOwner") << "it was the owner when it asked";
  EXPECT_EQ(fault.hits(), 1U);
  EXPECT_EVENTUALLY(kLong, !raw().exists("amb5"));
  rawHold("amb5", "foreign:1", 60s);
  proxy().clearRules();
  deliverLate();
  std::this_thread::sleep_for(300ms);
  EXPECT_EQ(raw().hgetall("amb5"), (std::map<std::string, std::string>{{"foreign:1", "1"}}));
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "notOwner");
}

TEST_P(LostReply, XAMB11_ForceUnlockDoesNotHitANewOwner) {
  rawHold("amb11", "foreign:1", 60s);
  const auto fault = breakOnce(lua::lock_force_release);
  TcpProxy::RuleOptions second;
  second.limit = 3;
  proxy().addRule(running(lua::lock_force_release), TcpProxy::Action::cutBeforeForward(), second);
  auto call = inThread([&] {
    RLock lock = client().getLock("amb11");
    return answerOf([&] { return lock.forceUnlock(); });
  });
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  const bool executed = !raw().exists("amb11");
  if (executed) {
    rawHold("amb11", "newcomer:1", 60s);
  }
  const std::string answer = call.get();
  deliverLate();
  if (executed) {
    EXPECT_NE(answer, "false");
    EXPECT_EQ(raw().hgetall("amb11"), (std::map<std::string, std::string>{{"newcomer:1", "1"}}));
  } else if (answer == "true") {
    EXPECT_FALSE(raw().exists("amb11"));
  }
  expectNoEternalKeys();
}

TEST_P(LostReply, RenewalsKeepTheCount) {
  Options options = settings();
  options.watchdogTimeout = 2s;
  options.commandTimeout = 200ms;
  Client renewing = Client::connect(options);
  Lease lease = renewing.getLock("renewed").acquire();
  const auto fault = breakOnce(lua::lock_renew);
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  // Beyond the lease that it had then.
  const std::uint64_t renewals = renewing.stats().renewals;
  ASSERT_EVENTUALLY(kLong, renewing.stats().renewals >= renewals + 4);
  deliverLate();
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(onlyEntry("renewed").second, "1");
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_FALSE(raw().exists("renewed"));
}

TEST_P(LostReply, TheReconciliationItselfIsLost) {
  const OwnerId owner = newOwner();
  FaceLock lock(Face::blocking, client().getLock("reconcile"));
  const auto acquire = breakOnce(lua::lock_acquire);
  const auto reconcile = breakOnce(lua::lock_reconcile);
  AcquireOptions options;
  options.wait = 20s;
  EXPECT_EQ(answerOf(client().getLock("reconcile").tryLockAsync(options, owner).wait()), "true");
  deliverLate();
  EXPECT_EQ(countOnServer("reconcile", owner), "1");
  proxy().clearRules();
  const auto release = breakOnce(lua::lock_release);
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  deliverLate();
  EXPECT_FALSE(raw().exists("reconcile"));
  EXPECT_EQ(acquire.hits() + release.hits(), 2U);
  static_cast<void>(reconcile);
}

TEST_P(LostReply, TheCallerIsStoppedWhileTheOutcomeIsOpen) {
  std::stop_source stop;
  const auto fault = breakOnce(lua::lock_acquire);
  const OwnerId owner = newOwner();
  auto call = inThread([&] {
    AcquireOptions options;
    options.wait = Duration::max();
    options.stop = stop.get_token();
    return answerOf(client().getLock("stopped").tryLockAsync(options, owner).wait());
  });
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  stop.request_stop();
  const std::string answer = call.get();
  deliverLate();
  if (answer == "true") {
    EXPECT_EQ(countOnServer("stopped", owner), "1");
  } else {
    EXPECT_EQ(answer, "cancelled");
    EXPECT_EVENTUALLY(kLong, !raw().exists("stopped"));
  }
}

TEST_P(LostReply, TwoRepliesLostInARow) {
  const OwnerId owner = newOwner();
  const auto fault = breakOnce(lua::lock_acquire, 3);
  AcquireOptions options;
  options.wait = 20s;
  EXPECT_EQ(answerOf(client().getLock("row").tryLockAsync(options, owner).wait()), "true");
  deliverLate();
  EXPECT_EQ(countOnServer("row", owner), "1");
  EXPECT_GE(fault.hits(), 1U);
}

// Pipelined neighbours.

class LostReplyLoadSlow : public LostReply {};

INSTANTIATE_TEST_SUITE_P(Policies,
                         LostReplyLoadSlow,
                         ::testing::Combine(kLostReplyPolicies,
                                            ::testing::Values(Fault::swallowReplyAndCut)),
                         lostReplyName);

TEST_P(LostReplyLoadSlow, XAMB13_CutsUnderLoadLoseNoUpdateAndLeaveNoHold) {
  constexpr int kThreads = 12;
  struct Tally {
    long entered = 0;
    long sharedEntered = 0;
    std::vector<std::string> odd;
  };
  Resource shared;
  std::atomic<bool> end{false};
  std::vector<std::future<Tally>> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.push_back(inThread([&, thread] {
      Tally tally;
      Resource own;
      RLock mine = client().getLock("own-" + std::to_string(thread));
      RLock common = client().getLock("common");
      const auto section = [&](RLock& lock, Resource& resource, long& entered) {
        const std::string got = answerOf([&] { return lock.tryLock(500ms); });
        if (got != "true") {
          if (got != "false" && got != "timedOut" && got != "connectionFailed") {
            tally.odd.push_back("tryLock " + got);
          }
          return;
        }
        resource.use();
        ++entered;
        const std::string gone = outcomeOf([&] { lock.unlock(); });
        if (gone != "ok" && gone != "timedOut" && gone != "connectionFailed") {
          tally.odd.push_back("unlock " + gone);
        }
      };
      while (!end.load()) {
        section(mine, own, tally.entered);
        section(common, shared, tally.sharedEntered);
      }
      if (own.value() != tally.entered || own.overlaps() != 0) {
        tally.odd.push_back("own resource");
      }
      return tally;
    }));
  }
  breakUnderLoad(proxy(), [] {});
  end = true;
  long sharedEntered = 0;
  long entered = 0;
  for (auto& thread : threads) {
    const Tally tally = thread.get();
    sharedEntered += tally.sharedEntered;
    entered += tally.entered;
    EXPECT_EQ(tally.odd, std::vector<std::string>());
  }
  EXPECT_GT(entered, 0);
  EXPECT_EQ(shared.value(), sharedEntered);
  EXPECT_EQ(shared.overlaps(), 0);
  EXPECT_EVENTUALLY(kLong, client().stats().holds == 0);
  EXPECT_EVENTUALLY(kLong, [&] {
    for (const std::string& key : raw().keys()) {
      if (raw().type(key) == "hash") {
        return false;
      }
    }
    return true;
  }());
  EXPECT_GT(client().stats().lostReplies, 0U);
}

class LostReplyOrder : public LockTest {};

TEST_F(LostReplyOrder, XAMB14_ALateReplyNeverReachesTheNextCommand) {
  Options settings = proxied();
  // For longer than any reply is held back.
  settings.commandTimeout = scaled(10s);
  Client client = Client::connect(settings);
  ASSERT_TRUE(client.getLock("warm").tryLock());
  RLock slow = client.getLock("slow");
  RLock other = client.getLock("other");
  RLock taken = client.getLock("taken");
  rawHold("taken", "foreign:1", 60s);
  const auto late = proxy().addRule(TcpProxy::script("slow"), TcpProxy::Action::delayReply(1s));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(answerOf([&] { return slow.tryLock(500ms); }), "timedOut");
    EXPECT_FALSE(taken.tryLock());
    EXPECT_TRUE(taken.isLocked());
    EXPECT_EQ(other.getHoldCount(), 0);
    EXPECT_TRUE(other.tryLock());
    EXPECT_EQ(other.getHoldCount(), 1);
    // Looked up first: what the late request obtained is being given back.
    const bool there = raw().exists("slow");
    EXPECT_TRUE(there || !slow.isHeldByCurrentThread());
    other.unlock();
  }
  EXPECT_GE(late.hits(), 5U);
  proxy().clearRules();
  EXPECT_EVENTUALLY(kLong, !raw().exists("slow"));
  EXPECT_EQ(client.stats().reconnects, 0U);
}

TEST_F(LostReplyOrder, AutomaticUsesTheTombstoneWhereTheServerForbidsKilling) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all"});
  raw().denyClient("weak", {"kill"});
  Options settings = proxied();
  settings.username = "weak";
  settings.password = "pw";
  settings.watchdogTimeout = 30s;
  Client client = Client::connect(settings);
  RLock lock = client.getLock("auto");
  lock.lock();
  lock.unlock();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::swallowReplyAndCut(), once);
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
  EXPECT_EQ(onlyEntry("auto").second, "1");
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_FALSE(raw().exists("auto"));
}

}  // namespace
}  // namespace rlock::test
