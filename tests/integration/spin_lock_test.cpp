// SPDX-License-Identifier: Apache-2.0

// The spin lock: the plain lock's state, waiting without messages. The behaviour that all kinds of
// lock share is tested elsewhere.

#include "integration/lost_reply_harness.hpp"

#include <csignal>
#include <pthread.h>

namespace rlock::test {
namespace {

class SpinLock : public LockTest, public ::testing::WithParamInterface<Face> {
 protected:
  [[nodiscard]] static FaceLock lockOf(Client& client,
                                       std::string_view name,
                                       const BackOff& backOff = BackOff::exponential()) {
    return {GetParam(), client.getSpinLock(name, backOff)};
  }
};
class SpinLockSlow : public SpinLock {};
class SpinLockKinds : public LockTest {};

INSTANTIATE_TEST_SUITE_P(Faces, SpinLock, ::testing::ValuesIn(kFaces), faceName);
INSTANTIATE_TEST_SUITE_P(Faces, SpinLockSlow, ::testing::ValuesIn(kFaces), faceName);

TEST_P(SpinLock, SP11_TryLockWaitsForADeadOwner) {
  rawHold("SP11", "dead-client:1", 10s);
  Client client = connect();
  const Stopwatch watch;
  const std::string answer = answerOf(lockOf(client, "SP11").tryLock(currentOwner(), 300ms));
  expectNotObtained(answer);
  EXPECT_EQ(answer, "false");
  EXPECT_GE(watch.elapsedMs(), 300ms);
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(100ms));
  EXPECT_EQ(client.stats().waiters, 0U);
}

TEST_P(SpinLockSlow, SP12_AutoExpireAfterTheOwnerWasKilled) {
  Client client = connect(kWatchdog);
  Worker worker(uri("watchdog-timeout=1s"));
  EXPECT_EQ(worker.ask("lock SP12"), "ok");
  worker.process().kill();
  const Stopwatch watch;
  EXPECT_EQ(answerOf(lockOf(client, "SP12").tryLock(currentOwner(), scaled(5s))), "true");
  EXPECT_LT(watch.elapsedMs(), kWatchdog + scaled(300ms));
}

TEST_P(SpinLock, SP14_RedisStopped) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Options settings = options();
  settings.outageTimeout = 300ms;
  Client client = Client::connect(settings);
  FaceLock lock = lockOf(client, "SP14");
  rawHold("SP14", "foreign:1", 20s);
  auto waiter = inThread([&] { return outcomeOf(lockOf(client, "SP14").lock()); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  server().kill();
  EXPECT_EQ(answerOf(lock.tryLock(currentOwner(), 200ms, 1s)), "connectionFailed");
  EXPECT_EQ(waiter.get(), "connectionFailed");
}

TEST_P(SpinLock, SP19_AnUntimedWaitEndsWithTheRelease) {
  Client client = connect();
  FaceLock lock = lockOf(client, "SP19");
  const OwnerId holder = newOwner();
  const OwnerId other = newOwner();
  lock.lock(holder).value();
  auto waiter = inThread([&] { return outcomeOf(lockOf(client, "SP19").lock(other)); });
  EXPECT_FALSE(ready(waiter, 150ms));
  lock.unlock(holder).value();
  EXPECT_TRUE(ready(waiter, 1s));
  EXPECT_EQ(waiter.get(), "ok");
  EXPECT_EQ(answerOf(lock.forceUnlock()), "true");
}

TEST_P(SpinLock, SP20_ATimedWaitEndsWithTheRelease) {
  Client client = connect();
  FaceLock lock = lockOf(client, "SP20");
  const OwnerId holder = newOwner();
  const OwnerId other = newOwner();
  lock.lock(holder).value();
  auto waiter =
      inThread([&] { return answerOf(lockOf(client, "SP20").tryLock(other, scaled(3s), 30s)); });
  EXPECT_FALSE(ready(waiter, 100ms));
  lock.unlock(holder).value();
  EXPECT_EQ(waiter.get(), "true");
  EXPECT_GT(raw().pttl("SP20"), 25'000);
}

TEST_P(SpinLock, SP22_SP23_OneAttempt) {
  Client client = connect();
  FaceLock lock = lockOf(client, "SP22");
  const OwnerId holder = newOwner();
  lock.lock(holder).value();
  EXPECT_EQ(answerOf(lock.tryLock(newOwner())), "false");
  lock.unlock(holder).value();
  const OwnerId other = newOwner();
  EXPECT_EQ(answerOf(lock.tryLock(other)), "true");
  EXPECT_EQ(outcomeOf(lock.unlock(other)), "ok");
  expectNoKeys();
}

TEST_P(SpinLock, SP18_SustainedHandOverBetweenClients) {
  constexpr int kClients = 6;
  constexpr int kRounds = 10;
  Resource resource;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(connect()));
  }
  std::vector<std::future<std::string>> jobs;
  for (auto& client : clients) {
    jobs.push_back(inThread([&resource, &client] {
      // A thread of its own, so each job has an owner of its own.
      FaceLock lock = lockOf(*client, "SP18", BackOff::exponential(1ms, 8ms));
      for (int round = 0; round < kRounds; ++round) {
        const Result<void> got = lock.lock();
        if (!got) {
          return outcomeOf(got);
        }
        resource.use(200us);
        const Result<void> gone = lock.unlock();
        if (!gone) {
          return outcomeOf(gone);
        }
      }
      return std::string("ok");
    }));
  }
  for (auto& job : jobs) {
    EXPECT_EQ(job.get(), "ok");
  }
  EXPECT_EQ(resource.value(), kClients * kRounds);
  EXPECT_EQ(resource.overlaps(), 0);
  expectNoKeys();
}

TEST_P(SpinLock, XTTL12_WhoTriesInVainDoesNotChangeTheLease) {
  Client client = connect();
  FaceLock lock = lockOf(client, "XTTL12", BackOff::constant(1ms));
  const OwnerId holder = newOwner();
  lock.lock(holder, 5s).value();
  lock.lock(holder, 5s).value();
  const std::int64_t tries = raw().commandCalls("evalsha");
  auto other = inThread([&] { return answerOf(lock.tryLock(newOwner(), kLong, 60s)); });
  ASSERT_EVENTUALLY(kLong, raw().commandCalls("evalsha") > tries + 20);
  EXPECT_EQ(outcomeOf(lock.unlock(holder)), "ok");
  EXPECT_LE(raw().pttl("XTTL12"), 5'000);
  EXPECT_EQ(lock.holdCount(holder), 1);
  EXPECT_FALSE(ready(other, 0ms));
  EXPECT_EQ(outcomeOf(lock.unlock(holder)), "ok");
  EXPECT_EQ(other.get(), "true");
  EXPECT_GT(raw().pttl("XTTL12"), 30'000);
}

TEST_P(SpinLock, V11_StateIsThePlainLocks) {
  Client client = connect();
  FaceLock spin = lockOf(client, "V11");
  const OwnerId owner = newOwner();
  RawSubscriber subscriber(rawOptions());
  subscriber.subscribe(channelOf("V11"));
  spin.lock(owner, 20s).value();
  spin.lock(owner, 20s).value();
  EXPECT_EQ(raw().hgetall("V11"),
            (std::map<std::string, std::string>{{ownerField(client, owner), "2"}}));
  EXPECT_GT(raw().pttl("V11"), 15'000);
  FaceLock plain(GetParam(), client.getLock("V11"));
  EXPECT_EQ(answerOf(plain.tryLock(newOwner())), "false");
  // To the same owner they are the same lock.
  EXPECT_EQ(plain.holdCount(owner), 2);
  EXPECT_EQ(outcomeOf(plain.unlock(owner)), "ok");
  EXPECT_EQ(outcomeOf(spin.unlock(owner)), "ok");
  ASSERT_TRUE(subscriber.waitFor(1, kLong));
  EXPECT_EQ(subscriber.messages()[0].payload, "0");
  expectNoKeys();
}

TEST_P(SpinLock, W64_ItsReleaseWakesAPlainWaiter) {
  Client client = connect();
  FaceLock spin = lockOf(client, "W64");
  spin.lock().value();
  auto waiter = inThread([&] {
    FaceLock plain(GetParam(), client.getLock("W64"));
    const Result<void> got = plain.lock();
    return outcomeOf(got) + (plain.unlock() ? ",ok" : ",?");
  });
  ASSERT_EVENTUALLY(kLong, raw().numsub(channelOf("W64")) == 1);
  // The safety poll is a minute away.
  spin.unlock().value();
  EXPECT_EQ(waiter.get(), "ok,ok");
}

TEST_P(SpinLock, W64_WaitersSubscribeToNothingAndAskNoMoreThanTheBackOffSays) {
  rawHold("quiet", "foreign:1", 20s);
  Client client = connect();
  const auto before = client.stats().commands;
  // It ends in the middle of a pause.
  EXPECT_EQ(
      answerOf(lockOf(client, "quiet", BackOff::constant(200ms)).tryLock(currentOwner(), 900ms)),
      "false");
  const auto asked = client.stats().commands - before;
  EXPECT_GE(asked, 3U);
  // One attempt for each pause, the first one, and the script itself.
  EXPECT_LE(asked, 6U);
  EXPECT_EQ(raw().pubsubChannels("redisson*"), std::set<std::string>());
  EXPECT_EQ(client.stats().channels, 0U);
}

TEST_P(SpinLock, W64_APauseEndsWithTheHoldersLease) {
  rawHold("lease", "foreign:1", 300ms);
  Client client = connect();
  const Stopwatch watch;
  EXPECT_EQ(outcomeOf(lockOf(client, "lease", BackOff::constant(10min)).lock()), "ok");
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(250ms));
}

TEST_P(SpinLock, W64_APauseEndsWithTheWait) {
  rawHold("wait", "foreign:1", 20s);
  Client client = connect();
  const Stopwatch watch;
  EXPECT_EQ(
      answerOf(lockOf(client, "wait", BackOff::constant(10min)).tryLock(currentOwner(), 150ms)),
      "false");
  EXPECT_GE(watch.elapsedMs(), 150ms);
  EXPECT_LT(watch.elapsedMs(), 150ms + scaled(100ms));
}

TEST_P(SpinLock, AHoldWithoutExpiryIsWaitedForByTheBackOffAlone) {
  raw().run({"HSET", "eternal", "foreign:7", "1"});
  Client client = connect();
  auto waiter = inThread(
      [&] { return outcomeOf(lockOf(client, "eternal", BackOff::constant(20ms)).lock()); });
  EXPECT_FALSE(ready(waiter, 100ms));
  // Nobody says that it is free.
  raw().del("eternal");
  EXPECT_TRUE(ready(waiter, 1s));
  EXPECT_EQ(waiter.get(), "ok");
}

TEST_P(SpinLock, EndsAWaitWhenStoppedOrClosed) {
  rawHold("ended", "foreign:1", 20s);
  Client client = connect();
  std::stop_source stop;
  const auto wait = [&](std::stop_token token) {
    return inThread([&client, token] {
      AcquireOptions options;
      options.stop = token;
      return outcomeOf(runBy(
          GetParam(), lockOf(client, "ended").raw().lockAsync(std::move(options), newOwner())));
    });
  };
  auto stopped = wait(stop.get_token());
  auto closed = wait({});
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2);
  stop.request_stop();
  EXPECT_EQ(stopped.get(), "cancelled");
  EXPECT_FALSE(ready(closed, 20ms));
  client.close(2s);
  EXPECT_EQ(closed.get(), "closed");
}

TEST_P(SpinLock, BadPausesAreRefusedAtOnce) {
  Client client = connect();
  EXPECT_EQ(outcomeOf([&] { lockOf(client, "bad", BackOff::constant(0ms)).isLocked(); }),
            "invalidArgument");
  EXPECT_EQ(outcomeOf([&] { lockOf(client, "").isLocked(); }), "invalidArgument");
}

// Signals are to a C++ thread what an interrupt is to a Java thread that may not be interrupted.
namespace spin_signals {
std::atomic<int> handledBySpin{0};
extern "C" void countSpinSignal(int /*number*/) {
  handledBySpin.fetch_add(1);
}
}  // namespace spin_signals

TEST_F(SpinLockKinds, SP13_LockSurvivesInterruption) {
  struct sigaction action {};
  action.sa_handler = spin_signals::countSpinSignal;
  struct sigaction old {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &old), 0);
  Client client = connect();
  RLock lock = client.getSpinLock("SP13");
  lock.lock(10min);
  std::promise<pthread_t> started;
  auto waiter = inThread([&] {
    started.set_value(::pthread_self());
    RLock mine = client.getSpinLock("SP13");
    return outcomeOf([&] {
      mine.lock();
      mine.unlock();
    });
  });
  const pthread_t thread = started.get_future().get();
  EXPECT_EVENTUALLY(kLong, client.stats().waiters == 1);
  for (int i = 0; i < 10; ++i) {
    ::pthread_kill(thread, SIGUSR1);
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_FALSE(ready(waiter, 50ms));
  EXPECT_GE(spin_signals::handledBySpin.load(), 1);
  lock.unlock();
  EXPECT_EQ(waiter.get(), "ok");
  ::sigaction(SIGUSR1, &old, nullptr);
}

TEST_F(SpinLockKinds, ManyWaitersOfOneClientLeaveNothingBehind) {
  constexpr int kWaiters = 12;
  rawHold("many", "foreign:1", 120s);
  Client client = connect();
  // So that the connection is there: a node of a cluster is dialled by the first who needs it.
  EXPECT_FALSE(client.getSpinLock("many").tryLock());
  std::vector<std::future<std::string>> jobs;
  for (int i = 0; i < kWaiters; ++i) {
    jobs.push_back(inThread([&, i] {
      RLock lock = client.getSpinLock("many", BackOff::exponential(1ms, 20ms));
      return answerOf([&] { return lock.tryLock(std::chrono::milliseconds(20 + 10 * i)); });
    }));
  }
  std::stop_source stop;
  auto last = inThread([&] {
    RLock lock = client.getSpinLock("many", BackOff::exponential(1ms, 20ms));
    return answerOf([&] { return lock.tryLock(stop.get_token(), 60s); });
  });
  for (auto& job : jobs) {
    // A wait that ends while the request is on its way ends with timedOut.
    const std::string answer = job.get();
    EXPECT_TRUE(answer == "false" || answer == "timedOut") << answer;
  }
  EXPECT_EVENTUALLY(kLong, client.stats().waiters == 1);
  stop.request_stop();
  EXPECT_EQ(last.get(), "cancelled");
  EXPECT_EQ(client.stats().waiters, 0U);
  EXPECT_EQ(client.stats().holds, 0U);
  EXPECT_EQ(client.stats().channels, 0U);
}

// Lost replies. The requests are the plain lock's; the waiting is not.

class SpinLostReply : public LostReplyTest {};

INSTANTIATE_TEST_SUITE_P(Faults,
                         SpinLostReply,
                         ::testing::Combine(kLostReplyPolicies, kFewFaults),
                         lostReplyName);

TEST_P(SpinLostReply, AWaitersTryTakesEffectOnce) {
  for (const Face face : kFaces) {
    const std::string name = std::string("spin-") + rlock::test::toString(face);
    rawHold(name, "foreign:1", 60s);
    const OwnerId owner = newOwner();
    auto waiter = inThread([&] {
      FaceLock lock(face, client().getSpinLock(name, BackOff::constant(20ms)));
      return answerOf(lock.tryLock(owner, 20s));
    });
    ASSERT_EVENTUALLY(kLong, client().stats().waiters == 1);
    // One of the tries, refused or granted, and none of the others.
    raw().del(name);
    const auto fault = breakOnce(lua::lock_acquire);
    EXPECT_EQ(waiter.get(), "true");
    deliverLate();
    EXPECT_EQ(countOnServer(name, owner), "1");
    EXPECT_LE(fault.hits(), 1U);
    proxy().clearRules();
  }
}

}  // namespace
}  // namespace rlock::test
