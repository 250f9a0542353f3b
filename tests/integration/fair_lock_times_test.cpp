// SPDX-License-Identifier: Apache-2.0

// The times of the fair lock's places: they neither drift nor grow, whatever the others in the
// queue do.

#include "integration/fair_harness.hpp"

#include <algorithm>

namespace rlock::test {
namespace {

TEST_F(FairLock, FL21_PlacesOfRefusedWaitersDoNotDrift) {
  Client client = connectFair();
  rawHold("FL21", "foreign:1", 60s);
  std::atomic<bool> end{false};
  std::vector<std::future<void>> threads;
  for (int i = 0; i < 10; ++i) {
    threads.push_back(inThread([&] {
      while (!end.load()) {
        static_cast<void>(answerOf([&] { return client.getFairLock("FL21").tryLock(60ms); }));
      }
    }));
  }
  const Deadline stop(700ms);
  EXPECT_LE(longestPlace("FL21", stop), kPlace.count());
  end = true;
  for (auto& thread : threads) {
    thread.get();
  }
  ASSERT_EVENTUALLY(kPlace, queue("FL21").empty());
  EXPECT_TRUE(client.getFairLock("FL21").forceUnlock());
  EXPECT_FALSE(client.getFairLock("FL21").isLocked());
}

TEST_F(FairLock, FL22_PlacesDoNotDriftWhenTheLockIsHandedOver) {
  Client client = connectFair();
  std::atomic<bool> end{false};
  std::vector<std::future<std::string>> threads;
  for (int i = 0; i < 6; ++i) {
    threads.push_back(inThread([&] {
      RLock lock = client.getFairLock("FL22");
      return outcomeOf([&] {
        while (!end.load()) {
          if (lock.tryLock(kLong, 30s)) {
            std::this_thread::sleep_for(5ms);
            lock.unlock();
          }
        }
      });
    }));
  }
  const Deadline stop(700ms);
  EXPECT_LE(longestPlace("FL22", stop), kPlace.count());
  end = true;
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  expectNoKeys();
}

TEST_F(FairLockSlow, FL23_PlacesDoNotDriftWhenTheFirstWaiterDies) {
  Client client = connectFair();
  rawHold("FL23", "foreign:1", 60s);
  auto worker = fairWorker();
  worker->tell("lock FL23");
  ASSERT_EVENTUALLY(kLong, waiting("FL23", 1));
  worker->process().kill();
  Visitors visitors;
  for (int i = 0; i < 5; ++i) {
    visitors.send(client.getFairLock("FL23"), i);
  }
  const Deadline stop(kPlace * 2);
  EXPECT_LE(longestPlace("FL23", stop), kPlace.count());
  EXPECT_EQ(queue("FL23").size(), 5U) << "the dead one is still there";
  ForeignClient(raw(), "FL23").release();
  EXPECT_EQ(visitors.troubles(), Names());
}

TEST_F(FairLock, FL24_WhatRefusedOwnersAreToldNeverGrows) {
  using Wait = Steps::Wait;
  Steps steps(raw(), "FL24", 10s);
  Stopwatch held;
  // The owner is told the rest of the holder's lease, by two clocks in whole milliseconds.
  const auto expectToldOfTheHolder = [&](const std::string& owner, Wait wait) {
    const auto told = steps.acquire(owner, 30s, wait);
    ASSERT_TRUE(told);
    EXPECT_LE(*told, 30'000);
    EXPECT_GE(*told, 30'000 - held.elapsedMs().count() - 5);
  };
  EXPECT_FALSE(steps.acquire("101", 30s, Wait::begin));
  for (const std::string owner : {"102", "103", "104", "105"}) {
    expectToldOfTheHolder(owner, Wait::begin);
  }
  EXPECT_EQ(queue("FL24"), (Names{"102", "103", "104", "105"}));
  EXPECT_EQ(steps.withdraw("103"), 1);
  for (const std::string owner : {"102", "104", "105"}) {
    expectToldOfTheHolder(owner, Wait::on);
  }
  EXPECT_EQ(queue("FL24"), (Names{"102", "104", "105"}));
  EXPECT_EQ(steps.release("101"), Value::makeInteger(0));
  held.restart();
  EXPECT_FALSE(steps.acquire("102", 30s, Wait::on));
  for (const std::string owner : {"104", "105"}) {
    expectToldOfTheHolder(owner, Wait::on);
  }
}

TEST_F(FairLock, FL25_WhatIsToldFollowsTheHolderNotTheQueue) {
  using Wait = Steps::Wait;
  Steps steps(raw(), "FL25", 5s);
  EXPECT_FALSE(steps.acquire("101", 300s, Wait::begin));
  EXPECT_TRUE(steps.acquire("102", 300s, Wait::begin));
  const auto first = steps.acquire("103", 300s, Wait::begin);
  ASSERT_TRUE(first);
  EXPECT_LE(*first, 300'000);
  EXPECT_EQ(steps.release("101"), Value::makeInteger(0));
  // Free, and the turn of another: until that one counts as dead.
  const auto free = steps.acquire("103", 300s, Wait::on);
  ASSERT_TRUE(free);
  EXPECT_GT(*free, 0);
  EXPECT_LE(*free, 5'000);
  EXPECT_FALSE(steps.acquire("102", 300s, Wait::on));
  const auto late = steps.acquire("104", 300s, Wait::begin);
  ASSERT_TRUE(late);
  EXPECT_LE(*late, 300'000);
  const auto again = steps.acquire("103", 300s, Wait::on);
  ASSERT_TRUE(again);
  EXPECT_LE(*again, *late);
  EXPECT_LE(steps.acquire("104", 300s, Wait::on).value_or(-1), *late);
  EXPECT_EQ(queue("FL25"), (Names{"103", "104"}));
}

TEST_F(FairLock, FL26_OneAttemptNeverEntersTheQueue) {
  using Wait = Steps::Wait;
  Steps steps(raw(), "FL26", 100ms);
  const auto got = [&](const std::string& owner) {
    return !steps.acquire(owner, 60s, Wait::none).has_value();
  };
  EXPECT_TRUE(got("101"));
  EXPECT_FALSE(got("102"));
  EXPECT_FALSE(got("103"));
  EXPECT_EQ(steps.release("101"), Value::makeInteger(0));
  EXPECT_TRUE(got("102"));
  EXPECT_FALSE(got("104"));
  EXPECT_FALSE(got("103"));
  EXPECT_FALSE(got("104"));
  expectNoQueue("FL26");
  raw().run({"PEXPIRE", "FL26", "1"});
  ASSERT_EVENTUALLY(kLong, !raw().exists("FL26"));
  EXPECT_TRUE(got("104"));
}

TEST_F(FairLock, FL27_AbandonedPlacesLapse) {
  using Wait = Steps::Wait;
  Steps steps(raw(), "FL27", 100ms);
  EXPECT_FALSE(steps.acquire("101", 60s, Wait::begin));
  EXPECT_TRUE(steps.acquire("102", 60s, Wait::begin));
  EXPECT_TRUE(steps.acquire("103", 60s, Wait::begin));
  const auto told = steps.acquire("104", 60s, Wait::begin);
  ASSERT_TRUE(told);
  EXPECT_LE(*told, 60'000);
  const auto allLapsed = [&] {
    const std::vector<std::int64_t> left = placesLeft("FL27");
    return std::all_of(left.begin(), left.end(), [](std::int64_t each) { return each < 0; });
  };
  ASSERT_EVENTUALLY(kLong, allLapsed());
  raw().run({"PEXPIRE", "FL27", "1"});
  ASSERT_EVENTUALLY(kLong, !raw().exists("FL27"));
  EXPECT_FALSE(steps.acquire("104", 60s, Wait::on)) << "102 and 103 are dead";
  EXPECT_EQ(queue("FL27"), Names());
}

TEST_F(FairLock, FL20_TheHelperKeysAreMadeFromTheName) {
  Client client = connectFair();
  for (const std::string name : {"plain", "tag{x}", "{x}y"}) {
    const std::string inner = name.find('{') == std::string::npos ? "{" + name + "}" : name;
    rawHold(name, "foreign:1", 60s);
    Visitors visitors;
    visitors.send(client.getFairLock(name), 0);
    EXPECT_EVENTUALLY(kLong, raw().exists("redisson_lock_queue:" + inner));
    EXPECT_EQ(raw().keys(),
              (std::set<std::string>{name,
                                     "redisson_lock_queue:" + inner,
                                     "redisson_lock_timeout:" + inner,
                                     "rlock_lock_waiter_lease:" + inner,
                                     "rlock_lock_order:" + inner}));
    expectNoEternalKeys();
    raw().del(name);
    EXPECT_EQ(visitors.troubles(), Names());
    EXPECT_FALSE(client.getFairLock(name).isLocked());
    raw().flushAll();
  }
}

TEST_F(FairLockSlow, FL28_AServerThatDoesNotAnswerLeavesNoGhost) {
  Options settings = fair(options());
  settings.commandTimeout = 500ms;
  Client client = Client::connect(settings);
  rawHold("FL28", "foreign:1", 60s);
  Visitors visitors;
  std::stop_source stop;
  AcquireOptions options;
  options.stop = stop.get_token();
  visitors.send(client.getFairLock("FL28"), 0, options);
  ASSERT_EVENTUALLY(kLong, waiting("FL28", 1));
  const Stopwatch watch;
  auto call = inThread(
      [&] { return answerOf([&] { return client.getFairLock("FL28").tryLock(2000ms); }); });
  ASSERT_EVENTUALLY(kLong, waiting("FL28", 2));
  raw().clientPause(5000ms, "WRITE");
  const std::string answer = call.get();
  EXPECT_TRUE(answer == "timedOut" || answer == "connectionFailed" || answer == "false") << answer;
  EXPECT_LT(watch.elapsedMs(), 2000ms + scaled(150ms));
  raw().clientUnpause();
  stop.request_stop();
  EXPECT_EVENTUALLY(2 * kPlace, queue("FL28").empty());
  EXPECT_EQ(visitors.troubles(), Names{"cancelled"});
}

}  // namespace
}  // namespace rlock::test
