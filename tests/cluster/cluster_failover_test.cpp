// SPDX-License-Identifier: Apache-2.0

// Masters that die, stand still and are replaced.

#include "cluster/cluster_harness.hpp"
#include "support/closed_at_end.hpp"
#include "support/tcp_proxy.hpp"

#include <algorithm>
#include <atomic>
#include <iostream>
#include <map>
#include <set>
#include <vector>

namespace rlock::test {
namespace {

class ClusterFailover : public ClusterTest {
 protected:
  /// Waits until the replicas of a node have what was written there.
  static void replicate(RedisCluster& cluster, std::size_t node, const RLock& lock) {
    // WAIT counts what its own connection has seen.
    RawRedis raw = cluster.raw(node);
    raw.run({"SET", "{" + lock.getName() + "}:mark", "1", "PX", "1000"});
    ASSERT_GE(raw.run({"WAIT", "1", "10000"}).integer(), 1);
  }
  static bool replaced(RedisCluster& cluster, const std::string& name, std::size_t master) {
    try {
      return cluster.ownerOf(name) != master;
    } catch (const std::runtime_error&) {
      return false;
    }
  }
};

class ClusterFailoverSlow : public ClusterFailover {};

TEST_F(ClusterFailover, XFO5_AHoldAndAWaiterOutliveTheMaster) {
  RedisCluster cluster({.masters = 3, .replicasEach = 1});
  constexpr std::chrono::milliseconds kLease{120'000};
  Client holder = Client::connect(tuned(cluster.uri(3), kLease));
  Client waiter = Client::connect(tuned(cluster.uri(3), kLease));
  const std::string name = cluster.nameAt(0, "held:");
  Lease lease = holder.getLock(name).acquire();
  std::atomic<bool> entered{false};
  auto waiting = inThread([&] {
    RLock wanted = waiter.getLock(name);
    wanted.lock();
    entered = true;
    wanted.unlock();
  });
  const ClosedAtEnd end(waiter);
  ASSERT_TRUE(waits(waiter));
  replicate(cluster, 0, holder.getLock(name));
  const auto killed = Clock::now();
  cluster.node(0).kill();
  ASSERT_EVENTUALLY(kLong, replaced(cluster, name, 0));
  const std::size_t master = cluster.ownerOf(name);
  // It is verified at once, long before the next renewal is due: more is left than a lease from
  // before the death could have.
  EXPECT_EVENTUALLY(kLong, [&] {
    const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - killed);
    return cluster.raw(master).pttl(name) > (kLease - since).count();
  }());
  EXPECT_TRUE(lease.held());
  EXPECT_FALSE(entered);
  const auto released = Clock::now();
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  ASSERT_EQ(waiting.wait_for(kLong), std::future_status::ready) << "the waiter was forgotten";
  EXPECT_LT(Clock::now() - released, scaled(2s));
}

// A client whose one address is that of the only master it uses has nobody else to ask, but knows
// from the map who the other masters are.
TEST_F(ClusterFailover, TheOnlyMasterThatIsKnownAndUsedDies) {
  RedisCluster cluster({.masters = 3, .replicasEach = 1});
  Client client = Client::connect(tuned(cluster.uri(1)));
  const std::string name = cluster.nameAt(0, "only:");
  Lease lease = client.getLock(name).acquire();
  replicate(cluster, 0, client.getLock(name));
  cluster.node(0).kill();
  ASSERT_EVENTUALLY(kLong, replaced(cluster, name, 0));
  EXPECT_EVENTUALLY(kLong, client.getLock(name).isLocked());
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(lease.release(), ReleaseResult::released);
}

TEST_F(ClusterFailover, TheOnlyMasterThatIsKnownAndUsedIsCutOff) {
  RedisCluster cluster({.masters = 3, .replicasEach = 1, .proxied = true});
  Client client = Client::connect(tuned(cluster.uri(1)));
  const std::string name = cluster.nameAt(0, "only:");
  Lease lease = client.getLock(name).acquire();
  replicate(cluster, 0, client.getLock(name));
  cluster.cutOff(0);
  ASSERT_EVENTUALLY(kLong, cluster.ownerOf(name, 1) != 0);
  EXPECT_EVENTUALLY(kLong, client.getLock(name).isLocked());
  EXPECT_TRUE(lease.held());
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_FALSE(cluster.raw(cluster.ownerOf(name, 1)).exists(name));
}

// As when a shard is taken out of the cluster while a client holds a lock and says nothing.
TEST_F(ClusterFailover, TheOnlyMasterThatIsKnownAndUsedForgetsItsCluster) {
  RedisCluster cluster({.masters = 3});
  Client client = Client::connect(tuned(cluster.uri(1)));
  const std::string name = cluster.nameAt(0, "only:");
  Lease lease = client.getLock(name).acquire();
  cluster.migrate(RedisCluster::slotOf(name), 0, 1);
  cluster.raw(0).run({"CLUSTER", "RESET", "HARD"});
  EXPECT_EQ(lease.release(), ReleaseResult::released);
  EXPECT_FALSE(cluster.raw(1).exists(name));
}

TEST_F(ClusterFailover, XFO4_AHoldThatTheNewMasterDoesNotHaveIsTold) {
  RedisCluster cluster({.masters = 3, .replicasEach = 1});
  Client holder = Client::connect(tuned(cluster.uri(3), 60s));
  const std::string name = cluster.nameAt(0, "lost:");
  const std::size_t replica = 3;
  // It does not hear of the hold, and has forgotten everything when it takes over.
  cluster.node(replica).kill();
  const Lease lease = holder.getLock(name).acquire();
  cluster.node(0).kill();
  cluster.node(replica).start();
  ASSERT_EVENTUALLY(kLong, replaced(cluster, name, 0));
  // Long before the next renewal, and before the validity ends.
  EXPECT_EVENTUALLY(10s, !lease.held());
  EXPECT_TRUE(holder.getLock(name).tryLock()) << "it is free, and the client knows";
}

TEST_F(ClusterFailover, SU09_ManyChannelsAreHeardAgainWhereTheirMasterHasGone) {
  RedisCluster cluster({.masters = 3, .replicasEach = 1});
  Client holder = Client::connect(tuned(cluster.uri(3)));
  Client waiter = Client::connect(tuned(cluster.uri(3)));
  constexpr std::size_t kChannels = 100;
  std::vector<Lease> leases;
  std::vector<std::future<void>> waiting;
  for (std::size_t i = 0; i < kChannels; ++i) {
    const std::string name = "channel:" + std::to_string(i);
    leases.push_back(holder.getLock(name).acquire());
    waiting.push_back(waiter.getLock(name).lockAsync({}, newOwner()).toFuture());
  }
  ASSERT_EVENTUALLY(kLong, waiter.stats().waiters == kChannels);
  const std::string name = cluster.nameAt(0, "channel:");
  replicate(cluster, 0, holder.getLock(name));
  cluster.node(0).kill();
  ASSERT_EVENTUALLY(kLong, replaced(cluster, name, 0));
  for (Lease& lease : leases) {
    EXPECT_EQ(lease.release(), ReleaseResult::released);
  }
  const Deadline soon(2s);
  for (auto& each : waiting) {
    EXPECT_EQ(each.wait_until(soon.at()), std::future_status::ready);
  }
  for (auto& each : waiting) {
    ASSERT_EQ(each.wait_for(kLong), std::future_status::ready) << "a waiter was forgotten";
    each.get();
  }
}

TEST_F(ClusterFailover, XFO5_APlannedFailoverLosesNothing) {
  RedisCluster cluster({.masters = 3, .replicasEach = 1});
  Client holder = Client::connect(tuned(cluster.uri(3)));
  Client waiter = Client::connect(tuned(cluster.uri(3)));
  const std::string name = cluster.nameAt(0, "planned:");
  RLock held = holder.getLock(name);
  held.lock();
  auto waiting = inThread([&] {
    RLock wanted = waiter.getLock(name);
    wanted.lock();
    wanted.unlock();
  });
  const ClosedAtEnd end(waiter);
  ASSERT_TRUE(waits(waiter));
  cluster.failover(3);
  ASSERT_EVENTUALLY(kLong, replaced(cluster, name, 0));
  EXPECT_TRUE(held.isHeldByCurrentThread());
  held.unlock();
  ASSERT_EQ(waiting.wait_for(kLong), std::future_status::ready) << "the waiter was forgotten";
}

TEST_F(ClusterFailover, XWD3_AMasterThatStandsStillDoesNotDelayTheOthers) {
  // Nobody declares it dead.
  RedisCluster cluster({.masters = 3, .nodeTimeout = 60s});
  std::atomic<int> lostThere{0};
  std::atomic<int> lostElsewhere{0};
  std::set<std::string> there;
  Options options = tuned(cluster.uri(3), 3s);
  options.onLost = [&](const LostHold& lost) {
    ++(there.count(lost.name) > 0 ? lostThere : lostElsewhere);
  };
  Client client = Client::connect(options);
  std::vector<std::string> names;
  for (int i = 0; i < 300; ++i) {
    names.push_back("many:" + std::to_string(i));
    const std::uint16_t slot = RedisCluster::slotOf(names.back());
    if (slot >= 10923) {
      there.insert(names.back());
    }
  }
  ASSERT_GT(there.size(), 60U);
  std::vector<Lease> leases;
  for (const std::string& name : names) {
    leases.push_back(client.getLock(name).acquire());
  }
  cluster.node(2).freeze();
  EXPECT_EVENTUALLY(kLong, lostThere == static_cast<int>(there.size()));
  const auto renewed = client.stats().renewals;
  EXPECT_EVENTUALLY(kLong, client.stats().renewals > renewed + 2 * (names.size() - there.size()))
      << "the others are not renewed any more";
  cluster.node(2).thaw();
  EXPECT_EQ(lostElsewhere, 0);
  for (const std::size_t node : {0U, 1U}) {
    const auto errors = cluster.raw(node).infoSection("errorstats");
    EXPECT_EQ(errors.count("errorstat_CROSSSLOT"), 0U) << "a renewal named keys of several slots";
  }
}

TEST_F(ClusterFailoverSlow, XWD3_XWD4_ThreeThousandHoldsOfWhichAThirdStandsStill) {
  constexpr std::chrono::milliseconds kLease{9000};
  constexpr int kHolds = 3000;
  RedisCluster cluster({.masters = 3, .nodeTimeout = 60s});
  std::atomic<int> lostThere{0};
  std::atomic<int> lostElsewhere{0};
  std::set<std::string> there;
  std::vector<std::vector<std::string>> others(2);
  std::vector<std::string> names;
  for (int i = 0; i < kHolds; ++i) {
    names.push_back("many:" + std::to_string(i));
    const std::uint16_t slot = RedisCluster::slotOf(names.back());
    if (slot >= 10923) {
      there.insert(names.back());
    } else {
      others[slot >= 5461 ? 1U : 0U].push_back(names.back());
    }
  }
  Options options = tuned(cluster.uri(3), scaled(kLease));
  options.logLevel = LogLevel::warning;
  options.onLost = [&](const LostHold& lost) {
    ++(there.count(lost.name) > 0 ? lostThere : lostElsewhere);
  };
  Client client = Client::connect(options);
  std::vector<Lease> leases;
  for (const std::string& name : names) {
    leases.push_back(client.getLock(name).acquire());
  }
  cluster.node(2).freeze();
  // A hold is due when a third of its lease is over. How much less than two thirds is left, at the
  // worst for each hold, is how late its renewal was.
  std::map<std::string, std::int64_t> least;
  std::vector<RawRedis> masters;
  masters.push_back(cluster.raw(0));
  masters.push_back(cluster.raw(1));
  const Deadline until(2 * kLease);
  while (!until.expired()) {
    for (std::size_t node = 0; node < masters.size(); ++node) {
      for (const std::string& name : others[node]) {
        masters[node].send({"PTTL", name});
      }
      for (const std::string& name : others[node]) {
        const std::int64_t left = masters[node].receive().integer();
        const auto known = least.emplace(name, left).first;
        known->second = std::min(known->second, left);
      }
    }
    std::this_thread::sleep_for(10ms);
  }
  EXPECT_EVENTUALLY(kLong, lostThere == static_cast<int>(there.size()));
  cluster.node(2).thaw();
  EXPECT_EQ(lostElsewhere, 0);
  std::vector<std::int64_t> lags;
  const std::int64_t due = scaled(kLease).count() * 2 / 3;
  for (const auto& [name, left] : least) {
    EXPECT_GE(left, 0) << name << " was gone";
    lags.push_back(due - left);
  }
  ASSERT_EQ(lags.size(), names.size() - there.size());
  std::sort(lags.begin(), lags.end());
  const std::int64_t p99 = lags[lags.size() * 99 / 100];
  RecordProperty("lag_p99_ms", static_cast<int>(p99));
  EXPECT_LT(p99, scaled(kLease).count() / 10) << "renewals are late";
  std::cout << "renewal lag: p50 " << lags[lags.size() / 2] << " ms, p99 " << p99 << " ms, most "
            << lags.back() << " ms of a lease of " << scaled(kLease).count() << " ms\n";
}

TEST_F(ClusterFailover, ARequestThatIsLostOnOneNodeCountsOnce) {
  RedisCluster cluster({.masters = 3, .nodeTimeout = 60s});
  Options options = tuned(cluster.uri(3));
  options.commandTimeout = 1s;
  options.callTimeout = 10s;
  Client client = Client::connect(options);
  const std::string name = cluster.nameAt(1, "frozen:");
  const std::string other = cluster.nameAt(0, "works:");
  EXPECT_FALSE(client.getLock(name).isLocked());
  const OwnerId owner = newOwner();
  log().clear();
  cluster.node(1).freeze();
  auto waiting = inThread([&] { client.getLock(name).lockAsync({}, owner).get(); });
  ASSERT_EVENTUALLY(kLong, log().contains("no reply within 1000 ms"));
  EXPECT_TRUE(client.getLock(other).tryLock()) << "the other nodes work";
  cluster.node(1).thaw();
  ASSERT_EVENTUALLY(kLong, waiting.wait_for(0s) == std::future_status::ready);
  EXPECT_EQ(cluster.raw(1).hget(name, client.id() + ":" + std::to_string(owner.value)), "1");
  EXPECT_GE(client.stats().lostReplies, 1U);
}

TEST_F(ClusterFailover, ARequestThatIsLostWithItsMasterCountsOnce) {
  RedisCluster cluster({.masters = 3, .replicasEach = 1});
  Options options = tuned(cluster.uri(3));
  options.commandTimeout = 500ms;
  options.callTimeout = 10s;
  Client client = Client::connect(options);
  const std::string name = cluster.nameAt(0, "frozen:");
  EXPECT_FALSE(client.getLock(name).isLocked());
  const OwnerId owner = newOwner();
  const std::string field = client.id() + ":" + std::to_string(owner.value);
  // The request is in its socket, and is executed when it goes on.
  cluster.node(0).freeze();
  auto waiting = inThread([&] { client.getLock(name).lockAsync({}, owner).get(); });
  ASSERT_EVENTUALLY(kLong, waiting.wait_for(0s) == std::future_status::ready);
  waiting.get();
  const std::size_t master = cluster.ownerOf(name, 1);
  ASSERT_NE(master, 0U);
  EXPECT_EQ(cluster.raw(master).hget(name, field), "1");
  cluster.node(0).thaw();
  // Its copy is discarded.
  ASSERT_EVENTUALLY(kLong, cluster.raw(0).info("master_link_status") == "up");
  RawRedis old = cluster.raw(0);
  old.run({"READONLY"});
  EXPECT_EVENTUALLY(kLong, old.hget(name, field) == "1");
  EXPECT_EQ(cluster.raw(master).hget(name, field), "1");
  client.getLock(name).unlockAsync(owner).get();
  EXPECT_FALSE(cluster.raw(master).exists(name));
}

TEST_F(ClusterFailover, XFO8_HoldsOfManySlotsAreRenewedBehindOneAddress) {
  // As behind a proxy that looks like one server: it has all slots, does not tell what it is, and
  // refuses keys of several slots.
  RedisCluster cluster({.masters = 1});
  TcpProxy proxy(cluster.node(0));
  for (const char* command : {"HELLO", "INFO"}) {
    proxy.addRule(TcpProxy::command(command),
                  TcpProxy::Action::replyWithError("ERR unknown command"));
  }
  std::atomic<int> lost{0};
  Options options = tuned(proxy.uri() + "?lost-reply-policy=marker", scaled(3s));
  options.onLost = [&](const LostHold& /*hold*/) { ++lost; };
  Client client = Client::connect(options);
  std::vector<Lease> leases;
  for (int i = 0; i < 50; ++i) {
    leases.push_back(client.getLock("proxied:" + std::to_string(i)).acquire());
  }
  const auto later = Clock::now() + scaled(6s);
  for (const Lease& lease : leases) {
    EXPECT_EVENTUALLY(kLong, lease.validUntil() > later);
  }
  EXPECT_EQ(lost, 0);
  EXPECT_GT(cluster.raw(0).infoSection("errorstats").count("errorstat_CROSSSLOT"), 0U)
      << "no request had keys of several slots";
  for (Lease& lease : leases) {
    EXPECT_EQ(lease.release(), ReleaseResult::released);
  }
}

TEST_F(ClusterFailover, XFO10_TheWholeClusterIsDownAndComesBack) {
  RedisCluster cluster({.masters = 3, .extraArgs = {"--appendonly", "yes"}});
  Client client = Client::connect(tuned(cluster.uri(3)));
  RLock lock = client.getLock("back");
  lock.lock();
  for (std::size_t i = 0; i < cluster.size(); ++i) {
    cluster.node(i).kill();
  }
  for (std::size_t i = 0; i < cluster.size(); ++i) {
    cluster.node(i).start();
  }
  cluster.waitUntilOk();
  EXPECT_EVENTUALLY(kLong, [&] {
    try {
      return lock.isHeldByCurrentThread();
    } catch (const Error&) {
      return false;
    }
  }());
  lock.unlock();
}

}  // namespace
}  // namespace rlock::test
