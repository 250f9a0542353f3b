// SPDX-License-Identifier: Apache-2.0

// The semaphore whose permits expire: what each call says, and what stands on the server.

#include "integration/permit_harness.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace rlock::test {
namespace {

using Ids = PermitExpirableSemaphore::Ids;

const std::string kUnknown = "00112233445566778899aabbccddeeff";

INSTANTIATE_TEST_SUITE_P(Faces, PermitFaceTest, ::testing::ValuesIn(kFaces), faceName);

TEST_P(PermitFaceTest, PS01_NotExistent) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  EXPECT_EQ(by(semaphore.availablePermitsAsync()).value(), 0);
  EXPECT_EQ(by(semaphore.getPermitsAsync()).value(), 0);
  EXPECT_EQ(by(semaphore.acquiredPermitsAsync()).value(), 0);
  EXPECT_EQ(by(semaphore.tryAcquireAsync()).value(), std::nullopt);
  EXPECT_EQ(semaphore.getName(), "s");
  expectNoKeys();
}

TEST_P(PermitFaceTest, PS02_TrySetPermits) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  EXPECT_TRUE(by(semaphore.trySetPermitsAsync(10)).value());
  EXPECT_FALSE(by(semaphore.trySetPermitsAsync(15)).value());
  EXPECT_EQ(by(semaphore.availablePermitsAsync()).value(), 10);
  raw().set("s", "0");
  EXPECT_FALSE(by(semaphore.trySetPermitsAsync(15)).value()) << "also when the value is 0";
  EXPECT_EQ(free("s"), "0");
}

TEST_P(PermitFaceTest, PS04_AddPermits) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  by(semaphore.trySetPermitsAsync(10)).value();
  by(semaphore.addPermitsAsync(5)).value();
  EXPECT_EQ(by(semaphore.availablePermitsAsync()).value(), 15);
  by(semaphore.addPermitsAsync(-10)).value();
  EXPECT_EQ(by(semaphore.availablePermitsAsync()).value(), 5);
  by(semaphore.addPermitsAsync(-10)).value();
  EXPECT_EQ(by(semaphore.availablePermitsAsync()).value(), -5);
}

/// A permit whose lease is lost on the way is taken for ever.
TEST_F(PermitTest, EveryFormOfACallGivesThePermitsTheirLease) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(24);
  std::stop_source stop;
  const auto expectLeased = [&](const char* form, const Ids& ids, std::size_t count) {
    EXPECT_EQ(ids.size(), count) << form;
    for (const std::string& id : ids) {
      const std::int64_t end = std::stoll(score("s", id).value_or("0"));
      const std::int64_t now = serverMs();
      EXPECT_GT(end, now) << form;
      EXPECT_LE(end, now + 20'000) << form;
    }
  };
  expectLeased("acquire", {semaphore.acquire(20s)}, 1);
  expectLeased("acquire, stop", {semaphore.acquire(stop.get_token(), 20s)}, 1);
  expectLeased("tryAcquire", {semaphore.tryAcquire(5s, 20s).value()}, 1);
  expectLeased("tryAcquire, stop", {semaphore.tryAcquire(stop.get_token(), 5s, 20s).value()}, 1);
  expectLeased("acquireMany", semaphore.acquireMany(2, 20s), 2);
  expectLeased("acquireMany, stop", semaphore.acquireMany(stop.get_token(), 2, 20s), 2);
  expectLeased("tryAcquireMany", semaphore.tryAcquireMany(2, 5s, 20s), 2);
  expectLeased("tryAcquireMany, stop", semaphore.tryAcquireMany(stop.get_token(), 2, 5s, 20s), 2);
  expectLeased("acquireAsync", {semaphore.acquireAsync(20s).get()}, 1);
  expectLeased("acquireAsync, stop", {semaphore.acquireAsync(stop.get_token(), 20s).get()}, 1);
  expectLeased("tryAcquireAsync", {semaphore.tryAcquireAsync(5s, 20s).get().value()}, 1);
  expectLeased("tryAcquireAsync, stop",
               {semaphore.tryAcquireAsync(stop.get_token(), 5s, 20s).get().value()},
               1);
  expectLeased("acquireManyAsync", semaphore.acquireManyAsync(2, 20s).get(), 2);
  expectLeased(
      "acquireManyAsync, stop", semaphore.acquireManyAsync(stop.get_token(), 2, 20s).get(), 2);
  expectLeased("tryAcquireManyAsync", semaphore.tryAcquireManyAsync(2, 5s, 20s).get(), 2);
  expectLeased("tryAcquireManyAsync, stop",
               semaphore.tryAcquireManyAsync(stop.get_token(), 2, 5s, 20s).get(),
               2);
  EXPECT_EQ(free("s"), "0");
}

TEST_F(PermitTest, PS05_PS06_PS07_CountsFollowExpiry) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(2);
  EXPECT_EQ(semaphore.acquiredPermits(), 0);
  const auto first = semaphore.tryAcquire(500ms, 2s);
  EXPECT_EQ(semaphore.acquiredPermits(), 1);
  const auto second = semaphore.tryAcquire(500ms, 2s);
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(semaphore.tryAcquire(500ms, 2s));
  EXPECT_EQ(semaphore.availablePermits(), 0);
  EXPECT_EQ(semaphore.acquiredPermits(), 2);
  EXPECT_EQ(semaphore.getPermits(), 2);
  awaitExpiry("s", *second);
  const auto third = semaphore.tryAcquire(500ms, 2s);
  EXPECT_TRUE(third);
  EXPECT_EQ(semaphore.acquiredPermits(), 1);
  EXPECT_EQ(semaphore.getPermits(), 2);
  awaitExpiry("s", third.value_or(*second));
  EXPECT_EQ(semaphore.acquiredPermits(), 0);
  EXPECT_EQ(semaphore.availablePermits(), 2);
  EXPECT_EQ(semaphore.getPermits(), 2);
}

TEST_F(PermitTest, PermitsDoNotEndWithAnExpiryThatTheSemaphoreHasNoMore) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(2);
  const std::string first = semaphore.acquire();
  raw().run({"PEXPIRE", "s", "60000"});
  raw().run({"PEXPIRE", takenKey("s"), "60000"});
  // Another program changes the number, and takes the expiry away with that.
  raw().set("s", "2");
  const std::string second = semaphore.acquire();
  EXPECT_EQ(raw().pttl(takenKey("s")), -1);
  EXPECT_TRUE(semaphore.tryRelease(first));
  EXPECT_TRUE(semaphore.tryRelease(second));
}

TEST_F(PermitTest, ANewSemaphoreHasNothingOfItsPredecessor) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(2);
  const std::string old = semaphore.acquire();
  raw().del("s");
  EXPECT_TRUE(semaphore.trySetPermits(2));
  EXPECT_EQ(semaphore.getPermits(), 2);
  EXPECT_FALSE(semaphore.tryRelease(old));
  EXPECT_EQ(free("s"), "2");
}

TEST_F(PermitTest, ALeaseCanBeChangedAtTheMemoryLimit) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  const std::string id = semaphore.acquire(60s);
  raw().configSet("maxmemory", "1");
  EXPECT_EQ(answerOf([&] { return semaphore.updateLeaseTime(id, 300s); }), "true");
  raw().configSet("maxmemory", "0");
  EXPECT_GT(std::stoll(score("s", id).value_or("0")), serverMs() + 200'000);
}

TEST_F(PermitTest, PS08_ThePermitsInheritTheExpiryOfTheSemaphore) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  raw().run({"PEXPIRE", "s", "900"});
  ASSERT_TRUE(semaphore.tryAcquire(300ms, 300ms));
  EXPECT_GT(raw().pttl(takenKey("s")), 0);
  EXPECT_EVENTUALLY(kLong, !raw().exists("s") && !raw().exists(takenKey("s")));
  EXPECT_EQ(semaphore.availablePermits(), 0);
  // Only the marker of trySetPermits() is left, for its two minutes.
  EXPECT_EQ(raw().keys("*s*").size(), raw().keys("rlock_request:{s}:*").size());
  expectNoEternalKeys();
}

TEST_F(PermitTest, PS08_WhatIsGoneDoesNotComeBackByExpiredPermits) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  addExpired("s", 3);
  EXPECT_EQ(semaphore.availablePermits(), 0);
  expectNoKeys();
  addExpired("s", 3);
  EXPECT_TRUE(semaphore.trySetPermits(5));
  EXPECT_EQ(semaphore.getPermits(), 5);
}

TEST_P(PermitFaceTest, PS09_PS10_AWaiterGetsWhatExpires) {
  Client client = connect();
  Client other = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  auto waiting = other.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  for (const bool timed : {false, true}) {
    const std::string first = semaphore.acquire(500ms);
    const std::int64_t expiry = std::stoll(*score("s", first));
    const std::string second = timed ? by(waiting.tryAcquireAsync(100s, 2s)).value().value()
                                     : by(waiting.acquireAsync(2s)).value();
    const std::int64_t late = serverMs() - expiry;
    EXPECT_GE(late, 0);
    EXPECT_LE(late, scaled(200ms).count());
    EXPECT_FALSE(by(semaphore.tryReleaseAsync(first)).value());
    by(waiting.releaseAsync(second)).value();
    EXPECT_EQ(free("s"), "1");
  }
}

TEST_P(PermitFaceTest, PS11_UpdateLeaseTime) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  by(semaphore.setPermitsAsync(1)).value();
  EXPECT_FALSE(by(semaphore.updateLeaseTimeAsync("1234", 1s)).value());
  EXPECT_FALSE(by(semaphore.updateLeaseTimeAsync(kUnknown, 1s)).value());
  const std::string id = by(semaphore.acquireAsync()).value();
  EXPECT_TRUE(by(semaphore.updateLeaseTimeAsync(id, 300ms)).value());
  awaitExpiry("s", id);
  EXPECT_FALSE(by(semaphore.updateLeaseTimeAsync(id, 1s)).value());
  const std::string next = by(semaphore.tryAcquireAsync(10s, 1s)).value().value();
  const std::int64_t first = std::stoll(*score("s", next));
  EXPECT_TRUE(by(semaphore.updateLeaseTimeAsync(next, 3s)).value());
  EXPECT_EVENTUALLY(kLong, serverMs() > first);
  EXPECT_EQ(by(semaphore.availablePermitsAsync()).value(), 0);
  awaitExpiry("s", next);
  EXPECT_EQ(by(semaphore.availablePermitsAsync()).value(), 1);
  EXPECT_FALSE(by(semaphore.updateLeaseTimeAsync(next, 1s)).value());
  const std::string kept = by(semaphore.acquireAsync(1s)).value();
  EXPECT_TRUE(by(semaphore.updateLeaseTimeAsync(kept, std::nullopt)).value());
  EXPECT_EQ(score("s", kept), std::to_string(kNever));
}

TEST_P(PermitFaceTest, PS12_GetLeaseTime) {
  using LeaseTime = PermitExpirableSemaphore::LeaseTime;
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.setPermits(1);
  EXPECT_EQ(outcomeOf(by(semaphore.getLeaseTimeAsync("1234"))), "invalidArgument");
  EXPECT_EQ(outcomeOf(by(semaphore.getLeaseTimeAsync(kUnknown))), "notOwner");
  const std::string id = semaphore.acquire();
  EXPECT_EQ(by(semaphore.getLeaseTimeAsync(id)).value(), LeaseTime());
  semaphore.release(id);
  EXPECT_EQ(outcomeOf(by(semaphore.getLeaseTimeAsync(id))), "notOwner");
  const std::string brief = semaphore.acquire(1100ms);
  std::this_thread::sleep_for(100ms);
  const LeaseTime left = by(semaphore.getLeaseTimeAsync(brief)).value();
  ASSERT_TRUE(left);
  EXPECT_LE(*left, 1000ms);
  EXPECT_GT(*left, 0ms);
  EXPECT_EVENTUALLY(kLong, semaphore.availablePermits() == 1);
  EXPECT_EQ(outcomeOf(by(semaphore.getLeaseTimeAsync(brief))), "notOwner");
}

TEST_P(PermitFaceTest, PS13_PS14_AReleaseWakesAWaiter) {
  Client client = connect();
  Client other = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  auto releasing = other.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  std::string id = semaphore.acquire();
  EXPECT_EQ(id.size(), 32U);
  EXPECT_EQ(id.find_first_not_of("0123456789abcdef"), std::string::npos);
  for (const bool timed : {false, true}) {
    const Stopwatch watch;
    auto release = inThread([&, id] {
      std::this_thread::sleep_for(300ms);
      releasing.release(id);
    });
    const std::string next = timed ? by(semaphore.tryAcquireAsync(20s)).value().value()
                                   : by(semaphore.acquireAsync()).value();
    EXPECT_GE(watch.elapsedMs(), 250ms);
    EXPECT_LE(watch.elapsedMs(), scaled(600ms));
    release.get();
    EXPECT_FALSE(by(semaphore.tryAcquireAsync()).value());
    EXPECT_EQ(by(semaphore.availablePermitsAsync()).value(), 0);
    EXPECT_NE(next, id);
    id = next;
  }
}

TEST_P(PermitFaceTest, PS15_PS16_PS24_Several) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(10);
  const Ids four = by(semaphore.tryAcquireManyAsync(4)).value();
  EXPECT_EQ(four.size(), 4U);
  EXPECT_EQ(by(semaphore.tryAcquireManyAsync(5)).value().size(), 5U);
  EXPECT_EQ(semaphore.availablePermits(), 1);
  EXPECT_EQ(by(semaphore.tryAcquireManyAsync(2)).value(), Ids()) << "all or none";
  EXPECT_EQ(by(semaphore.tryAcquireManyAsync(2, 1s)).value(), Ids());
  EXPECT_EQ(semaphore.availablePermits(), 1);
  by(semaphore.releaseAsync(four)).value();
  const Ids more = by(semaphore.acquireManyAsync(5, 60s)).value();
  EXPECT_EQ(more.size(), 5U);
  EXPECT_EQ(std::set<std::string>(more.begin(), more.end()).size(), 5U);
  EXPECT_EQ(semaphore.availablePermits(), 0);
  by(semaphore.releaseAsync(more)).value();
  EXPECT_EQ(semaphore.availablePermits(), 5);
}

TEST_P(PermitFaceTest, PS17_PS18_PS25_Release) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  EXPECT_EQ(outcomeOf(by(semaphore.releaseAsync("1234"))), "invalidArgument");
  EXPECT_EQ(outcomeOf(by(semaphore.releaseAsync(kUnknown))), "notOwner");
  EXPECT_FALSE(raw().exists("s")) << "a failed release makes no semaphore";
  semaphore.trySetPermits(10);
  const Ids six = semaphore.acquireMany(6);
  const Ids four(six.begin(), six.begin() + 4);
  const Ids two(six.begin() + 4, six.end());
  EXPECT_EQ(by(semaphore.tryReleaseAsync(four)).value(), 4);
  EXPECT_EQ(semaphore.availablePermits(), 8);
  by(semaphore.releaseAsync(two)).value();
  EXPECT_EQ(semaphore.availablePermits(), 10);
  EXPECT_EQ(outcomeOf(by(semaphore.releaseAsync(six))), "notOwner");
  EXPECT_EQ(outcomeOf(by(semaphore.releaseAsync(six.front()))), "notOwner");
  EXPECT_EQ(by(semaphore.tryReleaseAsync(six)).value(), 0);
  EXPECT_EQ(semaphore.availablePermits(), 10);
}

TEST_P(PermitFaceTest, PS22_TwoLiveIdsAndOneUnknown) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(5);
  Ids ids = semaphore.acquireMany(2);
  ids.push_back(kUnknown);
  EXPECT_EQ(by(semaphore.tryReleaseAsync(ids)).value(), 0);
  EXPECT_EQ(outcomeOf(by(semaphore.releaseAsync(ids))), "notOwner");
  EXPECT_EQ(free("s"), "3");
  EXPECT_EQ(taken("s"), 2);
}

TEST_P(PermitFaceTest, PS19_ReleaseExpired) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  const std::string id = semaphore.acquire(50ms);
  awaitExpiry("s", id);
  EXPECT_EQ(free("s"), "0");
  EXPECT_FALSE(by(semaphore.tryReleaseAsync(id)).value());
  EXPECT_EQ(free("s"), "1") << "back in the pool all the same";
  EXPECT_FALSE(by(semaphore.tryReleaseAsync(id)).value());
  EXPECT_EQ(outcomeOf(by(semaphore.releaseAsync(id))), "notOwner");
  EXPECT_EQ(free("s"), "1");
}

TEST_F(PermitTest, PS20_PS21_ExpiredOnesComeBackOnce) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(10);
  const Ids brief = semaphore.tryAcquireMany(3, 10s, 2s);
  ASSERT_EQ(brief.size(), 3U);
  const Ids lasting = semaphore.tryAcquireMany(3);
  EXPECT_EQ(free("s"), "4");
  awaitExpiry("s", brief.front());
  EXPECT_EQ(semaphore.tryRelease(lasting), 3);
  EXPECT_EQ(semaphore.availablePermits(), 10);
  EXPECT_EQ(semaphore.tryRelease(brief), 0);
  EXPECT_EQ(semaphore.availablePermits(), 10);
  const Ids six = semaphore.acquireMany(6, 100ms);
  EXPECT_EQ(free("s"), "4");
  awaitExpiry("s", six.back());
  static_cast<void>(semaphore.acquire(100ms));
  EXPECT_EQ(free("s"), "9");
  EXPECT_EVENTUALLY(kLong, semaphore.availablePermits() == 10);
  // A batch with one expired permit gives none back, but the expired one.
  const std::string good = semaphore.acquire();
  const std::string brief2 = semaphore.acquire(30ms);
  awaitExpiry("s", brief2);
  const Ids mixed{good, brief2};
  EXPECT_EQ(semaphore.tryRelease(mixed), 0);
  EXPECT_EQ(free("s"), "9");
  EXPECT_EQ(taken("s"), 1);
}

TEST_P(PermitFaceTest, PS23_AnAcquisitionWithALeaseReturnsAtOnce) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  const Stopwatch watch;
  EXPECT_EQ(by(semaphore.acquireAsync(5s)).value().size(), 32U);
  EXPECT_LT(watch.elapsedMs(), scaled(1000ms));
}

TEST_F(PermitTest, PS28_ManyThreadsOnePermit) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  Resource resource;
  std::vector<std::future<void>> threads;
  threads.reserve(10);
  for (int thread = 0; thread < 10; ++thread) {
    threads.push_back(inThread([&] {
      for (int i = 0; i < 10; ++i) {
        const std::string id = semaphore.acquire();
        resource.use();
        semaphore.release(id);
      }
    }));
  }
  for (auto& thread : threads) {
    thread.get();
  }
  EXPECT_EQ(resource.value(), 100);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EQ(free("s"), "1");
}

class PermitSlow : public PermitTest {};

TEST_F(PermitSlow, PS29_ManyClientsOnePermit) {
  connect().getPermitExpirableSemaphore("s").trySetPermits(1);
  Resource resource;
  std::vector<std::future<void>> threads;
  threads.reserve(16);
  for (int thread = 0; thread < 16; ++thread) {
    threads.push_back(inThread([&] {
      Client client = connect();
      auto semaphore = client.getPermitExpirableSemaphore("s");
      for (int i = 0; i < 25; ++i) {
        const std::string id = semaphore.acquire();
        resource.use(2ms);
        semaphore.release(id);
      }
    }));
  }
  for (auto& thread : threads) {
    thread.get();
  }
  EXPECT_EQ(resource.value(), 400);
  EXPECT_EQ(resource.overlaps(), 0);
  EXPECT_EQ(free("s"), "1");
}

// Beyond upstream's tests.

TEST_P(PermitFaceTest, XSEM6_NoPermits) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  EXPECT_EQ(by(semaphore.acquireManyAsync(0)).value(), Ids());
  EXPECT_EQ(by(semaphore.tryAcquireManyAsync(0, 10s, 1s)).value(), Ids());
  expectNoKeys();
  client.close(1s);
  EXPECT_EQ(outcomeOf(by(semaphore.acquireManyAsync(0))), "closed");
}

TEST_P(PermitFaceTest, XSEM4_NumbersOutOfRange) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  EXPECT_EQ(outcomeOf(by(semaphore.acquireManyAsync(-1))), "invalidArgument");
  EXPECT_EQ(outcomeOf(by(semaphore.tryAcquireManyAsync(-1))), "invalidArgument");
  EXPECT_EQ(outcomeOf(by(semaphore.tryAcquireManyAsync(100'001))), "invalidArgument");
  EXPECT_EQ(outcomeOf(by(semaphore.trySetPermitsAsync(-1))), "invalidArgument");
  EXPECT_EQ(outcomeOf(by(semaphore.setPermitsAsync(-1))), "invalidArgument");
  for (const Duration lease : {Duration::zero(),
                               Duration(-1ms),
                               Duration::max(),
                               Duration(std::chrono::hours(24 * 366))}) {
    EXPECT_EQ(outcomeOf(by(semaphore.acquireAsync(lease))), "invalidArgument");
    EXPECT_EQ(outcomeOf(by(semaphore.updateLeaseTimeAsync(kUnknown, lease))), "invalidArgument");
  }
  expectNoKeys();
  constexpr int kMostPermits = std::numeric_limits<int>::max();
  EXPECT_TRUE(semaphore.trySetPermits(kMostPermits));
  EXPECT_EQ(outcomeOf(by(semaphore.addPermitsAsync(1))), "invalidArgument");
  EXPECT_EQ(free("s"), std::to_string(kMostPermits));
  by(semaphore.addPermitsAsync(-kMostPermits)).value();
  EXPECT_EQ(free("s"), "0");
  by(semaphore.addPermitsAsync(-kMostPermits)).value();
  EXPECT_EQ(outcomeOf(by(semaphore.addPermitsAsync(-kMostPermits))), "invalidArgument");
  raw().set("s", "99999999999");
  EXPECT_EQ(semaphore.availablePermits(), kMostPermits);
}

TEST_P(PermitFaceTest, XSEM9_Ids) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(3);
  const Ids ids = semaphore.acquireMany(2);
  const std::vector<std::string> malformed{"",
                                           "1",
                                           "1234",
                                           ids[0].substr(0, 31),
                                           ids[0] + "0",
                                           ids[0].substr(0, 31) + "g",
                                           rawId(ids[0]) + rawId(ids[0]),
                                           std::string(1U << 20U, 'a')};
  for (const std::string& id : malformed) {
    EXPECT_EQ(outcomeOf(by(semaphore.releaseAsync(id))), "invalidArgument");
    EXPECT_EQ(outcomeOf(by(semaphore.tryReleaseAsync(id))), "invalidArgument");
    EXPECT_EQ(outcomeOf(by(semaphore.getLeaseTimeAsync(id))), "invalidArgument");
    const Ids batch{ids[0], id};
    EXPECT_EQ(outcomeOf(by(semaphore.tryReleaseAsync(batch))), "invalidArgument");
  }
  std::string upper = ids[0];
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) {
    return static_cast<char>(std::toupper(c));
  });
  for (const Ids& twice : {Ids{ids[0], ids[0]}, Ids{ids[0], ids[1], upper}, Ids{}}) {
    EXPECT_EQ(outcomeOf(by(semaphore.releaseAsync(twice))), "invalidArgument");
    EXPECT_EQ(outcomeOf(by(semaphore.tryReleaseAsync(twice))), "invalidArgument");
  }
  EXPECT_EQ(free("s"), "1");
  EXPECT_EQ(taken("s"), 2);
  EXPECT_TRUE(by(semaphore.tryReleaseAsync(upper)).value());
  EXPECT_FALSE(by(semaphore.tryReleaseAsync(ids[0])).value());
  EXPECT_EQ(free("s"), "2");
}

TEST_F(PermitTest, XSEM7_AWaiterInAnotherProcessGetsAKilledHoldersPermit) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  Worker holder(uri());
  Worker waiter(uri());
  const std::string id = holder.ask("permit s 0 1000");
  ASSERT_EQ(id.size(), 32U);
  const std::int64_t expiry = std::stoll(*score("s", id));
  waiter.tell("permit s 20000");
  ASSERT_EVENTUALLY(kLong, raw().numsub(semaphoreChannel("s")) == 1);
  holder.process().kill();
  const std::string next = waiter.answer();
  const std::int64_t late = serverMs() - expiry;
  EXPECT_EQ(next.size(), 32U);
  EXPECT_NE(next, id);
  EXPECT_GE(late, 0);
  EXPECT_LE(late, scaled(150ms).count());
  EXPECT_EQ(total("s"), 1);
}

TEST_F(PermitSlow, XSEM8_ReleasesAtTheVeryMillisecondOfExpiry) {
  constexpr int kPermits = 100;
  constexpr int kRounds = 100;
  Client client = connect();
  Client other = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(kPermits);
  std::atomic<bool> end{false};
  auto watcher = inThread([&] {
    auto theirs = other.getPermitExpirableSemaphore("s");
    int wrong = 0;
    while (!end.load()) {
      wrong += theirs.getPermits() == kPermits ? 0 : 1;
    }
    return wrong;
  });
  int released = 0;
  int late = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Ids ids = semaphore.tryAcquireMany(kPermits, 10s, 12ms);
    ASSERT_EQ(ids.size(), static_cast<std::size_t>(kPermits));
    const auto expiry = Clock::now() + 11ms;
    std::this_thread::sleep_until(expiry - 1ms);
    std::vector<std::future<bool>> calls;
    calls.reserve(kPermits);
    for (int i = 0; i < kPermits; ++i) {
      calls.push_back(semaphore.tryReleaseAsync(ids[static_cast<std::size_t>(i)]).toFuture());
      if (i % 10 == 9) {
        std::this_thread::sleep_for(200us);
      }
    }
    for (auto& call : calls) {
      ++(call.get() ? released : late);
    }
    ASSERT_EQ(total("s"), kPermits);
  }
  end = true;
  EXPECT_EQ(watcher.get(), 0);
  EXPECT_EQ(released + late, kPermits * kRounds);
  EXPECT_EQ(semaphore.availablePermits(), kPermits);
  RecordProperty("released", released);
  RecordProperty("late", late);
}

TEST_F(PermitTest, ManyPermitsAndSinglePermitsBothGetTheirTurn) {
  Options settings = options();
  settings.safetyPoll = 200ms;
  Client client = Client::connect(settings);
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(4);
  std::atomic<bool> end{false};
  std::atomic<int> singles{0};
  std::vector<std::future<void>> threads;
  threads.reserve(6);
  for (int thread = 0; thread < 6; ++thread) {
    threads.push_back(inThread([&] {
      while (!end.load()) {
        const std::string id = semaphore.acquire(10s);
        ++singles;
        std::this_thread::sleep_for(1ms);
        semaphore.release(id);
      }
    }));
  }
  for (int i = 0; i < 5; ++i) {
    const int before = singles;
    const Ids all = semaphore.tryAcquireMany(4, kLong);
    EXPECT_EQ(all.size(), 4U);
    if (!all.empty()) {
      semaphore.release(all);
    }
    EXPECT_EVENTUALLY(kLong, singles.load() > before);
  }
  end = true;
  for (auto& thread : threads) {
    thread.get();
  }
  EXPECT_EQ(free("s"), "4");
}

TEST_F(PermitTest, AWaiterForManyDoesNotStrandOneForFew) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(2);
  const Ids both = semaphore.acquireMany(2);
  auto many = semaphore.acquireManyAsync(2).toFuture();
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  auto few = semaphore.acquireAsync().toFuture();
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 2);
  semaphore.release(both[0]);
  ASSERT_TRUE(ready(few, kLong)) << "one permit is free";
  semaphore.release(few.get());
  semaphore.release(both[1]);
  ASSERT_TRUE(ready(many, kLong));
  EXPECT_EQ(many.get().size(), 2U);
}

TEST_P(PermitFaceTest, StopAndCloseEndAWait) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  const std::string id = semaphore.acquire();
  std::stop_source stop;
  auto waiting = inThread([&] { return by(semaphore.acquireAsync(stop.get_token())); });
  auto timed = inThread([&] { return by(semaphore.tryAcquireAsync(stop.get_token(), 60s)); });
  auto holding = inThread([&] {
    AcquireOptions terms;
    terms.stop = stop.get_token();
    return outcomeOf(by(semaphore.holdAsync(std::move(terms))));
  });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 3);
  stop.request_stop();
  EXPECT_EQ(outcomeOf(waiting.get()), "cancelled");
  EXPECT_EQ(outcomeOf(timed.get()), "cancelled");
  EXPECT_EQ(holding.get(), "cancelled");
  auto closed = inThread([&] { return by(semaphore.acquireManyAsync(1)); });
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  client.close(1s);
  EXPECT_EQ(outcomeOf(closed.get()), "closed");
  EXPECT_EQ(outcomeOf(by(semaphore.releaseAsync(id))), "closed");
  EXPECT_EQ(taken("s"), 1) << "a permit that is known by its id only is not given back";
}

TEST_F(PermitTest, SetPermitsCountsWhatIsTaken) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.setPermits(5);
  const Ids two = semaphore.acquireMany(2);
  RawSubscriber listener(rawOptions());
  listener.subscribe(semaphoreChannel("s"));
  semaphore.setPermits(8);
  EXPECT_EQ(free("s"), "6");
  EXPECT_EQ(semaphore.getPermits(), 8);
  semaphore.setPermits(8);
  EXPECT_EQ(free("s"), "6");
  semaphore.setPermits(1);
  EXPECT_EQ(free("s"), "-1");
  semaphore.release(two[0]);
  EXPECT_EQ(free("s"), "0");
  semaphore.release(two[1]);
  EXPECT_EQ(free("s"), "1");
  raw().publish(semaphoreChannel("s"), "77");
  ASSERT_TRUE(listener.waitFor(3, kLong));
  std::vector<std::string> said;
  for (const auto& message : listener.messages()) {
    said.push_back(message.payload);
  }
  EXPECT_EQ(said, (std::vector<std::string>{"6", "1", "77"})) << "nothing below 1 is ever said";
}

/// Only a new semaphore has nothing of the one before it.
TEST_F(PermitTest, WhatIsTakenOutlivesACounterThatWasLost) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.setPermits(5);
  const Ids two = semaphore.acquireMany(2);
  raw().del("s");
  semaphore.setPermits(5);
  EXPECT_EQ(free("s"), "3");
  EXPECT_EQ(taken("s"), 2);
  raw().del("s");
  semaphore.addPermits(4);
  EXPECT_EQ(free("s"), "4");
  EXPECT_EQ(taken("s"), 2);
  EXPECT_EQ(semaphore.tryRelease(two), 2);
  EXPECT_EQ(free("s"), "6");
}

/// The call that finds them is the only one that knows that they are free again.
TEST_F(PermitTest, EveryCallThatFindsExpiredPermitsTellsTheWaiters) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  RawSubscriber listener(rawOptions());
  listener.subscribe(semaphoreChannel("s"));
  const auto expectTold = [&](const char* what, const std::function<void()>& call) {
    SCOPED_TRACE(what);
    raw().set("s", "0");
    addExpired("s", 2);
    listener.clear();
    static_cast<void>(outcomeOf(call));
    ASSERT_TRUE(listener.waitFor(1, kLong));
    EXPECT_EQ(listener.messages()[0].payload, "2");
    EXPECT_EQ(free("s"), "2");
    EXPECT_EQ(taken("s"), 0);
  };
  expectTold("availablePermits", [&] { semaphore.availablePermits(); });
  expectTold("getPermits", [&] { semaphore.getPermits(); });
  expectTold("acquiredPermits", [&] { semaphore.acquiredPermits(); });
  expectTold("getLeaseTime", [&] { semaphore.getLeaseTime(kUnknown); });
  expectTold("updateLeaseTime", [&] { semaphore.updateLeaseTime(kUnknown, 1s); });
  expectTold("tryRelease", [&] { semaphore.tryRelease(kUnknown); });
  expectTold("tryAcquireMany", [&] { static_cast<void>(semaphore.tryAcquireMany(3)); });
}

TEST_F(PermitTest, ExpiryOfTheCounterSurvivesAddPermits) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  semaphore.trySetPermits(1);
  raw().run({"PEXPIRE", "s", "60000"});
  semaphore.addPermits(2);
  semaphore.setPermits(9);
  EXPECT_GT(raw().pttl("s"), 0);
}

TEST_P(PermitFaceTest, Remove) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  EXPECT_FALSE(by(semaphore.removeAsync()).value());
  semaphore.trySetPermits(2);
  const std::string id = semaphore.acquire();
  Permit permit = semaphore.hold();
  EXPECT_TRUE(by(semaphore.removeAsync()).value());
  EXPECT_FALSE(raw().exists("s"));
  EXPECT_FALSE(raw().exists(takenKey("s")));
  EXPECT_EVENTUALLY(kLong, permit.lostToken().stop_requested());
  EXPECT_EQ(permit.lossReason(), LossReason::forced);
  EXPECT_EQ(outcomeOf(by(semaphore.releaseAsync(id))), "notOwner");
  expectNoEternalKeys();
}

// On the wire.

TEST_F(PermitTest, Wire_StateAfterEachStep) {
  const std::chrono::milliseconds lease = scaled(500ms);
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("w");
  RawSubscriber listener(rawOptions());
  listener.subscribe("redisson_sc:{w}");
  semaphore.trySetPermits(2);
  ASSERT_TRUE(listener.waitFor(1, kLong));
  EXPECT_EQ(raw().get("w"), "2");
  const std::string permanent = semaphore.acquire();
  EXPECT_EQ(raw().get("w"), "1");
  const std::int64_t before = serverMs();
  const std::string brief = semaphore.acquire(lease);
  const std::int64_t after = serverMs();
  EXPECT_EQ(raw().get("w"), "0");
  EXPECT_FALSE(semaphore.tryAcquire());
  const auto members = raw().run({"ZRANGE", "{w}:timeout", "0", "-1", "WITHSCORES"}).strings();
  ASSERT_EQ(members.size(), 4U);
  EXPECT_EQ(members[0], rawId(brief));
  EXPECT_EQ(members[0].size(), 16U);
  EXPECT_GE(std::stoll(members[1]), before + lease.count());
  EXPECT_LE(std::stoll(members[1]), after + lease.count());
  EXPECT_EQ(members[2], rawId(permanent));
  EXPECT_EQ(members[3], "922337203685477");
  EXPECT_EQ(raw().pttl("{w}:timeout"), -1);
  listener.clear();
  awaitExpiry("w", brief);
  EXPECT_EQ(semaphore.availablePermits(), 1);
  ASSERT_TRUE(listener.waitFor(1, kLong));
  EXPECT_EQ(listener.messages().back().payload, "1");
  listener.clear();
  semaphore.release(permanent);
  ASSERT_TRUE(listener.waitFor(1, kLong));
  EXPECT_EQ(listener.messages().back().payload, "2") << "the new total";
  EXPECT_FALSE(raw().exists("{w}:timeout"));
}

TEST_F(PermitTest, Wire_AnExpiredPermitThatIsStillThere) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("w");
  semaphore.trySetPermits(2);
  const std::string id = semaphore.acquire();
  raw().run({"ZADD", "{w}:timeout", std::to_string(serverMs() - 1), rawId(id)});
  RawSubscriber listener(rawOptions());
  listener.subscribe("redisson_sc:{w}");
  EXPECT_FALSE(semaphore.tryRelease(id));
  EXPECT_EQ(raw().get("w"), "2");
  ASSERT_TRUE(listener.waitFor(1, kLong));
  EXPECT_EQ(listener.messages().back().payload, "2");
}

TEST_F(PermitTest, Wire_NamesWithABrace) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("a{t}b");
  RawSubscriber listener(rawOptions());
  listener.subscribe("redisson_sc:a{t}b");
  semaphore.trySetPermits(1);
  static_cast<void>(semaphore.acquire());
  EXPECT_TRUE(raw().exists("a{t}b:timeout"));
  EXPECT_TRUE(listener.waitFor(1, kLong));
}

TEST_F(PermitTest, Wire_APeersPermits) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("w");
  raw().set("w", "1");
  const std::string bytes("\x00\x01\xff\x7f\r\n\t\0abcdefgh", 16);
  const std::string hex = "0001ff7f0d0a09006162636465666768";
  // A permanent permit of a peer, and one of the text form of old versions.
  raw().run({"ZADD", "{w}:timeout", "922337203685477", bytes});
  raw().run({"ZADD", "{w}:timeout", std::to_string(serverMs() + 400), kUnknown});
  EXPECT_EQ(semaphore.acquiredPermits(), 2);
  EXPECT_EQ(semaphore.getPermits(), 3);
  EXPECT_EQ(semaphore.getLeaseTime(hex), std::nullopt);
  EXPECT_FALSE(semaphore.tryRelease(kUnknown)) << "its member is text";
  const std::string mine = semaphore.acquire();
  const std::string waited = semaphore.acquire();
  EXPECT_EQ(semaphore.acquiredPermits(), 3) << "the old peer's expired, and was taken";
  EXPECT_TRUE(semaphore.tryRelease(hex));
  // A peer releases a permit of ours, and says so.
  auto waiter = semaphore.acquireManyAsync(2).toFuture();
  ASSERT_EVENTUALLY(kLong, client.stats().waiters == 1);
  ASSERT_EVENTUALLY(kLong, raw().numsub("redisson_sc:{w}") == 1);
  raw().run({"ZREM", "{w}:timeout", rawId(mine)});
  raw().publish("redisson_sc:{w}", std::to_string(raw().run({"INCR", "w"}).integer()));
  ASSERT_TRUE(ready(waiter, kLong));
  EXPECT_EQ(outcomeOf([&] { semaphore.release(mine); }), "notOwner");
  semaphore.release(waited);
}

TEST_F(PermitTest, Wire_OtherDataStandsThere) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("w");
  for (const bool counter : {true, false}) {
    raw().flushAll();
    const std::string key = counter ? "w" : "{w}:timeout";
    raw().set("w", "3");
    raw().del(key);
    raw().run({"HSET", key, "a", "b"});
    EXPECT_EQ(outcomeOf([&] { static_cast<void>(semaphore.acquire()); }), "wrongType");
    EXPECT_EQ(outcomeOf([&] { semaphore.tryRelease(kUnknown); }), "wrongType");
    EXPECT_EQ(outcomeOf([&] { semaphore.availablePermits(); }), "wrongType");
    EXPECT_EQ(outcomeOf([&] { semaphore.trySetPermits(1); }), "wrongType");
    EXPECT_EQ(outcomeOf([&] { semaphore.updateLeaseTime(kUnknown, {}); }), "wrongType");
    EXPECT_EQ(outcomeOf([&] { semaphore.getLeaseTime(kUnknown); }), "wrongType");
    EXPECT_EQ(outcomeOf([&] { semaphore.remove(); }), "wrongType");
    EXPECT_EQ(raw().hgetall(key).size(), 1U);
  }
  raw().flushAll();
  raw().set("w", "text");
  EXPECT_EQ(outcomeOf([&] { static_cast<void>(semaphore.acquire()); }), "wrongType");
  EXPECT_EQ(outcomeOf([&] { semaphore.remove(); }), "wrongType");
  EXPECT_EQ(raw().get("w"), "text");
}

TEST_F(PermitTest, RequestsThatFollowOneAnotherShareAnIdempotencyKey) {
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("w");
  semaphore.trySetPermits(1);
  for (int i = 0; i < 50; ++i) {
    const std::string id = semaphore.acquire();
    EXPECT_TRUE(semaphore.updateLeaseTime(id, 10s));
    semaphore.release(id);
  }
  EXPECT_TRUE(semaphore.remove());
  const auto keys = raw().keys();
  EXPECT_GE(keys.size(), 1U);
  EXPECT_LE(keys.size(), 2U) << "the loop may still have that of the request before";
  for (const std::string& key : keys) {
    EXPECT_EQ(key.rfind("rlock_request:{w}:", 0), 0U) << key;
    EXPECT_GT(raw().pttl(key), 0) << key;
  }
}

TEST_F(PermitTest, AnAcquisitionThatRunsTwiceTakesOnce) {
  raw().set("w", "3");
  const std::vector<std::string> ids{rawId(kUnknown), "0123456789abcdef"};
  const auto acquire = [&](const std::string& lease) {
    std::vector<std::string> args{
        lease, std::to_string(kNever), raw().publishing(), "redisson_sc:{w}"};
    args.insert(args.end(), ids.begin(), ids.end());
    return raw().eval(lua::permit_acquire.body, {"w", takenKey("w")}, args).describe();
  };
  const std::string taken = acquire("60000");
  const std::int64_t first = std::stoll(*score("w", kUnknown));
  EXPECT_EQ(free("w"), "1");
  EXPECT_EQ(acquire("90000"), taken);
  EXPECT_EQ(free("w"), "1");
  EXPECT_EQ(total("w"), 3);
  EXPECT_GT(std::stoll(*score("w", kUnknown)), first) << "its lease began anew";
  // One of them is gone, and no other permit is free: refused, and nothing changes.
  raw().run({"ZREM", takenKey("w"), ids[1]});
  raw().set("w", "0");
  EXPECT_NE(acquire("60000"), taken);
  EXPECT_EQ(total("w"), 1);
  raw().set("w", "1");
  EXPECT_EQ(acquire("60000"), taken);
  EXPECT_EQ(free("w"), "0");
  EXPECT_EQ(total("w"), 2);
}

TEST_F(PermitTest, AReconciliationKeepsAllPermitsThatLiveOrGivesBackWhatIsThere) {
  raw().set("w", "3");
  const std::vector<std::string> ids{rawId(kUnknown), "0123456789abcdef"};
  const auto take = [&](const std::string& id, std::int64_t ms) {
    raw().run({"ZADD", takenKey("w"), std::to_string(serverMs() + ms), id});
  };
  // Whether all were there and whether they still are, and how long they last.
  const auto keep = [&] {
    std::vector<std::string> args{"1", raw().publishing(), "redisson_sc:{w}", "60000"};
    args.insert(args.end(), ids.begin(), ids.end());
    std::vector<std::int64_t> said;
    const Value reply = raw().eval(lua::permit_reconcile.body, {"w", takenKey("w")}, args);
    for (const Value& part : reply.array()) {
      said.push_back(part.integer());
    }
    return said;
  };
  const std::vector<std::int64_t> neither{0, 0};
  take(ids[0], 900'000);
  take(ids[1], 600'000);
  const std::vector<std::int64_t> kept = keep();
  ASSERT_EQ(kept.size(), 3U);
  EXPECT_EQ(kept[0], 1);
  EXPECT_EQ(kept[1], 1);
  EXPECT_LE(kept[2], 600'000) << "the first to expire counts";
  EXPECT_GT(kept[2], 500'000);
  EXPECT_EQ(taken("w"), 2);
  // One has expired, and nobody has looked since.
  take(ids[1], -1);
  EXPECT_EQ(keep(), neither);
  EXPECT_EQ(taken("w"), 0);
  EXPECT_EQ(free("w"), "5");
  // One is gone.
  take(ids[0], 900'000);
  EXPECT_EQ(keep(), neither);
  EXPECT_EQ(taken("w"), 0);
  EXPECT_EQ(free("w"), "6");
  EXPECT_EQ(keep(), neither);
  EXPECT_EQ(free("w"), "6");
}

TEST_F(PermitTest, W39_XSCL5_ThousandsOfExpiredPermitsComeBackInEveryCall) {
  constexpr int kExpired = 10'000;
  Client client = connect();
  auto semaphore = client.getPermitExpirableSemaphore("s");
  const std::string free = std::to_string(kExpired);
  const auto prepare = [&] {
    raw().flushAll();
    raw().set("s", "0");
    addExpired("s", kExpired);
  };
  prepare();
  EXPECT_EQ(semaphore.availablePermits(), kExpired);
  prepare();
  EXPECT_EQ(semaphore.getPermits(), kExpired);
  EXPECT_EQ(raw().get("s"), free);
  prepare();
  EXPECT_EQ(semaphore.acquiredPermits(), 0);
  EXPECT_EQ(raw().get("s"), free);
  prepare();
  const Ids all = semaphore.tryAcquireMany(kExpired);
  EXPECT_EQ(all.size(), static_cast<std::size_t>(kExpired));
  EXPECT_EQ(raw().get("s"), "0");
  EXPECT_EQ(taken("s"), kExpired);
  EXPECT_EQ(semaphore.tryRelease(all), kExpired);
  EXPECT_EQ(raw().get("s"), free);
  EXPECT_EQ(taken("s"), 0);
  prepare();
  EXPECT_FALSE(semaphore.tryRelease(kUnknown));
  EXPECT_EQ(raw().get("s"), free);
  prepare();
  EXPECT_FALSE(semaphore.updateLeaseTime(kUnknown, 1s));
  EXPECT_EQ(raw().get("s"), free);
  prepare();
  EXPECT_EQ(outcomeOf([&] { semaphore.getLeaseTime(kUnknown); }), "notOwner");
  EXPECT_EQ(raw().get("s"), free);
  prepare();
  semaphore.setPermits(7);
  EXPECT_EQ(raw().get("s"), "7");
  prepare();
  semaphore.addPermits(1);
  EXPECT_EQ(raw().get("s"), std::to_string(kExpired + 1));
  prepare();
  EXPECT_FALSE(semaphore.trySetPermits(1));
  EXPECT_EQ(raw().get("s"), free);
}

}  // namespace
}  // namespace rlock::test
