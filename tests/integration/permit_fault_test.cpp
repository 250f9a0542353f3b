// SPDX-License-Identifier: Apache-2.0

// Permits when something goes wrong: lost replies, lost permits, broken connections, a server that
// refuses. None is taken twice, given back twice, or forgotten.

#include "integration/lost_reply_harness.hpp"
#include "integration/permit_harness.hpp"

#include <array>
#include <mutex>

namespace rlock::test {
namespace {

using Ids = PermitExpirableSemaphore::Ids;

class LostPermit : public PermitChecks<LostReplyTest> {
 protected:
  static constexpr int kPermits = 10;

  void SetUp() override {
    LostReplyTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    auto warm = client().getPermitExpirableSemaphore("warm");
    warm.trySetPermits(1);
    const std::string id = warm.acquire();
    warm.updateLeaseTime(id, 1s);
    warm.release(id);
    static_cast<void>(warm.hold().release());
    warm.remove();
  }

  /// A semaphore with ten permits.
  PermitExpirableSemaphore make(const std::string& name) {
    raw().set(name, std::to_string(kPermits));
    return client().getPermitExpirableSemaphore(name);
  }
  void expectTaken(const std::string& name, std::int64_t count) {
    EXPECT_EQ(taken(name), count);
    EXPECT_EQ(total(name), kPermits);
  }
};

INSTANTIATE_TEST_SUITE_P(Faults,
                         LostPermit,
                         ::testing::Combine(kLostReplyPolicies, kAllFaults),
                         lostReplyName);

TEST_P(LostPermit, XAMB10_AnAcquisitionTakesOnce) {
  for (const Face face : {Face::blocking, Face::callback}) {
    const std::string name = std::string("take-") + rlock::test::toString(face);
    auto semaphore = make(name);
    const auto first = breakOnce(lua::permit_acquire);
    const std::string permanent = runBy(face, semaphore.acquireAsync()).value();
    EXPECT_EQ(first.hits(), 1U);
    deliverLate();
    expectTaken(name, 1);
    EXPECT_EQ(score(name, permanent), std::to_string(kNever));
    const auto second = breakOnce(lua::permit_acquire);
    const Ids three = runBy(face, semaphore.acquireManyAsync(3, 60s)).value();
    EXPECT_EQ(second.hits(), 1U);
    deliverLate();
    expectTaken(name, 4);
    const auto third = breakOnce(lua::permit_acquire);
    Permit permit = runBy(face, semaphore.holdAsync()).value();
    EXPECT_EQ(third.hits(), 1U);
    deliverLate();
    expectTaken(name, 5);
    EXPECT_TRUE(permit.held());
    EXPECT_TRUE(semaphore.tryRelease(permanent));
    EXPECT_EQ(semaphore.tryRelease(three), 3);
    EXPECT_EQ(permit.release(), ReleaseResult::released);
    expectTaken(name, 0);
  }
  EXPECT_EQ(client().stats().undone, 0U) << "what was taken is kept, not taken again";
}

TEST_P(LostPermit, XAMB10_AnAcquisitionWhoseTimeIsUpTakesWhatItSays) {
  for (const Face face : {Face::blocking, Face::future}) {
    const std::string name = std::string("late-") + rlock::test::toString(face);
    auto semaphore = make(name);
    const auto fault = breakOnce(lua::permit_acquire);
    std::int64_t mine = 0;
    // A slow machine may not even send it in that time, which is a plain no.
    const Deadline end(kLong);
    do {
      const auto result = runBy(face, semaphore.tryAcquireManyAsync(2, 100ms));
      mine += result.has_value() ? static_cast<std::int64_t>(result->size()) : 0;
    } while (!fault.waitForHits(1, 100ms) && !end.expired());
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    // Permits without a lease would stay for ever if they were forgotten.
    EXPECT_EVENTUALLY(kLong, taken(name) == mine);
    std::this_thread::sleep_for(50ms);
    expectTaken(name, mine);
  }
}

TEST_P(LostPermit, AReleaseGivesBackOnceAndSaysSo) {
  for (const Face face : {Face::blocking, Face::callback}) {
    const std::string name = std::string("back-") + rlock::test::toString(face);
    auto semaphore = make(name);
    const Ids ids = semaphore.acquireMany(6);
    const auto one = breakOnce(lua::permit_release);
    EXPECT_EQ(outcomeOf(runBy(face, semaphore.releaseAsync(ids[0]))), "ok");
    EXPECT_EQ(one.hits(), 1U);
    deliverLate();
    expectTaken(name, 5);
    const auto several = breakOnce(lua::permit_release);
    const Ids two{ids[1], ids[2]};
    EXPECT_EQ(runBy(face, semaphore.tryReleaseAsync(two)).value(), 2);
    EXPECT_EQ(several.hits(), 1U);
    deliverLate();
    expectTaken(name, 3);
    const auto none = breakOnce(lua::permit_release);
    EXPECT_FALSE(runBy(face, semaphore.tryReleaseAsync(ids[0])).value());
    EXPECT_EQ(none.hits(), 1U);
    deliverLate();
    expectTaken(name, 3);
  }
}

TEST_P(LostPermit, APermitIsReleasedOnce) {
  auto semaphore = make("permit");
  Permit first = semaphore.hold();
  Permit second = semaphore.hold();
  const auto fault = breakOnce(lua::permit_reconcile);
  EXPECT_EQ(first.release(), ReleaseResult::released);
  EXPECT_EQ(fault.hits(), 1U);
  deliverLate();
  expectTaken("permit", 1);
  const auto quiet = breakOnce(lua::permit_reconcile);
  { const Permit gone = std::move(second); }
  EXPECT_EVENTUALLY(kLong, taken("permit") == 0);
  deliverLate();
  expectTaken("permit", 0);
  EXPECT_EVENTUALLY(kLong, client().stats().holds == 0);
}

TEST_P(LostPermit, ChangesOfTheNumberAreMadeOnce) {
  auto semaphore = client().getPermitExpirableSemaphore("number");
  const auto init = breakOnce(lua::permit_change);
  EXPECT_TRUE(semaphore.trySetPermits(10));
  EXPECT_EQ(init.hits(), 1U);
  deliverLate();
  const auto add = breakOnce(lua::permit_change);
  semaphore.addPermits(5);
  EXPECT_EQ(add.hits(), 1U);
  deliverLate();
  EXPECT_EQ(free("number"), "15");
  const auto total = breakOnce(lua::permit_change);
  semaphore.setPermits(7);
  EXPECT_EQ(total.hits(), 1U);
  deliverLate();
  EXPECT_EQ(free("number"), "7");
}

TEST_P(LostPermit, ALeaseIsUpdatedOnce) {
  auto semaphore = make("lease");
  const std::string id = semaphore.acquire();
  const auto fault = breakOnce(lua::permit_update_lease);
  EXPECT_TRUE(semaphore.updateLeaseTime(id, 60s));
  EXPECT_EQ(fault.hits(), 1U);
  EXPECT_TRUE(semaphore.updateLeaseTime(id, std::nullopt));
  deliverLate();
  EXPECT_EQ(score("lease", id), std::to_string(kNever)) << "the late request changes nothing";
}

TEST_P(LostPermit, RemoveDoesNotHitWhatWasMadeInBetween) {
  auto semaphore = make("remove");
  const auto fault = breakOnce(lua::permit_remove);
  TcpProxy::RuleOptions second;
  second.limit = 3;
  proxy().addRule(running(lua::permit_remove), TcpProxy::Action::cutBeforeForward(), second);
  auto call = inThread([&] { return answerOf([&] { return semaphore.remove(); }); });
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  const bool executed = !raw().exists("remove");
  if (executed) {
    raw().set("remove", "3");
  }
  const std::string answer = call.get();
  deliverLate();
  if (executed) {
    EXPECT_NE(answer, "false");
    EXPECT_EQ(free("remove"), "3");
  } else if (answer == "true") {
    EXPECT_FALSE(raw().exists("remove"));
  }
}

TEST_P(LostPermit, RenewalsAreRepeated) {
  Options options = settings();
  options.watchdogTimeout = 2400ms;
  options.commandTimeout = 400ms;
  Client renewing = Client::connect(options);
  raw().set("renewed", "1");
  Permit permit = renewing.getPermitExpirableSemaphore("renewed").hold();
  const auto until = permit.validUntil();
  const auto fault = breakOnce(lua::permit_renew);
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  EXPECT_EVENTUALLY(kLong, permit.validUntil() > until);
  deliverLate();
  EXPECT_TRUE(permit.held());
  EXPECT_EQ(permit.release(), ReleaseResult::released);
  EXPECT_EQ(free("renewed"), "1");
}

class LostPermitSlow : public LostPermit {};

INSTANTIATE_TEST_SUITE_P(Policies,
                         LostPermitSlow,
                         ::testing::Combine(kLostReplyPolicies,
                                            ::testing::Values(Fault::swallowReplyAndCut)),
                         lostReplyName);

TEST_P(LostPermitSlow, XPROP3_CutsUnderLoadLoseAndMintNoPermit) {
  auto semaphore = make("load");
  std::atomic<bool> end{false};
  std::mutex mutex;
  Ids unsure;
  std::vector<std::string> odd;
  std::atomic<int> sections{0};
  std::vector<std::future<void>> threads;
  threads.reserve(8);
  for (int thread = 0; thread < 8; ++thread) {
    threads.push_back(inThread([&, thread] {
      const auto note = [&](const std::string& what) {
        if (what != "timedOut" && what != "connectionFailed") {
          const std::lock_guard lock(mutex);
          odd.push_back(what);
        }
      };
      while (!end.load()) {
        try {
          if (thread % 4 == 3) {
            const auto permit = semaphore.tryHold({.wait = 300ms});
            sections += permit ? 1 : 0;
            continue;
          }
          const Ids ids = semaphore.tryAcquireMany(1 + thread % 4, 300ms);
          if (ids.empty()) {
            continue;
          }
          ++sections;
          try {
            if (semaphore.tryRelease(ids) != static_cast<int>(ids.size())) {
              note("a permit without a lease was gone");
            }
          } catch (const Error& error) {
            note(std::string(rlock::toString(error.errc())));
            const std::lock_guard lock(mutex);
            unsure.insert(unsure.end(), ids.begin(), ids.end());
          }
        } catch (const Error& error) {
          note(std::string(rlock::toString(error.errc())));
        }
      }
    }));
  }
  breakUnderLoad(proxy(), [&] { EXPECT_EQ(total("load"), kPermits); });
  end = true;
  for (auto& thread : threads) {
    thread.get();
  }
  EXPECT_EQ(odd, std::vector<std::string>());
  EXPECT_GT(sections.load(), 0);
  for (const std::string& id : unsure) {
    semaphore.tryRelease(id);
  }
  EXPECT_EVENTUALLY(kLong, taken("load") == 0);
  EXPECT_EQ(free("load"), std::to_string(kPermits));
  EXPECT_EVENTUALLY(kLong, client().stats().holds == 0);
  EXPECT_GT(client().stats().lostReplies, 0U);
}

class PermitFault : public PermitTest {};

TEST_F(PermitFault, WithoutClientKillTheRequestsCarryTombstones) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all"});
  raw().denyClient("weak", {"kill"});
  Options settings = proxied();
  settings.username = "weak";
  settings.password = "pw";
  settings.commandTimeout = 250ms;
  settings.watchdogTimeout = 30s;
  Client client = Client::connect(settings);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(5);
  static_cast<void>(semaphore.hold().release());
  TcpProxy::RuleOptions once;
  once.limit = 1;
  proxy().addRule(running(lua::permit_acquire), TcpProxy::Action::swallowReplyAndCut(), once);
  static_cast<void>(semaphore.acquire());
  EXPECT_EQ(taken("s"), 1);
  // The request arrives after its caller was told that it has nothing.
  proxy().addRule(running(lua::permit_acquire), TcpProxy::Action::stallRequest(), once);
  const std::string got = outcomeOf([&] { static_cast<void>(semaphore.tryAcquireMany(2, 100ms)); });
  EXPECT_NE(got, "ok");
  ASSERT_EVENTUALLY(kLong, client.stats().undone > 0 || !raw().keys("rlock_request:{s}:*").empty());
  std::this_thread::sleep_for(500ms);
  proxy().releaseStalled();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(taken("s"), 1);
  EXPECT_EQ(free("s"), "4");
  for (const std::string& key : raw().keys("rlock_request:*")) {
    // For as long as the request before may still come.
    EXPECT_GT(raw().pttl(key), 100'000);
  }
}

TEST_F(PermitFault, AnAcquisitionWithoutALeaseIsUndoneHoweverLongTheOutage) {
  Options settings = proxied();
  settings.watchdogTimeout = 500ms;
  settings.callTimeout = 500ms;
  settings.commandTimeout = 500ms;
  Client client = Client::connect(settings);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  raw().set("s", "2");
  // Loads the scripts. A call has so little time that it may take several.
  EXPECT_EVENTUALLY(kLong,
                    outcomeOf([&] { static_cast<void>(semaphore.hold().release()); }) == "ok");
  EXPECT_EVENTUALLY(kLong, taken("s") == 0);
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto fault =
      proxy().addRule(running(lua::permit_acquire), TcpProxy::Action::swallowReplyAndCut(), once);
  const auto outage =
      proxy().addRule(running(lua::permit_reconcile), TcpProxy::Action::cutBeforeForward());
  const Stopwatch lasts;
  EXPECT_NE(outcomeOf([&] { static_cast<void>(semaphore.tryAcquire()); }), "ok");
  EXPECT_EQ(fault.hits(), 1U);
  EXPECT_EQ(taken("s"), 1);
  // Longer than each of its times together, and still tried.
  EXPECT_EVENTUALLY(kLong, lasts.elapsedMs() > 3 * 500ms && outage.hits() >= 5);
  EXPECT_EQ(taken("s"), 1);
  proxy().clearRules();
  EXPECT_EVENTUALLY(kLong, taken("s") == 0);
  EXPECT_EQ(free("s"), "2");
}

TEST_F(PermitFault, AGrantThatCameTooLateIsNotBelievedForAnotherLease) {
  Options settings = proxied();
  settings.reconnectDelayMin = 5ms;
  settings.commandTimeout = 10s;
  Client client = Client::connect(settings);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  static_cast<void>(semaphore.hold().release());
  TcpProxy::RuleOptions once;
  once.limit = 1;
  proxy().addRule(
      running(lua::permit_acquire), TcpProxy::Action::delayRequest(scaled(600ms)), once);
  const auto cut =
      proxy().addRule(running(lua::permit_acquire), TcpProxy::Action::cutBeforeForward(), once);
  proxy().setDelay(TcpProxy::Direction::toClient, scaled(500ms));
  auto holder = inThread([&] {
    AcquireOptions options;
    options.lease = scaled(1s);
    return semaphore.hold(options);
  });
  ASSERT_TRUE(cut.waitForHits(1, kLong));
  proxy().setDelay(TcpProxy::Direction::toClient, 0ms);
  Permit permit = holder.get();
  const std::int64_t then = serverMs();
  const auto left = permit.validUntil() - std::chrono::steady_clock::now();
  const auto places = raw().run({"ZRANGE", takenKey("s"), "0", "-1", "WITHSCORES"}).strings();
  ASSERT_EQ(places.size(), 2U);
  EXPECT_LE(left, std::chrono::milliseconds(std::stoll(places[1]) - then) + 20ms);
}

// Permits that are held as objects.

class PermitHold : public PermitTest {
 protected:
  static constexpr std::chrono::milliseconds kLease{1200};

  [[nodiscard]] Options brief(Options settings) {
    settings.watchdogTimeout = kLease;
    return settings;
  }
  /// A call over the proxy is soon given up.
  [[nodiscard]] Options impatient() {
    Options settings = proxied();
    settings.commandTimeout = 1s;
    settings.callTimeout = 1s;
    settings.reconnectDelayMin = 5ms;
    return settings;
  }
  static std::int64_t wallMs() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
  }
};

TEST_F(PermitHold, IsRenewedUntilItIsReleased) {
  Client client = Client::connect(brief(options()));
  auto semaphore = client.getPermitExpirableSemaphore("s");
  auto other = client.getPermitExpirableSemaphore("t");
  semaphore.trySetPermits(2);
  other.trySetPermits(1);
  Permit first = semaphore.hold();
  Permit second = inThread([&] { return semaphore.hold(); }).get();
  Permit third = other.hold({.label = "third"});
  EXPECT_EQ(first.id().size(), 32U);
  EXPECT_NE(first.id(), second.id());
  const Stopwatch watch;
  while (watch.elapsed() < 3 * kLease + 100ms) {
    EXPECT_FALSE(semaphore.tryAcquire());
    EXPECT_EQ(semaphore.acquiredPermits(), 2);
    std::this_thread::sleep_for(50ms);
  }
  EXPECT_TRUE(first.held() && second.held() && third.held());
  EXPECT_GE(client.stats().renewals, 9U);
  EXPECT_LE(semaphore.getLeaseTime(first.id()), kLease);
  EXPECT_EQ(first.release(), ReleaseResult::released);
  EXPECT_EQ(first.release(), ReleaseResult::lost);
  EXPECT_EQ(first.id().size(), 32U);
  EXPECT_EQ(free("s"), "1");
  EXPECT_EQ(third.release(), ReleaseResult::released);
  { const Permit gone = std::move(second); }
  EXPECT_EVENTUALLY(kLong, free("s") == "2");
  EXPECT_EVENTUALLY(kLong, client.stats().holds == 0);
}

// It may be somebody else's already, though nobody has taken it out of the set.
TEST_F(PermitHold, WhatHasExpiredOnTheServerIsNotRenewed) {
  Client client = connect(kWatchdog);
  auto semaphore = client.getPermitExpirableSemaphore("expired");
  semaphore.trySetPermits(1);
  const Permit permit = semaphore.hold();
  const std::string past = std::to_string(serverMs() - 1);
  raw().run({"ZADD", takenKey("expired"), "XX", past, rawId(permit.id())});
  ASSERT_EVENTUALLY(kLong, permit.lossReason() == LossReason::refused);
  EXPECT_TRUE(semaphore.tryAcquire().has_value());
}

TEST_F(PermitHold, ALeaseOfItsOwnIsNotRenewed) {
  Client client = Client::connect(brief(options()));
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  Permit permit = semaphore.hold({.lease = 2s});
  EXPECT_TRUE(permit.held());
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(semaphore.hold({.wait = 50ms})); }), "timedOut");
  EXPECT_FALSE(semaphore.tryHold());
  Permit next = semaphore.hold({.wait = kLong});
  EXPECT_FALSE(permit.held());
  EXPECT_EQ(permit.lossReason(), LossReason::expired);
  EXPECT_EQ(permit.release(), ReleaseResult::lost);
  EXPECT_TRUE(next.held()) << "releasing what is lost touches nobody else";
  EXPECT_EQ(taken("s"), 1);
  EXPECT_EQ(total("s"), 1);
}

TEST_F(PermitHold, MaxHoldEndsIt) {
  Client client = Client::connect(brief(options()));
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  Permit permit = semaphore.hold({.maxHold = 300ms});
  EXPECT_EVENTUALLY(kLong, permit.lostToken().stop_requested());
  EXPECT_EQ(permit.lossReason(), LossReason::maxHold);
  EXPECT_TRUE(semaphore.tryHold(AcquireOptions{.wait = kLong})) << "it is not renewed any more";
}

TEST_F(PermitHold, FollowsALeaseThatIsMadeShorterByItsId) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  for (const AcquireOptions& taken : {AcquireOptions{}, AcquireOptions{.lease = 60s}}) {
    Permit permit = semaphore.hold(taken);
    const auto before = Clock::now();
    ASSERT_TRUE(semaphore.updateLeaseTime(permit.id(), 300ms));
    EXPECT_LE(permit.validUntil(), Clock::now() + 300ms);
    Permit next = semaphore.hold({.lease = 20s});
    EXPECT_FALSE(permit.held()) << "two hold the only permit";
    EXPECT_LE(permit.validUntil(), Clock::now());
    EXPECT_GE(Clock::now(), before + 300ms);
    EXPECT_EVENTUALLY(kLong, permit.lossReason() == LossReason::expired);
    EXPECT_EQ(permit.release(), ReleaseResult::lost);
    EXPECT_TRUE(next.held());
    EXPECT_EQ(next.release(), ReleaseResult::released);
  }
}

TEST_F(PermitHold, FollowsALeaseThatIsMadeLongerByItsId) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(2);
  Permit brief = semaphore.hold({.lease = 2s});
  Permit permanent = semaphore.hold();
  ASSERT_TRUE(semaphore.updateLeaseTime(brief.id(), 60s));
  ASSERT_TRUE(semaphore.updateLeaseTime(permanent.id(), {}));
  EXPECT_GT(brief.validUntil(), Clock::now() + 50s);
  EXPECT_GT(permanent.validUntil(), Clock::now() + 24h);
  EXPECT_FALSE(semaphore.getLeaseTime(permanent.id()).has_value());
  EXPECT_EQ(brief.release(), ReleaseResult::released);
  EXPECT_EQ(permanent.release(), ReleaseResult::released);
}

TEST_F(PermitHold, FollowsTheNextLeaseAfterOneThatWasRefused) {
  Client client = Client::connect(proxied());
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(2);
  for (const Face face : {Face::blocking, Face::callback}) {
    Permit permit = semaphore.hold({.lease = 60s});
    const auto rule = proxy().addRule(running(lua::permit_update_lease),
                                      TcpProxy::Action::replyWithError("NOPERM not this one"));
    EXPECT_EQ(outcomeOf(runBy(face, semaphore.updateLeaseTimeAsync(permit.id(), 30s))), "denied");
    EXPECT_EQ(rule.hits(), 1U);
    proxy().clearRules();
    EXPECT_LE(permit.validUntil(), Clock::now() + 30s);
    EXPECT_TRUE(permit.held());
    EXPECT_TRUE(runBy(face, semaphore.updateLeaseTimeAsync(permit.id(), std::nullopt)).value());
    EXPECT_GT(permit.validUntil(), Clock::now() + 24h);
    EXPECT_EQ(permit.release(), ReleaseResult::released);
  }
}

// The server may have the lost request at any time; a later one decides nevertheless.
TEST_F(PermitHold, FollowsTheNextLeaseAfterOneThatWasLost) {
  Client client = Client::connect(impatient());
  connect().getPermitExpirableSemaphore("s").trySetPermits(1);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  const Permit permit = semaphore.hold({.lease = 60s});
  // Loads the script. A call has so little time that it may take several.
  ASSERT_EVENTUALLY(
      kLong, answerOf([&] { return semaphore.updateLeaseTime(permit.id(), 60s); }) == "true");
  proxy().addRule(running(lua::permit_update_lease), TcpProxy::Action::stallRequest());
  EXPECT_NE(answerOf([&] { return semaphore.updateLeaseTime(permit.id(), 30s); }), "true");
  proxy().clearRules();
  EXPECT_LE(permit.validUntil(), Clock::now() + 30s);
  ASSERT_EVENTUALLY(kLong, answerOf([&] {
                             return semaphore.updateLeaseTime(permit.id(), std::nullopt);
                           }) == "true");
  EXPECT_GT(permit.validUntil(), Clock::now() + 24h);
  const std::int64_t scripts = raw().commandCalls("evalsha");
  proxy().releaseStalled();
  ASSERT_EVENTUALLY(kLong, raw().commandCalls("evalsha") > scripts);
  EXPECT_EQ(score("s", permit.id()), std::to_string(kNever)) << "the late request changes nothing";
  EXPECT_TRUE(permit.held());
}

// The server has a lease without end, though nobody knows.
TEST_F(PermitHold, IsGivenBackWhenALongerLeaseWasLost) {
  Client client = Client::connect(impatient());
  connect().getPermitExpirableSemaphore("s").trySetPermits(1);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  {
    // Loads the scripts. A call has so little time that it may take several.
    const Permit warm = semaphore.hold();
    ASSERT_EVENTUALLY(
        kLong, answerOf([&] { return semaphore.updateLeaseTime(warm.id(), 60s); }) == "true");
  }
  const Permit permit = semaphore.hold({.lease = scaled(3s)});
  const auto fault =
      proxy().addRule(running(lua::permit_update_lease), TcpProxy::Action::swallowReplyAndCut());
  EXPECT_NE(answerOf([&] { return semaphore.updateLeaseTime(permit.id(), std::nullopt); }), "true");
  EXPECT_GE(fault.hits(), 1U);
  proxy().clearRules();
  EXPECT_EVENTUALLY(kLong, permit.lossReason() == LossReason::expired);
  EXPECT_EVENTUALLY(kLong, free("s") == "1");
  EXPECT_EQ(taken("s"), 0);
}

TEST_F(PermitHold, IsLostWhenItsIdIsNotTakenAnyMore) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  Permit permit = semaphore.hold({.lease = 60s});
  semaphore.release(permit.id());
  EXPECT_FALSE(semaphore.updateLeaseTime(permit.id(), 60s));
  EXPECT_EQ(permit.lossReason(), LossReason::refused);
}

TEST_F(PermitHold, IsLostAtOnceWhenItsClientReleasesItsId) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(3);
  Permit watched = semaphore.hold();
  Permit leased = semaphore.hold({.lease = 60s});
  const Permit other = semaphore.hold();
  const std::vector<std::string> two{watched.id(), leased.id()};
  semaphore.release(two);
  EXPECT_FALSE(watched.held());
  EXPECT_FALSE(leased.held());
  EXPECT_EVENTUALLY(kLong, leased.lostToken().stop_requested());
  EXPECT_EQ(leased.lossReason(), LossReason::refused);
  EXPECT_EQ(leased.release(), ReleaseResult::lost);
  EXPECT_TRUE(other.held());
  EXPECT_EQ(semaphore.availablePermits(), 2);
}

TEST_F(PermitHold, SomebodyGivesItAway) {
  Client client = Client::connect(brief(options()));
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(3);
  Permit deleted = semaphore.hold();
  Permit released = semaphore.hold();
  Permit kept = semaphore.hold();
  raw().run({"ZREM", takenKey("s"), rawId(deleted.id())});
  raw().run({"INCR", "s"});
  EXPECT_TRUE(semaphore.tryRelease(released.id()));
  EXPECT_EVENTUALLY(kLong, deleted.lostToken().stop_requested());
  EXPECT_EVENTUALLY(kLong, released.lostToken().stop_requested());
  EXPECT_EQ(deleted.lossReason(), LossReason::refused);
  EXPECT_EQ(released.lossReason(), LossReason::refused);
  EXPECT_EQ(deleted.release(), ReleaseResult::lost);
  EXPECT_TRUE(kept.held());
  EXPECT_EQ(free("s"), "2");
  EXPECT_EQ(total("s"), 3);
}

TEST_F(PermitHold, IsLostWhereItHasExpiredOnTheServer) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  Permit permit = semaphore.hold({.lease = 60s});
  // The server's clock was put forward, and nobody has looked since.
  raw().run({"ZADD", takenKey("s"), std::to_string(serverMs() - 1), rawId(permit.id())});
  EXPECT_EQ(permit.release(), ReleaseResult::lost);
  EXPECT_EQ(free("s"), "1");
  EXPECT_EQ(taken("s"), 0);
}

TEST_F(PermitHold, RenewalNeverShortensAndIgnoresOtherData) {
  Client client = Client::connect(brief(options()));
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  Permit permit = semaphore.hold();
  EXPECT_TRUE(semaphore.updateLeaseTime(permit.id(), std::nullopt));
  const auto renewals = client.stats().renewals;
  EXPECT_EVENTUALLY(kLong, client.stats().renewals > renewals + 1);
  EXPECT_EQ(score("s", permit.id()), std::to_string(kNever));
  raw().del(takenKey("s"));
  raw().set(takenKey("s"), "something else");
  EXPECT_EVENTUALLY(kLong, permit.lostToken().stop_requested());
  EXPECT_EQ(permit.lossReason(), LossReason::refused);
}

TEST_F(PermitHold, TheLossIsToldBeforeTheServerGivesItAway) {
  Client client = Client::connect(brief(proxied()));
  Client other = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  Permit permit = semaphore.hold();
  const auto renewals = client.stats().renewals;
  ASSERT_EVENTUALLY(kLong, client.stats().renewals > renewals);
  std::atomic<std::int64_t> told{0};
  const std::stop_callback callback(permit.lostToken(), [&] { told = wallMs(); });
  proxy().blackHole();
  auto next = inThread([&] {
    auto theirs = other.getPermitExpirableSemaphore("s");
    const auto id = theirs.tryAcquire(kLong);
    return std::pair(id.has_value(), wallMs());
  });
  const auto [got, when] = next.get();
  EXPECT_TRUE(got);
  ASSERT_EVENTUALLY(kLong, told.load() != 0);
  EXPECT_LE(told.load(), when);
  EXPECT_FALSE(permit.held());
  EXPECT_EQ(permit.lossReason(), LossReason::unreachable);
  proxy().endBlackHole();
  EXPECT_EQ(permit.release(), ReleaseResult::lost);
  EXPECT_EQ(total("s"), 1);
  EXPECT_EQ(taken("s"), 1) << "the release of a lost permit takes nobody else's";
}

TEST_F(PermitHold, ClosingTheClientGivesItBack) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(3);
  Permit first = semaphore.hold();
  Permit second = semaphore.hold({.lease = 60s});
  const std::string known = semaphore.acquire(60s);
  client.close(5s);
  EXPECT_EQ(free("s"), "2");
  EXPECT_EQ(taken("s"), 1) << "one that is known by its id only stays";
  EXPECT_FALSE(first.held());
  EXPECT_EQ(first.lossReason(), LossReason::clientClosed);
  EXPECT_EQ(second.release(), ReleaseResult::lost);
}

TEST_F(PermitHold, MovesAndSwaps) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(2);
  Permit empty;
  EXPECT_FALSE(empty.held());
  EXPECT_EQ(empty.id(), "");
  Permit a = semaphore.hold();
  Permit b = semaphore.hold();
  const std::string idOfA = a.id();
  const std::string idOfB = b.id();
  swap(a, b);
  EXPECT_EQ(a.id(), idOfB);
  EXPECT_EQ(b.id(), idOfA);
  EXPECT_TRUE(semaphore.tryRelease(idOfB));
  EXPECT_EQ(a.release(), ReleaseResult::lost) << "it went with the id";
  a = std::move(b);
  EXPECT_EQ(a.id(), idOfA);
  EXPECT_EQ(b.id(), "");  // NOLINT(bugprone-use-after-move): that is what is tested
  EXPECT_TRUE(a.held());
  Lease lease = std::move(a);
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_EQ(free("s"), "2");
}

// The server refuses.

TEST_F(PermitFault, AtTheMemoryLimit) {
  Options settings = options();
  settings.watchdogTimeout = 1500ms;
  Client client = Client::connect(settings);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(4);
  const std::string id = semaphore.acquire();
  Permit permit = semaphore.hold();
  Permit other = semaphore.hold();
  raw().configSet("maxmemory", "1");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(semaphore.acquire()); }), "outOfMemory");
  EXPECT_EQ(outcomeOf([&] { client.getPermitExpirableSemaphore("new").trySetPermits(5); }),
            "outOfMemory");
  EXPECT_FALSE(raw().exists("new"));
  EXPECT_EQ(free("s"), "1");
  EXPECT_EQ(total("s"), 4);
  EXPECT_EQ(semaphore.availablePermits(), 1);
  const auto renewals = client.stats().renewals;
  EXPECT_EVENTUALLY(kLong, client.stats().renewals >= renewals + 4);
  EXPECT_TRUE(permit.held());
  semaphore.release(id);
  EXPECT_EQ(permit.release(), ReleaseResult::released);
  EXPECT_EQ(free("s"), "3");
  raw().configSet("maxmemory", "0");
  EXPECT_TRUE(semaphore.tryAcquire());
  EXPECT_TRUE(other.held());
}

TEST_F(PermitFault, WhatIsForbiddenLeavesNothingHalfDone) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-zadd", "-publish"});
  Client mighty = connect();
  Options settings = options();
  settings.username = "weak";
  settings.password = "pw";
  Client client = Client::connect(settings);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(2);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(semaphore.acquire()); }), "denied");
  EXPECT_EQ(free("s"), "2");
  EXPECT_EQ(taken("s"), 0);
  const std::string id = mighty.getPermitExpirableSemaphore("s").acquire();
  semaphore.release(id);
  EXPECT_EQ(free("s"), "2") << "released, although nobody could be told";
}

TEST_F(PermitFault, ARefusedMessageIsNoRefusedRelease) {
  RLOCK_ONE_MASTER_ONLY("forbids a command that sharded channels do not need");
  raw().run({"ACL", "SETUSER", "quiet", "on", ">pw", "~*", "&*", "+@all", "-publish"});
  Options settings = options();
  settings.username = "quiet";
  settings.password = "pw";
  raw().set("s", "1");
  const auto expectTold = [&](const std::function<void(PermitExpirableSemaphore&)>& use) {
    // Of one client only the first is told in full.
    Client client = Client::connect(settings);
    auto semaphore = client.getPermitExpirableSemaphore("s");
    log().clear();
    EXPECT_EQ(outcomeOf([&] { use(semaphore); }), "ok");
    EXPECT_TRUE(log().contains("semaphore \"s\": waiters could not be told: "));
  };
  const std::string id = connect().getPermitExpirableSemaphore("s").acquire();
  expectTold([&](PermitExpirableSemaphore& semaphore) { semaphore.release(id); });
  expectTold([](PermitExpirableSemaphore& semaphore) { semaphore.addPermits(1); });
  // The permits that had expired come back with each of these.
  addExpired("s", 2);
  expectTold(
      [](PermitExpirableSemaphore& semaphore) { EXPECT_TRUE(semaphore.tryAcquire(1s, 60s)); });
  addExpired("s", 2);
  expectTold(
      [](PermitExpirableSemaphore& semaphore) { EXPECT_EQ(semaphore.acquiredPermits(), 1); });
  addExpired("s", 2);
  expectTold([](PermitExpirableSemaphore& semaphore) {
    EXPECT_TRUE(semaphore.tryAcquireMany(99).empty());
  });
}

TEST_F(PermitFault, AnAcquisitionThatIsForbiddenHalfwayIsUndone) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-persist"});
  Options settings = options();
  settings.username = "weak";
  settings.password = "pw";
  Client client = Client::connect(settings);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(2);
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(semaphore.acquireMany(2)); }), "denied");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(semaphore.hold()); }), "denied");
  EXPECT_EQ(free("s"), "2");
  EXPECT_EQ(taken("s"), 0);
}

/// The permits that had expired came back within it, and stay free.
TEST_F(PermitFault, AnAcquisitionThatIsUndoneTellsOfWhatHadExpired) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-zadd"});
  Options settings = options();
  settings.username = "weak";
  settings.password = "pw";
  Client client = Client::connect(settings);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  raw().set("s", "0");
  addExpired("s", 1);
  RawSubscriber listener(rawOptions());
  listener.subscribe(semaphoreChannel("s"));
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(semaphore.acquire()); }), "denied");
  EXPECT_EQ(free("s"), "1");
  EXPECT_EQ(taken("s"), 0);
  ASSERT_TRUE(listener.waitFor(1, kLong));
  EXPECT_EQ(listener.messages()[0].payload, "1");
}

TEST_F(PermitFault, WaitersPollWhereNobodyMayPublish) {
  RLOCK_ONE_MASTER_ONLY("forbids a command that sharded channels do not need");
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all", "-publish"});
  Options settings = options();
  settings.username = "weak";
  settings.password = "pw";
  settings.safetyPoll = 100ms;
  Client client = Client::connect(settings);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  Permit permit = semaphore.hold();
  auto waiter = semaphore.acquireAsync().toFuture();
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  EXPECT_EQ(permit.release(), ReleaseResult::released);
  EXPECT_TRUE(ready(waiter, kLong));
  EXPECT_EVENTUALLY(kLong, log().contains("could not be told"));
}

TEST_F(PermitFault, TheServerLosesItsData) {
  Options settings = options();
  settings.watchdogTimeout = 600ms;
  Client client = Client::connect(settings);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  const std::string id = semaphore.acquire();
  semaphore.addPermits(1);
  Permit permit = semaphore.hold();
  raw().flushAll();
  EXPECT_EVENTUALLY(kLong, permit.lostToken().stop_requested());
  EXPECT_EQ(permit.release(), ReleaseResult::lost);
  EXPECT_FALSE(semaphore.tryRelease(id));
  EXPECT_FALSE(raw().exists("s")) << "what comes late makes no permits";
  EXPECT_EQ(semaphore.getPermits(), 0);
}

}  // namespace
}  // namespace rlock::test
