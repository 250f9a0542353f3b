// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/annotated_mutex.hpp>
#include <rlock/detail/executor/node.hpp>
#include <rlock/detail/executor/router.hpp>
#include <rlock/detail/executor/slot_map.hpp>
#include <rlock/detail/net/hash_slot.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// One master of a cluster that was needed.
struct ClusterMember {
  Endpoint at;
  std::shared_ptr<Node> node;
};

/// Which node has which slot of a cluster: the part of the ClusterRouter that callers' threads look
/// at. A master of the map has a node once it was needed.
///
/// It has the one mutex of a ClusterRouter, held for a look or a change. Invariant: a slot's owner
/// and its node are of one map, the last that was put in, with what redirections have said since.
/// Each master of the map has a place for its node, also after a change that has thrown.
///
/// **Thread safety:** safe from any thread; it is changed on the loop thread only.
class NodeTable {
 public:
  using NodePtr = std::shared_ptr<Node>;

  /// All that is known of a slot.
  struct Found {
    NodePtr node{};                   ///< null: none was needed yet, or it has no owner
    std::optional<Endpoint> owner{};  ///< empty: it has none
  };
  [[nodiscard]] Found find(std::uint16_t slot) const;
  /// As find(), for the node only.
  [[nodiscard]] NodePtr nodeOf(std::uint16_t slot) const;
  [[nodiscard]] std::string nameOf(std::string_view key) const;
  [[nodiscard]] Router::Place placeOf(std::string_view key) const;
  [[nodiscard]] std::vector<std::uint16_t> parts() const;
  [[nodiscard]] Router::Counters counters() const noexcept;

  /// A master has a node from now on.
  void put(const ClusterMember& member);
  /// A redirection has said who has one slot, until the map is read again.
  /// @throws std::bad_alloc  then nothing has changed
  void assign(std::uint16_t slot, const Endpoint& to, const std::vector<ClusterMember>& members);
  /// Another map, and the nodes of those `members` that it has. The `dropped` nodes still count in
  /// counters().
  /// @throws std::bad_alloc  then nothing has changed
  void replace(SlotMap map,
               const std::vector<ClusterMember>& members,
               const std::vector<NodePtr>& dropped);

 private:
  void enter(const ClusterMember& member) RLOCK_REQUIRES(mutex_);

  mutable AnnotatedMutex mutex_;
  SlotMap map_ RLOCK_GUARDED_BY(mutex_);
  std::vector<NodePtr> nodes_ RLOCK_GUARDED_BY(mutex_);  // by their place in the map's masters()
  Router::Counters past_ RLOCK_GUARDED_BY(mutex_){};     // of nodes that were dropped
};

inline NodeTable::Found NodeTable::find(std::uint16_t slot) const {
  const MutexLock lock(mutex_);
  const auto index = map_.indexOf(slot);
  return index ? Found{nodes_[*index], map_.masters()[*index]} : Found{};
}

inline NodeTable::NodePtr NodeTable::nodeOf(std::uint16_t slot) const {
  const MutexLock lock(mutex_);
  const auto index = map_.indexOf(slot);
  return index ? nodes_[*index] : nullptr;
}

inline std::string NodeTable::nameOf(std::string_view key) const {
  const MutexLock lock(mutex_);
  const Endpoint* const owner = map_.owner(net::hashSlot(key));
  return owner == nullptr ? std::string() : toString(*owner);
}

inline Router::Place NodeTable::placeOf(std::string_view key) const {
  Router::Place place{.slot = net::hashSlot(key)};
  const MutexLock lock(mutex_);
  if (const auto index = map_.indexOf(place.slot)) {
    const NodePtr& node = nodes_[*index];
    place.node = node ? reinterpret_cast<std::uintptr_t>(node.get()) : *index + 1;
  }
  return place;
}

inline std::vector<std::uint16_t> NodeTable::parts() const {
  const MutexLock lock(mutex_);
  return map_.parts();
}

inline Router::Counters NodeTable::counters() const noexcept {
  const MutexLock lock(mutex_);
  Router::Counters sum = past_;
  for (const NodePtr& node : nodes_) {
    if (node) {
      const net::CommandTransport::Totals link = node->link().totals();
      sum.commands += link.commands;
      sum.reconnects += link.connections > 0 ? link.connections - 1 : 0;
      sum.scriptsLoaded += node->scriptsLoaded();
    }
  }
  return sum;
}

inline void NodeTable::enter(const ClusterMember& member) {
  const auto& masters = map_.masters();
  const auto found = std::find(masters.begin(), masters.end(), member.at);
  if (found != masters.end()) {
    nodes_[static_cast<std::size_t>(found - masters.begin())] = member.node;
  }
}

inline void NodeTable::put(const ClusterMember& member) {
  const MutexLock lock(mutex_);
  enter(member);
}

inline void NodeTable::assign(std::uint16_t slot,
                              const Endpoint& to,
                              const std::vector<ClusterMember>& members) {
  const MutexLock lock(mutex_);
  // First, so that the map names no master without a place for its node.
  nodes_.reserve(map_.masters().size() + 1);
  map_.assign(slot, to);
  nodes_.resize(map_.masters().size());
  for (const ClusterMember& member : members) {
    enter(member);
  }
}

inline void NodeTable::replace(SlotMap map,
                               const std::vector<ClusterMember>& members,
                               const std::vector<NodePtr>& dropped) {
  std::vector<NodePtr> nodes(map.masters().size());
  const MutexLock lock(mutex_);
  for (const NodePtr& node : dropped) {
    const net::CommandTransport::Totals link = node->link().totals();
    past_.commands += link.commands;
    // A connection that was still up has not been lost: no other one is in its place.
    const bool up = link.connections > 0 && node->link().up();
    past_.reconnects += link.connections - (up ? 1 : 0);
    past_.scriptsLoaded += node->scriptsLoaded();
  }
  map_ = std::move(map);
  nodes_.swap(nodes);
  for (const ClusterMember& member : members) {
    enter(member);
  }
}

}  // namespace rlock::detail
