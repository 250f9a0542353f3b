// SPDX-License-Identifier: Apache-2.0

// Acknowledged grants where the master is found by others: the ack lane asks the replicas of the
// node that has the lock, also of the one that has taken over.

#include "topology/topology_harness.hpp"

namespace rlock::test {
namespace {

class Acknowledged : public TopologyTest {
 protected:
  static std::string acquire(RLock lock, const SyncPolicy& policy) {
    return outcomeOf([&] {
      Lease lease = lock.acquire({.sync = policy});
      EXPECT_GE(lease.acknowledged(), 1);
      EXPECT_EQ(lease.release(), ReleaseResult::released);
    });
  }
};

TEST_F(Acknowledged, BehindSentinels) {
  RedisSentinelsOptions options;
  options.replicas = 2;
  RedisSentinels world(options);
  Client client = Client::connect(tuned(world.uri()));
  RLock lock = client.getLock("acked");
  EXPECT_EQ(acquire(lock, SyncPolicy::replicas(2, 20s)), "ok");
  world.node(2).freeze();
  EXPECT_EQ(acquire(lock, SyncPolicy::replicas(1, 20s)), "ok");
  EXPECT_EQ(acquire(lock, SyncPolicy::replicas(2, 200ms)), "notSynced");
  EXPECT_FALSE(RawRedis(world.node(0)).exists("acked")) << "it was not undone";
  world.node(2).thaw();

  // The grant was acknowledged by both, so whoever takes over has it.
  Lease lease = lock.acquire({.sync = SyncPolicy::replicas(2, 20s)});
  const std::size_t master = world.failover();
  ASSERT_NE(master, 0U);
  EXPECT_TRUE(RawRedis(world.node(master)).exists("acked"));
  EXPECT_TRUE(lease.held());
  world.awaitSettled();
  // The lane is one to the new master now.
  EXPECT_EVENTUALLY(kLong, acquire(client.getLock("next"), SyncPolicy::replicas(2, 2s)) == "ok");
  EXPECT_EQ(lease.release(), ReleaseResult::released);
}

TEST_F(Acknowledged, OnAClusterEachByTheReplicasOfItsMaster) {
  RedisCluster cluster({.masters = 3, .replicasEach = 1, .nodeTimeout = 60s});
  Client client = Client::connect(tuned(cluster.uri(3)));
  std::vector<std::string> names;
  for (std::size_t node = 0; node < 3; ++node) {
    names.push_back(cluster.nameAt(node, "acked:"));
    EXPECT_EQ(acquire(client.getLock(names[node]), SyncPolicy::replicas(1, 20s)), "ok") << node;
  }
  // The replica of the second one hangs: its locks are refused, those of the others are not.
  cluster.node(4).freeze();
  EXPECT_EQ(acquire(client.getLock(names[1]), SyncPolicy::replicas(1, 200ms)), "notSynced");
  EXPECT_FALSE(cluster.raw(1).exists(names[1])) << "it was not undone";
  EXPECT_EQ(acquire(client.getLock(names[0]), SyncPolicy::replicas(1, 20s)), "ok");
  EXPECT_EQ(acquire(client.getLock(names[2]), SyncPolicy::replicas(1, 20s)), "ok");
  cluster.node(4).thaw();
  EXPECT_EQ(acquire(client.getLock(names[1]), SyncPolicy::replicas(1, 20s)), "ok");
}

TEST_F(Acknowledged, ByAppendOnlyFiles) {
  RedisServerOptions settings;
  settings.persistence = true;
  RedisServer server(settings);
  Client client = Client::connect(tuned(server.uri()));
  if (!client.capabilities().waitAof.value_or(false)) {
    EXPECT_EQ(
        outcomeOf([&] {
          static_cast<void>(client.getLock("file").acquire({.sync = SyncPolicy::localAof(20s)}));
        }),
        "notSynced")
        << "a server that cannot say it has not done it";
    EXPECT_FALSE(RawRedis(server).exists("file"));
    GTEST_SKIP() << "this server has no WAITAOF";
  }
  RedisServerOptions follower = settings;
  follower.extraArgs = {"--replicaof", "127.0.0.1", std::to_string(server.port())};
  RedisServer replica(follower);
  Lease own = client.getLock("file").acquire({.sync = SyncPolicy::localAof(20s)});
  EXPECT_TRUE(own.held());
  Lease both = client.getLock("files").acquire({.sync = SyncPolicy::remoteAof(1, 20s)});
  EXPECT_EQ(both.acknowledged(), 1);
  // An acknowledged grant survives the process.
  server.kill();
  server.start();
  EXPECT_TRUE(RawRedis(server).exists("file"));
  EXPECT_TRUE(RawRedis(server).exists("files"));
  replica.freeze();
  Client again = Client::connect(tuned(server.uri()));
  EXPECT_EQ(outcomeOf([&] {
              static_cast<void>(
                  again.getLock("never").acquire({.sync = SyncPolicy::remoteAof(1, 200ms)}));
            }),
            "notSynced");
  EXPECT_FALSE(RawRedis(server).exists("never"));
}

}  // namespace
}  // namespace rlock::test
