// SPDX-License-Identifier: Apache-2.0

// Locks that are held when all their members are.

#include "integration/group_harness.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <random>

namespace rlock::test {
namespace {

class MultiLockFaces : public GroupFaceTest {};
class MultiLock : public GroupTest {
 protected:
  [[nodiscard]] static TcpProxy::RuleOptions once() {
    TcpProxy::RuleOptions options;
    options.limit = 1;
    return options;
  }
  [[nodiscard]] static RLock multiOf(Client& client, const std::vector<std::string>& names) {
    std::vector<RLock> members;
    members.reserve(names.size());
    for (const std::string& name : names) {
      members.push_back(client.getLock(name));
    }
    return multiLock(std::move(members));
  }
};
class MultiLockSlow : public MultiLock {};

RLock threeOf(Client& client) {
  return multiLock({client.getLock("a"), client.getLock("b"), client.getLock("c")});
}

// ---- Conformance, by each face

TEST_P(MultiLockFaces, ML01_LockAndUnlock) {
  Client client = connect();
  FaceLock lock = by(threeOf(client));
  ASSERT_EQ(outcomeOf(lock.lock(currentOwner(), 10s)), "ok");
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  EXPECT_TRUE(lock.isHeldBy(currentOwner()));
  EXPECT_FALSE(lock.isHeldBy(newOwner()));
  EXPECT_TRUE(lock.isLocked());
  const std::string field = ownerField(client, currentOwner());
  for (const char* const name : {"a", "b", "c"}) {
    EXPECT_EQ(raw().hgetall(name), (std::map<std::string, std::string>{{field, "1"}}));
    EXPECT_LE(raw().pttl(name), 10'000);
    EXPECT_GT(raw().pttl(name), 8'000);
  }
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_FALSE(lock.isHeldByCurrentThread());
  EXPECT_FALSE(lock.isHeldBy(currentOwner()));
  EXPECT_FALSE(lock.isLocked());
  expectNoKeys();
}

TEST_P(MultiLockFaces, ML04_IndependentServers) {
  startNodes(3);
  FaceLock lock = by(multiLock(locks("m")));
  ASSERT_EQ(outcomeOf(lock.lock()), "ok");
  EXPECT_EQ(countWith("m"), 3U);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(inThread([&] { return answerOf(by(multiLock(locks("m"))).tryLock()); }).get(),
              "false");
  }
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_EQ(countWith("m"), 0U);
}

TEST_P(MultiLockFaces, EX02_TwoHandlesByOwnerIds) {
  Client client = connect();
  RLock a = client.getLock("a");
  RLock b = client.getLock("b");
  FaceLock lock = by(multiLock({a, b}));
  const OwnerId owner = newOwner();
  ASSERT_EQ(outcomeOf(lock.lock(owner)), "ok");
  EXPECT_TRUE(a.isLocked());
  EXPECT_TRUE(b.isHeldBy(owner));
  EXPECT_EQ(outcomeOf(lock.unlock(newOwner())), "notOwner");
  EXPECT_TRUE(b.isHeldBy(owner)) << "a stranger's unlock releases nothing";
  EXPECT_EQ(outcomeOf(lock.unlock(owner)), "ok");
  EXPECT_FALSE(a.isLocked());
}

TEST_P(MultiLockFaces, Reentrancy) {
  Client client = connect();
  FaceLock lock = by(threeOf(client));
  lock.lock().value();
  EXPECT_EQ(answerOf(lock.tryLock()), "true");
  EXPECT_EQ(lock.holdCount(), 2);
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_EQ(lock.holdCount(), 1);
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  expectNoKeys();
}

TEST_P(MultiLockFaces, AMemberThatIsTakenLeavesNothingBehind) {
  Client client = connect();
  rawHold("b", "foreign:1", 60s);
  FaceLock lock = by(threeOf(client));
  EXPECT_EQ(answerOf(lock.tryLock()), "false");
  EXPECT_EQ(raw().keys(), std::set<std::string>{"b"});
  const Stopwatch watch;
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), 1s)), "false");
  EXPECT_GE(watch.elapsedMs(), 1s);
  EXPECT_LT(watch.elapsedMs(), 1s + scaled(150ms));
  EXPECT_EQ(raw().keys(), std::set<std::string>{"b"}) << "given back before the call returns";
  EXPECT_FALSE(lock.isLocked()) << "one member is not all of them";
}

TEST_P(MultiLockFaces, AWaiterIsWokenByTheMember) {
  Client client = connect();
  rawHold("b", "foreign:1", 60s);
  auto waiter = inThread([&] {
    FaceLock lock = by(threeOf(client));
    const std::string got = outcomeOf(lock.lock());
    return got + "," + outcomeOf(lock.unlock());
  });
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("b")) >= 1);
  EXPECT_FALSE(ready(waiter, 50ms));
  rawRelease("b");
  EXPECT_EQ(waiter.get(), "ok,ok");
}

TEST_P(MultiLockFaces, ALostMemberAtUnlockIsToldOnceAndTheRestIsFree) {
  Client client = connect();
  FaceLock lock = by(threeOf(client));
  lock.lock(currentOwner(), 30s).value();
  raw().run({"DEL", "b"});
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  expectNoKeys();
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  EXPECT_EQ(answerOf(lock.tryLock()), "true") << "the hold is over, so it can be had again";
  EXPECT_EQ(lock.holdCount(), 1);
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
}

TEST_P(MultiLockFaces, ALossThatOnlyUnlockFindsEndsAllItsAcquisitions) {
  Client client = connect();
  FaceLock lock = by(threeOf(client));
  for (int i = 0; i < 3; ++i) {
    lock.lock(currentOwner(), 30s).value();
  }
  raw().run({"DEL", "b"});
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  expectNoKeys();
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  EXPECT_EQ(answerOf(lock.tryLock()), "true");
  EXPECT_EQ(lock.holdCount(), 1);
  EXPECT_EQ(outcomeOf(lock.unlock()), "ok");
  expectNoKeys();
}

TEST_P(MultiLockFaces, ClosingAllClientsEndsAWaitWithATimeLimit) {
  Client client = connect();
  FaceLock lock = by(threeOf(client));
  rawHold("c", "foreign:1", 60s);
  auto waiter = inThread([&] { return answerOf(lock.tryLock(newOwner(), kLong)); });
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("c")) >= 1);
  client.close(1s);
  EXPECT_EQ(waiter.get(), "closed");
}

TEST_P(MultiLockFaces, ForceUnlock) {
  Client client = connect();
  FaceLock lock = by(threeOf(client));
  EXPECT_EQ(answerOf(lock.forceUnlock()), "false");
  lock.lock().value();
  EXPECT_EQ(answerOf(lock.forceUnlock()), "true");
  for (const char* const name : {"a", "b", "c"}) {
    EXPECT_FALSE(raw().exists(name));
  }
  expectNoEternalKeys();
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  rawHold("c", "foreign:1", 60s);
  EXPECT_EQ(answerOf(lock.forceUnlock()), "true") << "one was held";
}

TEST_P(MultiLockFaces, AnErrorOfOneMemberIsTheErrorAndLeavesNothing) {
  Client client = connect();
  raw().run({"SET", "b", "data"});
  FaceLock lock = by(threeOf(client));
  EXPECT_EQ(outcomeOf(lock.tryLock()), "wrongType");
  EXPECT_EQ(outcomeOf(lock.lock()), "wrongType");
  EXPECT_EQ(raw().keys(), std::set<std::string>{"b"});
}

INSTANTIATE_TEST_SUITE_P(Faces, MultiLockFaces, ::testing::ValuesIn(kFaces), faceName);

// ---- Conformance

TEST_F(MultiLock, ML03_MultiThreads) {
  Client client = connect();
  std::promise<void> held;
  auto holder = inThread([&] {
    RLock lock = threeOf(client);
    lock.lock();
    held.set_value();
    std::this_thread::sleep_for(300ms);
    lock.unlock();
  });
  held.get_future().wait();
  RLock lock = threeOf(client);
  lock.lock();
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  lock.unlock();
  holder.get();
  expectNoKeys();
}

TEST_F(MultiLock, QuestionsAreAboutTheWeakestMember) {
  Client client = connect();
  RLock lock = threeOf(client);
  EXPECT_EQ(lock.getName(), "multi(a,b,c)");
  EXPECT_FALSE(lock.remainTimeToLive());
  lock.lock(20s);
  client.getLock("b").lock();
  EXPECT_EQ(lock.getHoldCount(), 1);
  raw().run({"PEXPIRE", "c", "5000"});
  ASSERT_TRUE(lock.remainTimeToLive());
  EXPECT_LE(*lock.remainTimeToLive(), 5s);
  raw().run({"DEL", "c"});
  EXPECT_FALSE(lock.remainTimeToLive());
  EXPECT_FALSE(lock.isLocked());
  EXPECT_EQ(lock.getHoldCount(), 0);
}

TEST_F(MultiLock, TheWatchdogKeepsEveryMember) {
  Client client = connect(kWatchdog);
  RLock lock = threeOf(client);
  Lease lease = lock.acquire();
  std::this_thread::sleep_for(kWatchdog * 3 / 2);
  EXPECT_TRUE(lease.held());
  EXPECT_GT(lease.validUntil(), Clock::now());
  EXPECT_TRUE(lock.isHeldBy(lease.owner()));
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  expectNoKeys();
  EXPECT_EQ(client.stats().holds, 0U);
}

// ---- Exclusion without standstill

TEST_F(MultiLockSlow, XML2_OppositeOrdersNeitherDeadlockNorStarve) {
  constexpr std::size_t kThreads = 16;
  const std::vector<std::string> names{"a", "b", "c", "d"};
  std::vector<Client> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(connect());
  }
  std::array<Resource, 4> resources;
  std::array<std::atomic<int>, kThreads> entered{};
  std::atomic<bool> done{false};
  std::vector<std::future<std::string>> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.push_back(inThread([&, t] {
      // Some take all, some a part, in every order.
      std::vector<std::size_t> order{0, 1, 2, 3};
      std::mt19937 random(static_cast<unsigned>(t));
      std::shuffle(order.begin(), order.end(), random);
      order.resize(t % 2 == 0 ? 4 : 3);
      std::vector<std::string> own;
      for (const std::size_t i : order) {
        own.push_back(names[i]);
      }
      RLock lock = multiOf(clients[t % clients.size()], own);
      return outcomeOf([&] {
        while (!done) {
          lock.lock();
          for (const std::size_t i : order) {
            resources[i].use();
          }
          ++entered[t];
          lock.unlock();
        }
      });
    }));
  }
  std::this_thread::sleep_for(5s);
  done = true;
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  long total = 0;
  for (std::size_t t = 0; t < kThreads; ++t) {
    EXPECT_GE(entered[t], 1) << "thread " << t;
    total += entered[t] * (t % 2 == 0 ? 4 : 3);
  }
  long used = 0;
  for (const Resource& resource : resources) {
    EXPECT_EQ(resource.overlaps(), 0);
    used += resource.value();
  }
  EXPECT_EQ(used, total);
  expectNoKeys();
}

// ---- Networks

TEST_F(MultiLock, XML4_AMemberThatGrantedBeforeTheConnectionBroke) {
  startNodes(2);
  RLock lock = multiLock(locks("m"));
  const OwnerId owner = currentOwner();
  lock.lock();
  lock.unlock();
  const auto cut = node(1).proxy().addRule(
      TcpProxy::script("m"), TcpProxy::Action::swallowReplyAndCut(), once());
  EXPECT_EQ(answerOf([&] { return lock.tryLock(kLong); }), "true");
  EXPECT_EQ(cut.hits(), 1U);
  EXPECT_EQ(lock.getHoldCount(), 1) << "once, not twice";
  EXPECT_TRUE(lock.isHeldBy(owner));
  for (std::size_t i = 0; i < nodeCount(); ++i) {
    EXPECT_EQ(node(i).raw->run({"HVALS", memberName(i, "m")}).strings(),
              std::vector<std::string>{"1"});
  }
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EQ(countWith("m"), 0U);
}

TEST_F(MultiLock, XML4_AMemberWhoseAnswerNeverComesIsGivenBack) {
  // So that the wait ends before the stalled request does.
  startNodes(2, kLongWatchdog, scaled(10s));
  RLock lock = multiLock(locks("m"));
  lock.lock();
  lock.unlock();
  const auto stalled =
      node(1).proxy().addRule(TcpProxy::script("m"), TcpProxy::Action::stallReply(), once());
  const Stopwatch watch;
  EXPECT_EQ(answerOf([&] { return lock.tryLock(800ms); }), "timedOut");
  EXPECT_LT(watch.elapsedMs(), 800ms + scaled(200ms));
  EXPECT_FALSE(existsOn(0, "m")) << "given back before the call returned";
  EXPECT_TRUE(stalled.waitForHits(1, kLong));
  node(1).proxy().heal();
  node(1).proxy().cutAll();
  EXPECT_EVENTUALLY(kLong, !existsOn(1, "m"));
}

TEST_F(MultiLock, XML5_ASlowMemberOutlastsTheLeaseOfTheOthers) {
  startNodes(3);
  RLock lock = multiLock(locks("m"));
  lock.lock();
  lock.unlock();
  // Each by itself is quick enough for the lease; the first is over when the last is there.
  node(1).proxy().setDelay(TcpProxy::Direction::toClient, 250ms);
  node(2).proxy().setDelay(TcpProxy::Direction::toClient, 250ms);
  EXPECT_EQ(answerOf([&] { return lock.tryLock(0ms, 400ms); }), "false");
  const std::string timed = answerOf([&] { return lock.tryLock(1200ms, 400ms); });
  EXPECT_TRUE(timed == "false" || timed == "timedOut") << timed;
  node(1).proxy().heal();
  node(2).proxy().heal();
  for (std::size_t i = 0; i < nodeCount(); ++i) {
    outlives(i, "m");
  }
  EXPECT_EVENTUALLY(kLong, countWith("m") == 0);
  EXPECT_EQ(answerOf([&] { return lock.tryLock(5s, 5s); }), "true");
  lock.unlock();
}

TEST_F(MultiLock, XML5_ALeaseThatIsLongEnoughForASlowMemberIsHeld) {
  startNodes(2);
  RLock lock = multiLock(locks("m"));
  lock.lock();
  lock.unlock();
  node(1).proxy().setDelay(TcpProxy::Direction::toClient, 250ms);
  AcquireOptions options;
  options.wait = 10s;
  options.lease = 3s;
  std::optional<Lease> lease = lock.tryAcquire(std::move(options));
  ASSERT_TRUE(lease.has_value());
  EXPECT_TRUE(lease->held());
  EXPECT_LE(lease->validUntil(), Clock::now() + 2750ms) << "counted from the first member";
}

TEST_F(MultiLock, C4_AMemberThatDoesNotAnswer) {
  startNodes(2);
  RLock lock = multiLock(locks("m"));
  lock.lock();
  lock.unlock();
  for (const std::size_t dead : {0U, 1U}) {
    node(dead).proxy().blackHole();
    const Stopwatch watch;
    const std::string answer = answerOf([&] { return lock.tryLock(300ms); });
    EXPECT_NE(answer, "true");
    EXPECT_LT(watch.elapsedMs(), 300ms + scaled(200ms));
    node(dead).proxy().heal();
    EXPECT_EVENTUALLY(kLong, countWith("m") == 0);
    // The connection may have been given up meanwhile.
    ASSERT_EVENTUALLY(kLong, answerOf([&] { return lock.tryLock(1s); }) == "true");
    lock.unlock();
  }
}

TEST_F(MultiLock, ANodeThatIsAwayIsWaitedForLongerThanTheLease) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(2);
  RLock lock = multiLock(locks("m"));
  lock.lock();
  lock.unlock();
  stopNode(1);
  auto endless = inThread([&] { return outcomeOf([&] { lock.lock(600ms); }); });
  auto timed = inThread([&] { return answerOf([&] { return lock.tryLock(20s, 600ms); }); });
  EXPECT_FALSE(ready(endless, 1s));
  EXPECT_FALSE(ready(timed, 0ms));
  restartNode(1);
  EXPECT_EQ(endless.get(), "ok");
  EXPECT_EQ(timed.get(), "true") << "when the first one's lease is over";
}

TEST_F(MultiLock, ANodeThatStaysAwayIsAnErrorWhenTheWaitIsOver) {
  RLOCK_ONE_SERVER_ONLY("stops the server of one member");
  startNodes(2);
  RLock lock = multiLock(otherLocks("m", 900ms));
  stopNode(1);
  for (const Duration lease : {Duration(400ms), Duration(60s)}) {
    const Stopwatch watch;
    EXPECT_EQ(outcomeOf([&] { lock.lock(lease); }), "connectionFailed");
    EXPECT_GE(watch.elapsedMs(), 850ms);
    EXPECT_LT(watch.elapsedMs(), 900ms + 300ms + scaled(300ms));
    const Stopwatch timed;
    const std::string answer = answerOf([&] { return lock.tryLock(500ms, lease); });
    // A busy machine may not have heard by then that the address refuses.
    EXPECT_TRUE(answer == "connectionFailed" || answer == "timedOut") << answer;
    EXPECT_GE(timed.elapsedMs(), 450ms);
    EXPECT_LT(timed.elapsedMs(), 500ms + scaled(300ms));
  }
  EXPECT_EVENTUALLY(kLong, !existsOn(0, "m"));
}

TEST_F(MultiLock, ANodeThatHangsIsAnErrorAfterTheOutageTimeout) {
  startNodes(2);
  RLock lock = multiLock(otherLocks("m", 1500ms));
  lock.lock();
  lock.unlock();
  node(1).proxy().blackHole();
  for (const bool leased : {true, false}) {
    AcquireOptions options;
    if (leased) {
      options.lease = 60s;
    } else {
      options.maxHold = 60s;
    }
    const Stopwatch watch;
    const std::string outcome =
        outcomeOf([&] { static_cast<void>(lock.acquire(std::move(options))); });
    EXPECT_TRUE(outcome == "connectionFailed" || outcome == "timedOut") << outcome;
    EXPECT_GE(watch.elapsedMs(), 1450ms);
    EXPECT_LT(watch.elapsedMs(), 1500ms + 1000ms + scaled(1s));
  }
  EXPECT_EVENTUALLY(kLong, !existsOn(0, "m"));
}

TEST_F(MultiLock, AWaitThatTheLeaseCutsShortDoesNotFloodTheServer) {
  Client client = connect();
  rawHold("c", "foreign:1", 60s);
  const auto commands = [&] { return std::stoull(*raw().info("total_commands_processed")); };
  AcquireOptions brief;
  brief.lease = 10s;
  brief.maxHold = 80ms;
  AcquireOptions tiny;
  tiny.lease = 40ms;
  for (AcquireOptions& options : {std::ref(brief), std::ref(tiny)}) {
    options.wait = 500ms;
    const std::uint64_t before = commands();
    const bool leaseOfMilliseconds = !options.maxHold;
    const std::string answer =
        answerOf([&] { return threeOf(client).tryAcquire(std::move(options)).has_value(); });
    // Where the machine stands still for as long as a lease, the server was silent for so long.
    EXPECT_TRUE(answer == "false" || (leaseOfMilliseconds && answer == "timedOut")) << answer;
    EXPECT_LT(commands() - before, 1000U);
  }
}

// ---- The ends of a wait

TEST_F(MultiLock, AStopEndsTheWaitWithNothingHeld) {
  Client client = connect();
  rawHold("c", "foreign:1", 60s);
  std::stop_source stop;
  auto waiter = inThread(
      [&] { return outcomeOf([&] { threeOf(client).lockInterruptibly(stop.get_token()); }); });
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("c")) >= 1);
  EXPECT_TRUE(raw().exists("a"));
  stop.request_stop();
  EXPECT_EQ(waiter.get(), "cancelled");
  EXPECT_EQ(raw().keys(), std::set<std::string>{"c"});
  std::stop_source stopped;
  stopped.request_stop();
  EXPECT_EQ(answerOf([&] { return threeOf(client).tryLock(stopped.get_token(), 1s); }),
            "cancelled");
}

TEST_F(MultiLock, ALostMemberIsTakenAnewWhileAnotherIsWaitedFor) {
  Client client = connect(kWatchdog);
  rawHold("b", "foreign:1", 60s);
  auto waiter = inThread([&] { return outcomeOf([&] { threeOf(client).lock(); }); });
  ASSERT_EVENTUALLY(kLong, raw().exists("a") && raw().numsub(channelOf("b")) >= 1);
  raw().run({"DEL", "a"});
  // Its renewal is refused, and the hold is made anew.
  EXPECT_EVENTUALLY(kLong, raw().exists("a"));
  rawRelease("b");
  EXPECT_EQ(waiter.get(), "ok");
  EXPECT_TRUE(raw().exists("a"));
}

TEST_F(MultiLock, AClosedClientEndsTheWait) {
  startNodes(2);
  node(1).raw->run({"HINCRBY", "b", "foreign:1", "1"});
  node(1).raw->run({"PEXPIRE", "b", "60000"});
  RLock lock = multiLock({node(0).client->getLock("a"), node(1).client->getLock("b")});
  auto waiter = inThread([&] { return outcomeOf([&] { lock.lock(); }); });
  ASSERT_EVENTUALLY(kLong, existsOn(0, "a"));
  // Not the one that is waited at: the one that holds.
  node(0).client->close(1s);
  ASSERT_TRUE(ready(waiter, kLong));
  EXPECT_EQ(waiter.get(), "closed");
}

// ---- The hold as an object

TEST_F(MultiLock, TheLossOfOneMemberIsTheLossOfAll) {
  startNodes(3, kWatchdog);
  Lease lease = multiLock(locks("m")).acquire();
  EXPECT_TRUE(lease.held());
  std::atomic<int> told{0};
  const std::stop_callback callback(lease.lostToken(), [&] { ++told; });
  node(1).raw->run({"DEL", memberName(1, "m")});
  EXPECT_EVENTUALLY(kLong, told == 1);
  outlives(0, "m");
  outlives(2, "m");
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(lease.lossReason(), LossReason::refused);
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  EXPECT_EVENTUALLY(kLong, countWith("m") == 0);
  EXPECT_EQ(told, 1);
}

TEST_F(MultiLock, ALossEndsItHoweverOftenItWasTaken) {
  Client client = connect(kWatchdog);
  RLock lock = threeOf(client);
  lock.lock();
  const Lease again = lock.acquire({}, currentOwner());
  raw().run({"DEL", "b"});
  ASSERT_EVENTUALLY(kLong, again.lossReason() != LossReason::none);
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "notOwner");
  expectNoKeys();
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "notOwner");
}

TEST_F(MultiLock, AReleaseThatIsTheFirstToFindTheEndTellsTheOtherLeases) {
  Client client = connect();
  RLock lock = threeOf(client);
  const OwnerId owner = newOwner();
  std::optional<Lease> first = lock.acquire({.lease = 1500ms}, owner);
  const Lease second = lock.acquire({.lease = 1500ms}, owner);
  // The loop thread, which would tell of the end, is late.
  std::promise<void> busy;
  std::promise<void> free;
  client.getLock("other").isLockedAsync().start([&](const Result<bool>&) {
    busy.set_value();
    free.get_future().wait();
  });
  busy.get_future().wait();
  EXPECT_EVENTUALLY(kLong, !first->held());
  first.reset();
  EXPECT_EQ(second.lossReason(), LossReason::expired);
  free.set_value();
  EXPECT_EVENTUALLY(kLong, second.lostToken().stop_requested());
  EXPECT_FALSE(second.held());
}

TEST_F(MultiLock, ALeaseThatGoesAfterAForcedReleaseFreesTheOtherMembers) {
  // Their leases are so long that what is gone was released.
  Client client = connect();
  Client other = connect();
  {
    const Lease lease = threeOf(client).acquire();
    ASSERT_EVENTUALLY(kLong, raw().numsub("rlock_client:" + client.id()) == 1);
    EXPECT_TRUE(other.getLock("b").forceUnlock());
    EXPECT_EVENTUALLY(kLong, lease.lossReason() != LossReason::none);
  }
  EXPECT_EVENTUALLY(kLong, !raw().exists("a") && !raw().exists("c"));
}

TEST_F(MultiLock, ALostLeaseThatGoesLeavesANewerHoldOfItsOwnerAlone) {
  Client client = connect();
  RLock lock = threeOf(client);
  const OwnerId owner = newOwner();
  std::optional<Lease> lost = lock.acquire({}, owner);
  EXPECT_TRUE(lock.forceUnlock());
  EXPECT_EVENTUALLY(kLong, lost->lossReason() != LossReason::none);
  Lease newer = lock.acquire({}, owner);
  lost.reset();
  EXPECT_FALSE(threeOf(client).tryAcquire().has_value());
  EXPECT_TRUE(newer.held());
  EXPECT_EQ(newer.release(), ReleaseResult::released);
}

TEST_F(MultiLock, C2_TheLossIsToldBeforeTheEndOfTheValidity) {
  noteSafetyCheck();
  // From this lease on the loss is told as early as it ever is.
  startNodes(2, 2 * kWatchdog);
  Lease lease = multiLock(locks("m")).acquire();
  std::atomic<Clock::rep> toldAt{0};
  const std::stop_callback callback(lease.lostToken(),
                                    [&] { toldAt = Clock::now().time_since_epoch().count(); });
  node(1).proxy().blackHole();
  auto until = lease.validUntil();
  ASSERT_EVENTUALLY(kLong, [&] {
    until = std::max(until, lease.validUntil());
    return lease.lostToken().stop_requested();
  }());
  ASSERT_EVENTUALLY(kLong, toldAt != 0);
  EXPECT_LE(Clock::time_point(Clock::duration(toldAt.load())), until);
  EXPECT_FALSE(lease.held());
  EXPECT_EQ(lease.lossReason(), LossReason::unreachable);
}

TEST_F(MultiLock, ALeaseThatGoesReleasesInTheBackground) {
  Client client = connect();
  { const Lease lease = threeOf(client).acquire(); }
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
  Lease lease = threeOf(client).acquire();
  EXPECT_FALSE(threeOf(client).tryAcquire().has_value());
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_FALSE(lease.held());
}

TEST_F(MultiLock, MaxHoldAndLeaseEndIt) {
  Client client = connect();
  AcquireOptions options;
  options.maxHold = 150ms;
  Lease lease = threeOf(client).acquire(std::move(options));
  EXPECT_EVENTUALLY(kLong, lease.lostToken().stop_requested());
  EXPECT_EQ(lease.lossReason(), LossReason::maxHold);
  EXPECT_EQ(lease.release(), ReleaseResult::lost);
  AcquireOptions brief;
  brief.lease = 150ms;
  Lease other = threeOf(client).acquire(std::move(brief));
  EXPECT_EVENTUALLY(kLong, other.lostToken().stop_requested());
  EXPECT_EQ(other.lossReason(), LossReason::expired);
}

TEST_F(MultiLock, TheEndOfTheThreadIsTheLoss) {
  Client client = connect();
  std::optional<Lease> lease;
  inThread([&] { lease = threeOf(client).acquire({}, currentOwner()); }).get();
  EXPECT_EVENTUALLY(kLong, lease->lostToken().stop_requested());
  EXPECT_EQ(lease->lossReason(), LossReason::threadEnded);
}

TEST_F(MultiLock, ASecondObjectOfTheSameMembers) {
  Client client = connect();
  RLock first = threeOf(client);
  RLock second = multiOf(client, {"c", "a", "b"});
  first.lock();
  EXPECT_TRUE(second.tryLock()) << "re-entrant through the members";
  EXPECT_EQ(first.getHoldCount(), 2);
  second.unlock();
  EXPECT_EQ(outcomeOf([&] { second.unlock(); }), "ok") << "what the first object took";
  expectNoKeys();
  client.getLock("a").lock();
  EXPECT_EQ(outcomeOf([&] { second.unlock(); }), "notOwner");
  EXPECT_TRUE(client.getLock("a").isHeldByCurrentThread()) << "not taken by a group";
}

TEST_F(MultiLock, WhatASecondObjectReleasesCountsNoMoreForTheFirst) {
  Client client = connect();
  const auto readersOf = [&] {
    return multiLock({client.getReadWriteLock("x").readLock(), client.getLock("a")});
  };
  const std::vector<std::pair<RLock, RLock>> pairs{
      {threeOf(client), multiOf(client, {"c", "a", "b"})}, {readersOf(), readersOf()}};
  for (auto [first, second] : pairs) {
    first.lock();
    first.lock();
    second.unlock();
    first.lock();
    first.unlock();
    EXPECT_EQ(first.getHoldCount(), 1);
    EXPECT_EQ(outcomeOf([&] { first.unlock(); }), "ok");
    expectNoKeys();

    first.lock();
    first.lock();
    second.unlock();
    EXPECT_EQ(outcomeOf([&] { first.unlock(); }), "ok");
    expectNoKeys();

    first.lock();
    second.unlock();
    second.lock();
    EXPECT_EQ(outcomeOf([&] { first.unlock(); }), "ok") << "what the second object took";
    expectNoKeys();
  }
}

TEST_F(MultiLock, AReentryAfterAReleaseLeavesTheOuterHold) {
  Client client = connect();
  RLock lock = threeOf(client);
  const OwnerId owner = newOwner();
  const Lease outer = lock.acquire({}, owner);
  EXPECT_EQ(lock.acquire({}, owner).release(), ReleaseResult::stillHeld);
  EXPECT_EQ(lock.acquire({}, owner).release(), ReleaseResult::stillHeld);
  EXPECT_TRUE(outer.held());
}

TEST_F(MultiLock, WhatASecondObjectReleasesIsNoLoss) {
  Client client = connect();
  RLock first = threeOf(client);
  const OwnerId owner = newOwner();
  const Lease over = first.acquire({}, owner);
  threeOf(client).unlockAsync(owner).get();
  EXPECT_FALSE(over.held());
  const Lease next = first.acquire({}, owner);
  EXPECT_TRUE(next.held());
  // A loss would be told on the loop thread, which has answered by then.
  first.isLockedAsync().get();
  EXPECT_EQ(over.lossReason(), LossReason::none);
  EXPECT_FALSE(over.lostToken().stop_requested());
}

/// A call keeps what it needs of its object, and the members know what their owner holds.
TEST_F(MultiLock, ATemporaryObject) {
  Client client = connect();
  threeOf(client).lock();
  EXPECT_TRUE(threeOf(client).isHeldByCurrentThread());
  EXPECT_EQ(outcomeOf([&] { threeOf(client).unlock(); }), "ok");
  expectNoKeys();

  RLock taken = client.getLock("b");
  taken.lock();
  const OwnerId owner = newOwner();
  auto locked = threeOf(client).lockAsync(AcquireOptions{}, owner).toFuture();
  auto leased = threeOf(client).acquireAsync().toFuture();
  ASSERT_EVENTUALLY(kLong, client.stats().waiters > 0);
  taken.unlock();
  ASSERT_TRUE(ready(locked, kLong));
  EXPECT_EQ(outcomeOf([&] { locked.get(); }), "ok");
  EXPECT_EQ(outcomeOf([&] { threeOf(client).unlockAsync(owner).get(); }), "ok");
  ASSERT_TRUE(ready(leased, kLong));
  EXPECT_EQ(leased.get().release(), ReleaseResult::released);
  expectNoKeys();
}

TEST_F(MultiLock, AnEarlierHoldThatWasLostDoesNotLeaveMembersBehind) {
  Client client = connect(kWatchdog);
  RLock lock = threeOf(client);
  lock.lock();
  raw().run({"DEL", "b"});
  ASSERT_TRUE(log().waitFor("lost its hold", kLong));
  EXPECT_TRUE(lock.tryLock(5s)) << "never released, taken again";
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  expectNoKeys();
}

TEST_F(MultiLock, NothingOfAHoldThatIsOverIsLeftByTheNextOne) {
  Client client = connect();
  RLock lock = threeOf(client);
  AcquireOptions options;
  options.maxHold = 100ms;
  const Lease over = lock.acquire(std::move(options), currentOwner());
  ASSERT_EVENTUALLY(kLong, over.lossReason() == LossReason::maxHold);
  lock.lock();
  client.getLock("b").lock();
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EQ(raw().keys(), std::set<std::string>{"b"}) << "not taken through the group";
  client.getLock("b").unlock();
}

TEST_F(MultiLock, AttemptsBetweenDoNotHideWhatIsStillOnTheServer) {
  Client client = connect();
  RLock lock = threeOf(client);
  AcquireOptions options;
  options.maxHold = 100ms;
  const Lease over = lock.acquire(std::move(options), currentOwner());
  ASSERT_EVENTUALLY(kLong, over.lossReason() == LossReason::maxHold);
  raw().run({"DEL", "c"});
  rawHold("c", "foreign:1", 60s);
  EXPECT_FALSE(lock.tryLock()) << "gives back what it got of a and b";
  raw().run({"DEL", "c"});
  ASSERT_TRUE(lock.tryLock());
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  expectNoKeys();
}

TEST_F(MultiLock, AReentryDoesNotHideThatAMemberWasLost) {
  Client client = connect();
  RLock lock = threeOf(client);
  for (const char* vanished : {"a", "c"}) {
    const Lease outer = lock.acquire({}, currentOwner());
    raw().run({"DEL", vanished});
    // Before the next renewal finds out.
    ASSERT_TRUE(lock.tryLock());
    EXPECT_EVENTUALLY(kLong, outer.lossReason() == LossReason::refused);
    EXPECT_FALSE(outer.held());
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
    expectNoKeys();
  }
}

TEST_F(MultiLock, TheMaxHoldOfWhatTheOwnerTookByOtherWaysStays) {
  Client client = connect();
  RLock lock = multiOf(client, {"a", "b"});
  const OwnerId owner = newOwner();
  AcquireOptions brief;
  brief.maxHold = 150ms;
  AcquireOptions longer;
  longer.maxHold = 800ms;
  const Lease a = client.getLock("a").acquire(std::move(brief), owner);
  const Lease b = client.getLock("b").acquire(std::move(longer), owner);
  const Lease group = lock.acquire({}, owner);
  ASSERT_EVENTUALLY(kLong, group.lossReason() == LossReason::maxHold);
  const Lease again = lock.acquire({}, owner);
  EXPECT_EVENTUALLY(kLong, b.lossReason() == LossReason::maxHold);
}

TEST_F(MultiLock, CallsOfOneOwnerThatOvertakeEachOtherAreAllCounted) {
  Client client = connect();
  RLock lock = multiOf(client, {"a", "b"});
  const OwnerId owner = newOwner();
  rawHold("b", "foreign:1", 60s);
  auto patient = inThread([&] { return outcomeOf(lock.lockAsync({}, owner).wait()); });
  ASSERT_EVENTUALLY(kLong, raw().exists("a") && raw().numsub(channelOf("b")) >= 1);
  raw().run({"DEL", "b"});
  EXPECT_EQ(answerOf(lock.tryLockAsync({}, owner).wait()), "true");
  raw().publish(channelOf("b"), "0");
  EXPECT_EQ(patient.get(), "ok");
  EXPECT_EQ(outcomeOf(lock.unlockAsync(owner).wait()), "ok");
  EXPECT_EQ(outcomeOf(lock.unlockAsync(owner).wait()), "ok");
  expectNoKeys();
}

TEST_F(MultiLock, ReleasesThatFailAreAllMadeUpFor) {
  startNodes(2);
  RLock lock = multiLock(locks("m"));
  const OwnerId owner = newOwner();
  for (int i = 0; i < 3; ++i) {
    AcquireOptions options;
    options.lease = 60s;
    lock.lockAsync(std::move(options), owner).wait().value();
  }
  node(1).raw->run({"DEL", memberName(1, "m")});
  node(0).proxy().blackHole();
  // Longer than each call; the holder's client cannot know whether the hold is still there.
  EXPECT_EQ(outcomeOf(lock.unlockAsync(owner).wait()), "notOwner");
  EXPECT_TRUE(existsOn(0, "m"));
  node(0).proxy().heal();
  node(0).proxy().cutAll();
  EXPECT_EVENTUALLY(kLong, !existsOn(0, "m"));
}

TEST_F(MultiLock, AHoldThatIsGoneFromTheServerDoesNotCountOn) {
  Client client = connect();
  RLock lock = threeOf(client);
  lock.lock(150ms);
  ASSERT_EVENTUALLY(kLong, raw().keys().empty());
  ASSERT_EVENTUALLY(kLong, client.stats().lost > 0);
  client.getLock("a").lock();
  lock.lock();
  EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok");
  EXPECT_EQ(raw().keys(), std::set<std::string>{"a"}) << "not taken through the group";
  client.getLock("a").unlock();
}

// ---- Where it can be called

TEST_F(MultiLock, ABlockingCallOnAnyMembersLoopThread) {
  startNodes(2);
  RLock lock = multiLock(locks("m"));
  for (const std::size_t i : {0U, 1U}) {
    std::promise<std::string> outcome;
    node(i).client->getLock("other").isLockedAsync().start([&](const Result<bool>&) {
      outcome.set_value(answerOf([&] { return lock.tryLock(); }) + "," +
                        outcomeOf([&] { lock.unlock(); }) + "," +
                        answerOf([&] { return lock.isLocked(); }));
    });
    EXPECT_EQ(outcome.get_future().get(), "wouldDeadlock,wouldDeadlock,wouldDeadlock");
  }
}

/// Runs callbacks one after the other on a thread of its own.
class OneThread {
 public:
  ~OneThread() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  [[nodiscard]] Executor executor() {
    return [this](std::function<void()> task) {
      {
        const std::lock_guard lock(mutex_);
        tasks_.push_back(std::move(task));
      }
      changed_.notify_all();
    };
  }
  [[nodiscard]] std::thread::id id() const { return thread_.get_id(); }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return over_ || !tasks_.empty(); });
      if (tasks_.empty()) {
        return;
      }
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool over_ = false;
  std::thread thread_{[this] { run(); }};
};

TEST_F(MultiLock, ABlockingCallOnTheOnlyThreadThatRunsCallbacks) {
  OneThread executor;
  Options settings = options();
  settings.executor = executor.executor();
  Client client = Client::connect(settings);
  RLock lock = threeOf(client);
  std::promise<std::string> outcome;
  lock.isLockedAsync().start([&](const Result<bool>&) {
    const bool there = std::this_thread::get_id() == executor.id();
    lock.lock();
    lock.unlock();
    outcome.set_value(there ? "on the executor" : "elsewhere");
  });
  auto future = outcome.get_future();
  ASSERT_TRUE(ready(future, kLong)) << "it must not wait for its own thread";
  EXPECT_EQ(future.get(), "on the executor");
}

// ---- Members

TEST_F(MultiLock, XML7_MembersThatCannotBe) {
  Client client = connect();
  Client second = connect();
  RLock a = client.getLock("a");
  EXPECT_EQ(outcomeOf([] { multiLock({}); }), "invalidArgument");
  EXPECT_EQ(outcomeOf([&] { multiLock({a, client.getLock("b"), a}); }), "invalidArgument");
  EXPECT_EQ(outcomeOf([&] { multiLock({a, client.getLock("a")}); }), "invalidArgument");
  EXPECT_EQ(outcomeOf([&] {
              multiLock({a, second.getLock("a")});
            }),
            "invalidArgument")
      << "the same lock, whoever asks for it";
  EXPECT_EQ(outcomeOf([&] {
              multiLock({multiLock({a}), client.getLock("b")});
            }),
            "invalidArgument");
  EXPECT_EQ(outcomeOf([&] { redLock({multiLock({a})}); }), "invalidArgument");
}

TEST_F(MultiLock, MembersOfOneNameInTwoDatabasesAreTwo) {
  RLOCK_ONE_MASTER_ONLY("uses a second database");
  Options elsewhere = options();
  elsewhere.database = 1;
  Client first = connect();
  Client second = Client::connect(elsewhere);
  RLock lock = multiLock({second.getLock("a"), first.getLock("a")});
  lock.lock();
  EXPECT_TRUE(first.getLock("a").isHeldByCurrentThread());
  EXPECT_TRUE(second.getLock("a").isHeldByCurrentThread());
  lock.unlock();
  EXPECT_FALSE(second.getLock("a").isLocked());
  expectNoKeys();
}

// An owner that reads would wait for itself when it asked for the exclusive side.
TEST_F(MultiLock, BothSidesOfAReadWriteLockInEitherOrder) {
  Client client = connect();
  ReadWriteLock sides = client.getReadWriteLock("rw");
  for (const bool readFirst : {true, false}) {
    RLock lock = readFirst ? multiLock({sides.readLock(), sides.writeLock()})
                           : multiLock({sides.writeLock(), sides.readLock()});
    EXPECT_EQ(answerOf([&] { return lock.tryLock(); }), "true") << readFirst;
    EXPECT_EQ(outcomeOf([&] { lock.unlock(); }), "ok") << readFirst;
    expectNoKeys();
  }
}

TEST_F(MultiLock, XML7_MembersOfOneAndOfSeveralClients) {
  Client first = connect();
  Client second = connect();
  RLock lock = multiLock({second.getLock("b"), first.getLock("a"), second.getLock("c")});
  lock.lock();
  EXPECT_EQ(raw().hgetall("a"),
            (std::map<std::string, std::string>{{ownerField(first, currentOwner()), "1"}}));
  EXPECT_EQ(raw().hgetall("b"),
            (std::map<std::string, std::string>{{ownerField(second, currentOwner()), "1"}}));
  lock.unlock();
  expectNoKeys();
}

TEST_F(MultiLock, ArgumentsOutOfRangeAreRefused) {
  Client client = connect();
  RLock lock = threeOf(client);
  EXPECT_EQ(outcomeOf([&] { lock.lock(0s); }), "invalidArgument");
  EXPECT_EQ(outcomeOf([&] { lock.lock(std::chrono::hours(24 * 366)); }), "invalidArgument");
  EXPECT_EQ(answerOf([&] { return lock.tryLock(std::chrono::duration<double>(std::nan(""))); }),
            "invalidArgument");
  expectNoKeys();
}

TEST_F(MultiLock, OfAClosedClient) {
  Client client = connect();
  RLock lock = threeOf(client);
  client.close(1s);
  EXPECT_EQ(outcomeOf([&] { lock.lock(); }), "closed");
  EXPECT_EQ(outcomeOf(runBy(Face::callback, lock.lockAsync())), "closed");
  EXPECT_EQ(outcomeOf([&] { lock.isLocked(); }), "closed");
}

}  // namespace
}  // namespace rlock::test
