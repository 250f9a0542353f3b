// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/sim_network.hpp"
#include "simulation/sim_world.hpp"
#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/hash_slot.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::sim {

/// How a cluster answers, and what moves in it.
struct ClusterConfig {
  std::size_t shards = 0;  ///< 0: the servers are no cluster; each shard has a master and a replica
  /// As servers before 7.0: CLUSTER SLOTS only, and no sharded channels.
  bool old = false;
  int migrations = 0;  ///< of a slot with a lock, to another shard
  int hasty = 0;       ///< of those, which move the slot without a time in which it is on its way
  int failovers = 0;
  Time lagMax{0};  ///< by so much a replica may lag when its master dies
};

/// The servers of a Redis Cluster: server i is the first master of shard i, and the server behind
/// the masters its replica. Each has a view of its own of who has which slot, which follows the
/// truth with the delay of the cluster's bus; each answers by its view, as Redis does. One thing
/// moves at a time.
///
/// A server that does not have a slot executes nothing for it, so there is one copy of each key
/// that counts: what a master has answered is lost only with a failover to a replica that lags.
/// All servers have one wall clock, as expiries are replicated as times of day.
class Cluster final : public ClusterPart {
 public:
  using Nodes = std::vector<std::unique_ptr<Node>>;
  /// Told at the moment in which a master is gone with what its replica does not have. From here on
  /// the replica's data count.
  using Lost = std::function<void(Node& successor)>;
  using Count = std::function<void(const char*)>;

  Cluster(World& world, const Nodes& nodes, const ClusterConfig& config, Lost lost, Count count);

  /// The server whose copy of a key counts.
  [[nodiscard]] std::size_t holderOf(std::string_view key) const;

  // Changes on order; nothing happens while something else moves.
  /// Moves the slot of a key to another shard.
  void migrate(const std::string& key);
  /// The replica of some shard takes over: on request, or because the master dies.
  void failOver();

  /// Nothing moves, and all servers know how things are.
  [[nodiscard]] bool settled() const;

 private:
  using Slot = std::uint16_t;
  /// A server's knowledge of the cluster. Each statement has the epoch in which it became true.
  struct View {
    std::vector<std::uint8_t> shardOf;       ///< by slot
    std::vector<std::uint64_t> since;        ///< by slot
    std::vector<std::size_t> master;         ///< by shard
    std::vector<std::uint64_t> masterSince;  ///< by shard
    std::uint64_t epoch = 1;
    bool ok = true;

    [[nodiscard]] std::size_t ownerOf(Slot slot) const { return master[shardOf[slot]]; }
  };
  struct Migration {
    Slot slot;
    std::size_t from;
    std::size_t to;
  };

  std::optional<std::vector<detail::Reply>> answer(Node& node,
                                                   Connection& connection,
                                                   const Command& command) override;
  void published(Node& node, std::string_view channel, std::string_view payload) override;
  void relay(Node& to, const std::string& channel, const std::string& payload);

  [[nodiscard]] std::optional<std::string> refusal(Node& node,
                                                   bool asking,
                                                   const std::vector<std::string>& keys,
                                                   bool channels);
  [[nodiscard]] detail::Reply slotsOf(const View& view, bool shards) const;
  [[nodiscard]] bool awake(std::size_t node) const { return nodes_[node]->awake() <= world_.now(); }
  void moveKeys(const std::vector<std::string>& left);
  void settle();
  void assign(View& view, Slot slot, std::size_t shard, std::uint64_t epoch);
  /// Changes the view of a server as soon as it does anything.
  void tell(std::size_t node, Time delay, std::function<void(View&)> change);
  void tellOthers(std::initializer_list<std::size_t> known,
                  const std::function<void(View&)>& change);
  void changed(std::size_t node, const std::function<void(View&)>& change);
  void promote(std::size_t shard, std::size_t successor);
  void die(std::size_t shard, std::size_t master, std::size_t successor, Time lag);

  World& world_;
  const Nodes& nodes_;
  const ClusterConfig& config_;
  const Lost lost_;
  const Count count_;
  View truth_;
  std::vector<View> views_;
  std::optional<Migration> migrating_;  ///< between the first key and the last
  bool moving_ = false;
  int untold_ = 0;
  bool relaying_ = false;
};

}  // namespace rlock::sim
