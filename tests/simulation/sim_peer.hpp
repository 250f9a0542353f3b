// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/sim_env.hpp"
#include "simulation/sim_network.hpp"
#include "simulation/sim_transport.hpp"
#include <rlock/client.hpp>
#include <rlock/options.hpp>

#include <functional>
#include <memory>
#include <vector>

namespace rlock::sim {

/// A process with one client for each server, or one for all where they are a cluster. They are the
/// library's own clients, from the public handles to the dispatcher; only what they stand on is
/// simulated.
class Peer {
 public:
  Peer(World& world,
       int index,
       DriftingClock clock,
       const std::vector<std::unique_ptr<Node>>& nodes,
       const Options& options,
       ClientObserver& observer);
  ~Peer();

  [[nodiscard]] int index() const noexcept { return process_.index(); }
  [[nodiscard]] SimProcess& process() noexcept { return process_; }
  [[nodiscard]] const SimProcess& process() const noexcept { return process_; }
  [[nodiscard]] TimePoint now() const noexcept { return process_.now(); }
  [[nodiscard]] std::size_t clients() const noexcept { return places_.size(); }
  [[nodiscard]] Client& client(std::size_t node = 0) { return *places_[node].client; }
  [[nodiscard]] std::string field(std::uint64_t owner) const;
  [[nodiscard]] const SimEnv& env(std::size_t node = 0) const { return *places_[node].env; }

  /// Runs a part of the application on the loop of the first client.
  void run(World::Action action) { process_.enter(*places_.front().env, std::move(action)); }

  /// Connected and subscribed as it wants to be.
  [[nodiscard]] bool healthy() const;
  /// Closes all clients, which takes some time.
  void close(std::chrono::milliseconds limit);
  [[nodiscard]] bool closed() const;
  /// The process dies.
  void kill();
  [[nodiscard]] bool died() const noexcept { return died_; }
  /// Lets the rest of a process that died run again, so that it can be closed.
  void exhume();

 private:
  struct Place;
  [[nodiscard]] detail::net::Transports toServer(Place& place,
                                                 Node& node,
                                                 const Options& options,
                                                 ClientObserver& observer) const;
  [[nodiscard]] detail::net::Transports toCluster(Place& place,
                                                  const Options& options,
                                                  ClientObserver& observer) const;
  [[nodiscard]] std::shared_ptr<SimCommandTransport> link(Place& place,
                                                          std::function<Node&()> where,
                                                          const Options& options,
                                                          detail::net::LinkEvents& events,
                                                          ClientObserver& observer) const;
  [[nodiscard]] std::unique_ptr<SimSubscriptions> channels(
      Place& place,
      Node& node,
      const Options& options,
      detail::net::PubSubEvents& events,
      detail::net::ChannelKind kind = detail::net::ChannelKind::classic) const;
  struct Place {
    std::shared_ptr<SimEnv> env;
    std::vector<std::function<bool()>> health;  ///< of its connections, for as long as they are
    std::unique_ptr<Client> client;
  };

  SimProcess process_;
  const std::vector<std::unique_ptr<Node>>& nodes_;
  std::vector<Place> places_;
  std::string id_;
  bool died_ = false;
};

}  // namespace rlock::sim
