// SPDX-License-Identifier: Apache-2.0

// The catalogue rows of the read-write lock, by their ids, with waiting times shortened in
// proportion.

#include "integration/read_write_harness.hpp"

#include <random>
#include <shared_mutex>

namespace rlock::test {
namespace {

class ReadWriteConformance : public ReadWriteFaceTest {};
class ReadWriteConformanceSlow : public ReadWriteFaceTest {};
class ReadWriteLoad : public ReadWriteTest {};
class ReadWriteLoadSlow : public ReadWriteTest {};

INSTANTIATE_TEST_SUITE_P(Faces, ReadWriteConformance, ::testing::ValuesIn(kFaces), faceName);
INSTANTIATE_TEST_SUITE_P(Faces, ReadWriteConformanceSlow, ::testing::ValuesIn(kFaces), faceName);

TEST_P(ReadWriteConformance, RW01_LockUnlock) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW01");
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(outcomeOf(lock.read.lock()), "ok");
    EXPECT_TRUE(raw().exists("RW01"));
    EXPECT_EQ(outcomeOf(lock.read.unlock()), "ok");
    expectNoKeys();
  }
}

TEST_P(ReadWriteConformance, RW02_IsLocked) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW02");
  EXPECT_FALSE(lock.read.isLocked());
  lock.read.lock().value();
  EXPECT_TRUE(lock.read.isLocked());
  EXPECT_FALSE(lock.write.isLocked());
  lock.read.unlock().value();
  EXPECT_FALSE(lock.read.isLocked());
}

TEST_P(ReadWriteConformance, RW03_IsLockedByAnotherThread) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW03");
  const auto elsewhere = [&] {
    return inThread([&] { return sidesOf(client, "RW03").read.isLocked(); }).get();
  };
  lock.read.lock().value();
  EXPECT_TRUE(elsewhere());
  lock.read.unlock().value();
  EXPECT_FALSE(elsewhere());
}

TEST_P(ReadWriteConformance, RW04_IsHeldByCurrentThread) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW04");
  EXPECT_FALSE(lock.read.isHeldByCurrentThread());
  lock.read.lock().value();
  EXPECT_TRUE(lock.read.isHeldByCurrentThread());
  EXPECT_FALSE(lock.write.isHeldByCurrentThread());
  lock.read.unlock().value();
  EXPECT_FALSE(lock.read.isHeldByCurrentThread());
}

TEST_P(ReadWriteConformance, RW05_IsHeldByCurrentThreadInAnotherThread) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW05");
  const auto elsewhere = [&] {
    return inThread([&] { return sidesOf(client, "RW05").read.isHeldByCurrentThread(); }).get();
  };
  lock.read.lock().value();
  EXPECT_FALSE(elsewhere());
  lock.read.unlock().value();
  EXPECT_FALSE(elsewhere());
}

TEST_P(ReadWriteConformance, RW06_HoldCount) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW06");
  for (FaceLock* side : {&lock.read, &lock.write}) {
    std::vector<int> counts{side->holdCount()};
    const auto step = [&](Result<void> result) {
      result.value();
      counts.push_back(side->holdCount());
    };
    step(side->lock());
    step(side->unlock());
    step(side->lock());
    step(side->lock());
    step(side->unlock());
    step(side->unlock());
    EXPECT_EQ(counts, (std::vector<int>{0, 1, 0, 1, 2, 1, 0}));
  }
  expectNoKeys();
}

TEST_P(ReadWriteConformance, RW07_Reentrancy) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW07");
  EXPECT_EQ(answerOf(lock.read.tryLock()), "true");
  EXPECT_EQ(answerOf(lock.read.tryLock()), "true");
  EXPECT_EQ(outcomeOf(lock.read.unlock()), "ok");
  const std::string other = inThread([&] {
                              FaceSides mine = sidesOf(client, "RW07");
                              const std::string got = answerOf(mine.read.tryLock());
                              return got + "," + outcomeOf(mine.read.unlock());
                            }).get();
  EXPECT_EQ(other, "true,ok");
  EXPECT_EQ(outcomeOf(lock.read.unlock()), "ok");
  expectNoKeys();
}

TEST_P(ReadWriteConformance, RW08_UnlockByAnotherThread) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW08");
  inThread([&] { sidesOf(client, "RW08").read.lock().value(); }).get();
  EXPECT_EQ(outcomeOf(lock.read.unlock()), "notOwner");
  EXPECT_TRUE(lock.read.isLocked());
  EXPECT_EQ(answerOf(lock.read.forceUnlock()), "true");
  EXPECT_FALSE(lock.read.isLocked());
  EXPECT_EQ(holdKeys(), std::set<std::string>());
}

TEST_P(ReadWriteConformance, RW09_ForceUnlock) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW09");
  lock.read.lock().value();
  EXPECT_EQ(answerOf(lock.write.forceUnlock()), "false");
  EXPECT_TRUE(lock.read.isLocked());
  EXPECT_EQ(answerOf(lock.read.forceUnlock()), "true");
  EXPECT_FALSE(lock.read.isLocked());
  EXPECT_EQ(outcomeOf(lock.read.unlock()), "notOwner");

  lock.write.lock().value();
  EXPECT_EQ(answerOf(lock.read.forceUnlock()), "false");
  EXPECT_TRUE(lock.write.isLocked());
  EXPECT_EQ(answerOf(lock.write.forceUnlock()), "true");
  FaceSides fresh = sidesOf(client, "RW09");
  EXPECT_FALSE(fresh.read.isLocked());
  EXPECT_FALSE(fresh.write.isLocked());
  EXPECT_EQ(outcomeOf(lock.write.unlock()), "notOwner");
}

TEST_P(ReadWriteConformance, RW10_MultiRead) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW10");
  EXPECT_EQ(answerOf(lock.read.forceUnlock()), "false");
  lock.read.lock().value();
  EXPECT_EQ(answerOf(lock.write.tryLock()), "false");
  std::promise<void> reading;
  std::promise<void> enough;
  auto other = inThread([&] {
    FaceSides mine = sidesOf(client, "RW10");
    mine.read.lock().value();
    reading.set_value();
    enough.get_future().wait();
    mine.read.unlock().value();
  });
  reading.get_future().wait();
  lock.read.unlock().value();
  EXPECT_FALSE(lock.read.isHeldByCurrentThread());
  EXPECT_TRUE(lock.read.isLocked());
  EXPECT_EQ(answerOf(lock.write.tryLock()), "false");
  enough.set_value();
  other.get();
  EXPECT_EQ(answerOf(lock.write.tryLock()), "true");
  EXPECT_TRUE(lock.write.isLocked());
  EXPECT_TRUE(lock.write.isHeldByCurrentThread());
  lock.write.unlock().value();
  EXPECT_FALSE(lock.write.isLocked());
  EXPECT_FALSE(lock.write.isHeldByCurrentThread());
  EXPECT_EQ(answerOf(lock.write.tryLock()), "true");
  EXPECT_EQ(answerOf(lock.write.forceUnlock()), "true");
}

TEST_P(ReadWriteConformance, RW11_WriteLock) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW11");
  const auto readElsewhere = [&](FaceSides& sides) {
    return inThread([&] { return answerOf(sides.read.tryLock()); });
  };
  lock.write.lock().value();
  lock.write.lock().value();
  EXPECT_FALSE(inThread([&] { return lock.write.isHeldByCurrentThread(); }).get());
  EXPECT_TRUE(inThread([&] { return lock.write.isLocked(); }).get());
  EXPECT_EQ(readElsewhere(lock).get(), "false");
  FaceSides fresh = sidesOf(client, "RW11");
  EXPECT_EQ(readElsewhere(fresh).get(), "false");
  lock.write.unlock().value();
  EXPECT_EQ(answerOf(lock.read.tryLock()), "true");
  EXPECT_TRUE(lock.write.isHeldByCurrentThread());
  lock.write.unlock().value();
  EXPECT_EQ(readElsewhere(lock).get(), "true");
  EXPECT_EQ(readElsewhere(fresh).get(), "true");
  EXPECT_EQ(answerOf(lock.write.tryLock()), "false");
  EXPECT_FALSE(lock.write.isLocked());
  EXPECT_FALSE(lock.write.isHeldByCurrentThread());
  EXPECT_EQ(answerOf(lock.write.forceUnlock()), "false");
}

TEST_P(ReadWriteConformance, RW12_WriteRead) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW12");
  lock.write.lock().value();
  lock.read.lock().value();
  lock.read.unlock().value();
  EXPECT_TRUE(lock.write.isLocked());
  EXPECT_TRUE(lock.write.isHeldByCurrentThread());
  lock.write.unlock().value();
  EXPECT_FALSE(lock.write.isLocked());
  expectNoKeys();
}

TEST_P(ReadWriteConformance, RW13_WriteReadReentrancy) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW13");
  lock.write.lock().value();
  EXPECT_EQ(answerOf(lock.read.tryLock()), "true");
  EXPECT_EQ(inThread([&] { return answerOf(lock.read.tryLock()); }).get(), "false");
  lock.write.unlock().value();
  EXPECT_EQ(answerOf(lock.write.tryLock()), "false") << "no upgrade, even for the only reader";
  lock.read.unlock().value();
  EXPECT_EQ(answerOf(lock.write.tryLock()), "true");
  lock.write.unlock().value();
  expectNoKeys();
}

TEST_P(ReadWriteConformance, RW14_WaitingReadersEnterTogether) {
  constexpr int kReaders = 20;
  constexpr auto kHold = 300ms;
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW14");
  lock.write.lock().value();
  std::vector<std::future<std::string>> readers;
  for (int i = 0; i < kReaders; ++i) {
    readers.push_back(inThread([&] {
      FaceSides mine = sidesOf(client, "RW14");
      const std::string got = outcomeOf(mine.read.lock());
      std::this_thread::sleep_for(kHold);
      return got + "," + outcomeOf(mine.read.unlock());
    }));
  }
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == kReaders);
  const Stopwatch watch;
  lock.write.unlock().value();
  for (auto& reader : readers) {
    EXPECT_EQ(reader.get(), "ok,ok");
  }
  EXPECT_LT(watch.elapsedMs(), kHold + scaled(400ms));
  expectNoKeys();
}

TEST_P(ReadWriteConformance, RW15_ReadLockIsLockedUnderTheOwnWriteLock) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW15");
  lock.write.lock().value();
  EXPECT_FALSE(lock.read.isLocked());
  EXPECT_EQ(answerOf(lock.read.tryLock(currentOwner(), 10s)), "true");
  EXPECT_TRUE(lock.read.isLocked());
  EXPECT_TRUE(lock.write.isLocked());
}

TEST_P(ReadWriteConformance, RW18_ReadersWaitForTheEndOfALease) {
  Client client = connect();
  sidesOf(client, "RW18").write.lock(currentOwner(), 600ms).value();
  const Stopwatch watch;
  std::vector<std::future<std::string>> readers;
  for (int i = 0; i < 2; ++i) {
    readers.push_back(inThread([&] { return outcomeOf(sidesOf(client, "RW18").read.lock()); }));
  }
  for (auto& reader : readers) {
    EXPECT_EQ(reader.get(), "ok");
  }
  EXPECT_LT(watch.elapsedMs(), 600ms + scaled(200ms));
}

TEST_P(ReadWriteConformance, RW20_AShorterReentryDoesNotShorten) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW20");
  EXPECT_EQ(answerOf(lock.write.tryLock(currentOwner(), 10s, 10s)), "true");
  EXPECT_EQ(answerOf(lock.write.tryLock(currentOwner(), 1s, 100ms)), "true");
  EXPECT_GT(raw().pttl("RW20"), 8'000);
  EXPECT_LE(raw().pttl("RW20"), 10'000) << "D-03: the longer one, not the sum";
  const std::string other =
      inThread([&] {
        return answerOf(sidesOf(client, "RW20").write.tryLock(currentOwner(), 300ms, 100ms));
      }).get();
  EXPECT_EQ(other, "false");
}

TEST_F(ReadWriteLoadSlow, RW21_ReadersAreRenewed) {
  Client client = connect(kWatchdog);
  std::vector<std::future<std::string>> threads;
  for (int thread = 0; thread < 10; ++thread) {
    threads.push_back(inThread([&] {
      return outcomeOf([&] {
        for (int job = 0; job < 3; ++job) {
          RLock lock = client.getReadWriteLock("RW21").readLock();
          lock.lock();
          std::this_thread::sleep_for(kWatchdog + 200ms);
          lock.unlock();
        }
      });
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(client.stats().lost, 0U);
  expectNoKeys();
}

TEST_P(ReadWriteConformanceSlow, RW22_ReleasingTheWriteSideLeavesTheReadSideRenewed) {
  Options settings = options();
  settings.watchdogTimeout = 1500ms;
  constexpr std::int64_t kLeast = 1500 * 19 / 30;
  Client client = Client::connect(settings);
  FaceSides lock = sidesOf(client, "RW22");
  const std::string key = holdKey("RW22", ownerField(client, currentOwner()), 1);
  lock.write.lock().value();
  lock.read.lock().value();
  const auto sample = [&] {
    for (int i = 0; i < 5; ++i) {
      EXPECT_GT(raw().pttl("RW22"), kLeast);
      EXPECT_GT(raw().pttl(key), kLeast);
      std::this_thread::sleep_for(250ms);
    }
  };
  sample();
  lock.write.unlock().value();
  sample();
  lock.read.unlock().value();
  expectNoKeys();
}

TEST_P(ReadWriteConformanceSlow, W5_ReleasingTheReadSideLeavesTheWriteSideRenewed) {
  Client client = connect(kWatchdog);
  FaceSides lock = sidesOf(client, "W5");
  lock.write.lock().value();
  lock.read.lock().value();
  lock.read.unlock().value();
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_TRUE(lock.write.isHeldByCurrentThread());
  EXPECT_EQ(outcomeOf(lock.write.unlock()), "ok");
  EXPECT_EQ(client.stats().lost, 0U);
}

TEST_P(ReadWriteConformance, RW23_ReadersShare) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW23");
  lock.read.lock(currentOwner(), 2s).value();
  const Stopwatch watch;
  EXPECT_EQ(inThread([&] { return outcomeOf(sidesOf(client, "RW23").read.lock()); }).get(), "ok");
  EXPECT_LT(watch.elapsedMs(), scaled(1s));
  EXPECT_EQ(outcomeOf(lock.read.unlock()), "ok");
}

TEST_P(ReadWriteConformance, RW24_AnExpiredWriterIsFollowed) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "RW24");
  lock.write.lock(currentOwner(), 400ms).value();
  const Stopwatch watch;
  const std::string other = inThread([&] {
                              FaceSides mine = sidesOf(client, "RW24");
                              const std::string got = outcomeOf(mine.write.lock());
                              return got + "," + outcomeOf(mine.write.unlock());
                            }).get();
  EXPECT_EQ(other, "ok,ok");
  EXPECT_LT(watch.elapsedMs(), 400ms + scaled(200ms));
  EXPECT_EQ(outcomeOf(lock.write.unlock()), "notOwner");
}

TEST_P(ReadWriteConformanceSlow, RW25_AutoExpireAfterTheWriterWasKilled) {
  Client other = connect(kWatchdog);
  Worker worker(server().uri() + "?watchdog-timeout=1s");
  EXPECT_EQ(worker.ask("lock write:RW25"), "ok");
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_EQ(answerOf(sidesOf(other, "RW25").read.tryLock()), "false");
  worker.process().kill();
  const Stopwatch watch;
  EXPECT_EQ(answerOf(sidesOf(other, "RW25").write.tryLock(currentOwner(), scaled(5s))), "true");
  EXPECT_LT(watch.elapsedMs(), kWatchdog + scaled(300ms));
}

TEST_P(ReadWriteConformanceSlow, ADeadReaderDoesNotLiveOnTheRenewalsOfOthers) {
  Client client = connect(kWatchdog);
  FaceSides lock = sidesOf(client, "dead");
  lock.read.lock().value();
  Worker worker(server().uri() + "?watchdog-timeout=1s");
  EXPECT_EQ(worker.ask("lock read:dead"), "ok");
  EXPECT_EQ(worker.ask("lock read:dead"), "ok");
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_EQ(holdKeys().size(), 3U);
  worker.process().kill();
  const Stopwatch watch;
  EXPECT_EVENTUALLY(kLong, holdKeys().size() == 1U);
  EXPECT_LT(watch.elapsedMs(), kWatchdog + scaled(300ms));
  EXPECT_TRUE(lock.read.isHeldByCurrentThread());
  lock.read.unlock().value();
  EXPECT_EQ(answerOf(lock.write.tryLock()), "true") << "what the dead one left does not matter";
}

TEST_F(ReadWriteLoadSlow, RW27_SixtyDeadReadHolds) {
  Client client = connect(kWatchdog);
  for (int reader = 0; reader < 20; ++reader) {
    for (int hold = 0; hold < 3; ++hold) {
      rawRead("RW27", "dead-" + std::to_string(reader) + ":1", kWatchdog);
    }
  }
  ReadWriteLock lock = client.getReadWriteLock("RW27");
  lock.readLock().lock();
  std::this_thread::sleep_for(kWatchdog + 200ms);
  EXPECT_TRUE(raw().exists("RW27"));
  lock.readLock().unlock();
  const Stopwatch watch;
  EXPECT_TRUE(lock.writeLock().tryLock(1s));
  EXPECT_LT(watch.elapsedMs(), scaled(200ms));
  lock.writeLock().unlock();
  expectNoKeys();
}

TEST_F(ReadWriteLoad, RW28_NamesWithColonsAndBraces) {
  for (const char* name : {"{test}:abc:key", "a:b:c", "p{tag}s", "}odd{"}) {
    Client client = connect();
    ReadWriteLock lock = client.getReadWriteLock(name);
    std::vector<std::future<std::string>> threads;
    for (int thread = 0; thread < 10; ++thread) {
      threads.push_back(inThread([lock] {
        return outcomeOf([&] {
          for (int i = 0; i < 10; ++i) {
            lock.readLock().lock();
            lock.readLock().unlock();
          }
        });
      }));
    }
    for (auto& thread : threads) {
      EXPECT_EQ(thread.get(), "ok") << name;
    }
    EXPECT_EQ(lock.getName(), name);
    expectNoKeys();
  }
}

/// `rounds` times one of the sides, at random.
std::string useEitherSide(Client& client,
                          const std::string& name,
                          SharedResource& resource,
                          int rounds,
                          unsigned seed,
                          std::chrono::microseconds hold = 200us) {
  return outcomeOf([&] {
    std::minstd_rand random(seed);
    ReadWriteLock lock = client.getReadWriteLock(name);
    for (int i = 0; i < rounds; ++i) {
      const bool reads = random() % 2 == 0;
      RLock side = reads ? lock.readLock() : lock.writeLock();
      side.lock();
      reads ? resource.read(hold) : resource.write(hold);
      side.unlock();
    }
  });
}

TEST_F(ReadWriteLoad, RW29_ConcurrencyInOneClient) {
  Client client = connect();
  SharedResource resource;
  std::vector<std::future<std::string>> jobs;
  for (unsigned job = 0; job < 15; ++job) {
    jobs.push_back(
        inThread([&, job] { return useEitherSide(client, "RW29", resource, 1, job + 1); }));
  }
  for (auto& job : jobs) {
    EXPECT_EQ(job.get(), "ok");
  }
  EXPECT_EQ(resource.written() + resource.readings(), 15);
  EXPECT_EQ(resource.overlaps(), 0);
  expectNoKeys();
}

TEST_F(ReadWriteLoadSlow, RW30_ConcurrencyOf100Clients) {
  constexpr int kClients = 100;
  SharedResource resource;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(connect()));
  }
  std::vector<std::future<std::string>> jobs;
  for (unsigned job = 0; job < kClients; ++job) {
    jobs.push_back(
        inThread([&, job] { return useEitherSide(*clients[job], "RW30", resource, 1, job + 1); }));
  }
  for (auto& job : jobs) {
    EXPECT_EQ(job.get(), "ok");
  }
  EXPECT_EQ(resource.written() + resource.readings(), kClients);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
}

TEST_F(ReadWriteLoadSlow, RW31_SustainedBetween16Clients) {
  constexpr int kClients = 16;
  constexpr int kRounds = 20;
  SharedResource resource;
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<std::future<std::string>> jobs;
  for (unsigned i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<Client>(connect()));
    jobs.push_back(inThread([&resource, &client = *clients.back(), i] {
      return useEitherSide(client, "RW31", resource, kRounds, i + 1, 1ms);
    }));
  }
  for (auto& job : jobs) {
    EXPECT_EQ(job.get(), "ok");
  }
  EXPECT_EQ(resource.written() + resource.readings(), kClients * kRounds);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
}

TEST_P(ReadWriteConformanceSlow, RN02_ReadRenewalWorksAgainAfterARestart) {
  Client client = connect(kWatchdog);
  FaceSides lock = sidesOf(client, "RN02");
  lock.read.lock().value();
  server().restart();
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_EQ(outcomeOf(lock.read.unlock()), "notOwner");
  FaceSides again = sidesOf(client, "RN02");
  EXPECT_EQ(outcomeOf(again.read.lock()), "ok");
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_EQ(outcomeOf(again.read.unlock()), "ok");
}

TEST_P(ReadWriteConformanceSlow, RN03_WriteRenewalWorksAgainAfterARestart) {
  Client client = connect(kWatchdog);
  FaceSides lock = sidesOf(client, "RN03");
  lock.write.lock().value();
  server().restart();
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_EQ(outcomeOf(lock.write.unlock()), "notOwner");
  for (int round = 0; round < 2; ++round) {
    FaceSides again = sidesOf(client, "RN03");
    EXPECT_EQ(outcomeOf(again.write.lock()), "ok");
    std::this_thread::sleep_for(2 * kWatchdog);
    EXPECT_EQ(outcomeOf(again.write.unlock()), "ok");
  }
}

// Upgrade and downgrade.

TEST_P(ReadWriteConformance, XRW3_WaitingForAnUpgradeIsRefusedAtOnce) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "XRW3");
  const OwnerId one = newOwner();
  const OwnerId two = newOwner();
  lock.read.lock(one).value();
  lock.read.lock(two).value();
  const Stopwatch watch;
  for (const OwnerId owner : {one, two}) {
    EXPECT_EQ(answerOf(lock.write.tryLock(owner)), "false");
    EXPECT_EQ(answerOf(lock.write.tryLock(owner, 10s)), "wouldDeadlock");
    EXPECT_EQ(outcomeOf(lock.write.lock(owner)), "wouldDeadlock");
  }
  EXPECT_LT(watch.elapsedMs(), scaled(2s));
  EXPECT_FALSE(raw().exists(intentKey("XRW3")));
  lock.read.unlock(one).value();
  auto writer = inThread([&] { return answerOf(lock.write.tryLock(one, 20s)); });
  lock.read.unlock(two).value();
  EXPECT_EQ(writer.get(), "true") << "who has released may write";
}

TEST_P(ReadWriteConformance, DowngradingWakesReaders) {
  Client writer = connect();
  Client others = connect();
  FaceSides lock = sidesOf(writer, "downgrade");
  lock.write.lock().value();
  std::vector<std::future<std::string>> readers;
  for (int i = 0; i < 3; ++i) {
    readers.push_back(inThread([&] {
      FaceSides mine = sidesOf(others, "downgrade");
      const std::string got = answerOf(mine.read.tryLock(currentOwner(), 20s));
      return got + "," + outcomeOf(mine.read.unlock());
    }));
  }
  ASSERT_EVENTUALLY(kLong, raw().numsub(rwChannel("downgrade")) == 1);
  ASSERT_EVENTUALLY(kLong, others.stats().waiters == 3);
  lock.read.lock().value();
  const Stopwatch watch;
  lock.write.unlock().value();
  for (auto& reader : readers) {
    EXPECT_EQ(reader.get(), "true,ok");
  }
  EXPECT_LT(watch.elapsedMs(), scaled(500ms));
  EXPECT_TRUE(lock.read.isHeldByCurrentThread());
}

TEST_P(ReadWriteConformanceSlow, XRW4_TheWriterDiesAfterItsDowngrade) {
  Client client = connect(kWatchdog);
  Worker worker(server().uri() + "?watchdog-timeout=1s");
  EXPECT_EQ(worker.ask("lock write:XRW4"), "ok");
  EXPECT_EQ(worker.ask("lock read:XRW4"), "ok");
  EXPECT_EQ(worker.ask("unlock write:XRW4"), "ok");
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_EQ(holdKeys().size(), 1U);
  EXPECT_EQ(answerOf(sidesOf(client, "XRW4").write.tryLock()), "false");
  worker.process().kill();
  const Stopwatch watch;
  FaceSides lock = sidesOf(client, "XRW4");
  EXPECT_EQ(answerOf(lock.write.tryLock(currentOwner(), scaled(5s))), "true");
  EXPECT_LT(watch.elapsedMs(), kWatchdog + scaled(300ms));
  EXPECT_EQ(holdKeys(), std::set<std::string>());
  lock.write.unlock().value();
  expectNoKeys();
}

// Force.

TEST_P(ReadWriteConformance, XRW5_ForceLeavesNoHoldKeys) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "XRW5");
  const OwnerId owner = newOwner();
  lock.read.lock(owner, 60s).value();
  lock.read.lock(owner, 60s).value();
  rawRead("XRW5", "foreign:1", 60s);
  rawRead("XRW5", "foreign:1", 60s);
  EXPECT_EQ(answerOf(lock.read.forceUnlock()), "true");
  EXPECT_EQ(holdKeys(), std::set<std::string>());
  EXPECT_FALSE(raw().exists("XRW5"));

  lock.read.lock(owner, 2s).value();
  lock.read.lock(owner, 1s).value();
  lock.read.unlock(owner).value();
  EXPECT_LE(raw().pttl("XRW5"), 2'000) << "nothing left over makes it longer";
  lock.read.unlock(owner).value();

  lock.write.lock(owner).value();
  lock.read.lock(owner, 60s).value();
  EXPECT_EQ(answerOf(lock.write.forceUnlock()), "true");
  EXPECT_EQ(holdKeys(), std::set<std::string>());
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "notOwner");
  EXPECT_EVENTUALLY(kLong, client.stats().holds == 0);
  expectNoEternalKeys();
}

TEST_F(ReadWriteLoad, ForceTellsTheHoldersOfThisClient) {
  Client client = connect();
  ReadWriteLock lock = client.getReadWriteLock("told");
  Lease one = lock.readLock().acquire();
  Lease two = lock.readLock().acquire();
  EXPECT_FALSE(lock.writeLock().forceUnlock());
  EXPECT_TRUE(one.held() && two.held());
  EXPECT_TRUE(lock.readLock().forceUnlock());
  EXPECT_EVENTUALLY(kLong, one.lossReason() == LossReason::forced);
  EXPECT_EVENTUALLY(kLong, two.lossReason() == LossReason::forced);

  const OwnerId owner = newOwner();
  Lease writes = lock.writeLock().acquire({}, owner);
  Lease reads = lock.readLock().acquire({}, owner);
  EXPECT_TRUE(lock.writeLock().forceUnlock());
  EXPECT_EVENTUALLY(kLong, writes.lossReason() == LossReason::forced);
  EXPECT_EVENTUALLY(kLong, reads.lossReason() == LossReason::forced);
}

// Read holds have a lease each.

TEST_P(ReadWriteConformance, AnExpiredReadHoldIsGoneWhileOthersRead) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "expired");
  const OwnerId owner = newOwner();
  rawRead("expired", "foreign:1", 60s);
  lock.read.lock(owner, 100ms).value();
  EXPECT_EQ(lock.read.holdCount(owner), 1);
  EXPECT_EVENTUALLY(kLong, lock.read.holdCount(owner) == 0);
  EXPECT_FALSE(lock.read.isHeldBy(owner));
  EXPECT_EQ(raw().hget("expired", ownerField(client, owner)), "1") << "only Redisson sees that";
  lock.read.lock(owner, 100ms).value();
  EXPECT_EQ(raw().hget("expired", ownerField(client, owner)), "1");
  EXPECT_EVENTUALLY(kLong, lock.read.holdCount(owner) == 0);
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "notOwner");
  EXPECT_EQ(raw().hgetall("expired"), (Fields{{"mode", "read"}, {"foreign:1", "1"}}));
  EXPECT_GT(raw().pttl("expired"), 50'000);
}

TEST_P(ReadWriteConformance, TheLatestReadHoldIsReleasedFirst) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "lifo");
  const OwnerId owner = newOwner();
  const std::string field = ownerField(client, owner);
  lock.read.lock(owner, 40s).value();
  lock.read.lock(owner, 20s).value();
  lock.read.lock(owner, 60s).value();
  EXPECT_GT(raw().pttl("lifo"), 50'000);
  lock.read.unlock(owner).value();
  EXPECT_LE(raw().pttl("lifo"), 40'000);
  EXPECT_GT(raw().pttl("lifo"), 30'000);
  EXPECT_EQ(holdKeys(),
            (std::set<std::string>{holdKey("lifo", field, 1), holdKey("lifo", field, 2)}));
  lock.read.unlock(owner).value();
  EXPECT_GT(raw().pttl(holdKey("lifo", field, 1)), 30'000);
  lock.read.unlock(owner).value();
  expectNoKeys();
}

TEST_P(ReadWriteConformance, AnExpiredInnerHoldIsNotReleasedButTheOuterOneIs) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "inner");
  const OwnerId owner = newOwner();
  Lease outer = lock.read.raw().acquire({.lease = 30s}, owner);
  lock.read.lock(owner, 100ms).value();
  EXPECT_EVENTUALLY(kLong, lock.read.holdCount(owner) == 1);
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "notOwner");
  EXPECT_TRUE(outer.held());
  EXPECT_EQ(lock.read.holdCount(owner), 1);
  EXPECT_EQ(client.stats().lost, 0U);
  EXPECT_EQ(outer.release(), ReleaseResult::released);
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "notOwner");
  expectNoKeys();
}

TEST_P(ReadWriteConformance, AnExpiredOuterHoldLeavesTheInnerOne) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "outer");
  const OwnerId owner = newOwner();
  lock.read.lock(owner, 100ms).value();
  Lease inner = lock.read.raw().acquire({.lease = 30s}, owner);
  EXPECT_EVENTUALLY(kLong, lock.read.holdCount(owner) == 1);
  // Its place is taken by the next one, and nothing counts as lost.
  lock.read.lock(owner, 30s).value();
  EXPECT_EQ(lock.read.holdCount(owner), 2);
  EXPECT_TRUE(inner.held());
  EXPECT_EQ(client.stats().lost, 0U);
  lock.read.unlock(owner).value();
  EXPECT_EQ(inner.release(), ReleaseResult::released);
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "notOwner");
  expectNoKeys();
}

TEST_P(ReadWriteConformance, C2_EachReadHoldHasTheValidityOfItsOwnLease) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "C2");
  const OwnerId owner = newOwner();
  const auto began = Clock::now();
  Lease shorter = lock.read.raw().acquire({.lease = 1s}, owner);
  lock.read.lock(owner, 60s).value();
  EXPECT_LE(shorter.validUntil(), Clock::now() + 1s);
  lock.read.unlock(owner).value();
  const auto until = shorter.validUntil();
  EXPECT_LE(until, Clock::now() + 1s);
  EXPECT_GT(until, began + 800ms);
  EXPECT_TRUE(shorter.held());
  // And its loss is announced in time.
  EXPECT_EVENTUALLY(kLong, shorter.lostToken().stop_requested());
  EXPECT_TRUE(raw().exists("C2")) << "the announcement comes before the server drops it";
  EXPECT_EQ(shorter.lossReason(), LossReason::expired);
}

TEST_P(ReadWriteConformance, W44_MixedNestedHoldsNeverShortenEachOther) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "W44");
  const OwnerId owner = newOwner();
  lock.write.lock(owner, 120s).value();
  lock.read.lock(owner, 5s).value();
  lock.read.lock(owner, 5s).value();
  lock.read.unlock(owner).value();
  EXPECT_GT(raw().pttl("W44"), 100'000);
  lock.read.unlock(owner).value();
  EXPECT_GT(raw().pttl("W44"), 100'000);
  lock.write.unlock(owner).value();
  expectNoKeys();

  lock.write.lock(owner, 5s).value();
  lock.read.lock(owner, 60s).value();
  lock.write.lock(owner, 1s).value();
  lock.write.unlock(owner).value();
  EXPECT_GT(raw().pttl("W44"), 50'000);
  lock.write.unlock(owner).value();
  EXPECT_GT(raw().pttl("W44"), 50'000) << "the read hold goes on";
}

// A waiting writer and new readers.

TEST_F(ReadWriteLoadSlow, XRW1_OverlappingReadersDoNotStarveAWriter) {
  std::vector<std::unique_ptr<Client>> clients;
  std::atomic<bool> end{false};
  SharedResource resource;
  std::vector<std::future<std::string>> readers;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(std::make_unique<Client>(connect()));
    for (int thread = 0; thread < 2; ++thread) {
      readers.push_back(inThread([&resource, &end, &client = *clients.back()] {
        return outcomeOf([&] {
          RLock lock = client.getReadWriteLock("XRW1").readLock();
          while (!end.load()) {
            lock.lock();
            resource.read(60ms);
            lock.unlock();
          }
        });
      }));
    }
  }
  Client writer = connect();
  RLock lock = writer.getReadWriteLock("XRW1").writeLock();
  for (int round = 0; round < 5; ++round) {
    const long before = resource.readings();
    ASSERT_EVENTUALLY(kLong, resource.readings() > before + 6) << "readers get their turn, too";
    const Stopwatch watch;
    EXPECT_EQ(answerOf([&] { return lock.tryLock(scaled(10s)); }), "true");
    EXPECT_LT(watch.elapsedMs(), scaled(1s));
    resource.write(1ms);
    lock.unlock();
  }
  end = true;
  for (auto& reader : readers) {
    EXPECT_EQ(reader.get(), "ok");
  }
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EQ(resource.written(), 5);
}

TEST_P(ReadWriteConformance, AWaitingWriterHoldsBackNewReadersButNotThoseWhoRead) {
  Client client = connect();
  Client others = connect();
  FaceSides lock = sidesOf(client, "intent");
  lock.read.lock().value();
  auto writer = inThread([&] {
    FaceSides mine = sidesOf(others, "intent");
    const std::string got = answerOf(mine.write.tryLock(currentOwner(), 20s));
    return got + "," + outcomeOf(mine.write.unlock());
  });
  ASSERT_EVENTUALLY(kLong, raw().exists(intentKey("intent")));
  EXPECT_GT(raw().pttl(intentKey("intent")), 0);
  EXPECT_LE(raw().pttl(intentKey("intent")), 2'000);
  const OwnerId stranger = newOwner();
  EXPECT_EQ(answerOf(lock.read.tryLock(stranger)), "false");
  EXPECT_EQ(answerOf(lock.read.tryLock()), "true") << "nested";
  EXPECT_EQ(raw().hgetall("intent").size(), 2U) << "mode and one reader, nothing else";
  lock.read.unlock().value();
  lock.read.unlock().value();
  EXPECT_EQ(writer.get(), "true,ok");
  EXPECT_FALSE(raw().exists(intentKey("intent")));
  EXPECT_EQ(answerOf(lock.read.tryLock(stranger)), "true");
  lock.read.unlock(stranger).value();
  expectNoKeys();
}

TEST_P(ReadWriteConformance, AWriterThatGivesUpLetsTheReadersIn) {
  Client client = connect();
  Client others = connect();
  FaceSides lock = sidesOf(client, "gave-up");
  lock.read.lock().value();
  auto writer = inThread(
      [&] { return answerOf(sidesOf(others, "gave-up").write.tryLock(currentOwner(), 300ms)); });
  ASSERT_EVENTUALLY(kLong, raw().exists(intentKey("gave-up")));
  const Stopwatch watch;
  EXPECT_EQ(answerOf(lock.read.tryLock(newOwner(), scaled(10s))), "true");
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(400ms)) << "woken, not by the end of the intent";
  EXPECT_EQ(writer.get(), "false");
  EXPECT_FALSE(raw().exists(intentKey("gave-up")));
}

TEST_F(ReadWriteLoad, AWriterThatGivesUpLeavesTheIntentOfAnother) {
  Client client = connect();
  ReadWriteLock lock = client.getReadWriteLock("intents");
  rawRead("intents", "foreign:1", 60s);
  auto writer = inThread([&] { return lock.writeLock().tryLock(600ms); });
  ASSERT_EVENTUALLY(kLong, raw().exists(intentKey("intents")));
  // It looks once more when its subscription is confirmed, and then after a second.
  ASSERT_EVENTUALLY(kLong, raw().numsub(rwChannel("intents")) == 1);
  std::this_thread::sleep_for(150ms);
  raw().set(intentKey("intents"), "foreign:2:write", 60s);
  EXPECT_FALSE(writer.get());
  EXPECT_EQ(raw().get(intentKey("intents")), "foreign:2:write");
  rawReadRelease("intents", "foreign:1");
  EXPECT_TRUE(lock.writeLock().tryLock());
  EXPECT_EQ(raw().get(intentKey("intents")), "foreign:2:write");
  lock.writeLock().unlock();
  EXPECT_FALSE(lock.readLock().tryLock()) << "also when it is free";
  raw().set(intentKey("intents"), "foreign:2:write", 200ms);
  EXPECT_TRUE(lock.readLock().tryLock(20s)) << "a dead one is not waited for";
}

TEST_F(ReadWriteLoad, AWriterThatGivesUpTakesItsOwnIntentBack) {
  Client client = connect();
  rawRead("one", "foreign:1", 60s);
  rawRead("two", "foreign:1", 60s);
  auto other = inThread([&] {
    return answerOf([&] { return client.getReadWriteLock("two").writeLock().tryLock(kLong); });
  });
  ASSERT_EVENTUALLY(kLong, raw().exists(intentKey("two")));
  EXPECT_FALSE(client.getReadWriteLock("one").writeLock().tryLock(100ms));
  EXPECT_FALSE(raw().exists(intentKey("one")));
  EXPECT_TRUE(raw().exists(intentKey("two")));
  rawReadRelease("two", "foreign:1");
  EXPECT_EQ(other.get(), "true");
}

TEST_F(ReadWriteLoad, ARefusedWriterMendsAnExpiryThatIsTooShort) {
  Client client = connect();
  ReadWriteLock lock = client.getReadWriteLock("cut");
  const Lease reader = lock.readLock().acquire({.lease = 60s});
  rawRead("cut", "foreign:1", 30s);
  // As a reader of Redisson does when it renews its hold.
  raw().run({"PEXPIRE", "cut", "30000"});
  EXPECT_EQ(inThread([&] { return answerOf([&] { return lock.writeLock().tryLock(); }); }).get(),
            "false");
  EXPECT_GT(raw().pttl("cut"), 50'000);
}

TEST_F(ReadWriteLoad, AWriterWaitsForTheReadersAndNotForTheLock) {
  // As a writer of Redisson leaves it that goes on reading, and dies.
  rawRead("outlasts", "dead:1", 300ms);
  raw().run({"PEXPIRE", "outlasts", "60000"});
  Client client = connect();
  const Stopwatch watch;
  EXPECT_TRUE(client.getReadWriteLock("outlasts").writeLock().tryLock(20s));
  EXPECT_LT(watch.elapsedMs(), 300ms + scaled(200ms)) << "not at its next poll";
}

TEST_F(ReadWriteLoad, ALockOfAnotherKindIsNotEntered) {
  Client client = connect();
  RLock plain = client.getLock("kinds");
  plain.lock();
  ReadWriteLock lock = client.getReadWriteLock("kinds");
  EXPECT_FALSE(lock.readLock().tryLock());
  EXPECT_FALSE(lock.writeLock().tryLock());
  EXPECT_EQ(outcomeOf([&] { lock.readLock().unlock(); }), "notOwner");
  EXPECT_EQ(outcomeOf([&] { lock.writeLock().unlock(); }), "notOwner");
  EXPECT_EQ(raw().hgetall("kinds").size(), 1U);
  EXPECT_TRUE(plain.isHeldByCurrentThread());
  plain.unlock();
  EXPECT_TRUE(lock.writeLock().tryLock());
  EXPECT_FALSE(plain.tryLock());
}

TEST_F(ReadWriteLoad, ExpiredReadHoldsDoNotLock) {
  Client client = connect();
  RLock reader = client.getReadWriteLock("expired").readLock();
  client.getReadWriteLock("expired").writeLock().lock();
  reader.lock(100ms);
  EXPECT_TRUE(reader.isLocked());
  EXPECT_EVENTUALLY(kLong, !reader.isLocked());
  EXPECT_TRUE(client.getReadWriteLock("expired").writeLock().isLocked());
}

TEST_P(ReadWriteConformanceSlow, ADeadWaitingWriterDelaysReadersForTwoSeconds) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "dead-writer");
  lock.read.lock().value();
  Worker worker(server().uri());
  worker.tell("try write:dead-writer 60000");
  ASSERT_EVENTUALLY(kLong, raw().exists(intentKey("dead-writer")));
  worker.process().kill();
  const Stopwatch watch;
  EXPECT_EQ(answerOf(lock.read.tryLock(newOwner(), scaled(10s))), "true");
  EXPECT_LT(watch.elapsedMs(), 2s + scaled(200ms));
}

TEST_F(ReadWriteLoad, AnEarlyReleaseTellsAWaitingWriterTheNewEnd) {
  Client client = connect();
  Client others = connect();
  RLock read = client.getReadWriteLock("news").readLock();
  const OwnerId longer = newOwner();
  Lease kept = read.acquire({.lease = 500ms});
  Lease early = read.acquire({.lease = 60s}, longer);
  auto writer = inThread([&] {
    RLock lock = others.getReadWriteLock("news").writeLock();
    const std::string got = answerOf([&] { return lock.tryLock(20s); });
    return std::pair(got, Clock::now());
  });
  ASSERT_EVENTUALLY(kLong, raw().exists(intentKey("news")));
  ASSERT_EVENTUALLY(kLong, raw().numsub(rwChannel("news")) == 1);
  const auto end = kept.validUntil();
  EXPECT_EQ(early.release(), ReleaseResult::released);
  const auto [got, when] = writer.get();
  EXPECT_EQ(got, "true");
  EXPECT_GE(when, end);
  EXPECT_LT(wholeMs(when - end), scaled(150ms)) << "not at its next poll";
}

TEST_F(ReadWriteLoad, ReapsReadHoldsThatHaveExpired) {
  // As a peer leaves it: the hash outlives every hold.
  rawRead("reap", "dead:1", 50ms);
  raw().run({"PEXPIRE", "reap", "60000"});
  ASSERT_EVENTUALLY(kLong, holdKeys().empty());
  Client client = connect();
  ReadWriteLock lock = client.getReadWriteLock("reap");
  EXPECT_TRUE(lock.writeLock().tryLock());
  EXPECT_EQ(raw().hgetall("reap").size(), 2U);
  lock.writeLock().unlock();
  expectNoKeys();
}

// std::shared_lock.

TEST_F(ReadWriteLoad, SharedMutexOverTheTwoSides) {
  Client client = connect();
  const ReadWriteLock lock = client.getReadWriteLock("std");
  SharedMutex one(lock);
  SharedMutex two(lock);
  {
    const std::shared_lock first(one);
    std::shared_lock second(two, std::try_to_lock);
    EXPECT_TRUE(second.owns_lock());
    SharedMutex three(lock);
    EXPECT_FALSE(three.try_lock());
    EXPECT_FALSE(three.try_lock_for(50ms));
  }
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
  {
    const std::unique_lock exclusive(one);
    EXPECT_FALSE(two.try_lock_shared());
    EXPECT_FALSE(two.try_lock_shared_for(50ms));
    EXPECT_FALSE(two.try_lock());
  }
  EXPECT_TRUE(two.try_lock_shared_for(20s));
  two.unlock_shared();
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
}

TEST_F(ReadWriteLoadSlow, SharedMutexProtects) {
  Client client = connect();
  const ReadWriteLock lock = client.getReadWriteLock("std-load");
  SharedResource resource;
  std::vector<std::future<std::string>> threads;
  for (unsigned thread = 0; thread < 8; ++thread) {
    threads.push_back(inThread([&, thread] {
      return outcomeOf([&] {
        SharedMutex mutex(lock);
        for (unsigned i = 0; i < 30; ++i) {
          if ((i + thread) % 3 == 0) {
            const std::lock_guard guard(mutex);
            resource.write(200us);
          } else {
            const std::shared_lock guard(mutex);
            resource.read(200us);
          }
        }
      });
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), "ok");
  }
  EXPECT_EQ(resource.written() + resource.readings(), 240);
  EXPECT_EQ(resource.overlaps(), 0);
}

// The property: a writer never overlaps a live reader and enters when the last one has ended.

TEST_F(ReadWriteLoadSlow, XRW6_AWriterAmongReadersWithRandomLeases) {
  struct Span {
    Clock::time_point from;
    Clock::time_point until;     // certainly there until then
    Clock::time_point goneWhen;  // certainly gone then
  };
  constexpr int kReaders = 100;
  constexpr int kRounds = 3;
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(connect()));
  }
  std::vector<std::future<std::vector<Span>>> readers;
  for (unsigned reader = 0; reader < kReaders; ++reader) {
    readers.push_back(inThread([&clients, reader] {
      std::minstd_rand random(reader + 1);
      std::vector<Span> spans;
      RLock lock = clients[reader % clients.size()]->getReadWriteLock("XRW6").readLock();
      for (int round = 0; round < kRounds; ++round) {
        std::this_thread::sleep_for(std::chrono::milliseconds(random() % 1000));
        const auto lease = std::chrono::milliseconds(50 + random() % 400);
        Lease hold = lock.acquire({.lease = lease});
        const auto from = Clock::now();
        const auto expiry = from + lease + 1ms;
        if (random() % 2 == 0) {
          std::this_thread::sleep_for(
              std::chrono::milliseconds(random() % static_cast<unsigned>(lease.count())));
          const auto until = std::min(Clock::now(), hold.validUntil());
          static_cast<void>(hold.release());
          spans.push_back({from, until, std::min(Clock::now(), expiry)});
        } else {
          const auto until = hold.validUntil();
          std::this_thread::sleep_until(expiry);
          spans.push_back({from, until, expiry});
        }
      }
      return spans;
    }));
  }
  struct Entry {
    Clock::time_point asked;
    Clock::time_point entered;
    Clock::time_point left;
  };
  std::atomic<bool> end{false};
  Client client = connect();
  auto writer = inThread([&] {
    std::vector<Entry> entries;
    RLock lock = client.getReadWriteLock("XRW6").writeLock();
    while (!end.load()) {
      const auto asked = Clock::now();
      lock.lock(5s);
      const auto entered = Clock::now();
      std::this_thread::sleep_for(1ms);
      entries.push_back({asked, entered, Clock::now()});
      lock.unlock();
      std::this_thread::sleep_for(20ms);
    }
    return entries;
  });
  std::vector<Span> spans;
  for (auto& reader : readers) {
    const std::vector<Span> own = reader.get();
    spans.insert(spans.end(), own.begin(), own.end());
  }
  end = true;
  const std::vector<Entry> entries = writer.get();
  EXPECT_EQ(spans.size(), static_cast<std::size_t>(kReaders * kRounds));
  EXPECT_GT(entries.size(), 5U);
  int overlaps = 0;
  std::size_t late = 0;
  for (const Entry& entry : entries) {
    auto free = entry.asked;
    for (const Span& span : spans) {
      if (span.from < entry.left && entry.entered < span.until) {
        ++overlaps;
      }
      if (span.from < entry.entered) {
        free = std::max(free, std::min(span.goneWhen, entry.entered));
      }
    }
    if (wholeMs(entry.entered - free) >= scaled(100ms)) {
      ++late;
    }
    EXPECT_LT(wholeMs(entry.entered - free), scaled(700ms)) << "its poll is a second";
  }
  EXPECT_EQ(overlaps, 0);
  // The host stops for moments.
  EXPECT_LE(late, entries.size() / 10);
  EXPECT_EVENTUALLY(kLong, raw().keys().empty());
}

}  // namespace
}  // namespace rlock::test
