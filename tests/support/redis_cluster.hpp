// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/free_port.hpp"
#include "support/raw_redis.hpp"
#include "support/redis_server.hpp"
#include "support/tls_files.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
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
    std::string id;
  };

  void waitForReplicas();

  const Options options_;
  std::vector<Node> nodes_;
};

}  // namespace rlock::test
