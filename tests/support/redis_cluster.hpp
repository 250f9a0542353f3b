// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/free_port.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/tcp_proxy.hpp"
#include "support/tls_files.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::test {

/// Whether the redis-server at hand can be a node of the clusters that are made here: 7.0 or later.
[[nodiscard]] bool clusterAvailable();

struct RedisClusterOptions {
  std::size_t masters = 3;
  std::size_t replicasEach = 0;
  std::chrono::milliseconds nodeTimeout{1500};
  std::vector<std::string> extraArgs{};  ///< of each node
  std::optional<TlsFiles> tls{};         ///< each node has a port with TLS, too
  /// Each node has proxies before its ports, and everybody but itself knows it by their addresses;
  /// so it can be cut off from the others. Not with `tls`.
  bool proxied = false;
};

/// A Redis Cluster on loopback ports: masters that share the slots evenly, and replicas. The nodes
/// are numbered, the masters first; the replicas of master m are m + masters, m + 2 * masters, ...
/// The constructor returns when each node sees the whole cluster work; it and all others throw
/// std::runtime_error where that does not come in time.
class RedisCluster {
 public:
  using Options = RedisClusterOptions;

  explicit RedisCluster(Options options = {});

  [[nodiscard]] RedisServer& node(std::size_t index) { return *nodes_[index].server; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  /// A new connection.
  [[nodiscard]] RawRedis raw(std::size_t index) { return RawRedis(node(index)); }
  /// `redis+cluster://127.0.0.1:port` of the nodes, or of the first few.
  [[nodiscard]] std::string uri(std::size_t count = 2) const;
  /// The same with the ports for TLS; `rediss` has no clusters, so `tls` is a parameter.
  [[nodiscard]] std::string tlsUri() const;

  [[nodiscard]] static std::uint16_t slotOf(std::string_view key);
  /// The node that has the slot of a key, by the word of a node that runs, `witness` if it does;
  /// asks the others, too, until one knows a master that runs.
  [[nodiscard]] std::size_t ownerOf(std::string_view key, std::size_t witness = 0);
  /// A name in a slot that the node has now: `prefix` with a number.
  [[nodiscard]] std::string nameAt(std::size_t node, std::string_view prefix);

  ///@{
  /// The steps of a migration of a slot: it is open, keys go, it is closed.
  void beginMigration(std::uint16_t slot, std::size_t from, std::size_t to);
  void moveKeys(std::uint16_t slot, std::size_t from, std::size_t to);
  void endMigration(std::uint16_t slot, std::size_t from, std::size_t to);
  ///@}
  void migrate(std::uint16_t slot, std::size_t from, std::size_t to);
  /// Many at once.
  void migrate(std::span<const std::uint16_t> slots, std::size_t from, std::size_t to);
  /// The slots that a node has, by its own word.
  [[nodiscard]] std::vector<std::uint16_t> slotsOf(std::size_t node);

  /// A master without slots joins; returns its number, which is the next one.
  std::size_t addMaster();
  /// A master gives all its slots to another, is forgotten by all, and ends, as do its replicas.
  /// Its number remains.
  void removeMaster(std::size_t master, std::size_t to);
  /// A replica takes over in agreement with its master; returns when it has.
  void failover(std::size_t replica);
  /// Restarts every node, one after the other and with its slots on another one meanwhile, so that
  /// the cluster works all the time. Each master needs a replica.
  void restartEveryNode();

  /// With Options::proxied: nothing goes to and fro between a node and the others any more, while
  /// clients reach them all.
  void cutOff(std::size_t node);
  void endCutOff();

  /// Waits until the running nodes agree that the cluster works.
  void waitUntilOk();
  /// Waits until the running nodes agree on the epoch of each node and on its slots. Before that a
  /// node that takes a slot over may not know that another's epoch is higher, and lose it again.
  void waitUntilAgreed();

 private:
  struct Node {
    std::unique_ptr<PortReservation> bus;
    std::unique_ptr<PortReservation> tls;
    std::unique_ptr<RedisServer> server;
    std::unique_ptr<TcpProxy> proxy;
    std::unique_ptr<TcpProxy> busProxy;
    std::string id;
    std::size_t master;  ///< its own number, or that of the master it was made a replica of
  };

  Node& makeNode(std::size_t master);
  void meet(const Node& node);
  void replicate(std::size_t replica, const std::string& master);
  void waitForMeeting();
  void waitForReplicas();
  void waitUntilLinked(std::size_t replica);
  /// The port by which clients and the other nodes know it.
  [[nodiscard]] std::uint16_t portOf(const Node& node) const;
  /// Where its own connections to others come from.
  [[nodiscard]] static std::string sourceOf(std::size_t node);
  [[nodiscard]] bool isMaster(std::size_t node);
  static std::vector<Value> runAll(RawRedis& raw, std::span<const RawRedis::Args> commands);

  const Options options_;
  std::vector<Node> nodes_;
};

}  // namespace rlock::test
