// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/dialer.hpp"
#include "net/loop.hpp"
#include <rlock/detail/net/transport.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace rlock::detail::net {

class MasterWatch;

/// A connection for subscriptions, kept alive and repaired, with any number of channels.
///
/// It connects at the first subscribe(). A dead peer is noticed within heartbeatInterval +
/// replyTimeout. Calls never block and cost one pipelined request per pass of the loop.
///
/// Invariants: the SubscriptionBook says which channels are wanted and which of them this
/// connection has confirmed; after each reconnection all wanted ones are subscribed anew. A channel
/// is told as confirmed only by an answer to a request that this connection has sent after it was
/// wanted. Events are told from the loop and not from within a call, and none after close().
///
/// **Thread safety:** loop thread only.
class PubSubLink final : public SubscriptionTransport {
 public:
  /// @param events  must stay valid until close()
  /// @param watch   leads the link to the master; null: the server does not move
  PubSubLink(std::shared_ptr<Loop> loop,
             LinkSettings settings,
             ChannelKind kind,
             PubSubEvents& events,
             const std::shared_ptr<MasterWatch>& watch = nullptr);
  /// To classic channels.
  PubSubLink(std::shared_ptr<Loop> loop,
             LinkSettings settings,
             PubSubEvents& events,
             const std::shared_ptr<MasterWatch>& watch = nullptr)
      : PubSubLink(std::move(loop), std::move(settings), ChannelKind::classic, events, watch) {}
  ~PubSubLink() override;

  void subscribe(std::string channel) override;
  void unsubscribe(const std::string& channel) override;
  void renew() override;
  void requestsGoTo(const std::shared_ptr<const ServerSession>& server) override;
  void close() noexcept override;
  /// Ends the connection, which is of no use, soon after the call; another is made, after a pause
  /// that grows.
  void leave();

  [[nodiscard]] bool up() const noexcept;
  /// Channels that are wanted, confirmed or not.
  [[nodiscard]] std::size_t channels() const noexcept;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace rlock::detail::net
