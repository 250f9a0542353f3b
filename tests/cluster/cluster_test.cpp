// SPDX-License-Identifier: Apache-2.0

// Clients on a healthy cluster, on one whose slots move, and on nodes that say strange things.

#include "cluster/cluster_harness.hpp"
#include "integration/fake_server.hpp"
#include "support/host_report.hpp"
#include <rlock/detail/net/hash_slot.hpp>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rlock::test {
namespace {

/// One cluster for all cases of a suite.
class Cluster : public ClusterTest {
 protected:
  static void SetUpTestSuite() {
    if (clusterAvailable()) {
      cluster_ = std::make_unique<RedisCluster>();
    }
  }
  static void TearDownTestSuite() { cluster_.reset(); }

  [[nodiscard]] static RedisCluster& cluster() { return *cluster_; }
  [[nodiscard]] Options options() { return tuned(cluster().uri()); }

  /// Sharded or classic, whatever the client uses.
  [[nodiscard]] static std::int64_t subscribers(std::size_t node, const std::string& channel) {
    const Value reply = cluster().raw(node).run({"PUBSUB", "SHARDNUMSUB", channel});
    return reply.array().at(1).integer();
  }

 private:
  static std::unique_ptr<RedisCluster> cluster_;
};

std::unique_ptr<RedisCluster> Cluster::cluster_;

struct Kind {
  const char* name;
  RLock (*make)(Client& client, std::string_view lockName);
};

constexpr Kind kKinds[] = {
    {"plain", [](Client& client, std::string_view name) { return client.getLock(name); }},
    {"fair", [](Client& client, std::string_view name) { return client.getFairLock(name); }},
    {"nonReentrant",
     [](Client& client, std::string_view name) { return client.getNonReentrantLock(name); }},
    {"nonReentrantFair",
     [](Client& client, std::string_view name) { return client.getNonReentrantFairLock(name); }},
    {"fenced",
     [](Client& client, std::string_view name) -> RLock { return client.getFencedLock(name); }},
    {"simple", [](Client& client, std::string_view name) { return client.getSimpleLock(name); }},
    {"spin", [](Client& client, std::string_view name) { return client.getSpinLock(name); }},
    {"read",
     [](Client& client, std::string_view name) {
       return client.getReadWriteLock(name).readLock();
     }},
    {"write",
     [](Client& client, std::string_view name) {
       return client.getReadWriteLock(name).writeLock();
     }},
};

TEST_F(Cluster, TP03_EveryKindLocksWaitsAndUnlocksOnEveryNode) {
  Client holder = Client::connect(options());
  Client other = Client::connect(options());
  for (const Kind& kind : kKinds) {
    for (std::size_t node = 0; node < cluster().size(); ++node) {
      SCOPED_TRACE(std::string(kind.name) + " on node " + std::to_string(node));
      const std::string name = cluster().nameAt(node, std::string(kind.name) + ":");
      RLock held = kind.make(holder, name);
      // Only a writer has to wait for a read hold.
      RLock wanted = std::string_view(kind.name) == "read"
                         ? other.getReadWriteLock(name).writeLock()
                         : kind.make(other, name);
      held.lock();
      EXPECT_TRUE(held.isLocked());
      EXPECT_TRUE(held.isHeldByCurrentThread());
      EXPECT_FALSE(wanted.tryLock());
      EXPECT_EQ(
          cluster()
                  .raw(node)
                  .run({"CLUSTER", "COUNTKEYSINSLOT", std::to_string(RedisCluster::slotOf(name))})
                  .integer() > 0,
          true);
      auto waiting = inThread([&] {
        wanted.lock();
        wanted.unlock();
      });
      ASSERT_TRUE(waits(other));
      held.unlock();
      ASSERT_EQ(waiting.wait_for(kLong), std::future_status::ready) << "nobody was woken";
      waiting.get();
      EXPECT_FALSE(held.isLocked());
    }
  }
}

TEST_F(Cluster, TombstonesAreInTheSlotOfTheirLock) {
  Options marking = options();
  marking.lostReplyPolicy = LostReplyPolicy::marker;
  Client client = Client::connect(marking);
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    RLock lock = kind.make(client, cluster().nameAt(1, std::string("marked:") + kind.name));
    lock.lock();
    EXPECT_TRUE(lock.isHeldByCurrentThread());
    lock.unlock();
    EXPECT_FALSE(lock.isLocked());
  }
}

TEST_F(Cluster, WaitersOfEachKindAreWokenByMessages) {
  Client first = Client::connect(options());
  Client second = Client::connect(options());
  for (const Kind& kind : kKinds) {
    if (std::string_view(kind.name) == "spin" || std::string_view(kind.name) == "read") {
      continue;  // these have no messages, or were the same twice
    }
    SCOPED_TRACE(kind.name);
    const std::string name = cluster().nameAt(1, std::string("woken:") + kind.name);
    RLock held = kind.make(first, name);
    RLock wanted = kind.make(second, name);
    held.lock();
    const std::int64_t scripts = cluster().raw(1).commandCalls("evalsha");
    auto waiting = inThread([&] {
      wanted.lock();
      wanted.unlock();
    });
    ASSERT_TRUE(waits(second));
    std::int64_t sharded = 0;
    ASSERT_EVENTUALLY(kLong, [&] {
      sharded = 0;
      const Value all = cluster().raw(1).run({"PUBSUB", "SHARDCHANNELS"});
      for (const std::string& channel : all.strings()) {
        sharded += channel.find(name) != std::string::npos ? 1 : 0;
      }
      return sharded > 0;
    }());
    // Its look after the confirmation must not find the lock free: nobody would wait for the
    // message then.
    ASSERT_EVENTUALLY(kLong, cluster().raw(1).commandCalls("evalsha") >= scripts + 2);
    const auto messages = second.stats().messages;
    held.unlock();
    ASSERT_EQ(waiting.wait_for(kLong), std::future_status::ready);
    waiting.get();
    EXPECT_EVENTUALLY(kLong, second.stats().messages > messages) << "no message came";
  }
}

TEST_F(Cluster, SemaphoresAndLatchesWorkOnEveryNode) {
  Client first = Client::connect(options());
  Client second = Client::connect(options());
  for (std::size_t node = 0; node < cluster().size(); ++node) {
    SCOPED_TRACE(node);
    {
      const std::string name = cluster().nameAt(node, "semaphore:");
      Semaphore semaphore = first.getSemaphore(name);
      ASSERT_TRUE(semaphore.trySetPermits(1));
      semaphore.acquire();
      auto waiting = inThread([&] { second.getSemaphore(name).acquire(); });
      ASSERT_TRUE(waits(second));
      semaphore.release();
      ASSERT_EQ(waiting.wait_for(kLong), std::future_status::ready);
    }
    {
      const std::string name = cluster().nameAt(node, "permits:");
      PermitExpirableSemaphore permits = first.getPermitExpirableSemaphore(name);
      ASSERT_TRUE(permits.trySetPermits(1));
      const std::string permit = permits.acquire();
      auto waiting = inThread([&] {
        PermitExpirableSemaphore mine = second.getPermitExpirableSemaphore(name);
        mine.release(mine.acquire());
      });
      ASSERT_TRUE(waits(second));
      permits.release(permit);
      ASSERT_EQ(waiting.wait_for(kLong), std::future_status::ready);
    }
    {
      const std::string name = cluster().nameAt(node, "latch:");
      CountDownLatch latch = first.getCountDownLatch(name);
      ASSERT_TRUE(latch.trySetCount(1));
      auto waiting = inThread([&] { second.getCountDownLatch(name).await(); });
      ASSERT_TRUE(waits(second));
      latch.countDown();
      ASSERT_EQ(waiting.wait_for(kLong), std::future_status::ready);
    }
  }
}

TEST_F(Cluster, LocksOfSeveralNodesAreOne) {
  Client first = Client::connect(options());
  Client second = Client::connect(options());
  const auto members = [&](Client& client) {
    std::vector<RLock> locks;
    for (std::size_t node = 0; node < cluster().size(); ++node) {
      locks.push_back(client.getLock(cluster().nameAt(node, "member:")));
    }
    return locks;
  };
  RLock all = multiLock(members(first));
  RLock others = multiLock(members(second));
  all.lock();
  EXPECT_FALSE(others.tryLock());
  all.unlock();
  EXPECT_TRUE(others.tryLock(10s));
  others.unlock();
  RLock most = redLock(members(first));
  most.lock();
  EXPECT_FALSE(redLock(members(second)).tryLock());
  most.unlock();
}

TEST_F(Cluster, NobodyIsInsideTogether) {
  Client clients[] = {Client::connect(options()), Client::connect(options())};
  struct Room {
    std::string name;
    std::atomic<int> inside{0};
    long value = 0;
  };
  Room rooms[3];
  for (std::size_t node = 0; node < 3; ++node) {
    rooms[node].name = cluster().nameAt(node, "room:");
  }
  constexpr int kThreads = 6;
  constexpr int kRounds = 40;
  std::atomic<int> overlaps{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRounds; ++i) {
        Room& room = rooms[(t + i) % 3];
        RLock lock = clients[t % 2].getLock(room.name);
        lock.lock();
        overlaps += room.inside.fetch_add(1) != 0 ? 1 : 0;
        ++room.value;
        room.inside.fetch_sub(1);
        lock.unlock();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const long counted = rooms[0].value + rooms[1].value + rooms[2].value;
  if (overlaps != 0 || counted != kThreads * kRounds) {
    noteSafetyCheck();
  }
  EXPECT_EQ(overlaps, 0);
  EXPECT_EQ(counted, kThreads * kRounds);
}

TEST_F(Cluster, ForcedReleasesAreToldWhereverTheLockIs) {
  Client holder = Client::connect(options());
  Client other = Client::connect(options());
  for (std::size_t node = 0; node < cluster().size(); ++node) {
    SCOPED_TRACE(node);
    const std::string name = cluster().nameAt(node, "forced:");
    const Lease lease = holder.getLock(name).acquire();
    // The client listens from a moment after its first hold on.
    ASSERT_EVENTUALLY(kLong, [&] {
      std::int64_t listeners = 0;
      for (std::size_t i = 0; i < cluster().size(); ++i) {
        RawRedis raw = cluster().raw(i);
        listeners += raw.numsub("rlock_client:" + holder.id());
      }
      return listeners == 1;
    }());
    EXPECT_TRUE(other.getLock(name).forceUnlock());
    EXPECT_EVENTUALLY(kLong, lease.lossReason() == LossReason::forced);
    EXPECT_FALSE(lease.held());
  }
}

TEST_F(Cluster, TheWalkThroughAllNamesVisitsEveryNode) {
  Client client = Client::connect(options());
  std::vector<Lease> leases;
  for (std::size_t node = 0; node < cluster().size(); ++node) {
    leases.push_back(client.getLock(cluster().nameAt(node, "listed:")).acquire());
  }
  EXPECT_EQ(client.list("listed:*").size(), cluster().size());
  EXPECT_TRUE(client.inspect(cluster().nameAt(2, "listed:")));
}

// A lazy client is asked before it has read the map that says which nodes there are.
TEST_F(Cluster, TheWalkThroughAllNamesVisitsEveryNodeThoughTheMapComesLater) {
  Client client = Client::connect(options());
  std::vector<Lease> leases;
  for (std::size_t node = 0; node < cluster().size(); ++node) {
    leases.push_back(client.getLock(cluster().nameAt(node, "early:")).acquire());
  }
  Options settings = options();
  settings.connect = ConnectMode::lazy;
  Client first = Client::connect(settings);
  const auto blocking = first.listAsync("early:*").wait();
  ASSERT_TRUE(blocking.has_value()) << blocking.error().what();
  EXPECT_EQ(blocking->size(), cluster().size());
  Client second = Client::connect(settings);
  auto background = second.listAsync("early:*").toFuture();
  ASSERT_EQ(background.wait_for(kLong), std::future_status::ready);
  EXPECT_EQ(background.get().size(), cluster().size());
}

// Its keys would be in several slots, so that no script could look at them.
TEST_F(Cluster, TheWalkThroughAllNamesGoesOnAfterOneThatCanBeNoLock) {
  Client client = Client::connect(options());
  const std::string strange = "strange:a{}b";
  RawRedis raw = cluster().raw(cluster().ownerOf(strange));
  raw.run({"HSET", strange, "owner", "1"});
  std::vector<Lease> leases;
  for (std::size_t node = 0; node < cluster().size(); ++node) {
    leases.push_back(client.getLock(cluster().nameAt(node, "strange:")).acquire());
  }
  const auto blocking = client.listAsync("strange:*").wait();
  ASSERT_TRUE(blocking.has_value()) << blocking.error().what();
  EXPECT_EQ(blocking->size(), cluster().size());
  const auto background = client.listAsync("strange:*").toFuture().get();
  EXPECT_EQ(background.size(), cluster().size());
  raw.del(strange);
}

TEST_F(Cluster, W60_NamesThatCannotStayInOneSlotAreRefusedBeforeAnythingIsSent) {
  Client client = Client::connect(options());
  const auto commands = client.stats().commands;
  for (const char* name : {"a{b", "{}x", "a{}b", "a}b"}) {
    SCOPED_TRACE(name);
    for (const auto& make :
         std::vector<std::function<void()>>{[&] { (void)client.getLock(name); },
                                            [&] { (void)client.getFairLock(name); },
                                            [&] { (void)client.getNonReentrantLock(name); },
                                            [&] { (void)client.getNonReentrantFairLock(name); },
                                            [&] { (void)client.getFencedLock(name); },
                                            [&] { (void)client.getSpinLock(name); },
                                            [&] { (void)client.getSimpleLock(name); },
                                            [&] { (void)client.getReadWriteLock(name); },
                                            [&] { (void)client.getSemaphore(name); },
                                            [&] { (void)client.getPermitExpirableSemaphore(name); },
                                            [&] { (void)client.getCountDownLatch(name); }}) {
      try {
        make();
        ADD_FAILURE() << "was not refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.errc(), Errc::invalidArgument) << error.what();
        const std::string_view said = error.what();
        EXPECT_TRUE(said.find("must have a part like {tag} first") != std::string_view::npos ||
                    said.find("the name of a latch must have no braces") != std::string_view::npos)
            << said;
      }
    }
  }
  EXPECT_THROW((void)client.getCountDownLatch("{tag}x"), Error) << "its channel is elsewhere";
  EXPECT_EQ(client.stats().commands, commands);
  RLock lock = client.getLock("{tag}x");
  lock.lock();
  lock.unlock();
}

TEST_F(Cluster, ErrorsNameTheNodeConcerned) {
  Client client = Client::connect(options());
  const std::string name = cluster().nameAt(2, "wrong:");
  cluster().raw(2).run({"SET", name, "no lock"});
  try {
    client.getLock(name).lock();
    ADD_FAILURE() << "a string is no lock";
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::wrongType);
    EXPECT_EQ(error.node(), "127.0.0.1:" + std::to_string(cluster().node(2).port()));
  }
  cluster().raw(2).run({"DEL", name});
}

TEST_F(Cluster, AConnectionIsMadeToANodeThatIsNeededOnly) {
  Options named = options();
  named.clientName = "lazy";
  Client client = Client::connect(named);
  client.getLock(cluster().nameAt(1, "lazy:")).lock();
  const auto connections = [&](std::size_t node) {
    std::size_t count = 0;
    for (auto& one : cluster().raw(node).clientList()) {
      count += one["name"] == "lazy" ? 1U : 0U;
    }
    return count;
  };
  EXPECT_GE(connections(1), 1U);
  EXPECT_EVENTUALLY(kLong, connections(0) + connections(2) <= 1) << "one may be for the channel";
}

TEST_F(Cluster, XFO7_AHeldAndAwaitedLockMigrates) {
  Options polling = options();
  // While a slot is on its way its messages are not heard by all: that is what the poll is for.
  polling.safetyPoll = 300ms;
  Client holder = Client::connect(polling);
  Client waiter = Client::connect(polling);
  for (const Kind& kind : {kKinds[0], kKinds[1], kKinds[4], kKinds[5]}) {
    SCOPED_TRACE(kind.name);
    const std::string name = cluster().nameAt(0, std::string("migrates:") + kind.name);
    const std::uint16_t slot = RedisCluster::slotOf(name);
    RLock held = kind.make(holder, name);
    RLock wanted = kind.make(waiter, name);
    held.lock();
    std::atomic<bool> entered{false};
    auto waiting = inThread([&] {
      wanted.lock();
      entered = true;
      wanted.unlock();
    });
    ASSERT_TRUE(waits(waiter));
    cluster().beginMigration(slot, 0, 1);
    cluster().moveKeys(slot, 0, 1);
    // By ASK, where all keys of the request are there, and otherwise by TRYAGAIN until the end.
    EXPECT_TRUE(held.isLocked());
    EXPECT_FALSE(entered);
    cluster().endMigration(slot, 0, 1);
    held.unlock();
    ASSERT_EQ(waiting.wait_for(kLong), std::future_status::ready);
    EXPECT_FALSE(held.isLocked());
    cluster().migrate(slot, 1, 0);
  }
}

TEST_F(Cluster, AnObserverIsToldOfRedirections) {
  class Redirections : public Observer {
   public:
    void redirected(const RedirectedEvent& event) override {
      const std::lock_guard guard(mutex_);
      told_.push_back(std::string(event.from) + " " + std::string(event.to) + " " +
                      std::to_string(event.slot) + (event.moved ? " moved" : " ask"));
    }
    [[nodiscard]] std::vector<std::string> told() const {
      const std::lock_guard guard(mutex_);
      return told_;
    }

   private:
    mutable std::mutex mutex_;
    std::vector<std::string> told_;
  };
  const auto redirections = std::make_shared<Redirections>();
  Options settings = options();
  settings.observer = redirections;
  Client client = Client::connect(settings);
  const std::string name = cluster().nameAt(0, "observed:");
  const std::uint16_t slot = ::rlock::detail::net::hashSlot(name);
  RLock lock = client.getLock(name);
  lock.lock();
  EXPECT_TRUE(redirections->told().empty());
  cluster().migrate(slot, 0, 1);
  lock.unlock();
  ASSERT_TRUE(eventually(kLong, [&] { return !redirections->told().empty(); }));
  const std::string told = redirections->told().front();
  EXPECT_TRUE(told.ends_with(" " + std::to_string(slot) + " moved")) << told;
  EXPECT_EVENTUALLY(kLong, log().contains("event=redirected from=\""));
  cluster().migrate(slot, 1, 0);
}

TEST_F(Cluster, XFO7_AskIsFollowedWhileTheSlotIsOpen) {
  Client client = Client::connect(options());
  const std::string name = cluster().nameAt(0, "asked:");
  const std::uint16_t slot = RedisCluster::slotOf(name);
  RLock lock = client.getLock(name);
  lock.lock();
  cluster().beginMigration(slot, 0, 1);
  cluster().moveKeys(slot, 0, 1);
  EXPECT_TRUE(lock.isHeldByCurrentThread());
  lock.lock();
  EXPECT_EQ(lock.getHoldCount(), 2);
  lock.unlock();
  lock.unlock();
  EXPECT_FALSE(lock.isLocked());
  EXPECT_TRUE(lock.tryLock()) << "a new key is made where the slot goes";
  RawRedis target = cluster().raw(1);
  target.run({"ASKING"});
  EXPECT_TRUE(target.exists(name));
  lock.unlock();
  cluster().endMigration(slot, 0, 1);
  lock.lock();
  lock.unlock();
  cluster().migrate(slot, 1, 0);
}

TEST_F(Cluster, XFO7_AReadWriteLockInAnOpenSlotIsNotReleasedHalfWay) {
  Client client = Client::connect(options());
  const std::string name = cluster().nameAt(0, "halves:");
  const std::uint16_t slot = RedisCluster::slotOf(name);
  ReadWriteLock both = client.getReadWriteLock(name);
  const OwnerId owner = newOwner();
  both.writeLock().lockAsync({}, owner).get();
  both.readLock().lockAsync({}, owner).get();
  RawRedis source = cluster().raw(0);
  const auto holds = source.keys("{" + name + "}:*:rwlock_timeout:1");
  ASSERT_EQ(holds.size(), 1U);
  cluster().beginMigration(slot, 0, 1);
  source.run({"MIGRATE",
              "127.0.0.1",
              std::to_string(cluster().node(1).port()),
              *holds.begin(),
              "0",
              "5000"});
  // The script would not find the read hold, which is on the other node by now.
  std::promise<Result<void>> released;
  std::move(both.writeLock().unlockAsync(owner)).start([&](Result<void> result) {
    released.set_value(std::move(result));
  });
  auto outcome = released.get_future();
  EXPECT_EQ(outcome.wait_for(scaled(300ms)), std::future_status::timeout);
  EXPECT_EQ(source.hget(name, "mode"), "write");
  cluster().moveKeys(slot, 0, 1);
  cluster().endMigration(slot, 0, 1);
  ASSERT_EQ(outcome.wait_for(kLong), std::future_status::ready);
  EXPECT_TRUE(outcome.get().has_value());
  EXPECT_EQ(cluster().raw(1).hget(name, "mode"), "read");
  both.readLock().unlockAsync(owner).get();
  EXPECT_FALSE(cluster().raw(1).exists(name));
  cluster().migrate(slot, 1, 0);
}

TEST_F(Cluster, SU07_XSUB16_TheChannelOfAWaiterFollowsItsSlot) {
  Client holder = Client::connect(options());
  Client waiter = Client::connect(options());
  const std::string name = cluster().nameAt(0, "follows:");
  const std::string channel = "redisson_lock__channel:{" + name + "}";
  const std::uint16_t slot = RedisCluster::slotOf(name);
  RLock held = holder.getLock(name);
  held.lock();
  auto waiting = inThread([&] {
    RLock wanted = waiter.getLock(name);
    wanted.lock();
    wanted.unlock();
  });
  ASSERT_TRUE(waits(waiter));
  ASSERT_EVENTUALLY(kLong, subscribers(0, channel) == 1);
  cluster().migrate(slot, 0, 1);
  EXPECT_EVENTUALLY(kLong, subscribers(1, channel) == 1);
  held.unlock();
  ASSERT_EQ(waiting.wait_for(kLong), std::future_status::ready) << "it was not woken by a message";
  cluster().migrate(slot, 1, 0);
}

TEST_F(ClusterTest, WithoutShardedChannelsThereIsAWarningAndClassicOnesWakeWaiters) {
  RedisCluster cluster;
  for (std::size_t node = 0; node < cluster.size(); ++node) {
    cluster.raw(node).run({"ACL", "SETUSER", "default", "-pubsub|shardnumsub"});
  }
  Client holder = Client::connect(tuned(cluster.uri()));
  Client waiter = Client::connect(tuned(cluster.uri()));
  EXPECT_EQ(log().count("no sharded channels"), 2U) << "once for each client";
  const std::string name = cluster.nameAt(0, "classic:");
  const std::uint16_t slot = RedisCluster::slotOf(name);
  for (const bool moves : {false, true}) {
    RLock held = holder.getLock(name);
    held.lock();
    auto waiting = inThread([&] {
      RLock wanted = waiter.getLock(name);
      wanted.lock();
      wanted.unlock();
    });
    ASSERT_TRUE(waits(waiter));
    std::int64_t subscribers = 0;
    ASSERT_EVENTUALLY(kLong, [&] {
      subscribers = 0;
      for (std::size_t node = 0; node < cluster.size(); ++node) {
        subscribers += cluster.raw(node)
                           .run({"PUBSUB", "NUMSUB", "redisson_lock__channel:{" + name + "}"})
                           .array()
                           .at(1)
                           .integer();
      }
      return subscribers == 1;
    }());
    if (moves) {
      cluster.migrate(slot, 0, 1);
    }
    held.unlock();
    ASSERT_EQ(waiting.wait_for(kLong), std::future_status::ready) << "it was not woken";
    waiting.get();
  }
}

class StrangeCluster : public ClusterTest {
 protected:
  static std::string bulk(std::string_view text) {
    return "$" + std::to_string(text.size()) + "\r\n" + std::string(text) + "\r\n";
  }
  /// The map of a cluster with one master.
  static std::string slotsOf(std::uint16_t port) {
    return "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n" + bulk("127.0.0.1") + ":" + std::to_string(port) +
           "\r\n" + bulk("id");
  }
  /// Answers what is asked about the cluster; false: it was another command.
  static bool answersTopology(FakeServer::Peer& peer,
                              const FakeServer::Argv& argv,
                              std::uint16_t master) {
    if (argv[0] == "CLUSTER" && argv[1] == "INFO") {
      return peer.send(bulk("cluster_state:ok\r\ncluster_current_epoch:1\r\n"));
    }
    if (argv[0] == "CLUSTER" && argv[1] == "SLOTS") {
      return peer.send(slotsOf(master));
    }
    if (argv[0] == "CLUSTER" || argv[0] == "PUBSUB") {
      return peer.send("-ERR unknown subcommand\r\n");
    }
    return false;
  }
};

TEST_F(StrangeCluster, NodesThatSendARequestToAndFroAreAskedWithPauses) {
  std::atomic<std::uint16_t> ports[2] = {0, 0};
  std::atomic<int> requests{0};
  std::atomic<int> maps{0};
  const auto serve = [&](int me) {
    return [&, me](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
      maps += argv[0] == "CLUSTER" && argv[1] == "SLOTS" ? 1 : 0;
      if (answersTopology(peer, argv, ports[0])) {
        return true;
      }
      ++requests;
      return peer.send("-MOVED 1 127.0.0.1:" + std::to_string(ports[1 - me]) + "\r\n");
    };
  };
  FakeServer first(serve(0));
  FakeServer second(serve(1));
  ports[0] = first.port();
  ports[1] = second.port();
  Options options = tuned("redis+cluster://127.0.0.1:" + std::to_string(first.port()));
  options.callTimeout = 2s;
  Client client = Client::connect(options);
  const auto began = Clock::now();
  try {
    (void)client.getLock("n").tryLock();
    ADD_FAILURE() << "there is no such lock";
  } catch (const Error& error) {
    EXPECT_FALSE(error.node().empty()) << error.what();
  }
  EXPECT_LT(Clock::now() - began, scaled(5s));
  EXPECT_GE(requests, 6) << "some are followed at once";
  EXPECT_LT(requests, 300) << "this is a storm";
  EXPECT_LT(maps, 60) << "this is a storm";
}

TEST_F(StrangeCluster, AMoveToANodeThatIsNotThereEndsWithTheCall) {
  const PortReservation nobody;
  std::atomic<std::uint16_t> port{0};
  FakeServer server([&](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
    return answersTopology(peer, argv, port) ||
           peer.send("-MOVED 1 127.0.0.1:" + std::to_string(nobody.port()) + "\r\n");
  });
  port = server.port();
  Options options = tuned("redis+cluster://127.0.0.1:" + std::to_string(server.port()));
  options.callTimeout = 800ms;
  Client client = Client::connect(options);
  const auto began = Clock::now();
  EXPECT_THROW((void)client.getLock("n").tryLock(), Error);
  EXPECT_LT(Clock::now() - began, scaled(5s));
}

/// A reply that a node may give for a while to a request that it does not execute.
struct Refusal {
  const char* name;
  const char* reply;
  bool outOfDate;  ///< the map is asked for again
};

class StrangeClusterRefuses : public StrangeCluster, public ::testing::WithParamInterface<Refusal> {
 protected:
  /// A node that refuses so many scripts, and executes the others.
  [[nodiscard]] FakeServer::Handler refusing(int times) {
    return [this, times](FakeServer::Peer& peer, const FakeServer::Argv& argv) {
      maps_ += argv[0] == "CLUSTER" && argv[1] == "SLOTS" ? 1 : 0;
      if (answersTopology(peer, argv, port_)) {
        return true;
      }
      if (argv[0] != "EVALSHA" && argv[0] != "EVAL") {
        return peer.send("+OK\r\n");
      }
      if (refused_ < times) {
        ++refused_;
        return peer.send(GetParam().reply);
      }
      ++executed_;
      return peer.send("*1\r\n:1\r\n");
    };
  }
  [[nodiscard]] Client connect(const FakeServer& server, std::chrono::milliseconds callTimeout) {
    port_ = server.port();
    Options options = tuned("redis+cluster://127.0.0.1:" + std::to_string(server.port()));
    options.callTimeout = callTimeout;
    options.retryDelayMin = 10ms;
    options.closeTimeout = 0ms;
    return Client::connect(options);
  }

  std::atomic<std::uint16_t> port_{0};
  std::atomic<int> refused_{0};
  std::atomic<int> executed_{0};
  std::atomic<int> maps_{0};
};

INSTANTIATE_TEST_SUITE_P(
    All,
    StrangeClusterRefuses,
    ::testing::Values(
        Refusal{"clusterDown", "-CLUSTERDOWN Hash slot not served\r\n", true},
        Refusal{"loading", "-LOADING Redis is loading the dataset in memory\r\n", true},
        Refusal{"tryAgain", "-TRYAGAIN Multiple keys request during rehashing of slot\r\n", false}),
    [](const ::testing::TestParamInfo<Refusal>& test) { return std::string(test.param.name); });

TEST_P(StrangeClusterRefuses, XERR12_ForAWhileAndTheRequestIsExecutedOnce) {
  constexpr int kTimes = 4;
  FakeServer server(refusing(kTimes));
  Client client = connect(server, kLong);
  ASSERT_EVENTUALLY(kLong, maps_ > 0);
  const int before = maps_;
  EXPECT_TRUE(client.getLock("n").tryLock(0ms, 60s));
  EXPECT_EQ(refused_, kTimes);
  EXPECT_EQ(executed_, 1);
  if (GetParam().outOfDate) {
    EXPECT_EVENTUALLY(kLong, maps_ > before);
  }
}

TEST_P(StrangeClusterRefuses, XERR12_ForLongAndTheCallEndsInItsTime) {
  FakeServer server(refusing(1'000'000));
  Client client = connect(server, 2s);
  const auto began = Clock::now();
  try {
    (void)client.getLock("n").tryLock(0ms, 60s);
    ADD_FAILURE() << "it was refused";
  } catch (const Error& error) {
    const std::string_view word = std::string_view(GetParam().reply).substr(1, 7);
    EXPECT_NE(std::string_view(error.what()).find(word), std::string_view::npos) << error.what();
  }
  EXPECT_LT(Clock::now() - began, scaled(5s));
  EXPECT_EQ(executed_, 0);
  EXPECT_GE(refused_, 4) << "it was not repeated";
  EXPECT_LT(refused_, 60) << "this is a storm";
}

TEST_F(StrangeCluster, AServerThatIsNoNodeIsRefused) {
  const RedisServer server;
  try {
    const Client client =
        Client::connect(tuned("redis+cluster://127.0.0.1:" + std::to_string(server.port())));
    ADD_FAILURE() << "this is no cluster";
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::invalidArgument) << error.what();
    EXPECT_NE(std::string_view(error.what()).find("no node of a cluster; write redis://"),
              std::string_view::npos)
        << error.what();
  }
}

TEST_F(StrangeCluster, ANodeWithoutSlotsIsRefused) {
  RedisServerOptions settings;
  settings.extraArgs = {"--cluster-enabled", "yes", "--cluster-port"};
  const PortReservation bus;
  settings.extraArgs.push_back(std::to_string(bus.port()));
  const RedisServer node(settings);
  try {
    const Client client =
        Client::connect(tuned("redis+cluster://127.0.0.1:" + std::to_string(node.port())));
    ADD_FAILURE() << "it has no slots";
  } catch (const Error& error) {
    EXPECT_EQ(error.errc(), Errc::connectionFailed) << error.what();
    EXPECT_NE(std::string_view(error.what()).find("no master of its cluster that has slots"),
              std::string_view::npos)
        << error.what();
  }
}

TEST_F(StrangeCluster, ANodeWithoutSlotsIsPassedOver) {
  RedisServerOptions settings;
  settings.extraArgs = {"--cluster-enabled", "yes", "--cluster-port"};
  const PortReservation bus;
  settings.extraArgs.push_back(std::to_string(bus.port()));
  const RedisServer empty(settings);
  const FakeServer silent(
      [](FakeServer::Peer& /*peer*/, const FakeServer::Argv& /*argv*/) { return true; });
  RedisCluster cluster;
  for (const std::uint16_t useless : {empty.port(), silent.port()}) {
    SCOPED_TRACE(useless == empty.port() ? "without slots" : "silent");
    Client client = Client::connect(tuned("redis+cluster://127.0.0.1:" + std::to_string(useless) +
                                          ",127.0.0.1:" + std::to_string(cluster.node(0).port())));
    RLock lock = client.getLock("n");
    EXPECT_TRUE(lock.tryLock());
    lock.unlock();
  }
}

}  // namespace
}  // namespace rlock::test
