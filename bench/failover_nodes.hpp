// SPDX-License-Identifier: Apache-2.0
// A master with replicas whose replication can be held up.
#pragma once

#include "server.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

namespace rlock::bench {

/// The way of one replica to its master: passes bytes on, or keeps what the master says, as a
/// network or a replica that hangs would. The replica stays connected meanwhile.
class ReplicationLink {
 public:
  explicit ReplicationLink(std::uint16_t master);
  ReplicationLink(const ReplicationLink&) = delete;
  ReplicationLink& operator=(const ReplicationLink&) = delete;
  ~ReplicationLink();

  [[nodiscard]] std::uint16_t port() const noexcept { return port_; }
  /// Returns when nothing that the master writes from now on gets to the replica.
  void holdUp();
  /// Closes the connection, if there is one. The bytes that were kept are lost; the next one works.
  void cut();

 private:
  enum class Order { pass, holdUp, cut };

  void run();
  void give(Order order);
  void wake() const;
  bool pump(int from, int to);
  void closeBoth();

  const std::uint16_t master_;
  int listener_ = -1;
  int wake_ = -1;
  std::uint16_t port_ = 0;
  int toReplica_ = -1;
  int toMaster_ = -1;
  std::atomic<Order> order_{Order::pass};
  std::atomic<Order> obeyed_{Order::pass};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

/// One master and two replicas on loopback ports, each replica behind a link.
class ReplicatedServers {
 public:
  static constexpr std::size_t kReplicas = 2;

  /// @param aof  append-only files, synced with each write
  ReplicatedServers(const std::string& program, bool aof);

  [[nodiscard]] std::string masterUri() const { return master_->uri(); }
  [[nodiscard]] std::string replicaUri(std::size_t index) const { return replicas_[index]->uri(); }
  void holdUp(std::size_t index) { links_[index]->holdUp(); }
  /// Makes a master of a replica, as a failover does; nothing more reaches it from the old one.
  void promote(std::size_t index);
  /// Lets what was held up go on and makes a replica of the promoted one again. Returns when all
  /// have what the master has.
  void restore(std::size_t promoted);
  [[nodiscard]] bool has(std::size_t index, const std::string& key);
  /// Whether the server can say what its append-only file has.
  [[nodiscard]] bool knowsWaitAof();
  [[nodiscard]] std::string version();

 private:
  void replicate(std::size_t index);
  void awaitSynced();

  std::unique_ptr<OwnServer> master_;
  std::array<std::unique_ptr<OwnServer>, kReplicas> replicas_;
  std::unique_ptr<Connection> onMaster_;
  std::array<std::unique_ptr<Connection>, kReplicas> onReplica_;
  std::array<std::unique_ptr<ReplicationLink>, kReplicas> links_;
};

}  // namespace rlock::bench
