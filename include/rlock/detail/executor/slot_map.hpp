// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/reply.hpp>
#include <rlock/detail/net/hash_slot.hpp>
#include <rlock/options.hpp>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The masters of a cluster and their slots, as CLUSTER SHARDS tells them and redirections correct
/// them. ClusterRouter looks into it for each call, under the mutex of the NodeTable; MapSource
/// makes a new one, and MapChange compares the two.
///
/// Invariants: a master is in it once; a slot has one owner or none; places in masters() do not
/// change as long as the map lives.
///
/// **Thread safety:** a plain value; one thread at a time.
class SlotMap {
 public:
  SlotMap() : owners_(net::kSlots, kNobody) {}

  /// The place in masters() of the one that has a slot.
  [[nodiscard]] std::optional<std::size_t> indexOf(std::size_t slot) const noexcept {
    return owners_[slot] == kNobody ? std::nullopt : std::optional<std::size_t>(owners_[slot]);
  }
  /// The master that has a slot; null: none is known.
  [[nodiscard]] const Endpoint* owner(std::size_t slot) const noexcept {
    return owners_[slot] == kNobody ? nullptr : &masters_[owners_[slot]];
  }
  /// All that are known, in the order in which they were named.
  [[nodiscard]] const std::vector<Endpoint>& masters() const noexcept { return masters_; }
  [[nodiscard]] bool has(const Endpoint& master) const noexcept {
    return std::find(masters_.begin(), masters_.end(), master) != masters_.end();
  }
  /// How many slots have an owner.
  [[nodiscard]] std::size_t covered() const noexcept {
    return owners_.size() -
           static_cast<std::size_t>(std::count(owners_.begin(), owners_.end(), kNobody));
  }

  /// Slots outside the range are ignored.
  void assign(std::int64_t first, std::int64_t last, const Endpoint& master);
  /// Gives the slots that have no owner to those that have them in another map.
  void complete(const SlotMap& other);
  /// Makes a master known that has no slot yet. Returns its place in masters().
  std::size_t add(const Endpoint& master);
  void assign(std::size_t slot, const Endpoint& master) {
    assign(static_cast<std::int64_t>(slot), static_cast<std::int64_t>(slot), master);
  }

  /// A slot of each master, which stands for the master's part of the keys.
  [[nodiscard]] std::vector<std::uint16_t> parts() const;

 private:
  static constexpr std::uint16_t kNobody = std::numeric_limits<std::uint16_t>::max();

  std::vector<Endpoint> masters_;
  std::vector<std::uint16_t> owners_;
};

/// Reads the reply to CLUSTER SHARDS. Of a shard's masters one that is not failing is taken.
/// @param asked  the address that answered: the server names none where it knows none of its own
/// @param tls    takes the ports for TLS
/// @returns nothing for what is no such reply
std::optional<SlotMap> parseShards(const Reply& reply, const Endpoint& asked, bool tls);

/// Reads the reply to CLUSTER SLOTS, for servers older than 7.0. As parseShards().
std::optional<SlotMap> parseSlots(const Reply& reply, const Endpoint& asked);

/// A node's account of the cluster beside its map, by CLUSTER INFO.
struct ClusterState {
  bool ok = false;          ///< the node is with the majority, and all slots are served
  std::uint64_t epoch = 0;  ///< rises with each change of the map; 0: not told
};
ClusterState parseClusterInfo(std::string_view text) noexcept;

inline void SlotMap::assign(std::int64_t first, std::int64_t last, const Endpoint& master) {
  const auto index = static_cast<std::uint16_t>(add(master));
  const auto end = std::min<std::int64_t>(last, net::kSlots - 1);
  for (std::int64_t slot = std::max<std::int64_t>(first, 0); slot <= end; ++slot) {
    owners_[static_cast<std::size_t>(slot)] = index;
  }
}

inline void SlotMap::complete(const SlotMap& other) {
  for (std::size_t slot = 0; slot < owners_.size(); ++slot) {
    if (const Endpoint* const master = other.owner(slot);
        master != nullptr && owners_[slot] == kNobody) {
      assign(slot, *master);
    }
  }
}

inline std::size_t SlotMap::add(const Endpoint& master) {
  auto found = std::find(masters_.begin(), masters_.end(), master);
  if (found == masters_.end()) {
    found = masters_.insert(masters_.end(), master);
  }
  return static_cast<std::size_t>(found - masters_.begin());
}

inline std::vector<std::uint16_t> SlotMap::parts() const {
  std::vector<std::uint16_t> result;
  std::vector<bool> seen(masters_.size(), false);
  for (std::size_t slot = 0; slot < owners_.size(); ++slot) {
    if (owners_[slot] != kNobody && !seen[owners_[slot]]) {
      seen[owners_[slot]] = true;
      result.push_back(static_cast<std::uint16_t>(slot));
    }
  }
  return result;
}

/// The value of a name in an array of names and values; null without it.
inline const Reply* valueOf(const Reply& pairs, std::string_view name) noexcept {
  for (std::size_t i = 0; i + 1 < pairs.elements.size(); i += 2) {
    if (pairs.elements[i].is(name)) {
      return &pairs.elements[i + 1];
    }
  }
  return nullptr;
}

/// An address as a node tells it; `port` is out of range for one that it does not have.
inline std::optional<Endpoint> addressOf(std::string_view host,
                                         std::int64_t port,
                                         const Endpoint& asked) {
  if (port < 1 || port > std::numeric_limits<std::uint16_t>::max()) {
    return std::nullopt;
  }
  Endpoint result;
  // A server that does not know its own address says nothing, or "?".
  result.host = host.empty() || host == "?" ? asked.host : std::string(host);
  result.port = static_cast<std::uint16_t>(port);
  return result;
}

/// One node of a shard, if it is a master with an address.
inline std::optional<Endpoint> masterOf(const Reply& node, const Endpoint& asked, bool tls) {
  const Reply* const role = valueOf(node, "role");
  if (role == nullptr || !role->is("master")) {
    return std::nullopt;
  }
  const Reply* host = valueOf(node, "endpoint");
  if (host == nullptr || host->is("?")) {
    host = valueOf(node, "ip");
  }
  const Reply* const port = valueOf(node, tls ? "tls-port" : "port");
  return port == nullptr
             ? std::nullopt
             : addressOf(host == nullptr ? std::string_view() : host->text, port->integer, asked);
}

inline std::optional<SlotMap> parseShards(const Reply& reply, const Endpoint& asked, bool tls) {
  if (!reply.isArray()) {
    return std::nullopt;
  }
  SlotMap map;
  for (const Reply& shard : reply.elements) {
    const Reply* const slots = valueOf(shard, "slots");
    const Reply* const nodes = valueOf(shard, "nodes");
    if (slots == nullptr || nodes == nullptr) {
      return std::nullopt;
    }
    std::optional<Endpoint> master;
    bool works = false;
    for (const Reply& node : nodes->elements) {
      const Reply* const health = valueOf(node, "health");
      const bool failing = health != nullptr && health->is("fail");
      if (auto address = masterOf(node, asked, tls); address && (!master || !failing)) {
        master = std::move(address);
        works = !failing;
      }
    }
    if (works && slots->elements.empty()) {
      // Slots may be on their way to it.
      map.add(*master);
    }
    for (std::size_t i = 0; master && i + 1 < slots->elements.size(); i += 2) {
      map.assign(slots->elements[i].integer, slots->elements[i + 1].integer, *master);
    }
  }
  return map;
}

/// The master of a range of slots, `host, port, id, [names and values]`.
inline std::optional<Endpoint> masterOfSlots(const Reply& node, const Endpoint& asked) {
  const Reply* host = &node.elements[0];
  if (host->is("?") && node.elements.size() > 3) {
    if (const Reply* const ip = valueOf(node.elements[3], "ip"); ip != nullptr) {
      host = ip;
    }
  }
  return addressOf(host->text, node.elements[1].integer, asked);
}

inline std::optional<SlotMap> parseSlots(const Reply& reply, const Endpoint& asked) {
  if (!reply.isArray()) {
    return std::nullopt;
  }
  SlotMap map;
  for (const Reply& range : reply.elements) {
    if (range.elements.size() < 3 || range.elements[2].elements.size() < 2) {
      return std::nullopt;
    }
    if (const auto address = masterOfSlots(range.elements[2], asked)) {
      map.assign(range.elements[0].integer, range.elements[1].integer, *address);
    }
  }
  return map;
}

inline ClusterState parseClusterInfo(std::string_view text) noexcept {
  ClusterState state;
  constexpr std::string_view kEpoch = "cluster_current_epoch:";
  state.ok = text.find("cluster_state:ok") != std::string_view::npos;
  if (const auto at = text.find(kEpoch); at != std::string_view::npos) {
    const std::string_view number = text.substr(at + kEpoch.size());
    std::from_chars(number.data(), number.data() + number.size(), state.epoch);
  }
  return state;
}

}  // namespace rlock::detail
