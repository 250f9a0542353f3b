// SPDX-License-Identifier: Apache-2.0

// Locks that their owner cannot take twice, plain and fair. The tests that they share with all
// other locks are in lock_kinds_test.cpp.

#include "integration/lock_harness.hpp"

#include <tuple>

namespace rlock::test {
namespace {

using Fields = std::map<std::string, std::string>;
using NonReentrantParams = std::tuple<bool, Face>;

class NonReentrantLock : public LockTest, public ::testing::WithParamInterface<NonReentrantParams> {
 protected:
  [[nodiscard]] static bool fair() { return std::get<0>(GetParam()); }
  [[nodiscard]] static const lua::Script& acquireScript() {
    return fair() ? lua::fair_acquire : lua::lock_acquire;
  }
  [[nodiscard]] FaceLock lockOf(Client& client, std::string_view name) {
    return {std::get<1>(GetParam()),
            fair() ? client.getNonReentrantFairLock(name) : client.getNonReentrantLock(name)};
  }
};

INSTANTIATE_TEST_SUITE_P(Kinds,
                         NonReentrantLock,
                         ::testing::Combine(::testing::Bool(), ::testing::ValuesIn(kFaces)),
                         [](const ::testing::TestParamInfo<NonReentrantParams>& test) {
                           return std::string(std::get<0>(test.param) ? "fair_" : "plain_") +
                                  toString(std::get<1>(test.param));
                         });

TEST_P(NonReentrantLock, NR01_NF01_AContenderWaitsAndGetsItAfterTheRelease) {
  Client client = connect();
  FaceLock lock = lockOf(client, "NR01");
  lock.lock().value();
  auto contender = inThread([&] {
    FaceLock mine = lockOf(client, "NR01");
    const std::string got = outcomeOf(mine.lock());
    return got + "," + outcomeOf(mine.unlock());
  });
  EXPECT_FALSE(ready(contender, 150ms));
  lock.unlock().value();
  EXPECT_TRUE(ready(contender, 5s));
  EXPECT_EQ(contender.get(), "ok,ok");
  EXPECT_FALSE(lock.isLocked());
  expectNoKeys();
}

TEST_P(NonReentrantLock, NR02_NF02_TheOwnerIsRefusedAtOnceByEveryCall) {
  Client client = connect();
  FaceLock lock = lockOf(client, "NR02");
  lock.lock(currentOwner(), 20s).value();
  const auto before = raw().hgetall("NR02");
  const Stopwatch watch;
  EXPECT_EQ(outcomeOf(lock.lock(currentOwner(), 60s)), "reentry");
  EXPECT_EQ(answerOf(lock.tryLock()), "reentry");
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), 5s)), "reentry");
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), 5s, 60s)), "reentry");
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  EXPECT_EQ(raw().hgetall("NR02"), before);
  EXPECT_LE(raw().pttl("NR02"), 20'000) << "the lease was touched";
  EXPECT_EQ(raw().keys(), std::set<std::string>{"NR02"});
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  EXPECT_EQ(lock.holdCount(), 1);
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_FALSE(lock.isLocked());
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
}

TEST_P(NonReentrantLock, NR03_NF03_TheServerEnforcesItAcrossHandles) {
  Client client = connect();
  FaceLock a = lockOf(client, "NR03");
  FaceLock b = lockOf(client, "NR03");
  a.lock().value();
  EXPECT_EQ(outcomeOf(b.lock()), "reentry");
  EXPECT_EQ(answerOf(b.tryLock()), "reentry");
  EXPECT_TRUE(b.isHeldByCurrentThread());
  EXPECT_EQ(outcomeOf(a.unlock()), "ok");
  EXPECT_FALSE(a.isHeldByCurrentThread());
  EXPECT_FALSE(b.isHeldByCurrentThread());
}

TEST_P(NonReentrantLock, TheOwnerIsRefusedWhileOthersWait) {
  Client client = connect();
  FaceLock lock = lockOf(client, "waited");
  lock.lock().value();
  auto contender = inThread([&] {
    FaceLock mine = lockOf(client, "waited");
    const std::string got = outcomeOf(mine.lock());
    return got + "," + outcomeOf(mine.unlock());
  });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  EXPECT_EQ(outcomeOf(lock.lock()), "reentry");
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), 5s)), "reentry");
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_EQ(contender.get(), "ok,ok");
  expectNoKeys();
}

TEST_P(NonReentrantLock, TheWatchdogRenewsIt) {
  Client client = connect(kWatchdog);
  FaceLock lock = lockOf(client, "renewed");
  lock.lock().value();
  std::this_thread::sleep_for(kWatchdog * 3 / 2);
  EXPECT_EQ(raw().hgetall("renewed"), (Fields{{ownerField(client, currentOwner()), "1"}}));
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
}

TEST_P(NonReentrantLock, ALostAcquisitionIsReconciledNotTakenForReentry) {
  Options settings = proxied();
  settings.commandTimeout = 250ms;
  settings.watchdogTimeout = 30s;
  Client client = Client::connect(settings);
  FaceLock warm = lockOf(client, "warm");
  warm.lock().value();
  warm.unlock().value();
  TcpProxy::RuleOptions once;
  once.limit = 1;
  for (const auto& action : {TcpProxy::Action::swallowReplyAndCut(),
                             TcpProxy::Action::stallReply(),
                             TcpProxy::Action::cutMidRequest()}) {
    const OwnerId owner = newOwner();
    FaceLock lock = lockOf(client, "lost");
    const auto fault = proxy().addRule(running(acquireScript()), action, once);
    EXPECT_EQ(outcomeOf(lock.lock(owner)), "ok");
    EXPECT_EQ(fault.hits(), 1U);
    proxy().releaseStalled();
    EXPECT_EQ(raw().hgetall("lost"), (Fields{{ownerField(client, owner), "1"}}));
    EXPECT_EQ(outcomeOf(lock.lock(owner)), "reentry");
    EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
    EXPECT_FALSE(raw().exists("lost"));
  }
}

// A grant that arrives after its lease is over is not used. The server may still count it.
TEST_P(NonReentrantLock, AGrantThatCameTooLateIsTakenAgain) {
  Options settings = proxied();
  settings.watchdogTimeout = 30s;
  Client client = Client::connect(settings);
  const OwnerId owner = newOwner();
  FaceLock lock = lockOf(client, "late");
  lock.lock(owner).value();
  lock.unlock(owner).value();
  const std::string field = ownerField(client, owner);
  // Such a grant leaves this hold behind; here the rest of its lease is drawn out.
  rawHold("late", field, 60s);
  EXPECT_EQ(answerOf(lock.tryLock(owner, 5s, 10s)), "true");
  EXPECT_EQ(raw().hgetall("late"), (Fields{{field, "1"}}));
  EXPECT_LE(raw().pttl("late"), 10'000) << "the old hold was kept, whose end nobody knows";
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  expectNoKeys();
}

}  // namespace
}  // namespace rlock::test
