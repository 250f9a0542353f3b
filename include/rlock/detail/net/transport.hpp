// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/unique_function.hpp>
#include <rlock/detail/net/request.hpp>
#include <rlock/detail/net/server_session.hpp>
#include <rlock/error.hpp>
#include <rlock/options.hpp>
#include <rlock/result.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace rlock::detail::net {

/// The events of a CommandTransport, told to its owner on the loop thread.
class LinkEvents {
 public:
  LinkEvents() = default;
  LinkEvents(const LinkEvents&) = delete;
  LinkEvents& operator=(const LinkEvents&) = delete;
  virtual ~LinkEvents() = default;

  virtual void onUp(const std::shared_ptr<const ServerSession>& session) = 0;
  /// The connection was lost, or another attempt to connect failed.
  virtual void onDown(const Error& error) = 0;
};

/// Brings requests to one server, over one connection at a time, and says what became of each. A
/// lost connection is replaced by itself. CommandLink is the one over sockets; a simulation has
/// another.
///
/// A request that submit() has taken completes once: with its reply, or unsent, or lost when its
/// connection broke after it may have reached the server. Replies come in the order of the
/// requests. A connection on which the server asks for the authentication again is given up; the
/// request that was refused has that answer. Node is the caller, AckLane for a connection of its
/// own.
///
/// **Thread safety:** submit(), await() and the observers from any thread; the rest on the loop
/// thread.
class CommandTransport {
 public:
  using Clock = std::chrono::steady_clock;
  /// How the reply is taken.
  enum class Mode : std::uint8_t {
    awaited,        ///< by a thread in await()
    awaitedAtOnce,  ///< likewise, and it is this thread, which does nothing else in between
    background      ///< by completed() on the loop
  };
  enum class Awaited : std::uint8_t { complete, timedOut, interrupted };

  /// Since it was opened.
  struct Totals {
    std::uint64_t commands = 0;
    std::uint64_t connections = 0;
  };

  CommandTransport() = default;
  CommandTransport(const CommandTransport&) = delete;
  CommandTransport& operator=(const CommandTransport&) = delete;
  virtual ~CommandTransport() = default;

  /// Starts connecting.
  virtual void open() = 0;
  /// Ends the connection for good; pending requests complete. No event comes after it.
  virtual void close() noexcept = 0;

  /// Sends a command. False when there is no connection, or none that the request may go out on:
  /// it is untouched then. A background request submitted on the loop thread is written at the end
  /// of the loop's pass.
  virtual bool submit(Request& request, std::span<const std::string_view> argv, Mode mode) = 0;

  /// One command of a group.
  struct Part {
    Request& request;
    std::span<const std::string_view> argv;
  };
  /// As submit() in the background, for commands that must reach the server one right after the
  /// other, whatever other threads send meanwhile: all of them go out or none. Loop thread. Where
  /// there is one server only, nothing needs it.
  virtual bool submitGroup(std::span<const Part> /*group*/) { return false; }

  /// Waits for the reply of an awaited request. After `timedOut` and `interrupted` the request goes
  /// on in the background and ends in completed().
  virtual Awaited await(Request& request, Clock::time_point deadline) = 0;

  /// The connection cannot be killed after all, whatever its handshake said.
  virtual void distrust() noexcept = 0;
  /// Gives the connection up for another, if it is the one that `since` belongs to.
  virtual void abandon(Clock::time_point since, Errc errc, const char* what) noexcept = 0;

  /// Authenticates the connection anew, with what Options::credentials gives now. If the server
  /// refuses, the connection goes on as it was. Without a connection there is nothing to do: the
  /// next one is made with the new credentials. `done` is called once, perhaps at once.
  virtual void authenticate(UniqueFunction<void(Result<void>)> done) { done(Result<void>()); }

  [[nodiscard]] virtual bool up() const noexcept = 0;
  [[nodiscard]] virtual Totals totals() const noexcept = 0;
};

/// The events of a SubscriptionTransport, told to its owner on the loop, never inside a call to it.
/// Each may call it again or close it.
class PubSubEvents {
 public:
  PubSubEvents() = default;
  PubSubEvents(const PubSubEvents&) = delete;
  PubSubEvents& operator=(const PubSubEvents&) = delete;
  virtual ~PubSubEvents() = default;

  /// The server has confirmed, by a request that was sent after the last subscribe(): what is
  /// published from here on arrives, and what was published before that call has arrived or never
  /// will. After every subscribe(), and again after every reconnection.
  virtual void onSubscribed(const std::string& channel) = 0;
  /// The server refuses the channel. The transport asks again while the channel is wanted, after a
  /// second at first and then more and more rarely; each refusal is told.
  virtual void onRefused(const std::string& channel, const Error& error) = 0;
  virtual void onMessage(const std::string& channel, std::string_view payload) = 0;
  /// Connected; subscriptions follow.
  virtual void onUp() = 0;
  /// The connection was lost, or another attempt to connect failed. The transport goes on trying
  /// while it has channels.
  virtual void onDown(const Error& error) = 0;
  /// The node has a channel of the transport no more, or not yet. The transport asks again while
  /// the channel is wanted.
  virtual void onMoved(const std::string& /*channel*/) {}
};

/// Keeps channels subscribed, over a connection of its own. PubSubLink is the one over sockets; a
/// simulation has another.
///
/// **Thread safety:** loop thread only.
class SubscriptionTransport {
 public:
  SubscriptionTransport() = default;
  SubscriptionTransport(const SubscriptionTransport&) = delete;
  SubscriptionTransport& operator=(const SubscriptionTransport&) = delete;
  /// Closes.
  virtual ~SubscriptionTransport() = default;

  /// A further call for the same channel is confirmed anew, by the server.
  virtual void subscribe(std::string channel) = 0;
  /// No event for the channel comes after it. Unknown channels are ignored.
  virtual void unsubscribe(const std::string& channel) = 0;
  /// Replaces the connection by another, if there is one: a subscriber cannot authenticate anew.
  virtual void renew() {}
  /// Drops channels and connection. No event comes after it.
  virtual void close() noexcept = 0;
  /// The client's requests go to this server: a connection to another process is replaced by one
  /// that leads to the same, for a name may stand for another server than before while the old one
  /// lives. One that is replaced and leads elsewhere again stays.
  virtual void requestsGoTo(const std::shared_ptr<const ServerSession>& /*server*/) {}
};

/// How a channel is subscribed to: with SUBSCRIBE, at any node of a cluster, or with SSUBSCRIBE, at
/// the node that has the channel's slot.
enum class ChannelKind : std::uint8_t { classic, sharded };

/// Makes the two connections of a client. The events must stay valid until close().
struct Transports {
  std::function<std::shared_ptr<CommandTransport>(LinkEvents& events)> commands;
  std::function<std::unique_ptr<SubscriptionTransport>(PubSubEvents& events)> subscriptions;
  ///@{
  /// The same to one node of a cluster, which its other nodes have named.
  std::function<std::shared_ptr<CommandTransport>(const Endpoint& node, LinkEvents& events)>
      commandsTo{};
  std::function<std::unique_ptr<SubscriptionTransport>(
      const Endpoint& node, ChannelKind kind, PubSubEvents& events)>
      subscriptionsTo{};
  ///@}
};

}  // namespace rlock::detail::net
