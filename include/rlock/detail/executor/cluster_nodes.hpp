// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/map_change.hpp>
#include <rlock/detail/executor/map_source.hpp>
#include <rlock/detail/executor/node.hpp>
#include <rlock/detail/executor/node_table.hpp>
#include <rlock/detail/executor/slot_map.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The nodes of a cluster, each a master that was needed once, with the map that they are from. The
/// ClusterRouter asks it for the node of a call, and gives it each map that was read.
///
/// Invariants: there is one Node for an address, which is not destroyed while a call refers to it.
/// The table, which callers' threads look at, names these nodes and no others.
///
/// **Thread safety:** table() from any thread, the rest on the loop thread.
class ClusterNodes {
 public:
  using NodePtr = std::shared_ptr<Node>;
  using MakeNode = std::function<NodePtr(const Endpoint& at)>;

  /// @param make  makes the node of a master, whose connection is then opened
  explicit ClusterNodes(MakeNode make) : make_(std::move(make)) {}

  [[nodiscard]] const NodeTable& table() const noexcept { return table_; }
  /// The map as it was read last, without what redirections have said since.
  [[nodiscard]] const SlotMap& map() const noexcept { return map_; }

  /// Makes the node if need be.
  [[nodiscard]] NodePtr at(const Endpoint& address);
  /// The same for the master that has a slot. Null: none has it.
  [[nodiscard]] NodePtr ofSlot(std::uint16_t slot);
  /// The address of a node; empty for one that the map has no more.
  [[nodiscard]] Endpoint addressOf(const Node& node) const;
  /// All of them. A call to one may make others, so a loop over them needs a copy.
  [[nodiscard]] const std::vector<ClusterMember>& members() const noexcept { return members_; }

  [[nodiscard]] bool allUp() const noexcept;
  /// Whether one of them must guard, see Node::mustGuard().
  [[nodiscard]] bool mustGuard() const noexcept;
  /// The nodes that can be asked for the map.
  [[nodiscard]] std::vector<MapWitness> witnesses() const;
  /// The masters of the map, as it was read last, that no call has needed.
  [[nodiscard]] std::vector<Endpoint> unneeded() const;

  /// A redirection has said who has one slot, until the map is read again.
  void assign(std::uint16_t slot, const Endpoint& to) { table_.assign(slot, to, members_); }
  struct Adopted {
    bool changed;                  ///< a slot has another owner than when the map was read last
    std::vector<NodePtr> dropped;  ///< the map has them no more: to be closed
    std::vector<Endpoint>
        successors;  ///< have slots of a master that is gone, or cannot be reached
  };
  /// The map was read.
  /// @throws std::bad_alloc  then nothing has changed
  Adopted adopt(SlotMap map);

  /// Masters that have taken slots over, as adopt() has said: notes those that are not connected.
  void expect(const std::vector<Endpoint>& successors);
  /// Whether it was noted, and has not arrived yet.
  [[nodiscard]] bool expects(const Node& node) const noexcept {
    return std::find(expected_.begin(), expected_.end(), &node) != expected_.end();
  }
  /// The node has a connection.
  void arrived(const Node& node) noexcept { std::erase(expected_, &node); }

 private:
  using Member = ClusterMember;

  [[nodiscard]] bool isDown(const Endpoint& address) const noexcept;

  const MakeNode make_;
  NodeTable table_;
  SlotMap map_;
  std::vector<Member> members_;
  std::vector<const Node*> expected_;
  std::vector<NodePtr> dropped_;  // while calls may still refer to them
};

inline ClusterNodes::NodePtr ClusterNodes::at(const Endpoint& address) {
  for (const Member& member : members_) {
    if (member.at == address) {
      return member.node;
    }
  }
  NodePtr node = make_(address);
  table_.put(members_.emplace_back(Member{address, node}));
  node->link().open();
  return node;
}

inline ClusterNodes::NodePtr ClusterNodes::ofSlot(std::uint16_t slot) {
  NodeTable::Found found = table_.find(slot);
  if (!found.node && found.owner) {
    return at(*found.owner);
  }
  return std::move(found.node);
}

inline Endpoint ClusterNodes::addressOf(const Node& node) const {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const Member& member) {
    return member.node.get() == &node;
  });
  return found == members_.end() ? Endpoint() : found->at;
}

inline bool ClusterNodes::allUp() const noexcept {
  return std::all_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.node->link().up();
  });
}

inline bool ClusterNodes::mustGuard() const noexcept {
  return std::any_of(members_.begin(), members_.end(), [](const Member& member) {
    return member.node->mustGuard();
  });
}

inline std::vector<MapWitness> ClusterNodes::witnesses() const {
  std::vector<MapWitness> result;
  for (const Member& member : members_) {
    if (member.node->link().up()) {
      result.push_back({member.at, &member.node->link()});
    }
  }
  return result;
}

inline std::vector<Endpoint> ClusterNodes::unneeded() const {
  std::vector<Endpoint> result = map_.masters();
  std::erase_if(result, [this](const Endpoint& master) {
    return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
      return member.at == master;
    });
  });
  return result;
}

inline ClusterNodes::Adopted ClusterNodes::adopt(SlotMap map) {
  std::erase_if(dropped_, [](const NodePtr& node) { return node.use_count() == 1; });
  MapChange change = changeOf(map_, map, [this](const Endpoint& at) { return isDown(at); });
  Adopted adopted{change.any, {}, std::move(change.successors)};
  for (const Member& member : members_) {
    if (!map.has(member.at)) {
      adopted.dropped.push_back(member.node);
    }
  }
  dropped_.reserve(dropped_.size() + adopted.dropped.size());
  SlotMap read = map;
  table_.replace(std::move(map), members_, adopted.dropped);
  // From here on nothing fails.
  map_ = std::move(read);
  std::erase_if(members_, [this](const Member& member) {
    const bool gone = !map_.has(member.at);
    if (gone) {
      std::erase(expected_, member.node.get());
    }
    return gone;
  });
  dropped_.insert(dropped_.end(), adopted.dropped.begin(), adopted.dropped.end());
  return adopted;
}

inline void ClusterNodes::expect(const std::vector<Endpoint>& successors) {
  for (const Endpoint& address : successors) {
    const NodePtr node = at(address);
    if (!node->link().up() &&
        std::find(expected_.begin(), expected_.end(), node.get()) == expected_.end()) {
      expected_.push_back(node.get());
    }
  }
}

inline bool ClusterNodes::isDown(const Endpoint& address) const noexcept {
  return std::any_of(members_.begin(), members_.end(), [&](const Member& member) {
    return member.at == address && !member.node->link().up();
  });
}

}  // namespace rlock::detail
