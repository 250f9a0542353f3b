// SPDX-License-Identifier: Apache-2.0

// Read holds, each of which has a lease of its own, and a writer that waits for them.

#include "integration/read_write_harness.hpp"

#include <algorithm>
#include <random>

namespace rlock::test {
namespace {

// Read holds have a lease each.

TEST_P(ReadWriteConformance, AnExpiredReadHoldIsGoneWhileOthersRead) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "expired");
  const OwnerId owner = newOwner();
  rawRead("expired", "foreign:1", 60s);
  lock.read.lock(owner, 1s).value();
  EXPECT_EQ(lock.read.holdCount(owner), 1);
  EXPECT_EVENTUALLY(kLong, lock.read.holdCount(owner) == 0);
  EXPECT_FALSE(lock.read.isHeldBy(owner));
  EXPECT_EQ(raw().hget("expired", ownerField(client, owner)), "1") << "only Redisson sees that";
  lock.read.lock(owner, 1s).value();
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

/// A partial release restores the watchdog's lease, but not to a hold with a lease of its own.
TEST_P(ReadWriteConformance, AWatchedInnerHoldLeavesTheOuterOneItsLease) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "outer");
  const OwnerId owner = newOwner();
  lock.read.lock(owner, 5s).value();
  lock.read.lock(owner).value();
  lock.read.unlock(owner).value();
  EXPECT_LE(raw().pttl(holdKey("outer", ownerField(client, owner), 1)), 5000);
  EXPECT_LE(raw().pttl("outer"), 5000);
  lock.read.unlock(owner).value();
  expectNoKeys();
}

TEST_P(ReadWriteConformance, APartialReleaseGivesWatchedHoldsTheirLeaseBack) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "back");
  const OwnerId owner = newOwner();
  lock.write.lock(owner).value();
  lock.write.lock(owner).value();
  raw().run({"PEXPIRE", "back", "7000"});
  lock.write.unlock(owner).value();
  EXPECT_GT(raw().pttl("back"), 100'000);
  lock.write.unlock(owner).value();

  lock.read.lock(owner).value();
  lock.read.lock(owner).value();
  const std::string outer = holdKey("back", ownerField(client, owner), 1);
  raw().run({"PEXPIRE", outer, "7000"});
  raw().run({"PEXPIRE", "back", "7000"});
  lock.read.unlock(owner).value();
  EXPECT_GT(raw().pttl(outer), 100'000);
  EXPECT_GT(raw().pttl("back"), 100'000);
  lock.read.unlock(owner).value();
  expectNoKeys();
}

/// The holds of an owner are renewed together, also one whose own lease is longer.
TEST_P(ReadWriteConformance, ARenewalShortensNoHoldWithALongerLease) {
  Client client = connect(kWatchdog);
  FaceSides lock = sidesOf(client, "longer");
  const OwnerId owner = newOwner();
  lock.read.lock(owner).value();
  lock.read.lock(owner, 600s).value();
  const std::uint64_t renewals = client.stats().renewals;
  ASSERT_EVENTUALLY(kLong, client.stats().renewals >= renewals + 2);
  EXPECT_GT(raw().pttl(holdKey("longer", ownerField(client, owner), 2)), 300'000);
  EXPECT_GT(raw().pttl("longer"), 300'000);
  lock.read.unlock(owner).value();
  lock.read.unlock(owner).value();
  expectNoKeys();
}

TEST_P(ReadWriteConformance, AHoldWithALeaseEndsThoughAWatchedOneWasInside) {
  Client client = connect(kWatchdog);
  FaceSides lock = sidesOf(client, "outer");
  const OwnerId owner = newOwner();
  lock.read.lock(owner, 2 * kWatchdog / 3).value();
  lock.read.lock(owner).value();
  lock.read.unlock(owner).value();
  EXPECT_EVENTUALLY(kLong, !raw().exists("outer"));
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "notOwner");
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

/// The watchdog does not come before its lease ends; the hold around it goes on.
TEST_P(ReadWriteConformance, AnExpiredHoldInsideAWatchedOneIsNotReleasedButTheOuterOneIs) {
  std::atomic<int> told{0};
  Options settings = options();
  settings.onLost = [&](const LostHold& /*hold*/) { ++told; };
  Client client = Client::connect(settings);
  FaceSides lock = sidesOf(client, "watched");
  const OwnerId owner = newOwner();
  lock.read.lock(owner).value();
  lock.read.lock(owner, 100ms).value();
  EXPECT_EVENTUALLY(kLong, lock.read.holdCount(owner) == 1);
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "notOwner");
  EXPECT_EQ(lock.read.holdCount(owner), 1);
  expectNotObtained(answerOf(lock.write.tryLock(newOwner())));
  EXPECT_EQ(client.stats().lost, 0U);
  EXPECT_EQ(told, 0);
  lock.read.unlock(owner).value();
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "notOwner");
  expectNoKeys();
}

/// The library has given it back before its owner comes to do so.
TEST_P(ReadWriteConformance, AnInnerHoldWhoseMaxHoldIsOverIsNotReleasedButTheOuterOneIs) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "most");
  const OwnerId owner = newOwner();
  lock.read.lock(owner).value();
  lock.read.raw().lockAsync({.maxHold = 100ms}, owner).get();
  EXPECT_EVENTUALLY(kLong, client.stats().lost == 1 && lock.read.holdCount(owner) == 1);
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "notOwner");
  EXPECT_EQ(lock.read.holdCount(owner), 1);
  expectNotObtained(answerOf(lock.write.tryLock(newOwner())));
  lock.read.unlock(owner).value();
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "notOwner");
  expectNoKeys();
}

/// The server says with each release which of the owner's holds are over.
TEST_F(ReadWriteLoad, AReadHoldThatAnothersReleaseFindsGoneIsTold) {
  std::atomic<int> told{0};
  Options settings = options();
  settings.onLost = [&](const LostHold& hold) {
    told += hold.reason == LossReason::refused ? 1 : 0;
  };
  Client client = Client::connect(settings);
  RLock read = client.getReadWriteLock("sibling").readLock();
  const OwnerId owner = newOwner();
  Lease gone = read.acquire({.lease = 60s}, owner);
  Lease other = read.acquire({.lease = 60s}, owner);
  ASSERT_EQ(raw().del(holdKey("sibling", ownerField(client, owner), 1)), 1);
  EXPECT_EQ(other.release(), ReleaseResult::released);
  EXPECT_EVENTUALLY(kLong, gone.lostToken().stop_requested());
  EXPECT_EQ(gone.lossReason(), LossReason::refused);
  EXPECT_EVENTUALLY(kLong, told == 1);
  EXPECT_EQ(client.stats().lost, 1U);
  EXPECT_EQ(gone.release(), ReleaseResult::lost);
  expectNoKeys();
}

/// It keeps its place on the server, and its unlock() must not take the hold around it.
TEST_P(ReadWriteConformance, AnExpiredInnerHoldIsForgottenOnceAlsoAfterAnotherOne) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "around");
  const OwnerId owner = newOwner();
  lock.read.lock(owner, 30s).value();
  lock.read.lock(owner, 100ms).value();
  EXPECT_EVENTUALLY(kLong, lock.read.holdCount(owner) == 1);
  lock.read.lock(owner, 30s).value();
  lock.read.unlock(owner).value();
  EXPECT_EQ(outcomeOf(lock.read.unlock(owner)), "notOwner");
  EXPECT_EQ(raw().hget("around", ownerField(client, owner)), "1");
  EXPECT_EQ(lock.read.holdCount(owner), 1);
  lock.read.unlock(owner).value();
  expectNoKeys();
}

/// A later hold does not make an earlier one longer, and must not put its renewal off.
TEST_P(ReadWriteConformance, AWatchedHoldIsRenewedWhileOthersComeAndGo) {
  Client client = connect(kWatchdog);
  FaceSides lock = sidesOf(client, "comings");
  const OwnerId owner = newOwner();
  Lease outer = lock.read.raw().acquire({}, owner);
  const auto until = Clock::now() + 3 * kWatchdog;
  while (Clock::now() < until) {
    lock.read.lock(owner).value();
    lock.read.unlock(owner).value();
    // More often than renewals are due.
    std::this_thread::sleep_for(kWatchdog / 30);
  }
  EXPECT_TRUE(outer.held());
  EXPECT_EQ(outer.lossReason(), LossReason::none);
  EXPECT_EQ(raw().hget("comings", ownerField(client, owner)), "1");
  EXPECT_EQ(outer.release(), ReleaseResult::released);
}

TEST_F(ReadWriteLoadSlow, XWD7_TheLastReaderIsRenewedAfterTheRace) {
  Client client = connect(kWatchdog);
  const ReadWriteLock shared = client.getReadWriteLock("XWD7");
  std::vector<std::future<int>> threads;
  for (int thread = 0; thread < 16; ++thread) {
    threads.push_back(inThread([&] {
      RLock mine = shared.readLock();
      int unregistered = 0;
      for (int round = 0; round < 100; ++round) {
        mine.lock();
        unregistered += client.stats().holds == 0 ? 1 : 0;
        mine.unlock();
      }
      return unregistered;
    }));
  }
  for (auto& thread : threads) {
    EXPECT_EQ(thread.get(), 0) << "held, and nobody would have renewed it";
  }
  EXPECT_EQ(client.stats().holds, 0U);
  Lease last = shared.readLock().acquire();
  std::this_thread::sleep_for(2 * kWatchdog);
  EXPECT_TRUE(last.held());
  EXPECT_GT(raw().pttl("XWD7"), 0);
  EXPECT_EQ(last.release(), ReleaseResult::released);
  expectNoKeys();
}

TEST_P(ReadWriteConformance, XTTL8_LeasesOfReentriesAreNotAddedUp) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "XTTL8");
  for (int hold = 1; hold <= 20; ++hold) {
    lock.write.lock(currentOwner(), 20s).value();
    EXPECT_LE(raw().pttl("XTTL8"), 20'000) << "hold " << hold;
  }
  EXPECT_EQ(lock.write.holdCount(), 20);
  EXPECT_GT(raw().pttl("XTTL8"), 10'000);
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
  const Stopwatch release;
  lock.read.unlock(owner).value();
  const auto took = release.elapsed();
  const auto until = shorter.validUntil();
  EXPECT_LE(until, Clock::now() + 1s);
  // A slow way of the release to the server is taken off.
  EXPECT_GT(until, began + 900ms - took);
  EXPECT_TRUE(shorter.held());
  // And its loss is announced in time.
  std::atomic<Clock::rep> toldAt{0};
  const std::stop_callback callback(shorter.lostToken(),
                                    [&] { toldAt = Clock::now().time_since_epoch().count(); });
  ASSERT_EVENTUALLY(kLong, toldAt != 0);
  // The server got the request later than that, and drops the hold a lease after it.
  EXPECT_LT(Clock::time_point(Clock::duration(toldAt.load())), began + 1s);
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

/// As one leaves it behind that could not take its intent back.
TEST_P(ReadWriteConformance, AnIntentOfItsOwnDoesNotHoldAReaderBack) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "own");
  const OwnerId owner = newOwner();
  raw().set(intentKey("own"), ownerField(client, owner) + ":write", 60s);
  EXPECT_EQ(answerOf(lock.read.tryLock(newOwner())), "false");
  EXPECT_EQ(answerOf(lock.read.tryLock(owner)), "true");
  lock.read.unlock(owner).value();
  EXPECT_FALSE(raw().exists("own"));
}

TEST_F(ReadWriteLoad, AWriterThatGivesUpTakesItsOwnIntentBack) {
  Client client = connect();
  rawRead("one", "foreign:1", 60s);
  rawRead("two", "foreign:1", 60s);
  auto other = inThread([&] {
    return answerOf([&] { return client.getReadWriteLock("two").writeLock().tryLock(kLong); });
  });
  ASSERT_EVENTUALLY(kLong, raw().exists(intentKey("two")));
  // After a second it looks once more: its time may be over in that look.
  EXPECT_FALSE(client.getReadWriteLock("one").writeLock().tryLock(1s));
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
  reader.lock(1s);
  EXPECT_TRUE(reader.isLocked());
  EXPECT_EVENTUALLY(kLong, !reader.isLocked());
  EXPECT_TRUE(client.getReadWriteLock("expired").writeLock().isLocked());
}

TEST_P(ReadWriteConformanceSlow, ADeadWaitingWriterDelaysReadersForTwoSeconds) {
  Client client = connect();
  FaceSides lock = sidesOf(client, "dead-writer");
  lock.read.lock().value();
  Worker worker(uri());
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
  Lease kept = read.acquire({.lease = 3s});
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
