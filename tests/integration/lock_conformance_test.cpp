// SPDX-License-Identifier: Apache-2.0

// The catalogue rows of the plain re-entrant lock, by their ids, with waiting times shortened in
// proportion.

#include "integration/lock_harness.hpp"

#include <csignal>
#include <pthread.h>
#include <random>

namespace rlock::test {
namespace {

class LockConformance : public FaceTest {};
class LockConformanceSlow : public FaceTest {};
class LockLoad : public LockTest {};
class LockLoadSlow : public LockTest {};

INSTANTIATE_TEST_SUITE_P(Faces, LockConformance, ::testing::ValuesIn(kFaces), faceName);
INSTANTIATE_TEST_SUITE_P(Faces, LockConformanceSlow, ::testing::ValuesIn(kFaces), faceName);

TEST_P(LockConformance, LK13_TryLockWaitsForADeadOwner) {
  rawHold("LK13", "dead-client:1", 10s);
  Client client = connect();
  FaceLock lock = lockOf(client, "LK13");
  const Stopwatch watch;
  const std::string answer = answerOf(lock.tryLock(currentOwner(), 300ms));
  expectNotObtained(answer);
  EXPECT_EQ(answer, "false");
  EXPECT_GE(watch.elapsedMs(), 300ms);
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(100ms));
}

TEST_P(LockConformanceSlow, LK14_AutoExpireAfterTheOwnersThreadEnded) {
  Client owner = connect(kWatchdog);
  Client other = connect(kWatchdog);
  const std::string got = inThread([&] { return outcomeOf(lockOf(owner, "LK14").lock()); }).get();
  EXPECT_EQ(got, "ok");
  const Stopwatch watch;
  EXPECT_EQ(answerOf(lockOf(other, "LK14").tryLock(currentOwner(), scaled(5s))), "true");
  EXPECT_LT(watch.elapsedMs(), kWatchdog + scaled(300ms));
}

TEST_P(LockConformanceSlow, LK14_AutoExpireAfterTheOwnerWasKilled) {
  Client other = connect(kWatchdog);
  Worker worker(uri("watchdog-timeout=1s"));
  EXPECT_EQ(worker.ask("lock LK14"), "ok");
  // It is renewed as long as its owner lives.
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_EQ(answerOf(lockOf(other, "LK14").tryLock()), "false");
  worker.process().kill();
  const Stopwatch watch;
  EXPECT_EQ(answerOf(lockOf(other, "LK14").tryLock(currentOwner(), scaled(5s))), "true");
  EXPECT_LT(watch.elapsedMs(), kWatchdog + scaled(300ms));
}

TEST_P(LockConformance, LK14_FreeAtOnceAfterThePoliteEnd) {
  Client other = connect();
  {
    Client owner = connect();
    lockOf(owner, "LK14").lock().value();
  }
  EXPECT_EQ(answerOf(lockOf(other, "LK14").tryLock()), "true");
}

TEST_P(LockConformance, LK16_NotRenewedAfterAStoppedTryLock) {
  // The reply of the granted attempt is held back while the caller is stopped.
  TcpProxy::RuleOptions known;
  known.ignoreErrorReplies = true;
  const auto held =
      proxy().addRule(TcpProxy::script("LK16"), TcpProxy::Action::stallReply(), known);
  Client client = Client::connect(proxied(kWatchdog));
  std::stop_source stop;
  auto call = inThread([&] {
    AcquireOptions options;
    options.wait = 5s;
    options.stop = stop.get_token();
    return answerOf(
        runBy(GetParam(), client.getLock("LK16").tryLockAsync(std::move(options), newOwner())));
  });
  EXPECT_TRUE(held.waitForHits(1, kLong));
  stop.request_stop();
  const std::string answer = call.get();
  EXPECT_EQ(answer, "cancelled");
  proxy().clearRules();
  proxy().releaseStalled();
  EXPECT_EVENTUALLY(kLong, !raw().exists("LK16"));
  std::this_thread::sleep_for(kWatchdog / 2);
  EXPECT_FALSE(raw().exists("LK16"));
  EXPECT_EQ(client.stats().holds, 0U);
}

TEST_P(LockConformance, LK17_RedisStopped) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Options settings = options();
  settings.outageTimeout = 700ms;
  Client client = Client::connect(settings);
  server().kill();
  FaceLock lock = lockOf(client, "LK17");
  const Stopwatch watch;
  const std::string answer = answerOf(lock.tryLock(currentOwner(), 500ms, 1s));
  EXPECT_EQ(answer, "connectionFailed");
  EXPECT_LT(watch.elapsedMs(), 500ms + scaled(kLate));
  const Stopwatch untimed;
  EXPECT_EQ(outcomeOf(lock.lock()), "connectionFailed");
  EXPECT_GE(untimed.elapsedMs(), 500ms);
  EXPECT_LT(untimed.elapsedMs(), 700ms + scaled(2s));
}

TEST_P(LockConformance, LK18_OneSubscriberConnection) {
  RLOCK_ONE_SERVER_ONLY("counts subscribers, of which Sentinels are some");
  Client client = connect();
  std::vector<std::future<std::string>> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.push_back(inThread([&, thread] {
      std::string answers;
      for (int round = 0; round < 2; ++round) {
        FaceLock lock =
            lockOf(client, "Lock" + std::to_string(thread / 2) + "_" + std::to_string(round));
        answers += answerOf(lock.tryLock(currentOwner(), scaled(3s)));
        answers += outcomeOf(lock.unlock());
      }
      return answers;
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "trueoktrueok");
  }
  int subscribers = 0;
  for (const auto& connection : raw().clientList()) {
    subscribers += connection.at("sub") != "0" ? 1 : 0;
  }
  EXPECT_LE(subscribers, 1);
}

TEST_F(LockLoad, LK23_AHeldLockIsAlwaysRegisteredForRenewal) {
  constexpr int kThreads = 16;
  constexpr int kRounds = 200;
  Client client = connect();
  RLock shared = client.getLock("LK23");
  Resource resource;
  std::atomic<long> held{0};
  std::vector<std::future<int>> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.push_back(inThread([&] {
      int unregistered = 0;
      for (int round = 0; round < kRounds; ++round) {
        if (shared.tryLock()) {
          resource.use();
          held.fetch_add(1);
          unregistered += client.stats().holds == 0 ? 1 : 0;
          shared.unlock();
        }
      }
      return unregistered;
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), 0);
  }
  EXPECT_EQ(resource.value(), held.load());
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EQ(client.stats().holds, 0U);
  expectNoKeys();
}

TEST_F(LockLoadSlow, LK23_TheLastHolderIsRenewedAfterTheRace) {
  Client client = connect(kWatchdog);
  RLock shared = client.getLock("LK23");
  std::vector<std::future<void>> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.push_back(inThread([&] {
      for (int round = 0; round < 100; ++round) {
        if (shared.tryLock()) {
          shared.unlock();
        }
      }
    }));
  }
  for (auto& thread : threads) {
    thread.get();
  }
  shared.lock();
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_GT(raw().pttl("LK23"), 0);
  EXPECT_EQ(outcomeOf([&] { shared.unlock(); }), "ok");
}

// Locks have no listeners here; what they are for, learning of the end of a hold, is
// Options::onLost.
TEST_P(LockConformanceSlow, LK24_TheEndOfAHoldIsTold) {
  std::mutex mutex;
  std::vector<LossReason> told;
  Options settings = options();
  settings.onLost = [&](const LostHold& hold) {
    const std::lock_guard guard(mutex);
    told.push_back(hold.reason);
  };
  Client client = Client::connect(settings);
  const auto count = [&] {
    const std::lock_guard guard(mutex);
    return told.size();
  };
  FaceLock lock = lockOf(client, "LK24");
  lock.lock(currentOwner(), 1500ms).value();
  lock.unlock().value();
  lock.lock(currentOwner(), 300ms).value();
  EXPECT_EVENTUALLY(kLong, count() == 1);
  EXPECT_EVENTUALLY(kLong, !raw().exists("LK24"));
  lock.lock(currentOwner(), 1500ms).value();
  lock.unlock().value();
  std::this_thread::sleep_for(1700ms);
  EXPECT_EQ(count(), 1U);
  const std::lock_guard guard(mutex);
  EXPECT_EQ(told, std::vector<LossReason>{LossReason::expired});
}

// Signals are to a C++ thread what an interrupt is to a Java thread that may not be interrupted.
namespace signals {
std::atomic<int> handled{0};
extern "C" void countSignal(int /*number*/) {
  handled.fetch_add(1);
}
}  // namespace signals

TEST_F(LockLoad, LK15_LockSurvivesInterruption) {
  struct sigaction action {};
  action.sa_handler = signals::countSignal;
  struct sigaction old {};
  ASSERT_EQ(::sigaction(SIGUSR1, &action, &old), 0);
  Client client = connect();
  RLock lock = client.getLock("LK15");
  lock.lock(10min);
  std::promise<pthread_t> started;
  auto waiter = inThread([&] {
    started.set_value(::pthread_self());
    RLock mine = client.getLock("LK15");
    return outcomeOf([&] {
      mine.lock();
      mine.unlock();
    });
  });
  const pthread_t thread = started.get_future().get();
  EXPECT_EVENTUALLY(kLong, client.stats().waiters == 1);
  for (int i = 0; i < 20; ++i) {
    ::pthread_kill(thread, SIGUSR1);
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_FALSE(ready(waiter, 200ms));
  EXPECT_GE(signals::handled.load(), 1);
  lock.unlock();
  EXPECT_EQ(waiter.get(), "ok");
  ::sigaction(SIGUSR1, &old, nullptr);
}

// Load.

struct LoadShape {
  int threads;
  int loops;
};

void walk(Client& client,
          const LoadShape& shape,
          bool timed,
          long& done,
          long& failures,
          std::vector<std::unique_ptr<Resource>>& resources) {
  std::vector<std::future<std::pair<long, long>>> threads;
  for (int thread = 0; thread < shape.threads; ++thread) {
    threads.push_back(inThread([&, thread] {
      std::mt19937 random(static_cast<std::uint32_t>(thread));
      long entered = 0;
      long failed = 0;
      for (int i = 0; i < shape.loops; ++i) {
        RLock lock = client.getLock("HV_" + std::to_string(i));
        const std::string outcome = outcomeOf([&] {
          if (timed) {
            if (!lock.tryLock(std::chrono::milliseconds(random() % 10))) {
              return;
            }
          } else {
            lock.lock();
          }
          resources[static_cast<std::size_t>(i)]->use();
          ++entered;
          lock.unlock();
        });
        // A wait that ends while the request is on its way ends with timedOut.
        failed += outcome != "ok" && !(timed && outcome == "timedOut") ? 1 : 0;
      }
      return std::pair(entered, failed);
    }));
  }
  done = 0;
  failures = 0;
  for (auto& thread : threads) {
    const auto [entered, failed] = thread.get();
    done += entered;
    failures += failed;
  }
}

std::vector<std::unique_ptr<Resource>> resourcesFor(int count) {
  std::vector<std::unique_ptr<Resource>> all;
  for (int i = 0; i < count; ++i) {
    all.push_back(std::make_unique<Resource>());
  }
  return all;
}

TEST_F(LockLoadSlow, HV01_LockUnlockOnManyNames) {
  Client client = connect();
  for (const LoadShape shape : {LoadShape{2, 500}, LoadShape{5, 500}, LoadShape{20, 200}}) {
    auto resources = resourcesFor(shape.loops);
    long done = 0;
    long failures = 0;
    const Stopwatch watch;
    walk(client, shape, false, done, failures, resources);
    EXPECT_EQ(done, static_cast<long>(shape.threads) * shape.loops);
    EXPECT_EQ(failures, 0);
    EXPECT_LT(watch.elapsedMs(), scaled(40s));
    for (const auto& resource : resources) {
      ASSERT_EQ(resource->value(), shape.threads);
      ASSERT_EQ(resource->overlaps(), 0);
    }
  }
  expectNoKeys();
}

TEST_F(LockLoadSlow, HV02_TryLockWithShortWaitsOnManyNames) {
  Client client = connect();
  for (const LoadShape shape : {LoadShape{2, 500}, LoadShape{20, 200}}) {
    auto resources = resourcesFor(shape.loops);
    long done = 0;
    long failures = 0;
    walk(client, shape, true, done, failures, resources);
    EXPECT_GT(done, 0);
    EXPECT_EQ(failures, 0);
    long used = 0;
    for (const auto& resource : resources) {
      used += resource->value();
      ASSERT_EQ(resource->overlaps(), 0);
    }
    EXPECT_EQ(used, done);
  }
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
}

// Renewal across a restart.

TEST_P(LockConformanceSlow, RN01_RenewalWorksAgainAfterARestart) {
  RLOCK_ONE_SERVER_ONLY("stops its server");
  Client client = connect(kWatchdog);
  FaceLock lock = lockOf(client, "RN01");
  lock.lock().value();
  server().restart();
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_EQ(outcomeOf(lock.unlock()), "notOwner");
  FaceLock again = lockOf(client, "RN01");
  EXPECT_EQ(outcomeOf(again.lock()), "ok");
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_EQ(outcomeOf(again.unlock()), "ok");
}

// Explicit owners.

TEST_P(LockConformance, EX01_OwnersAreParametersOfPreparedOperations) {
  Client client = connect();
  RLock lock = client.getLock("EX01");
  RLock other = client.getLock("EX01");
  const OwnerId one = newOwner();
  const OwnerId two = newOwner();
  Operation<bool> first = lock.tryLockAsync({}, one);
  Operation<bool> second = lock.tryLockAsync({}, two);
  EXPECT_FALSE(raw().exists("EX01")) << "a prepared operation has done something";
  EXPECT_EQ(answerOf(runBy(GetParam(), std::move(first))), "true");
  EXPECT_TRUE(other.isHeldBy(one));
  EXPECT_FALSE(other.isHeldBy(two));
  EXPECT_EQ(outcomeOf(runBy(GetParam(), lock.unlockAsync(one))), "ok");
  EXPECT_EQ(answerOf(runBy(GetParam(), std::move(second))), "true");
  EXPECT_FALSE(other.isHeldBy(one));
  EXPECT_TRUE(other.isHeldBy(two));
  EXPECT_FALSE(other.isHeldByCurrentThread());
  EXPECT_EQ(outcomeOf(runBy(GetParam(), lock.unlockAsync(one))), "notOwner");
  EXPECT_EQ(outcomeOf(runBy(GetParam(), lock.unlockAsync(two))), "ok");
  EXPECT_FALSE(other.isLocked());
}

TEST_P(LockConformance, AnOperationStartsOnce) {
  Client client = connect();
  RLock lock = client.getLock("once");
  Operation<bool> operation = lock.tryLockAsync();
  EXPECT_EQ(answerOf(operation.wait()), "true");
  EXPECT_EQ(outcomeOf([&] { runBy(GetParam(), std::move(operation)).value(); }), "invalidArgument");
  EXPECT_EQ(onlyEntry("once").second, "1");
}

}  // namespace
}  // namespace rlock::test
