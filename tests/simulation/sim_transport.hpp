// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/sim_network.hpp"
#include <rlock/detail/net/pending_requests.hpp>
#include <rlock/detail/net/transport.hpp>
#include <rlock/options.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace rlock::sim {

/// The view of somebody who watches what a process sends.
class ClientObserver {
 public:
  ClientObserver() = default;
  ClientObserver(const ClientObserver&) = delete;
  ClientObserver& operator=(const ClientObserver&) = delete;
  virtual ~ClientObserver() = default;

  virtual void sent(SimEnv& env, Node& node, const Command& command) = 0;
};

/// When a lost connection is replaced: at once, and then after pauses that double. A connection
/// that was of use ends the doubling.
class Redial {
 public:
  Redial(SimEnv& env, const Options& options, World::Action dial);

  /// After the pause that is due.
  void start();
  void succeeded() noexcept { failures_ = 0; }
  void stop() noexcept { timer_->disarm(); }

 private:
  SimEnv& env_;
  const std::chrono::milliseconds min_;
  const std::chrono::milliseconds max_;
  World::Action dial_;
  const std::unique_ptr<detail::Timer> timer_;
  int failures_ = 0;
};

/// CommandLink without sockets and threads: the same order of requests, the same judgement of what
/// is lost and what was never sent, over the simulated network.
class SimCommandTransport final : public detail::net::CommandTransport,
                                  public std::enable_shared_from_this<SimCommandTransport> {
 public:
  /// @param where  the server to dial next
  SimCommandTransport(std::shared_ptr<SimEnv> env,
                      std::function<Node&()> where,
                      const Options& options,
                      detail::net::LinkEvents& events,
                      ClientObserver& observer);
  ~SimCommandTransport() override;

  void open() override;
  void close() noexcept override;
  bool submit(detail::net::Request& request,
              std::span<const std::string_view> argv,
              Mode mode) override;
  bool submitGroup(std::span<const Part> group) override;
  Awaited await(detail::net::Request& request, Clock::time_point deadline) override;
  void distrust() noexcept override { pending_.distrust(); }
  void abandon(Clock::time_point since, Errc errc, const char* what) noexcept override;
  [[nodiscard]] bool up() const noexcept override { return connection_ != nullptr; }
  [[nodiscard]] Totals totals() const noexcept override { return totals_; }

  /// It has a connection that works.
  [[nodiscard]] bool healthy() const noexcept {
    return closed_ || (connection_ && connection_->healthy());
  }

 private:
  class Ping;

  void dial();
  void dialled(ConnectionPtr connection);
  void tellDown(Error error);
  void flush();
  void flushSoon();
  void heard(detail::Reply reply);
  void fail(Errc errc, const std::string& what);
  void runCompleted();
  void heartbeat();
  void checkStall();
  void watchStall();

  const std::shared_ptr<SimEnv> env_;
  const std::function<Node&()> where_;
  Node* node_;
  const std::chrono::milliseconds connectTimeout_;
  const std::chrono::milliseconds heartbeatInterval_;
  const std::chrono::milliseconds lastsAfter_;
  detail::net::LinkEvents& events_;
  ClientObserver& observer_;
  Redial redial_;
  const std::unique_ptr<detail::Timer> connectTimer_;
  const std::unique_ptr<detail::Timer> heartbeat_;
  const std::unique_ptr<detail::Timer> stall_;
  const std::unique_ptr<detail::Timer> roomTimer_;
  std::shared_ptr<Dialling> dialling_;
  ConnectionPtr connection_;
  std::shared_ptr<const detail::net::ServerSession> session_;
  Clock::time_point upSince_{};
  detail::net::PendingRequests pending_;
  std::vector<Command> out_;
  bool flushing_ = false;
  bool blocked_ = false;  ///< the socket has no room
  bool closed_ = false;
  detail::net::RequestQueue completed_;
  std::uint64_t answeredAtHeartbeat_ = 0;
  Totals totals_;
};

/// PubSubLink without sockets, over the same SubscriptionBook: keeps the wanted channels subscribed
/// over a connection of its own.
class SimSubscriptions final : public detail::net::SubscriptionTransport {
 public:
  SimSubscriptions(std::shared_ptr<SimEnv> env,
                   Node& node,
                   const Options& options,
                   detail::net::PubSubEvents& events,
                   detail::net::ChannelKind kind = detail::net::ChannelKind::classic);
  ~SimSubscriptions() override;

  void subscribe(std::string channel) override;
  void unsubscribe(const std::string& channel) override;
  void close() noexcept override;

  /// All that is wanted is subscribed, over a connection that works.
  [[nodiscard]] std::function<bool()> health() const;
  [[nodiscard]] bool healthy() const noexcept;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace rlock::sim
