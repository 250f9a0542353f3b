// SPDX-License-Identifier: Apache-2.0

// A lost reply changes nothing on either side of a read-write lock.

#include "integration/lost_reply_harness.hpp"
#include "integration/read_write_harness.hpp"

namespace rlock::test {
namespace {

class ReadWriteLostReply : public ReadWriteFixture<LostReplyTest> {
 protected:
  void SetUp() override {
    ReadWriteFixture<LostReplyTest>::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    const ReadWriteLock warm = sides("warm");
    warm.writeLock().lock();
    warm.readLock().lock();
    warm.readLock().unlock();
    warm.writeLock().unlock();
    warm.readLock().forceUnlock();
  }

  [[nodiscard]] ReadWriteLock sides(const std::string& name) {
    return client().getReadWriteLock(name);
  }
  /// Holds counted, and keys of holds.
  [[nodiscard]] std::pair<std::string, std::size_t> reads(const std::string& name, OwnerId owner) {
    return {countOnServer(name, owner), raw().keys("{" + name + "}:*:rwlock_timeout:*").size()};
  }
  /// One more hold of an owner that has some, the first of which ends while the request is lost.
  [[nodiscard]] Lease acquireWhileTheFirstEnds(const std::string& name,
                                               OwnerId owner,
                                               Milliseconds lease) {
    const auto fault = breakOnce(lua::rw_read_acquire);
    auto acquired =
        inThread([&] { return sides(name).readLock().acquire({.lease = lease}, owner); });
    EXPECT_EVENTUALLY(kLong, fault.hits() == 1);
    proxy().refuseConnections(true);
    EXPECT_EVENTUALLY(kLong, !raw().exists(holdKey(name, ownerField(client(), owner), 1)));
    proxy().refuseConnections(false);
    return acquired.get();
  }
  [[nodiscard]] std::string writes(const std::string& name, OwnerId owner) {
    return raw().hget(name, ownerField(client(), owner) + ":write").value_or("0");
  }
};

using Reads = std::pair<std::string, std::size_t>;

INSTANTIATE_TEST_SUITE_P(Faults,
                         ReadWriteLostReply,
                         ::testing::Combine(kLostReplyPolicies, kAllFaults),
                         lostReplyName);

TEST_P(ReadWriteLostReply, AReadLockHoldsOnce) {
  const OwnerId owner = newOwner();
  FaceLock lock(Face::blocking, sides("read").readLock());
  for (const char* count : {"1", "2"}) {
    const auto fault = breakOnce(lua::rw_read_acquire);
    EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(reads("read", owner), Reads(count, std::stoul(count)));
  }
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "notOwner");
  EXPECT_EQ(holdKeys(), std::set<std::string>());
  EXPECT_FALSE(raw().exists("read"));
  EXPECT_EQ(client().stats().holds, 0U);
}

TEST_P(ReadWriteLostReply, AWriteLockHoldsOnce) {
  const OwnerId owner = newOwner();
  FaceLock lock(Face::callback, sides("write").writeLock());
  for (const char* count : {"1", "2"}) {
    const auto fault = breakOnce(lua::rw_write_acquire);
    EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(writes("write", owner), count);
  }
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "notOwner");
  EXPECT_FALSE(raw().exists("write"));
}

TEST_P(ReadWriteLostReply, AReadLockIsReleasedOnce) {
  const OwnerId owner = newOwner();
  FaceLock lock(Face::blocking, sides("read").readLock());
  rawRead("read", "foreign:1", 60s);
  lock.lock(owner).value();
  lock.lock(owner).value();
  const auto inner = breakOnce(lua::rw_read_release);
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(inner.hits(), 1U);
  deliverLate();
  EXPECT_EQ(reads("read", owner), Reads("1", 2));
  const auto last = breakOnce(lua::rw_read_release);
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(last.hits(), 1U);
  deliverLate();
  EXPECT_EQ(reads("read", owner), Reads("0", 1));
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "notOwner");
  EXPECT_EQ(raw().hgetall("read"), (Fields{{"mode", "read"}, {"foreign:1", "1"}}));
  EXPECT_EQ(client().stats().holds, 0U);
}

TEST_P(ReadWriteLostReply, AWriteLockIsReleasedOnceAndItsReadersAreWoken) {
  const OwnerId owner = newOwner();
  const ReadWriteLock both = sides("write");
  FaceLock lock(Face::blocking, both.writeLock());
  lock.lock(owner).value();
  lock.lock(owner).value();
  FaceLock(Face::blocking, both.readLock()).lock(owner).value();
  const auto inner = breakOnce(lua::rw_write_release);
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(inner.hits(), 1U);
  deliverLate();
  EXPECT_EQ(writes("write", owner), "1");
  RawSubscriber peer(rawOptions());
  peer.subscribe(rwChannel("write"));
  const auto last = breakOnce(lua::rw_write_release);
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(last.hits(), 1U);
  EXPECT_TRUE(peer.waitFor(1, kLong));
  deliverLate();
  EXPECT_EQ(raw().hget("write", "mode"), "read");
  EXPECT_EQ(reads("write", owner), Reads("1", 1));
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "notOwner");
}

/// Somebody has deleted the hold, and another owner has the lock.
TEST_P(ReadWriteLostReply, XAMB6_TheLostReleaseOfAHoldThatIsGoneTakesNobodyElses) {
  const OwnerId owner = newOwner();
  for (const bool writes : {false, true}) {
    SCOPED_TRACE(writes ? "write" : "read");
    const std::string name = writes ? "gone-write" : "gone-read";
    const lua::Script& script = writes ? lua::rw_write_release : lua::rw_read_release;
    const ReadWriteLock both = sides(name);
    FaceLock lock(Face::blocking, writes ? both.writeLock() : both.readLock());
    lock.lock(owner).value();
    raw().flushAll();
    writes ? rawWrite(name, "foreign:1", 60s) : rawRead(name, "foreign:1", 60s);
    const Fields others = raw().hgetall(name);
    const auto first = breakOnce(script);
    // A hold that is not there any more has been given back, as far as anybody can see.
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    EXPECT_EQ(first.hits(), 1U);
    deliverLate();
    const auto again = breakOnce(script);
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "notOwner");
    EXPECT_EQ(again.hits(), 1U);
    deliverLate();
    EXPECT_EQ(raw().hgetall(name), others);
  }
  EXPECT_EQ(client().stats().holds, 0U);
}

TEST_P(ReadWriteLostReply, C2_TheValidityAfterALostReleaseIsThatOfWhatRemains) {
  const OwnerId owner = newOwner();
  RLock lock = sides("valid").readLock();
  Lease shorter = lock.acquire({.lease = 5s}, owner);
  Lease longer = lock.acquire({.lease = 300s}, owner);
  const auto fault = breakOnce(lua::rw_read_release);
  EXPECT_EQ(longer.release(), ReleaseResult::stillHeld);
  EXPECT_EQ(fault.hits(), 1U);
  EXPECT_TRUE(shorter.held());
  const auto until = shorter.validUntil();
  const auto left =
      std::chrono::milliseconds(raw().pttl(holdKey("valid", ownerField(client(), owner), 1)));
  // The server counted it before this moment, and rounds to a millisecond.
  EXPECT_LE(until, Clock::now() + left + 1ms);
}

TEST_P(ReadWriteLostReply, C2_TheNewestHoldStaysWhenAnOlderOneIsLeftOver) {
  // A hold that nobody knows of, as a reconciliation that failed leaves it, and with little time
  // left.
  const OwnerId owner = newOwner();
  const std::string field = ownerField(client(), owner);
  rawRead("left", field, 3s);
  RLock lock = sides("left").readLock();
  Lease lease = lock.acquire({.lease = 60s}, owner);
  EXPECT_EQ(reads("left", owner), Reads("1", 1));
  EXPECT_GT(raw().pttl(holdKey("left", field, 1)), 50'000);
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_EQ(holdKeys(), std::set<std::string>());

  // The same, and the request for the new one never arrives or its reply is lost.
  rawRead("left", field, 2s);
  const auto fault = breakOnce(lua::rw_read_acquire);
  lease = lock.acquire({.lease = 60s}, owner);
  EXPECT_EQ(fault.hits(), 1U);
  const auto until = lease.validUntil();
  EXPECT_EQ(reads("left", owner), Reads("1", 1));
  // The time that is left runs down: the hold ends so long after the question, or sooner.
  const std::chrono::milliseconds left(raw().pttl(holdKey("left", field, 1)));
  const auto now = Clock::now();
  EXPECT_LE(until, now + left + 1ms);
  if (std::get<1>(GetParam()) == Fault::cutBeforeForward) {
    EXPECT_LT(until, now + 2s) << "it is the old one";
    EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
    EXPECT_LT(Clock::now(), until + scaled(50ms)) << "told in time";
  }
  static_cast<void>(lease.release());
  EXPECT_EVENTUALLY(kLong, holdKeys().empty());
}

/// While the request of a third one is lost, the first one ends: each of the others is released as
/// what it is.
TEST_P(ReadWriteLostReply, AHoldThatHasEndedIsNotReleasedInThePlaceOfAnother) {
  const OwnerId owner = newOwner();
  RLock lock = sides("places").readLock();
  Lease brief = lock.acquire({.lease = scaled(500ms)}, owner);
  Lease lasting = lock.acquire({.lease = 60s}, owner);
  Lease latest = acquireWhileTheFirstEnds("places", owner, 60s);
  EXPECT_EQ(brief.release(), ReleaseResult::lost);
  EXPECT_EQ(reads("places", owner), Reads("2", 2));
  EXPECT_TRUE(lasting.held());
  EXPECT_EQ(lasting.release(), ReleaseResult::stillHeld);
  EXPECT_EQ(reads("places", owner), Reads("1", 1));
  EXPECT_EQ(latest.release(), ReleaseResult::released);
  EXPECT_EVENTUALLY(kLong, holdKeys().empty());
}

/// As before, but what took its place has ended, too, when the first one is given back.
TEST_P(ReadWriteLostReply, C1_AHoldThatHasEndedTakesNoOtherWithIt) {
  const OwnerId owner = newOwner();
  const std::string field = ownerField(client(), owner);
  RLock lock = sides("ended").readLock();
  Lease brief = lock.acquire({.lease = scaled(500ms)}, owner);
  Lease lasting = lock.acquire({.lease = 60s}, owner);
  const Lease latest = acquireWhileTheFirstEnds("ended", owner, scaled(3s));
  EXPECT_EVENTUALLY(kLong, latest.lossReason() != LossReason::none);
  EXPECT_EVENTUALLY(kLong, holdKeys().size() == 1);
  EXPECT_EQ(brief.release(), ReleaseResult::lost);
  EXPECT_TRUE(lasting.held());
  EXPECT_EQ(reads("ended", owner), Reads("2", 1)) << "the latest keeps its place";
  EXPECT_GT(raw().pttl(holdKey("ended", field, 1)), 30'000);
  EXPECT_GT(raw().pttl("ended"), 30'000);
  EXPECT_EQ(lasting.release(), ReleaseResult::released);
  EXPECT_EQ(holdKeys(), std::set<std::string>());
}

/// Another of the same owner ends while a caller's request is lost. The caller has left.
TEST_P(ReadWriteLostReply, AHoldThatNobodyWantsDoesNotStayInThePlaceOfOneThatHasEnded) {
  const OwnerId owner = newOwner();
  RLock lock = sides("unwanted").readLock();
  Lease brief = lock.acquire({.lease = scaled(500ms)}, owner);
  Lease lasting = lock.acquire({.lease = 60s}, owner);
  const auto fault = breakOnce(lua::rw_read_acquire);
  std::stop_source stop;
  auto third = inThread([&] {
    try {
      // The connection may have been repaired before it could be refused.
      static_cast<void>(lock.acquire({.lease = 60s, .stop = stop.get_token()}, owner).release());
    } catch (const Error&) {
      // As it should be.
    }
  });
  ASSERT_EVENTUALLY(kLong, fault.hits() == 1);
  proxy().refuseConnections(true);
  EXPECT_EVENTUALLY(kLong, !raw().exists(holdKey("unwanted", ownerField(client(), owner), 1)));
  stop.request_stop();
  third.get();
  proxy().refuseConnections(false);
  EXPECT_EVENTUALLY(kLong, holdKeys().size() == 1);
  EXPECT_EQ(brief.release(), ReleaseResult::lost);
  EXPECT_EQ(reads("unwanted", owner), Reads("1", 1));
  EXPECT_TRUE(lasting.held());
  EXPECT_EQ(lasting.release(), ReleaseResult::released);
  EXPECT_EVENTUALLY(kLong, holdKeys().empty());
}

/// The release that is lost means the latest, and the one before it has ended.
TEST_P(ReadWriteLostReply, ALostReleaseTakesTheHoldThatItMeans) {
  const OwnerId owner = newOwner();
  RLock lock = sides("meant").readLock();
  FaceLock face(Face::blocking, lock);
  EXPECT_EQ(outcomeOf(face.lock(owner, scaled(500ms))), "ok");
  const Lease lasting = lock.acquire({.lease = 60s}, owner);
  EXPECT_EQ(outcomeOf(face.lock(owner, 60s)), "ok");
  EXPECT_EVENTUALLY(kLong, !raw().exists(holdKey("meant", ownerField(client(), owner), 1)));
  const auto fault = breakOnce(lua::rw_read_release);
  EXPECT_EQ(outcomeOf(face.unlock(owner)), "ok");
  EXPECT_EQ(fault.hits(), 1U);
  EXPECT_EVENTUALLY(kLong, reads("meant", owner) == Reads("2", 1));
  EXPECT_TRUE(lasting.held());
}

/// Two are over for the client when the reply to the release of another is lost, and the server,
/// which was late, still has one of them.
TEST_P(ReadWriteLostReply, C1_ALostReleaseLeavesNoDoubtWhichOnesAreLeft) {
  const OwnerId owner = newOwner();
  const std::string field = ownerField(client(), owner);
  RLock lock = sides("left").readLock();
  Lease first = lock.acquire({.lease = scaled(500ms)}, owner);
  Lease lasting = lock.acquire({.lease = 60s}, owner);
  Lease second = lock.acquire({.lease = scaled(600ms)}, owner);
  Lease latest = lock.acquire({.lease = 60s}, owner);
  raw().run({"PEXPIRE", holdKey("left", field, 1), "60000"});
  EXPECT_EVENTUALLY(kLong, first.lossReason() != LossReason::none);
  EXPECT_EVENTUALLY(kLong, second.lossReason() != LossReason::none);
  EXPECT_EVENTUALLY(kLong, !raw().exists(holdKey("left", field, 3)));
  const auto fault = breakOnce(lua::rw_read_release);
  EXPECT_EQ(latest.release(), ReleaseResult::stillHeld);
  EXPECT_EQ(fault.hits(), 1U);
  EXPECT_EQ(second.release(), ReleaseResult::lost);
  EXPECT_EQ(first.release(), ReleaseResult::lost);
  EXPECT_TRUE(lasting.held());
  EXPECT_EQ(reads("left", owner), Reads("1", 1));
  EXPECT_EQ(lasting.release(), ReleaseResult::released);
  EXPECT_FALSE(raw().exists("left"));
}

/// A reconciliation that was given up has left a hold that nobody knows of.
TEST_P(ReadWriteLostReply, C1_ALostReleaseBesideALeftoverTakesTheHoldThatItMeans) {
  const OwnerId owner = newOwner();
  const std::string field = ownerField(client(), owner);
  for (const bool dead : {true, false}) {
    const std::string name = dead ? "dead" : "alive";
    RLock lock = sides(name).readLock();
    Lease brief = lock.acquire({.lease = scaled(300ms)}, owner);
    Lease lasting = lock.acquire({.lease = 60s}, owner);
    rawRead(name, field, dead ? 100ms : Milliseconds(40s));
    EXPECT_EVENTUALLY(kLong, raw().keys("{" + name + "}:*").size() == (dead ? 1U : 2U));
    const auto fault = breakOnce(lua::rw_read_release);
    EXPECT_EQ(brief.release(), ReleaseResult::lost);
    EXPECT_EQ(fault.hits(), 1U);
    EXPECT_TRUE(lasting.held());
    EXPECT_EQ(reads(name, owner), Reads("1", 1));
    EXPECT_GT(raw().pttl(holdKey(name, field, 1)), 45'000);
    EXPECT_EQ(lasting.release(), ReleaseResult::released);
    EXPECT_FALSE(raw().exists(name));
  }
}

TEST_P(ReadWriteLostReply, C2_ALeftoverTakenForTheNewHoldIsValidNoLongerThanItself) {
  const OwnerId owner = newOwner();
  const std::string field = ownerField(client(), owner);
  RLock lock = sides("longer").readLock();
  const Lease lasting = lock.acquire({.lease = 300s}, owner);
  rawRead("longer", field, 20s);
  const auto fault = breakOnce(lua::rw_read_acquire);
  const Lease lease = lock.acquire({.lease = 60s}, owner);
  EXPECT_EQ(fault.hits(), 1U);
  EXPECT_EQ(reads("longer", owner), Reads("2", 2));
  const std::chrono::milliseconds left(raw().pttl(holdKey("longer", field, 2)));
  EXPECT_LE(lease.validUntil(), Clock::now() + left + 1ms);
  EXPECT_TRUE(lasting.held());
}

TEST_P(ReadWriteLostReply, ForceDoesNotHitANewOwner) {
  for (const bool reading : {true, false}) {
    const std::string name = reading ? "force-read" : "force-write";
    const auto hold = [&](const std::string& owner) {
      reading ? rawRead(name, owner, 60s) : rawWrite(name, owner, 60s);
    };
    hold("foreign:1");
    const auto fault = breakOnce(lua::rw_force_release);
    TcpProxy::RuleOptions second;
    second.limit = 3;
    proxy().addRule(running(lua::rw_force_release), TcpProxy::Action::cutBeforeForward(), second);
    auto call = inThread([&] {
      const ReadWriteLock lock = sides(name);
      RLock side = reading ? lock.readLock() : lock.writeLock();
      return answerOf([&] { return side.forceUnlock(); });
    });
    ASSERT_TRUE(fault.waitForHits(1, kLong));
    const bool executed = !raw().exists(name);
    if (executed) {
      hold("newcomer:1");
    }
    const std::string answer = call.get();
    deliverLate();
    if (executed) {
      EXPECT_NE(answer, "false");
      EXPECT_EQ(raw().hgetall(name).count(reading ? "newcomer:1" : "newcomer:1:write"), 1U);
    } else if (answer == "true") {
      EXPECT_FALSE(raw().exists(name));
    }
    proxy().clearRules();
  }
  expectNoEternalKeys();
}

TEST_P(ReadWriteLostReply, RenewalsKeepTheCount) {
  Options options = settings();
  options.watchdogTimeout = 3s;
  options.commandTimeout = 500ms;
  Client renewing = Client::connect(options);
  const ReadWriteLock lock = renewing.getReadWriteLock("renewed");
  const OwnerId owner = newOwner();
  Lease write = lock.writeLock().acquire({}, owner);
  Lease read = lock.readLock().acquire({}, owner);
  const auto until = std::max(write.validUntil(), read.validUntil());
  const auto fault = breakOnce(lua::rw_read_renew);
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  EXPECT_EVENTUALLY(kLong, write.validUntil() > until && read.validUntil() > until);
  deliverLate();
  EXPECT_TRUE(write.held());
  EXPECT_TRUE(read.held());
  EXPECT_EQ(read.release(), ReleaseResult::released);
  EXPECT_EQ(write.release(), ReleaseResult::released);
  EXPECT_EQ(holdKeys(), std::set<std::string>());
  EXPECT_FALSE(raw().exists("renewed"));
}

TEST_P(ReadWriteLostReply, TheReconciliationItselfIsLost) {
  Options patient = settings();
  // Two lost replies use up what an unlock has otherwise, twice `commandTimeout`.
  patient.callTimeout = 20s;
  Client reconciling = Client::connect(patient);
  const ReadWriteLock both = reconciling.getReadWriteLock("reconcile");
  for (RLock side : {both.readLock(), both.writeLock()}) {
    const OwnerId owner = newOwner();
    FaceLock lock(Face::blocking, side);
    breakOnce(lua::rw_read_acquire);
    breakOnce(lua::rw_write_acquire);
    breakOnce(lua::rw_read_reconcile);
    breakOnce(lua::rw_write_reconcile);
    EXPECT_EQ(answerOf(lock.tryLock(owner, 20s)), "true");
    deliverLate();
    EXPECT_EQ(lock.holdCount(owner), 1);
    proxy().clearRules();
    breakOnce(lua::rw_read_release);
    breakOnce(lua::rw_write_release);
    breakOnce(lua::rw_read_reconcile);
    breakOnce(lua::rw_write_reconcile);
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    deliverLate();
    proxy().clearRules();
    EXPECT_FALSE(raw().exists("reconcile"));
    EXPECT_EQ(holdKeys(), std::set<std::string>());
    for (const std::string& key : raw().keys("rlock_request:*")) {
      // For as long as the request before may still come.
      EXPECT_GT(raw().pttl(key), 60'000) << key;
    }
  }
}

TEST_P(ReadWriteLostReply, AWaitingWriterWithdrawsOnceOrItsIntentLapses) {
  rawRead("withdraw", "foreign:1", 60s);
  const auto fault = breakOnce(lua::rw_write_withdraw);
  const Stopwatch watch;
  EXPECT_EQ(answerOf([&] { return sides("withdraw").writeLock().tryLock(100ms); }), "false");
  EXPECT_LT(watch.elapsedMs(), 100ms + scaled(2 * kLate));
  EXPECT_TRUE(fault.waitForHits(1, kLong));
  deliverLate();
  EXPECT_EVENTUALLY(kLong, !raw().exists(intentKey("withdraw")));
  EXPECT_EQ(answerOf([&] { return sides("withdraw").readLock().tryLock(20s); }), "true");
}

// Where the server forbids CLIENT KILL.

class ReadWriteLostReplyWithoutKilling : public ReadWriteTest {
 protected:
  [[nodiscard]] Client connectWeak() {
    raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all"});
    raw().denyClient("weak", {"kill"});
    Options settings = proxied();
    settings.username = "weak";
    settings.password = "pw";
    settings.watchdogTimeout = 30s;
    settings.commandTimeout = 250ms;
    settings.reconnectDelayMin = 5ms;
    return Client::connect(settings);
  }
};

TEST_F(ReadWriteLostReplyWithoutKilling, ARequestThatComesAfterItWasReconciledDoesNothing) {
  Client client = connectWeak();
  const ReadWriteLock both = client.getReadWriteLock("late");
  const auto stalled = [&](RLock& side, const lua::Script& script, auto call, int count) {
    TcpProxy::RuleOptions once;
    once.limit = 1;
    proxy().addRule(running(script), TcpProxy::Action::stallRequest(), once);
    EXPECT_EQ(outcomeOf(call), "ok");
    const std::int64_t before = raw().commandCalls("evalsha");
    proxy().releaseStalled();
    EXPECT_EVENTUALLY(kLong, raw().commandCalls("evalsha") > before);
    EXPECT_EQ(side.getHoldCount(), count);
    proxy().clearRules();
  };
  const auto test = [&](RLock side, const lua::Script& acquire, const lua::Script& release) {
    for (int i = 0; i < 3; ++i) {
      side.lock();
    }
    side.unlock();
    stalled(
        side, acquire, [&] { side.lock(); }, 3);
    stalled(
        side, release, [&] { side.unlock(); }, 2);
    side.unlock();
    side.unlock();
    EXPECT_FALSE(raw().exists("late"));
    EXPECT_EQ(holdKeys(), std::set<std::string>());
  };
  test(both.readLock(), lua::rw_read_acquire, lua::rw_read_release);
  test(both.writeLock(), lua::rw_write_acquire, lua::rw_write_release);
  expectNoEternalKeys();
}

TEST_F(ReadWriteLostReplyWithoutKilling, EachRequestIsReconciledByItsTombstone) {
  Client client = connectWeak();
  const ReadWriteLock both = client.getReadWriteLock("auto");
  for (RLock side : {both.writeLock(), both.readLock()}) {
    side.lock();
    side.unlock();
    for (const lua::Script* script : {&lua::rw_read_acquire,
                                      &lua::rw_write_acquire,
                                      &lua::rw_read_release,
                                      &lua::rw_write_release}) {
      TcpProxy::RuleOptions once;
      once.limit = 1;
      proxy().addRule(running(*script), TcpProxy::Action::swallowReplyAndCut(), once);
    }
    EXPECT_EQ(outcomeOf([&] { side.lock(); }), "ok");
    EXPECT_EQ(side.getHoldCount(), 1);
    EXPECT_EQ(outcomeOf([&] { side.unlock(); }), "ok");
    proxy().clearRules();
    EXPECT_FALSE(raw().exists("auto"));
    EXPECT_EQ(holdKeys(), std::set<std::string>());
  }
}

}  // namespace
}  // namespace rlock::test
