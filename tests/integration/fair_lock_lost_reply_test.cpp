// SPDX-License-Identifier: Apache-2.0

// The fair lock when replies are lost: each call takes effect once, and nobody keeps a ghost's
// place.

#include "integration/fair_harness.hpp"

#include <ostream>
#include <tuple>

namespace rlock::test {
namespace {

struct Loss {
  const char* name;
  TcpProxy::Action (*action)();
};

std::ostream& operator<<(std::ostream& out, const Loss& loss) {
  return out << loss.name;
}

constexpr Loss kLosses[] = {
    {"stallReply", [] { return TcpProxy::Action::stallReply(); }},
    {"swallowReplyAndCut", [] { return TcpProxy::Action::swallowReplyAndCut(); }},
    {"cutMidReply", [] { return TcpProxy::Action::cutMidReply(); }},
    {"cutMidRequest", [] { return TcpProxy::Action::cutMidRequest(); }},
    {"cutBeforeForward", [] { return TcpProxy::Action::cutBeforeForward(); }},
    {"stallRequest", [] { return TcpProxy::Action::stallRequest(); }},
};

using LossParams = std::tuple<LostReplyPolicy, Loss>;

class FairLockLostReply : public FairLockTest, public ::testing::WithParamInterface<LossParams> {
 protected:
  void SetUp() override {
    FairLockTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) {
      return;
    }
    Options settings = fair(proxied());
    settings.lostReplyPolicy = std::get<0>(GetParam());
    // Longer than a reply that is not lost takes on a busy host.
    settings.commandTimeout = 700ms;
    settings.callTimeout = kLong;
    settings.reconnectDelayMin = 5ms;
    settings.watchdogTimeout = 30s;
    client_.emplace(Client::connect(settings));
    RLock warm = client_->getFairLock("warm");
    warm.lock();
    static_cast<void>(inThread([&] {
                        return answerOf(
                            [&] { return client_->getFairLock("warm").tryLock(300ms); });
                      }).get());
    warm.unlock();
    warm.forceUnlock();
  }
  [[nodiscard]] Client& client() { return *client_; }
  TcpProxy::Rule breakOnce(const lua::Script& script) {
    TcpProxy::RuleOptions once;
    once.limit = 1;
    return proxy().addRule(running(script), std::get<1>(GetParam()).action(), once);
  }
  void deliverLate() {
    proxy().releaseStalled();
    std::this_thread::sleep_for(30ms);
  }
  [[nodiscard]] Fields heldOnce(OwnerId owner) {
    noteSafetyCheck();
    return {{ownerField(client(), owner), "1"}};
  }

 private:
  std::optional<Client> client_;
};

INSTANTIATE_TEST_SUITE_P(Faults,
                         FairLockLostReply,
                         ::testing::Combine(::testing::Values(LostReplyPolicy::fence,
                                                              LostReplyPolicy::marker),
                                            ::testing::ValuesIn(kLosses)),
                         [](const ::testing::TestParamInfo<LossParams>& test) {
                           return std::string(rlock::toString(std::get<0>(test.param))) + "_" +
                                  std::get<1>(test.param).name;
                         });

TEST_P(FairLockLostReply, XAMB1_AFreeLockIsTakenOnce) {
  for (const Face face : kFaces) {
    const OwnerId owner = newOwner();
    FaceLock lock(face, client().getFairLock("free"));
    const auto fault = breakOnce(lua::fair_acquire);
    EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    deliverLate();
    EXPECT_EQ(raw().hgetall("free"), heldOnce(owner));
    expectNoQueue("free");
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    EXPECT_FALSE(raw().exists("free"));
  }
}

TEST_P(FairLockLostReply, XAMB2_AWaiterKeepsItsPlaceAndGetsTheLockOnce) {
  rawHold("waiter", "foreign:1", 60s);
  const OwnerId owner = newOwner();
  const auto fault = breakOnce(lua::fair_acquire);
  auto call = inThread([&] {
    return answerOf(FaceLock(Face::blocking, client().getFairLock("waiter")).tryLock(owner, 20s));
  });
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  ASSERT_EVENTUALLY(kLong, waiting("waiter", 1));
  deliverLate();
  const auto again = breakOnce(lua::fair_acquire);
  ForeignClient(raw(), "waiter").release();
  EXPECT_EQ(call.get(), "true");
  EXPECT_EQ(again.hits(), 1U);
  deliverLate();
  EXPECT_EQ(raw().hgetall("waiter"), heldOnce(owner));
  expectNoQueue("waiter");
}

TEST_P(FairLockLostReply, XAMB3_ALostReleaseFreesItOnceAndWakesTheNext) {
  const OwnerId owner = newOwner();
  FaceLock lock(Face::blocking, client().getFairLock("release"));
  lock.lock(owner).value();
  lock.lock(owner).value();
  Client direct = connectFair();
  Visitors visitors;
  visitors.send(direct.getFairLock("release"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("release", 1));
  const auto inner = breakOnce(lua::fair_release);
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(inner.hits(), 1U);
  deliverLate();
  EXPECT_EQ(raw().hgetall("release"), heldOnce(owner));
  const auto last = breakOnce(lua::fair_release);
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_EQ(last.hits(), 1U);
  EXPECT_EQ(visitors.troubles(), Names());
  deliverLate();
  EXPECT_FALSE(raw().exists("release"));
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "notOwner");
}

TEST_P(FairLockLostReply, XAMB3_ALostReleaseStillTellsTheNext) {
  RLock lock = client().getFairLock("told");
  lock.lock();
  rawEnrol("told", "foreign:7");
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(channelOf("told") + ":foreign:7");
  const auto fault = breakOnce(lua::fair_release);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EQ(fault.hits(), 1U);
  EXPECT_TRUE(subscriber.waitFor(1, kLong));
  deliverLate();
  EXPECT_EQ(subscriber.count(), 1U);
}

TEST_P(FairLockLostReply, ALostWithdrawalIsRepeatedOrLapses) {
  rawHold("withdraw", "foreign:1", 60s);
  const auto fault = breakOnce(lua::fair_withdraw);
  const Stopwatch watch;
  expectNotObtained(answerOf([&] { return client().getFairLock("withdraw").tryLock(100ms); }));
  EXPECT_LT(watch.elapsedMs(), 100ms + scaled(2 * kLate));
  EXPECT_TRUE(fault.waitForHits(1, kLong));
  EXPECT_EVENTUALLY(kPlace, queue("withdraw").empty());
  deliverLate();
  expectNoQueue("withdraw");
}

TEST_P(FairLockLostReply, AWaiterThatLeavesWhileItsRequestIsLostIsNotInTheQueue) {
  rawHold("leaver", "foreign:1", 60s);
  const auto fault = breakOnce(lua::fair_acquire);
  const std::string answer =
      answerOf([&] { return client().getFairLock("leaver").tryLock(100ms); });
  EXPECT_TRUE(answer == "timedOut" || answer == "connectionFailed" || answer == "false") << answer;
  EXPECT_TRUE(fault.waitForHits(1, kLong));
  deliverLate();
  EXPECT_EVENTUALLY(2 * kPlace, queue("leaver").empty());
  EXPECT_EQ(raw().hgetall("leaver"), (Fields{{"foreign:1", "1"}}));
}

TEST_P(FairLockLostReply, XAMB11_ForceUnlockDoesNotHitANewOwner) {
  rawHold("force", "foreign:1", 60s);
  const auto fault = breakOnce(lua::fair_force_release);
  // None that follows gets through before the newcomer is there.
  const auto more =
      proxy().addRule(running(lua::fair_force_release), TcpProxy::Action::cutBeforeForward());
  auto call = inThread(
      [&] { return answerOf([&] { return client().getFairLock("force").forceUnlock(); }); });
  ASSERT_TRUE(fault.waitForHits(1, kLong));
  const bool executed = !raw().exists("force");
  if (executed) {
    rawHold("force", "newcomer:1", 60s);
  }
  proxy().removeRule(more);
  const std::string answer = call.get();
  deliverLate();
  if (executed) {
    EXPECT_NE(answer, "false");
    EXPECT_EQ(raw().hgetall("force"), (Fields{{"newcomer:1", "1"}}));
  } else if (answer == "true") {
    EXPECT_FALSE(raw().exists("force"));
  }
  expectNoEternalKeys();
}

TEST_F(FairLock, ARequestWithATombstoneDoesNothingWhenItComesLate) {
  const RawRedis::Args keys{"late",
                            queueKey("late"),
                            deadlinesKey("late"),
                            leasesKey("late"),
                            orderKey("late"),
                            "rlock_lock_foreign_wait:{late}",
                            "rlock_request:{late}:1"};
  const RawRedis::Args fewer{keys[0], keys[1], keys[2], keys[3], keys[6]};
  const std::string channel = channelOf("late");
  raw().set(keys[6], "1", 60s);
  for (const std::string wait : {"0", "1", "2"}) {
    EXPECT_TRUE(raw()
                    .eval(lua::fair_acquire.body,
                          keys,
                          {"1000", "me:1", wait, "1000", "0", raw().publishing(), channel})
                    .error()
                    .starts_with("RLOCKSETTLED"));
  }
  EXPECT_EQ(raw().keys(), std::set<std::string>{keys[6]});
  rawHold("late", "me:1", 60s);
  EXPECT_TRUE(
      raw()
          .eval(lua::fair_release.body, fewer, {"me:1", "0", raw().publishing(), "0", channel})
          .error()
          .starts_with("RLOCKSETTLED"));
  EXPECT_EQ(raw().hgetall("late"), (Fields{{"me:1", "1"}}));
  // And reconciling leaves one.
  raw().del(keys[6]);
  raw().eval(
      lua::fair_reconcile.body, fewer, {"me:1", "0", "0", raw().publishing(), "60000", channel});
  EXPECT_FALSE(raw().exists("late"));
  EXPECT_TRUE(raw().exists(keys[6]));
  expectNoEternalKeys();
}

TEST_F(FairLock, AutomaticUsesTheTombstoneWhereTheServerForbidsKilling) {
  raw().run({"ACL", "SETUSER", "weak", "on", ">pw", "~*", "&*", "+@all"});
  raw().denyClient("weak", {"kill"});
  Options settings = fair(proxied());
  settings.username = "weak";
  settings.password = "pw";
  settings.watchdogTimeout = 30s;
  Client client = Client::connect(settings);
  RLock lock = client.getFairLock("weak");
  lock.lock();
  lock.unlock();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  for (const auto& action :
       {TcpProxy::Action::swallowReplyAndCut(), TcpProxy::Action::cutBeforeForward()}) {
    proxy().addRule(running(lua::fair_acquire), action, once);
    EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "ok");
    EXPECT_EQ(onlyEntry("weak").second, "1");
    proxy().addRule(running(lua::fair_release), action, once);
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    EXPECT_FALSE(raw().exists("weak"));
  }
  expectNoEternalKeys();
}

TEST_F(FairLock, AServerThatRefusesToPublishStillReleases) {
  raw().run({"ACL", "SETUSER", "mute", "on", ">pw", "~*", "resetchannels", "+@all"});
  Options settings = fair(options());
  settings.username = "mute";
  settings.password = "pw";
  Client client = Client::connect(settings);
  RLock lock = client.getFairLock("mute");
  lock.lock();
  Visitors visitors;
  visitors.send(client.getFairLock("mute"), 0);
  ASSERT_EVENTUALLY(kLong, waiting("mute", 1));
  const Stopwatch watch;
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  // Neither side may use channels: the waiter polls.
  EXPECT_EQ(visitors.troubles(), Names());
  EXPECT_LT(watch.elapsedMs(), kPlace / 3 + scaled(200ms));
  expectNoKeys();
}

}  // namespace
}  // namespace rlock::test
