// SPDX-License-Identifier: Apache-2.0

// Events in a cluster while objects of every kind are held and waited for.

#include "cluster/cluster_harness.hpp"
#include "support/closed_at_end.hpp"
#include "support/contested.hpp"
#include "support/host_report.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace rlock::test {
namespace {

/// Node 0 is the master concerned.
enum class Event {
  plannedFailover,
  masterKilled,
  masterFrozen,
  masterCutOff,
  slotsMoved,
  shardAdded,
  shardRemoved,
  everyNodeRestarted,
};

const char* toString(Event event) {
  switch (event) {
    case Event::plannedFailover:
      return "plannedFailover";
    case Event::masterKilled:
      return "masterKilled";
    case Event::masterFrozen:
      return "masterFrozen";
    case Event::masterCutOff:
      return "masterCutOff";
    case Event::slotsMoved:
      return "slotsMoved";
    case Event::shardAdded:
      return "shardAdded";
    case Event::shardRemoved:
      return "shardRemoved";
    case Event::everyNodeRestarted:
      return "everyNodeRestarted";
  }
  return "unknown";
}

/// Whether what the servers have answered is known to all masters that come.
bool losesNothing(Event event) {
  return event != Event::masterKilled && event != Event::masterFrozen &&
         event != Event::masterCutOff;
}

bool needsReplicas(Event event) {
  return !losesNothing(event) || event == Event::plannedFailover ||
         event == Event::everyNodeRestarted;
}

using Objects = std::vector<std::unique_ptr<Contested>>;

/// Callers that go in and out of locks on node 0 all the time, and count what they do.
class Traffic {
 public:
  Traffic(RedisCluster& cluster, Client& first, Client& second) {
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      rooms_[kind].name = cluster.nameAt(0, "traffic" + std::to_string(kind) + ":");
    }
    for (std::size_t i = 0; i < kKinds; ++i) {
      callers_.push_back(inThread([this, &first, i] { return call(first, i); }));
      callers_.push_back(inThread([this, &second, i] { return call(second, i); }));
    }
  }
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;
  ~Traffic() { over_ = true; }

  [[nodiscard]] bool flows() const {
    return std::all_of(
        std::begin(rooms_), std::end(rooms_), [](const Room& room) { return room.rounds >= 4; });
  }
  /// Ends it and checks what was counted.
  void expectExact() {
    over_ = true;
    for (auto& caller : callers_) {
      EXPECT_EQ(caller.get(), "ok");
    }
    for (const Room& room : rooms_) {
      if (room.overlaps != 0 || room.value != room.rounds) {
        noteSafetyCheck();
      }
      EXPECT_EQ(room.overlaps, 0) << room.name;
      EXPECT_EQ(room.value, room.rounds) << room.name;
    }
  }

 private:
  static constexpr std::size_t kKinds = 4;
  struct Room {
    std::string name;
    std::atomic<int> inside{0};
    std::atomic<int> overlaps{0};
    std::atomic<long> value{0};
    std::atomic<long> rounds{0};
  };

  static RLock lockOf(Client& client, std::size_t kind, const std::string& name) {
    switch (kind) {
      case 0:
        return client.getLock(name);
      case 1:
        return client.getFairLock(name);
      case 2:
        return client.getFencedLock(name);
      default:
        return client.getReadWriteLock(name).writeLock();
    }
  }

  std::string call(Client& client, std::size_t kind) {
    Room& room = rooms_[kind];
    try {
      RLock lock = lockOf(client, kind, room.name);
      while (!over_) {
        lock.lock();
        room.overlaps += room.inside.fetch_add(1) != 0 ? 1 : 0;
        const long before = room.value;
        std::this_thread::yield();
        room.value = before + 1;
        room.inside.fetch_sub(1);
        lock.unlock();
        ++room.rounds;
        std::this_thread::sleep_for(1ms);
      }
      return "ok";
    } catch (const Error& error) {
      return room.name + ' ' + std::string(rlock::toString(error.errc())) + ": " + error.what();
    }
  }

  Room rooms_[kKinds];
  std::atomic<bool> over_{false};
  std::vector<std::future<std::string>> callers_;
};

class ClusterOfEvents : public ClusterTest {
 protected:
  [[nodiscard]] Options terms(RedisCluster& cluster, std::chrono::milliseconds watchdog) {
    Options options = tuned(cluster.uri(3), watchdog);
    options.commandTimeout = 1s;
    options.heartbeatInterval = 1s;
    options.callTimeout = 30s;
    options.outageTimeout = 60s;
    return options;
  }
  /// The members of an object are on different nodes, the first on node 0.
  static Objects objectsOn(RedisCluster& cluster, Client& holder) {
    return contestedObjects(holder, [&](const std::string& kind, std::size_t member) {
      return cluster.nameAt(member, kind + std::to_string(member) + ":");
    });
  }
};

class ClusterEvents : public ClusterOfEvents, public ::testing::WithParamInterface<Event> {
 protected:
  static RedisClusterOptions setup(Event event) {
    RedisClusterOptions options;
    // Half as many slots to move.
    options.masters = event == Event::shardRemoved ? 6 : 3;
    options.replicasEach = needsReplicas(event) ? 1 : 0;
    options.proxied = event == Event::masterCutOff;
    return options;
  }

  /// Waits until the replicas of node 0 have what was written there.
  static void replicate(RedisCluster& cluster) {
    RawRedis raw = cluster.raw(0);
    // WAIT counts what its own connection has seen.
    raw.run({"SET", cluster.nameAt(0, "mark:"), "1", "PX", "1000"});
    ASSERT_GE(raw.run({"WAIT", "1", "10000"}).integer(), 1);
  }
  /// Waits until another node has the slots that were node 0's.
  static void awaitSuccessor(RedisCluster& cluster, const std::string& name) {
    ASSERT_EVENTUALLY(kLong, [&] {
      try {
        return cluster.ownerOf(name, 1) != 0;
      } catch (const std::runtime_error&) {
        return false;
      }
    }());
  }
  static std::vector<std::uint16_t> slotsOf(const Objects& objects) {
    std::set<std::uint16_t> slots;
    for (const auto& object : objects) {
      slots.insert(RedisCluster::slotOf(object->names()[0]));
    }
    return {slots.begin(), slots.end()};
  }

  static void happen(Event event, RedisCluster& cluster, const Objects& objects) {
    const std::string& name = objects[0]->names()[0];
    switch (event) {
      case Event::plannedFailover:
        cluster.failover(3);
        break;
      case Event::masterKilled:
        cluster.node(0).kill();
        break;
      case Event::masterFrozen:
        cluster.node(0).freeze();
        break;
      case Event::masterCutOff:
        cluster.cutOff(0);
        break;
      case Event::slotsMoved:
        cluster.migrate(slotsOf(objects), 0, 1);
        break;
      case Event::shardAdded: {
        const std::size_t added = cluster.addMaster();
        // A tenth of what the first one has, and the objects' slots.
        const std::vector<std::uint16_t> all = cluster.slotsOf(0);
        const std::vector<std::uint16_t> wanted = slotsOf(objects);
        std::set<std::uint16_t> moved(wanted.begin(), wanted.end());
        moved.insert(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 10));
        cluster.migrate(std::vector<std::uint16_t>(moved.begin(), moved.end()), 0, added);
        break;
      }
      case Event::shardRemoved:
        cluster.removeMaster(0, 1);
        break;
      case Event::everyNodeRestarted:
        cluster.restartEveryNode();
        break;
    }
    awaitSuccessor(cluster, name);
  }
};

INSTANTIATE_TEST_SUITE_P(All,
                         ClusterEvents,
                         ::testing::Values(Event::plannedFailover,
                                           Event::masterKilled,
                                           Event::masterFrozen,
                                           Event::slotsMoved,
                                           Event::shardAdded,
                                           Event::shardRemoved),
                         [](const ::testing::TestParamInfo<Event>& test) {
                           return std::string(toString(test.param));
                         });
INSTANTIATE_TEST_SUITE_P(Slow,
                         ClusterEvents,
                         ::testing::Values(Event::masterCutOff, Event::everyNodeRestarted),
                         [](const ::testing::TestParamInfo<Event>& test) {
                           return std::string(toString(test.param));
                         });

TEST_P(ClusterEvents, XFO5_HoldsOfEveryKindAreKeptAndWaitersEnter) {
  const Event event = GetParam();
  RedisCluster cluster(setup(event));
  Client holder = Client::connect(terms(cluster, scaled(15s)));
  Client others = Client::connect(terms(cluster, scaled(15s)));
  const Objects objects = objectsOn(cluster, holder);
  const ClosedAtEnd end(others);
  ASSERT_TRUE(contendAll(objects, others));
  std::unique_ptr<Traffic> traffic;
  if (losesNothing(event)) {
    traffic = std::make_unique<Traffic>(cluster, holder, others);
    ASSERT_EVENTUALLY(kLong, traffic->flows());
  } else {
    replicate(cluster);
  }

  happen(event, cluster, objects);
  if (event == Event::masterFrozen || event == Event::masterCutOff) {
    // Nobody says that it is none any more; this is when the client has found out.
    EXPECT_EVENTUALLY(kLong, others.getLock(objects[0]->names()[0]).isLocked());
  }
  const auto happened = Clock::now();
  for (const auto& object : objects) {
    SCOPED_TRACE(object->kind().name);
    EXPECT_TRUE(object->held());
    EXPECT_FALSE(object->entered());
    if (object->kind().watched) {
      // Renewed since, where it is now.
      EXPECT_EVENTUALLY(kLong, object->lease()->validUntil() - scaled(14s) > happened);
    }
    EXPECT_TRUE(cluster.raw(cluster.ownerOf(object->names()[0], 1)).exists(object->names()[0]));
  }
  for (const auto& object : objects) {
    SCOPED_TRACE(object->kind().name);
    expectToHandOn(*object);
  }
  expectToEndWell(objects);
  if (traffic) {
    traffic->expectExact();
  }
  if (event == Event::masterFrozen) {
    cluster.node(0).thaw();
  }
}

TEST_F(ClusterOfEvents, XFO10_AllNodesGoneForLongerThanEveryLeaseAndBack) {
  RedisCluster cluster({.masters = 3, .extraArgs = {"--appendonly", "yes"}});
  // Long enough that no hold is lost too early on a host that stands still for a moment.
  const auto shortest = scaled(2s);
  Client holder = Client::connect(terms(cluster, shortest));
  // A waiter's hold counts from its request, which may have waited for its server.
  Client others = Client::connect(terms(cluster, 3 * shortest));
  const Objects objects = objectsOn(cluster, holder);
  const Lease leased = holder.getLock("leased").acquire({.lease = shortest});
  const ClosedAtEnd end(others);
  ASSERT_TRUE(contendAll(objects, others));
  for (std::size_t i = 0; i < cluster.size(); ++i) {
    cluster.node(i).kill();
  }
  EXPECT_EVENTUALLY(kLong, leased.lossReason() == LossReason::expired);
  for (const auto& object : objects) {
    SCOPED_TRACE(object->kind().name);
    if (object->kind().watched) {
      EXPECT_EVENTUALLY(kLong, !object->held());
      EXPECT_EVENTUALLY(kLong, object->lease()->lossReason() == LossReason::unreachable);
      EXPECT_EVENTUALLY(kLong, object->lease()->lostToken().stop_requested());
    }
    EXPECT_FALSE(object->entered());
  }
  for (std::size_t i = 0; i < cluster.size(); ++i) {
    cluster.node(i).start();
  }
  cluster.waitUntilOk();
  for (const auto& object : objects) {
    SCOPED_TRACE(object->kind().name);
    if (object->kind().watched) {
      EXPECT_EVENTUALLY(kLong, object->entered());
      EXPECT_FALSE(object->giveBack());
    } else {
      // The files have it.
      expectToHandOn(*object);
    }
  }
  expectToEndWell(objects);
}

}  // namespace
}  // namespace rlock::test
