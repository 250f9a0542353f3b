// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/no_memory.hpp>
#include <rlock/detail/executor/node.hpp>
#include <rlock/detail/executor/router.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/error.hpp>
#include <rlock/log.hpp>
#include <rlock/options.hpp>
#include <rlock/result.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rlock::detail {

/// One node for everything: a single server, or the master that Sentinels name. To the Node a
/// failover is a connection that was lost and made again, so nothing here knows of Sentinels. Calls
/// wait in the Node, which is there as long as this; hence route() always finds a node, and no call
/// waits in the router.
///
/// **Thread safety:** as Router.
class SingleRouter final : public Router {
 public:
  SingleRouter(NodeTerms terms,
               const net::Transports& transports,
               const Options& options,
               DispatcherEvents& events);
  ~SingleRouter() override;

  void open(UniqueFunction<void(Result<void>)> ready) override;
  void close() noexcept override;
  [[nodiscard]] std::vector<Node*> nodes() override { return {&node_}; }
  void endAcks() override { node_.acks().end(); }
  Node* route(Call& call) override;
  [[nodiscard]] std::string nodeName(std::string_view /*key*/) const override {
    return node_.name();
  }
  [[nodiscard]] Place placeOf(std::string_view /*key*/) const override { return {}; }
  [[nodiscard]] std::vector<std::uint16_t> parts() const override { return {0}; }
  void subscribe(std::string channel, Reach /*reach*/) override {
    pubsub_->subscribe(std::move(channel));
  }
  void unsubscribe(const std::string& channel) override { pubsub_->unsubscribe(channel); }
  void renewSubscriptions() override { pubsub_->renew(); }
  [[nodiscard]] Counters counters() const noexcept override;

  void nodeUp(Node& node, bool again, bool replaced) override;
  bool nodeDown(Node& node, const Error& error) override;
  void guardChanged() noexcept override {}
  [[nodiscard]] bool needsTombstone() const noexcept override { return node_.mustGuard(); }
  void resend(const IntrusivePtr<Call>& call) override;
  Follow redirect(Node& /*node*/, const IntrusivePtr<Call>& /*call*/) override {
    return Follow::no;
  }
  void outOfDate(Node& /*node*/) override {}

 private:
  class Channels;

  const NodeTerms terms_;
  const Error closed_;
  DispatcherEvents& events_;
  Node node_;
  std::unique_ptr<net::PubSubEvents> channels_;
  std::unique_ptr<net::SubscriptionTransport> pubsub_;
  UniqueFunction<void(Result<void>)> ready_;
};

class SingleRouter::Channels final : public net::PubSubEvents {
 public:
  Channels(DispatcherEvents& events, std::shared_ptr<const Logger> log)
      : events_(events), log_(std::move(log)) {}

 private:
  void onSubscribed(const std::string& channel) override { events_.channelConfirmed(channel); }
  void onRefused(const std::string& channel, const Error& error) override {
    events_.channelRefused(channel, error);
  }
  void onMessage(const std::string& channel, std::string_view payload) override {
    events_.channelMessage(channel, payload);
  }
  void onUp() override { down_ = false; }
  void onDown(const Error& error) override {
    log_->write(std::exchange(down_, true) ? LogLevel::debug : LogLevel::warning,
                fmt::format("subscriber connection lost, connecting again: {}", error.what()));
    events_.channelsLost();
  }

  DispatcherEvents& events_;
  std::shared_ptr<const Logger> log_;
  bool down_ = false;
};

inline SingleRouter::SingleRouter(NodeTerms terms,
                                  const net::Transports& transports,
                                  const Options& options,
                                  DispatcherEvents& events)
    : terms_(std::move(terms)),
      // NOLINTNEXTLINE(bugprone-throw-keyword-missing): kept for the calls under way at the end
      closed_(Errc::closed, "the client was closed"),
      events_(events),
      node_(terms_, transports.commands, toString(options.endpoints.front()), *this),
      channels_(std::make_unique<Channels>(events, terms_.log)),
      pubsub_(transports.subscriptions(*channels_)) {}

inline SingleRouter::~SingleRouter() = default;

inline void SingleRouter::open(UniqueFunction<void(Result<void>)> ready) {
  ready_ = std::move(ready);
  node_.link().open();
}

inline void SingleRouter::close() noexcept {
  node_.close(&closed_);
  pubsub_->close();
}

inline Node* SingleRouter::route(Call& call) {
  call.setNode(node_);
  return &node_;
}

inline void SingleRouter::resend(const IntrusivePtr<Call>& call) {
  call->setNode(node_);
  node_.send(call);
}

inline void SingleRouter::nodeUp(Node& node, bool again, bool replaced) {
  if (ready_) {
    std::exchange(ready_, nullptr)(Result<void>());
  }
  // Without memory for it waiters have their safety poll.
  ifThereIsMemorySoon([&] { pubsub_->requestsGoTo(node.session()); });
  if (again) {
    events_.reconnected(replaced);
    events_.nodeReconnected(node.name(), replaced);
  }
}

inline bool SingleRouter::nodeDown(Node& /*node*/, const Error& error) {
  if (!ready_) {
    return false;
  }
  std::exchange(ready_, nullptr)(Result<void>(error));
  return true;
}

inline Router::Counters SingleRouter::counters() const noexcept {
  const net::CommandTransport::Totals link = node_.link().totals();
  return {link.commands, link.connections > 0 ? link.connections - 1 : 0, node_.scriptsLoaded()};
}

}  // namespace rlock::detail
