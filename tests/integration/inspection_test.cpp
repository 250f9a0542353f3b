// SPDX-License-Identifier: Apache-2.0

// Inspection by an operator, and what a holder hears of an operator's forced release.

#include "integration/lock_harness.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace rlock::test {
namespace {

using namespace std::chrono_literals;

class Inspection : public LockTest {};

LockInfo infoOf(Client& client, const std::string& name) {
  auto info = client.inspect(name);
  EXPECT_TRUE(info.has_value()) << name;
  return info.value_or(LockInfo{});
}

TEST_F(Inspection, NothingStandsUnderAFreeName) {
  Client client = connect();
  EXPECT_FALSE(client.inspect("free").has_value());
  EXPECT_TRUE(client.list().empty());
  expectNoKeys();
}

TEST_F(Inspection, ShowsHolderCountLabelAndLifetime) {
  Client holder = connect();
  Client operatorClient = connect();
  const OwnerId owner = newOwner();
  RLock lock = holder.getLock("orders");
  AcquireOptions options;
  options.lease = 60s;
  options.label = "billing run 7";
  Lease first = lock.acquire(options, owner);
  Lease second = lock.acquire(options, owner);

  ASSERT_TRUE(eventually(kLong, [&] {
    const LockInfo info = infoOf(operatorClient, "orders");
    return info.holders.size() == 1 && info.holders[0].label == "billing run 7";
  }));
  const LockInfo info = infoOf(operatorClient, "orders");
  EXPECT_EQ(info.kind, LockKind::lock);
  EXPECT_EQ(info.holders[0].owner, ownerField(holder, owner));
  EXPECT_EQ(info.holders[0].holds, 2);
  EXPECT_TRUE(info.holders[0].exclusive);
  ASSERT_TRUE(info.timeToLive.has_value());
  EXPECT_GT(*info.timeToLive, 40s);
  EXPECT_LE(*info.timeToLive, 60s);
  expectNoEternalKeys();
  // Redisson counts the fields of some hashes: a label never stands there.
  EXPECT_EQ(raw().hgetall("orders").size(), 1U);

  EXPECT_EQ(first.release(), ReleaseResult::stillHeld);
  EXPECT_EQ(second.release(), ReleaseResult::released);
  ASSERT_EVENTUALLY(kLong, raw().keys().empty());
}

TEST_F(Inspection, LabelOfARenewedHoldStays) {
  Client client = connect(kWatchdog);
  AcquireOptions options;
  options.label = "long job";
  Lease lease = client.getLock("long").acquire(options);
  const auto renewals = client.stats().renewals;
  ASSERT_EVENTUALLY(kLong, client.stats().renewals >= renewals + 4);
  EXPECT_EQ(infoOf(client, "long").holders.at(0).label, "long job");
}

TEST_F(Inspection, AFurtherHoldWithoutALabelLeavesTheLabel) {
  Client client = connect();
  const OwnerId owner = newOwner();
  RLock lock = client.getLock("long");
  Lease outer = lock.acquire({.label = "long job"}, owner);
  Lease inner = lock.acquire({}, owner);
  ASSERT_EVENTUALLY(kLong, infoOf(client, "long").holders.at(0).label == "long job");
  EXPECT_EQ(inner.release(), ReleaseResult::stillHeld);
  EXPECT_EQ(infoOf(client, "long").holders.at(0).label, "long job");
  EXPECT_EQ(outer.release(), ReleaseResult::released);
  // By itself it would stay for as long as the lease.
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
}

TEST_F(Inspection, LabelsGoWithTheirHoldsHoweverThoseEnd) {
  const std::string key = "rlock_label:{l}";
  for (int i = 0; i < 20; ++i) {
    Client client = connect();
    Lease lease = client.getLock("l").acquire({.label = "short job"});
    if (i % 2 == 0) {
      EXPECT_EQ(lease.release(), ReleaseResult::released);
    }
    client.close(kLong);
    ASSERT_FALSE(raw().exists(key)) << "a closed client has left its label, " << i;
  }
  Client client = connect();
  RLock reading = client.getReadWriteLock("l").readLock();
  const Lease longer = reading.acquire({.label = "long job"});
  const Lease shorter = reading.acquire({.lease = 1s, .label = "short job"});
  ASSERT_EVENTUALLY(kLong, raw().hgetall(key).size() == 2);
  EXPECT_EVENTUALLY(kLong, raw().hgetall(key).size() == 1);
  EXPECT_TRUE(longer.held());
}

TEST_F(Inspection, TheLossOfAHoldLeavesTheLabelOfTheNext) {
  Client client = connect();
  const OwnerId owner = newOwner();
  RLock lock = client.getLock("l");
  const Lease first = lock.acquire({.label = "first job"}, owner);
  ASSERT_EVENTUALLY(kLong, infoOf(client, "l").holders.at(0).label == "first job");
  raw().del("l");
  const Lease second = lock.acquire({.label = "second job"}, owner);
  EXPECT_EVENTUALLY(kLong, first.lostToken().stop_requested());
  // The loop is through with what the loss began.
  EXPECT_TRUE(lock.isLockedAsync().toFuture().get());
  EXPECT_EQ(infoOf(client, "l").holders.at(0).label, "second job");
}

TEST_F(Inspection, LabelsOfOneLockLastAsLongAsTheLongestLease) {
  const std::string key = "rlock_label:{l}";
  const auto label = [&](const std::string& owner, const std::string& text, const char* keep) {
    EXPECT_EQ(raw().eval(lua::label.body, {key}, {owner, text, keep}).integer(), 1);
  };
  label("reader:1", "long job", "600000");
  label("reader:2", "short job", "1000");
  EXPECT_GT(raw().pttl(key), 500'000) << "a short lease ends the labels of others";
  label("reader:3", "longer job", "900000");
  EXPECT_GT(raw().pttl(key), 800'000);
  label("reader:2", "", "1000");
  EXPECT_EQ(
      raw().hgetall(key),
      (std::map<std::string, std::string>{{"reader:1", "long job"}, {"reader:3", "longer job"}}));
}

TEST_F(Inspection, LabelThatIsTooLongIsRefused) {
  Client client = connect();
  AcquireOptions options;
  options.label = std::string(257, 'x');
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(client.getLock("l").acquire(options)); }),
            "invalidArgument");
  expectNoKeys();
}

TEST_F(Inspection, TellsKindsApart) {
  Client client = connect();
  const std::string owner = client.id() + ":1";
  raw().run({"HSET", "fenced", owner, "1"});
  raw().run({"SET", "redisson_lock_token:{fenced}", "41"});
  raw().run({"HSET", "fair", owner, "1"});
  raw().run({"RPUSH", "redisson_lock_queue:{fair}", client.id() + ":2", client.id() + ":3"});
  raw().run({"HSET", "rw", "mode", "write", owner + ":write", "2", owner, "1"});
  raw().run({"SET", "simple", owner});
  raw().run({"SET", "count", "5"});
  raw().run({"SET", "permits", "3"});
  raw().run({"ZADD", "{permits}:timeout", "922337203685477", std::string(16, '\x01')});
  raw().run({"HSET", "customer", "street", "1"});
  raw().run({"SET", "text", "hello"});
  raw().run({"RPUSH", "list", "1"});

  EXPECT_EQ(infoOf(client, "fenced").kind, LockKind::fencedLock);
  EXPECT_EQ(infoOf(client, "fenced").token, 41U);
  EXPECT_EQ(infoOf(client, "fenced").timeToLive, std::chrono::milliseconds::max());
  const LockInfo fair = infoOf(client, "fair");
  EXPECT_EQ(fair.kind, LockKind::fairLock);
  EXPECT_EQ(fair.waiters, (std::vector<std::string>{client.id() + ":2", client.id() + ":3"}));
  const LockInfo rw = infoOf(client, "rw");
  EXPECT_EQ(rw.kind, LockKind::readWriteLock);
  ASSERT_EQ(rw.holders.size(), 2U);
  for (const LockHolder& holder : rw.holders) {
    EXPECT_EQ(holder.owner, owner);
    EXPECT_EQ(holder.holds, holder.exclusive ? 2 : 1);
  }
  EXPECT_EQ(infoOf(client, "simple").holders.at(0).owner, owner);
  EXPECT_EQ(infoOf(client, "simple").kind, LockKind::simpleLock);
  EXPECT_EQ(infoOf(client, "count").kind, LockKind::counter);
  EXPECT_EQ(infoOf(client, "count").available, 5);
  const LockInfo permits = infoOf(client, "permits");
  EXPECT_EQ(permits.kind, LockKind::permitSemaphore);
  ASSERT_EQ(permits.holders.size(), 1U);
  EXPECT_EQ(permits.holders[0].owner, "01010101010101010101010101010101");
  EXPECT_FALSE(permits.holders[0].timeToLive.has_value());
  for (const char* name : {"customer", "text", "list"}) {
    const LockInfo info = infoOf(client, name);
    EXPECT_EQ(info.kind, LockKind::foreign) << name;
    EXPECT_TRUE(info.holders.empty()) << name;
  }

  std::vector<std::string> names;
  for (const LockInfo& info : client.list()) {
    names.push_back(info.name);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"count", "fair", "fenced", "permits", "rw", "simple"}));
  EXPECT_EQ(client.list("f*").size(), 2U);
}

TEST_F(Inspection, AThousandOfMoreReadersAreShown) {
  Client client = connect();
  constexpr int kReaders = 1200;
  RawRedis::Args readers{"HSET", "rw"};
  RawRedis::Args labels{"HSET", "rlock_label:{rw}"};
  for (int i = 0; i < kReaders; ++i) {
    const std::string owner = client.id() + ":" + std::to_string(i);
    readers.insert(readers.end(), {owner, "2"});
    labels.insert(labels.end(), {owner, "reader " + owner});
  }
  // Wherever the server keeps it.
  readers.emplace_back("mode");
  readers.emplace_back("read");
  raw().run(readers);
  raw().run(labels);
  raw().run({"HSET", "customer", "mode", "read"});
  for (int i = 0; i < kReaders; ++i) {
    raw().run({"HSET", "customer", "field " + std::to_string(i), "1"});
  }

  const LockInfo info = infoOf(client, "rw");
  EXPECT_EQ(info.kind, LockKind::readWriteLock);
  EXPECT_EQ(info.holders.size(), 1000U);
  std::set<std::string> owners;
  for (const LockHolder& holder : info.holders) {
    EXPECT_EQ(holder.holds, 2);
    EXPECT_FALSE(holder.exclusive);
    EXPECT_EQ(holder.label, "reader " + holder.owner);
    owners.insert(holder.owner);
  }
  EXPECT_EQ(owners.size(), 1000U);
  EXPECT_EQ(infoOf(client, "customer").kind, LockKind::foreign);
  ASSERT_EQ(client.list().size(), 1U);
  EXPECT_EQ(client.list()[0].name, "rw");
}

TEST_F(Inspection, AWriterHasItsLabelAmongThousands) {
  Client client = connect();
  const std::string owner = client.id() + ":1";
  RawRedis::Args labels{"HSET", "rlock_label:{rw}", owner, "night run"};
  for (int i = 0; i < 1200; ++i) {
    labels.push_back(client.id() + ":" + std::to_string(1000 + i));
    labels.emplace_back("of a reader before");
  }
  raw().run(labels);
  raw().run({"HSET", "rw", "mode", "write", owner + ":write", "1"});
  const LockInfo info = infoOf(client, "rw");
  ASSERT_EQ(info.holders.size(), 1U);
  EXPECT_TRUE(info.holders[0].exclusive);
  EXPECT_EQ(info.holders[0].owner, owner);
  EXPECT_EQ(info.holders[0].label, "night run");
}

TEST_F(Inspection, ListsManyNamesByEachFaceWithoutKeys) {
  Client client = connect();
  for (int i = 0; i < 1500; ++i) {
    raw().run({"HSET", "lock:" + std::to_string(i), client.id() + ":1", "1"});
    raw().run({"SET", "other:" + std::to_string(i), "text"});
  }
  for (const Face face : kFaces) {
    const auto found = runBy(face, client.listAsync("lock:*"));
    ASSERT_TRUE(found.has_value()) << toString(face);
    EXPECT_EQ(found->size(), 1500U) << toString(face);
    const auto one = runBy(face, client.inspectAsync("lock:7"));
    ASSERT_TRUE(one.has_value() && one->has_value()) << toString(face);
  }
  EXPECT_EQ(raw().commandCalls("keys"), 0U);
}

TEST_F(Inspection, ListsNamesThatLookLikeKeysBesideALock) {
  const std::string owner = "00000000-0000-4000-8000-000000000000:1";
  const std::vector<std::string> locks{
      "jobs{1}:timeout", "rlock_label:5", "rlock_orders", "rlock_x:a"};
  for (const std::string& name : locks) {
    rawHold(name, owner, 60s);
  }
  // By their content these could be a lock and a semaphore.
  raw().run({"HSET", "rlock_label:{rlock_orders}", owner, "17"});
  raw().run({"SET", "rlock_request:{rlock_orders}:1", "17"});
  const auto listed = [](Client& client) {
    std::vector<std::string> names;
    for (const LockInfo& info : client.list()) {
      names.push_back(info.name);
    }
    return names;
  };
  Client client = connect();
  EXPECT_EQ(listed(client), locks);
  Options settings = options();
  settings.namePrefix = "rlock_x:";
  Client prefixed = Client::connect(settings);
  EXPECT_EQ(listed(prefixed), std::vector<std::string>{"a"});
}

TEST_F(Inspection, BadNamesAndClosedClients) {
  Client client = connect();
  EXPECT_EQ(outcomeOf([&] { client.inspect(""); }), "invalidArgument");
  client.close(1s);
  EXPECT_EQ(outcomeOf([&] { client.inspect("x"); }), "closed");
  EXPECT_EQ(outcomeOf([&] { client.list(); }), "closed");
  EXPECT_EQ(outcomeOf(runBy(Face::callback, client.listAsync())), "closed");
}

// Real holds of every kind.

struct HeldKind {
  const char* name;
  RLock (*make)(Client& client, std::string_view lockName);
  LockKind kind;
  bool exclusive = true;
};

constexpr HeldKind kHeldKinds[] = {
    {"plain",
     [](Client& client, std::string_view name) { return client.getLock(name); },
     LockKind::lock},
    {"nonReentrant",
     [](Client& client, std::string_view name) { return client.getNonReentrantLock(name); },
     LockKind::lock},
    {"spin",
     [](Client& client, std::string_view name) { return client.getSpinLock(name); },
     LockKind::lock},
    // Without waiters a fair lock looks like any other.
    {"fair",
     [](Client& client, std::string_view name) { return client.getFairLock(name); },
     LockKind::lock},
    {"fenced",
     [](Client& client, std::string_view name) -> RLock { return client.getFencedLock(name); },
     LockKind::fencedLock},
    {"simple",
     [](Client& client, std::string_view name) { return client.getSimpleLock(name); },
     LockKind::simpleLock},
    {"read",
     [](Client& client, std::string_view name) { return client.getReadWriteLock(name).readLock(); },
     LockKind::readWriteLock,
     false},
    {"write",
     [](Client& client, std::string_view name) {
       return client.getReadWriteLock(name).writeLock();
     },
     LockKind::readWriteLock},
};

class HeldKinds : public LockTest, public ::testing::WithParamInterface<HeldKind> {};

INSTANTIATE_TEST_SUITE_P(Kinds,
                         HeldKinds,
                         ::testing::ValuesIn(kHeldKinds),
                         [](const ::testing::TestParamInfo<HeldKind>& test) {
                           return std::string(test.param.name);
                         });

TEST_P(HeldKinds, AreShownAndTheirHoldersToldOfAForcedRelease) {
  Options patient = options();
  patient.watchdogTimeout = 30s;
  Client holder = Client::connect(patient);
  Client operatorClient = connect();
  const OwnerId owner = newOwner();
  AcquireOptions options;
  options.label = "night run";
  Lease lease = GetParam().make(holder, "thing").acquire(options, owner);

  ASSERT_TRUE(eventually(kLong, [&] {
    const auto info = operatorClient.inspect("thing");
    return info && info->holders.size() == 1 && info->holders[0].label == "night run";
  }));
  const LockInfo info = infoOf(operatorClient, "thing");
  EXPECT_EQ(info.kind, GetParam().kind);
  EXPECT_EQ(info.holders[0].owner, ownerField(holder, owner));
  EXPECT_EQ(info.holders[0].holds, 1);
  EXPECT_EQ(info.holders[0].exclusive, GetParam().exclusive);
  EXPECT_EQ(info.token.has_value(), GetParam().kind == LockKind::fencedLock);
  ASSERT_EQ(operatorClient.list().size(), 1U);

  ASSERT_EVENTUALLY(kLong, raw().numsub("rlock_client:" + holder.id()) == 1);
  EXPECT_TRUE(GetParam().make(operatorClient, "thing").forceUnlock());
  ASSERT_EVENTUALLY(kLong, !lease.held());
  EXPECT_EQ(lease.lossReason(), LossReason::forced);
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_FALSE(operatorClient.inspect("thing").has_value());
}

TEST_F(Inspection, ShowsTheWaitersOfAFairLock) {
  Client client = connect();
  RLock lock = client.getFairLock("fair");
  Lease lease = lock.acquire();
  const OwnerId waiting = newOwner();
  AcquireOptions options;
  std::stop_source stop;
  options.stop = stop.get_token();
  auto waiter = lock.lockAsync(options, waiting).toFuture();
  ASSERT_EVENTUALLY(kLong, !infoOf(client, "fair").waiters.empty());
  const LockInfo info = infoOf(client, "fair");
  EXPECT_EQ(info.kind, LockKind::fairLock);
  EXPECT_EQ(info.waiters, std::vector<std::string>{ownerField(client, waiting)});
  stop.request_stop();
  EXPECT_EQ(outcomeOf([&] { waiter.get(); }), "cancelled");
}

TEST_F(Inspection, ShowsSemaphoresPermitsAndLatches) {
  Client client = connect();
  client.getSemaphore("semaphore").trySetPermits(7);
  client.getCountDownLatch("latch").trySetCount(3);
  PermitExpirableSemaphore permits = client.getPermitExpirableSemaphore("permits");
  permits.trySetPermits(5);
  const std::string id = permits.acquire(10s);
  EXPECT_EQ(infoOf(client, "semaphore").available, 7);
  EXPECT_EQ(infoOf(client, "latch").available, 3);
  const LockInfo info = infoOf(client, "permits");
  EXPECT_EQ(info.kind, LockKind::permitSemaphore);
  EXPECT_EQ(info.available, 4);
  ASSERT_EQ(info.holders.size(), 1U);
  EXPECT_EQ(info.holders[0].owner, id);
  ASSERT_TRUE(info.holders[0].timeToLive.has_value());
  EXPECT_LE(*info.holders[0].timeToLive, 10s);
}

class ForcedRelease : public LockTest {
 protected:
  /// The holder's client listens for what others do.
  void expectListening(const Client& client) {
    const std::string channel = "rlock_client:" + client.id();
    ASSERT_EVENTUALLY(kLong, raw().numsub(channel) == 1);
  }
};

TEST_F(ForcedRelease, HolderInAnotherClientIsToldAtOnce) {
  Options patient = options();
  patient.watchdogTimeout = 30s;
  Client holder = Client::connect(patient);
  Client operatorClient = connect();
  Lease watched = holder.getLock("watched").acquire();
  AcquireOptions fixed;
  fixed.lease = 30s;
  Lease leased = holder.getLock("leased").acquire(fixed);
  Lease other = holder.getLock("other").acquire();
  expectListening(holder);

  EXPECT_TRUE(operatorClient.getLock("watched").forceUnlock());
  EXPECT_TRUE(operatorClient.getLock("leased").forceUnlock());
  ASSERT_EVENTUALLY(kLong, !watched.held() && !leased.held());
  EXPECT_EQ(watched.lossReason(), LossReason::forced);
  EXPECT_EQ(leased.lossReason(), LossReason::forced);
  EXPECT_EVENTUALLY(kLong, watched.lostToken().stop_requested());
  EXPECT_TRUE(other.held());
  EXPECT_EQ(watched.release(), ReleaseResult::lost);
}

TEST_F(ForcedRelease, StaleNoticeDoesNotEndALaterHold) {
  Client holder = connect(kWatchdog);
  Lease lease = holder.getLock("l").acquire();
  expectListening(holder);
  raw().publish("rlock_client:" + holder.id(), "l");
  raw().publish("rlock_client:" + holder.id(), "unknown");
  const auto renewals = holder.stats().renewals;
  ASSERT_EVENTUALLY(kLong, holder.stats().renewals > renewals);
  EXPECT_TRUE(lease.held());
}

TEST_F(ForcedRelease, WhatIsTakenAgainMeanwhileIsNotMistakenForWhatWasForced) {
  Client holder = connect();
  Client operatorClient = connect();
  const OwnerId owner = newOwner();
  RLock lock = holder.getLock("l");
  lock.lockAsync({}, owner).wait().value();
  expectListening(holder);
  for (int i = 0; i < 300; ++i) {
    // The notice, and what it makes the holder's client ask, come while it locks again.
    ASSERT_TRUE(operatorClient.getLock("l").forceUnlock());
    ASSERT_EQ(outcomeOf(lock.lockAsync({}, owner).wait()), "ok");
    for (int j = 0; j < i % 4; ++j) {
      ASSERT_TRUE(lock.isLockedAsync().wait().value());
    }
    ASSERT_EQ(outcomeOf(lock.unlockAsync(owner).wait()), "ok") << i;
    ASSERT_EQ(outcomeOf(lock.lockAsync({}, owner).wait()), "ok");
  }
}

TEST_F(ForcedRelease, HolderIsToldThoughItsLastGrantIsHeardOfLater) {
  Options patient = proxied();
  patient.watchdogTimeout = 30s;
  Client holder = Client::connect(patient);
  Client operatorClient = connect();
  const OwnerId owner = newOwner();
  RLock lock = holder.getLock("l");
  Lease lease = lock.acquire({}, owner);
  expectListening(holder);
  TcpProxy::RuleOptions once;
  once.limit = 1;
  const auto stalled =
      proxy().addRule(running(lua::lock_acquire), TcpProxy::Action::stallReply(), once);
  auto again = lock.lockAsync({}, owner).toFuture();
  ASSERT_TRUE(stalled.waitForHits(1, kLong));
  // The server has counted twice; the client looks for its hold before it knows of that.
  const auto looks = proxy().addRule(running(lua::lock_renew), TcpProxy::Action::pass());
  EXPECT_TRUE(operatorClient.getLock("l").forceUnlock());
  ASSERT_TRUE(looks.waitForHits(1, kLong));
  proxy().releaseStalled();
  EXPECT_EQ(outcomeOf([&] { again.get(); }), "ok");
  EXPECT_EVENTUALLY(kLong, !lease.held());
  EXPECT_EQ(lease.lossReason(), LossReason::forced);
}

TEST_F(ForcedRelease, HolderThatHasReleasedBeforeIsNotToldOfALoss) {
  std::atomic<int> losses{0};
  Options telling = options();
  telling.onLost = [&](const LostHold& /*lost*/) { ++losses; };
  Client client = Client::connect(telling);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  RLock lock = client.getLock("l");
  for (int i = 0; i < 50; ++i) {
    // The permit's destructor does not wait, so the loop hears of its release later than this
    // thread hears of the removal.
    semaphore.trySetPermits(1);
    { const Permit permit = semaphore.hold(); }
    ASSERT_TRUE(semaphore.remove());
  }
  // The loop is through with what it was told before.
  EXPECT_FALSE(lock.isLockedAsync().toFuture().get());
  EXPECT_EQ(losses, 0);
  EXPECT_EQ(client.stats().lost, 0U);
  EXPECT_EQ(client.stats().released, 50U);
}

TEST_F(ForcedRelease, ClientStopsListeningWhenItHoldsNothing) {
  Options eager = options();
  eager.subscriptionLinger = 50ms;
  Client client = Client::connect(eager);
  {
    Lease lease = client.getLock("l").acquire();
    expectListening(client);
  }
  ASSERT_EVENTUALLY(kLong, raw().numsub("rlock_client:" + client.id()) == 0);
  Lease again = client.getLock("l").acquire();
  expectListening(client);
}

TEST_F(Inspection, AQuestionWithoutAnAnswerSpeaksOfNoEffect) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Options impatient = options();
  impatient.callTimeout = 600ms;
  Client client = Client::connect(impatient);
  const std::vector<std::function<void()>> questions{
      [&] { client.inspect("x"); },
      [&] { client.list("x"); },
      [&] { (void)client.getLock("x").isLocked(); },
      [&] { (void)client.getSimpleLock("x").getHoldCount(); },
      [&] { (void)client.getFencedLock("x").getToken(); },
      [&] { (void)client.getSemaphore("x").availablePermits(); },
      [&] { (void)client.getCountDownLatch("x").getCount(); },
  };
  const auto expectNoEffects = [&](Errc expected) {
    for (std::size_t i = 0; i < questions.size(); ++i) {
      SCOPED_TRACE(i);
      try {
        questions[i]();
        ADD_FAILURE() << "answered";
      } catch (const Error& error) {
        EXPECT_EQ(error.errc(), expected);
        EXPECT_THAT(error.what(), ::testing::Not(::testing::HasSubstr("effect")));
      }
    }
  };
  server().freeze();
  expectNoEffects(Errc::timedOut);
  server().thaw();
  EXPECT_EVENTUALLY(kLong, outcomeOf([&] { client.inspect("x"); }) == "ok");
  server().kill();
  expectNoEffects(Errc::connectionFailed);
}

TEST_F(ForcedRelease, ClientListensForOneLingerAfterItsLastHold) {
  Options settings = options();
  settings.subscriptionLinger = 4s;
  Client client = Client::connect(settings);
  Lease lease = client.getLock("l").acquire();
  expectListening(client);
  lease.release();
  client.getLock("l").acquire().release();
  const Stopwatch idle;
  ASSERT_EVENTUALLY(kLong, raw().numsub("rlock_client:" + client.id()) == 0);
  EXPECT_GE(idle.elapsed(), 2500ms);
  EXPECT_LT(idle.elapsed(), 6s);
}

TEST_F(Inspection, AListEndsWithinTheCallTimeoutAndSaysHowFarItCame) {
  Client holder = connect();
  for (int i = 0; i < 30; ++i) {
    holder.getLock("slow" + std::to_string(i)).lock(60s);
  }
  const auto slow = proxy().addRule(running(lua::inspect), TcpProxy::Action::delayReply(100ms));
  Options options = proxied();
  options.callTimeout = 500ms;
  Client client = Client::connect(options);
  const Stopwatch watch;
  try {
    client.list("slow*");
    ADD_FAILURE() << "30 looks of 100 ms each";
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::timedOut);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("names had been looked at"));
  }
  EXPECT_GE(watch.elapsed(), 500ms);
  EXPECT_LT(watch.elapsed(), 500ms + scaled(kLate));
}

TEST_F(Inspection, AListInTheBackgroundAsksAFewAtATime) {
  constexpr std::size_t kLocks = 150;
  for (std::size_t i = 0; i < kLocks; ++i) {
    rawHold("many" + std::to_string(i), "00000000-0000-4000-8000-000000000000:1", 60s);
  }
  const auto held = proxy().addRule(running(lua::inspect), TcpProxy::Action::stallReply());
  Client client = Client::connect(proxied());
  auto listed = client.listAsync("many*").toFuture();
  ASSERT_TRUE(held.waitForHits(60, kLong));
  EXPECT_FALSE(held.waitForHits(65, 200ms));
  proxy().clearRules();
  proxy().releaseStalled();
  EXPECT_EQ(listed.get().size(), kLocks);
}

}  // namespace
}  // namespace rlock::test
