// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "net/dialer.hpp"
#include "net/loop.hpp"
#include <rlock/error.hpp>

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace rlock::detail::net {

/// What a PubSubLink tells its owner: on the loop, never inside a call to the link. Each may call
/// the link again or close it.
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
  /// The server refuses the channel. The link asks again while the channel is wanted, after a
  /// second at first and then more and more rarely; each refusal is told.
  virtual void onRefused(const std::string& channel, const Error& error) = 0;
  virtual void onMessage(const std::string& channel, std::string_view payload) = 0;
  /// Connected; subscriptions follow.
  virtual void onUp() = 0;
  /// The connection was lost, or another attempt to connect failed. The link goes on trying while
  /// it has channels.
  virtual void onDown(const Error& error) = 0;
};

/// A connection for subscriptions, kept alive and repaired, with any number of channels.
///
/// **Thread safety:** loop thread only.
///
/// It connects at the first subscribe(). A dead peer is noticed within heartbeatInterval +
/// replyTimeout. Calls never block and cost one pipelined request per pass of the loop.
class PubSubLink {
 public:
  /// @param events  must stay valid until close()
  PubSubLink(std::shared_ptr<Loop> loop, LinkSettings settings, PubSubEvents& events);
  PubSubLink(const PubSubLink&) = delete;
  PubSubLink& operator=(const PubSubLink&) = delete;
  /// Closes.
  ~PubSubLink();

  /// A further call for the same channel is confirmed anew, by the server.
  void subscribe(std::string channel);
  /// No event for the channel comes after it. Unknown channels are ignored.
  void unsubscribe(const std::string& channel);

  /// Drops channels and connection. No event comes after it.
  void close() noexcept;

  [[nodiscard]] bool up() const noexcept;
  /// Channels that are wanted, confirmed or not.
  [[nodiscard]] std::size_t channels() const noexcept;

 private:
  class Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace rlock::detail::net
