// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/env.hpp>
#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/executor/call.hpp>
#include <rlock/detail/executor/node.hpp>
#include <rlock/error.hpp>
#include <rlock/result.hpp>

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::detail {

/// The events that the dispatcher tells, all of them on the loop thread.
class DispatcherEvents {
 public:
  DispatcherEvents() = default;
  DispatcherEvents(const DispatcherEvents&) = delete;
  DispatcherEvents& operator=(const DispatcherEvents&) = delete;
  virtual ~DispatcherEvents() = default;

  /// There is a connection again: the server behind it may have lost its data.
  /// @param replaced  it is another process than the one before
  virtual void reconnected(bool replaced) = 0;

  virtual void channelConfirmed(const std::string& channel) = 0;
  virtual void channelRefused(const std::string& channel, const Error& error) = 0;
  virtual void channelMessage(const std::string& channel, std::string_view payload) = 0;
  /// The connection of all channels was lost.
  virtual void channelsLost() = 0;
  /// That of one of them was.
  virtual void channelLost(const std::string& channel) = 0;

  /// The client has a connection, or none any more.
  virtual void connectionChanged(bool /*connected*/) {}
  /// There is a connection again to this node.
  /// @param replaced  it is another process than the one before
  virtual void nodeReconnected(const std::string& /*node*/, bool /*replaced*/) {}
  struct Redirected {
    std::string from;
    std::string to;
    std::uint16_t slot;
    bool moved;
  };
  /// A node of a cluster has named another one.
  virtual void redirected(const Redirected& /*redirected*/) {}
};

/// Knows which node a call goes to. It owns the nodes and the connections for subscriptions;
/// whoever uses it names keys and channels, never nodes.
///
/// **Thread safety:** route(), needsTombstone(), nodeName(), placeOf(), parts() and counters() from
/// any thread; the rest on the loop thread.
class Router : public NodeOwner {
 public:
  struct Counters {
    std::uint64_t commands;
    std::uint64_t reconnects;
    std::uint64_t scriptsLoaded;
  };

  /// Starts connecting; `ready` is called on the loop when the first attempt has succeeded or
  /// failed.
  virtual void open(UniqueFunction<void(Result<void>)> ready) = 0;
  /// Ends all connections; calls under way finish with `closed`.
  virtual void close() noexcept = 0;
  /// The nodes that there are, also those without a connection.
  [[nodiscard]] virtual std::vector<Node*> nodes() = 0;
  /// As NodeAcks::end(), for all nodes.
  virtual void endAcks() {}

  /// Chooses the node that a call goes to now. Null: none is known; resend() waits for one.
  virtual Node* route(Call& call) = 0;
  /// The node that has a key, for messages.
  [[nodiscard]] virtual std::string nodeName(std::string_view key) const = 0;

  /// Where a key is, for those who send many requests: one request must not name keys of several
  /// slots, and what one node delays must not wait before what goes to another.
  struct Place {
    std::uint16_t slot = 0;
    std::uintptr_t node = 0;  ///< stands for the node

    // NOLINTNEXTLINE(modernize-use-nullptr): the zero is the compiler's own
    friend auto operator<=>(const Place&, const Place&) = default;
  };
  [[nodiscard]] virtual Place placeOf(std::string_view key) const = 0;
  /// A slot of each node: together they stand for all keys.
  [[nodiscard]] virtual std::vector<std::uint16_t> parts() const = 0;

  /// The reach of what is published on a channel.
  enum class Reach : std::uint8_t {
    slot,        ///< who subscribed where the channel's slot is; scripts of that slot publish
    everywhere,  ///< who subscribed anywhere; scripts of every slot publish
  };
  virtual void subscribe(std::string channel, Reach reach) = 0;
  virtual void unsubscribe(const std::string& channel) = 0;
  /// Replaces the connections for subscriptions by others.
  virtual void renewSubscriptions() {}

  [[nodiscard]] virtual Counters counters() const noexcept = 0;
};

}  // namespace rlock::detail
