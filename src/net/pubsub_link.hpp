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
/// **Thread safety:** loop thread only.
///
/// It connects at the first subscribe(). A dead peer is noticed within heartbeatInterval +
/// replyTimeout. Calls never block and cost one pipelined request per pass of the loop.
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
  void close() noexcept override;

  [[nodiscard]] bool up() const noexcept;
  /// Channels that are wanted, confirmed or not.
  [[nodiscard]] std::size_t channels() const noexcept;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace rlock::detail::net
