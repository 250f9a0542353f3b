// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/executor/router.hpp>
#include <rlock/detail/executor/slot_map.hpp>
#include <rlock/detail/net/hash_slot.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace rlock::detail {

/// The subscriptions of a client of a cluster: each channel at the node where its messages are,
/// over one connection for each node. A channel whose slot goes to another node is subscribed
/// there, and confirmed anew.
///
/// Invariants: a channel that is wanted is at one node, or waits for a map that names one; a
/// connection is there while a channel is at its node. A step that fails for want of memory keeps
/// them, and is done again when the caller tries once more, or with the next map. ClusterRouter is
/// its only caller, and passes on each map.
///
/// **Thread safety:** loop thread only.
class ClusterChannels {
 public:
  /// @param outOfDate  called when a node's answer says that the map is
  ClusterChannels(const net::Transports& transports,
                  std::shared_ptr<const Logger> log,
                  DispatcherEvents& events,
                  std::function<void()> outOfDate);
  ~ClusterChannels();
  ClusterChannels(const ClusterChannels&) = delete;
  ClusterChannels& operator=(const ClusterChannels&) = delete;

  void subscribe(std::string name, Router::Reach reach);
  void unsubscribe(const std::string& name);
  /// Has each channel where the map says. Before the first one channels only wait.
  /// @param sharded  messages of one slot are heard at its node only
  void follow(const SlotMap& map, bool sharded);
  /// Replaces the connections by others.
  void renew();
  /// No event comes after it.
  void close() noexcept;

 private:
  class Way;
  struct Channel {
    Router::Reach reach = Router::Reach::slot;
    Way* way = nullptr;  // null: its slot has no owner now, or there was no memory for the way
    bool asked = false;  // it was subscribed there
  };
  using Channels = std::unordered_map<std::string, Channel>;

  [[nodiscard]] net::ChannelKind kindOf(const Channel& channel) const noexcept;
  [[nodiscard]] bool belongs(const std::string& name, const Channel& channel) const;
  void place(const std::string& name, Channel& channel);
  static void leave(const std::string& name, Channel& channel);
  Way& wayTo(const Endpoint& node, net::ChannelKind kind);

  const std::function<std::unique_ptr<net::SubscriptionTransport>(
      const Endpoint&, net::ChannelKind, net::PubSubEvents&)>
      connect_;
  const std::shared_ptr<const Logger> log_;
  DispatcherEvents& events_;
  const std::function<void()> outOfDate_;
  bool sharded_ = false;
  SlotMap map_;
  Channels channels_;
  std::vector<std::unique_ptr<Way>> ways_;
};

/// The connection to one node, with the channels that are subscribed over it.
class ClusterChannels::Way final : public net::PubSubEvents {
 public:
  Way(ClusterChannels& all, const Endpoint& node, net::ChannelKind how)
      : at(node), kind(how), transport(all.connect_(node, how, *this)), all_(all) {}

  const Endpoint at;
  const net::ChannelKind kind;
  const std::unique_ptr<net::SubscriptionTransport> transport;
  std::unordered_set<std::string> names{};

 private:
  void onSubscribed(const std::string& channel) override { all_.events_.channelConfirmed(channel); }
  void onRefused(const std::string& channel, const Error& error) override {
    all_.events_.channelRefused(channel, error);
  }
  void onMessage(const std::string& channel, std::string_view payload) override {
    all_.events_.channelMessage(channel, payload);
  }
  void onMoved(const std::string& channel) override {
    all_.events_.channelLost(channel);
    all_.outOfDate_();
  }
  void onUp() override { down_ = false; }
  void onDown(const Error& error) override {
    all_.log_->write(
        std::exchange(down_, true) ? LogLevel::debug : LogLevel::warning,
        fmt::format(
            "subscriber connection to {} lost, connecting again: {}", toString(at), error.what()));
    for (const std::string& name : names) {
      all_.events_.channelLost(name);
    }
    all_.outOfDate_();
  }

  ClusterChannels& all_;
  bool down_ = false;
};

inline ClusterChannels::ClusterChannels(const net::Transports& transports,
                                        std::shared_ptr<const Logger> log,
                                        DispatcherEvents& events,
                                        std::function<void()> outOfDate)
    : connect_(transports.subscriptionsTo),
      log_(std::move(log)),
      events_(events),
      outOfDate_(std::move(outOfDate)) {}

inline ClusterChannels::~ClusterChannels() = default;

inline net::ChannelKind ClusterChannels::kindOf(const Channel& channel) const noexcept {
  return sharded_ && channel.reach == Router::Reach::slot ? net::ChannelKind::sharded
                                                          : net::ChannelKind::classic;
}

/// Whether a channel is where the map wants it.
inline bool ClusterChannels::belongs(const std::string& name, const Channel& channel) const {
  if (!channel.asked || channel.way->kind != kindOf(channel)) {
    return false;
  }
  if (channel.way->kind == net::ChannelKind::classic) {
    // Every node hears these messages.
    return map_.has(channel.way->at);
  }
  const Endpoint* const owner = map_.owner(net::hashSlot(name));
  return owner != nullptr && *owner == channel.way->at;
}

inline void ClusterChannels::place(const std::string& name, Channel& channel) {
  const Endpoint* const owner = map_.owner(net::hashSlot(name));
  if (owner != nullptr) {
    Way& way = wayTo(*owner, kindOf(channel));
    way.names.insert(name);
    // First: a connection that fails to subscribe may have begun to, and is to be left then.
    channel.way = &way;
    way.transport->subscribe(name);
    channel.asked = true;
  }
}

/// A channel that fails to leave is still there.
inline void ClusterChannels::leave(const std::string& name, Channel& channel) {
  channel.way->transport->unsubscribe(name);
  channel.way->names.erase(name);
  channel.way = nullptr;
  channel.asked = false;
}

inline ClusterChannels::Way& ClusterChannels::wayTo(const Endpoint& node, net::ChannelKind kind) {
  for (const auto& way : ways_) {
    if (way->at == node && way->kind == kind) {
      return *way;
    }
  }
  return *ways_.emplace_back(std::make_unique<Way>(*this, node, kind));
}

inline void ClusterChannels::subscribe(std::string name, Router::Reach reach) {
  const auto [entry, isNew] = channels_.try_emplace(std::move(name), Channel{reach});
  Channel& channel = entry->second;
  if (channel.way != nullptr) {
    // Confirmed anew.
    channel.way->transport->subscribe(entry->first);
    channel.asked = true;
  } else {
    place(entry->first, channel);
  }
}

inline void ClusterChannels::unsubscribe(const std::string& name) {
  const auto found = channels_.find(name);
  if (found == channels_.end()) {
    return;
  }
  if (found->second.way != nullptr) {
    leave(name, found->second);
  }
  channels_.erase(found);
}

inline void ClusterChannels::follow(const SlotMap& map, bool sharded) {
  map_ = map;
  sharded_ = sharded;
  for (auto& [name, channel] : channels_) {
    if (belongs(name, channel)) {
      continue;
    }
    if (channel.way != nullptr) {
      leave(name, channel);
      events_.channelLost(name);
    }
    place(name, channel);
  }
  std::erase_if(ways_, [this](const std::unique_ptr<Way>& way) {
    return way->names.empty() && !map_.has(way->at);
  });
}

inline void ClusterChannels::renew() {
  for (const auto& way : ways_) {
    way->transport->renew();
  }
}

inline void ClusterChannels::close() noexcept {
  for (const auto& way : ways_) {
    way->transport->close();
  }
  channels_.clear();
}

}  // namespace rlock::detail
