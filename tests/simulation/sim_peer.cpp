// SPDX-License-Identifier: Apache-2.0
#include "simulation/sim_peer.hpp"

#include "objects/client_core.hpp"
#include <rlock/log.hpp>

#include <algorithm>
#include <string>
#include <utility>

namespace rlock::sim {

namespace {

/// Of the form that clients give themselves.
std::string idOf(int process) {
  std::string number = std::to_string(process);
  return "00000000-0000-4000-8000-" + std::string(12 - number.size(), '0') + number;
}

}  // namespace

Peer::Peer(World& world,
           int index,
           DriftingClock clock,
           const std::vector<std::unique_ptr<Node>>& nodes,
           const Options& options,
           ClientObserver& observer)
    : process_(world, index, clock), nodes_(nodes), id_(idOf(index)) {
  const auto log = std::make_shared<const detail::Logger>(
      [&world, index](LogLevel, std::string_view line) {
        world.trace("process ", index, " logs: ", line);
      },
      LogLevel::debug);
  const bool cluster = options.topology == Topology::cluster;
  const std::size_t clients = cluster ? 1 : nodes.size();
  places_.reserve(clients);
  for (std::size_t i = 0; i < clients; ++i) {
    Place& place = places_.emplace_back();
    place.env = std::make_shared<SimEnv>(process_);
    Options here = options;
    if (!cluster) {
      here.endpoints = {Endpoint{"server" + std::to_string(i), 6379, {}}};
    }
    auto core = std::make_shared<detail::ClientCore>(
        detail::ClientWorld{
            place.env,
            cluster ? toCluster(place, here, observer) : toServer(place, *nodes[i], here, observer),
            false},
        id_,
        here,
        log);
    core->open(here);
    place.client = std::make_unique<Client>(detail::ClientAccess::make(std::move(core)));
  }
}

detail::net::Transports Peer::toServer(Place& place,
                                       Node& node,
                                       const Options& options,
                                       ClientObserver& observer) const {
  detail::net::Transports transports;
  transports.commands = [this, &place, &node, options, &observer](detail::net::LinkEvents& events) {
    return link(
        place, [&node]() -> Node& { return node; }, options, events, observer);
  };
  transports.subscriptions = [this, &place, &node, options](detail::net::PubSubEvents& events) {
    return channels(place, node, options, events);
  };
  return transports;
}

detail::net::Transports Peer::toCluster(Place& place,
                                        const Options& options,
                                        ClientObserver& observer) const {
  const auto at = [this](const Endpoint& endpoint) -> Node& {
    const auto found = std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& node) {
      return node->name() == toString(endpoint);
    });
    return **found;
  };
  detail::net::Transports transports;
  transports.commands = [this, &place, options, &observer, at](detail::net::LinkEvents& events) {
    // Each attempt goes to the next of the configured servers.
    auto next = [at, endpoints = options.endpoints, turn = std::size_t{0}]() mutable -> Node& {
      return at(endpoints[turn++ % endpoints.size()]);
    };
    return link(place, std::move(next), options, events, observer);
  };
  transports.commandsTo = [this, &place, options, &observer, at](const Endpoint& node,
                                                                 detail::net::LinkEvents& events) {
    Node& there = at(node);
    return link(
        place, [&there]() -> Node& { return there; }, options, events, observer);
  };
  transports.subscriptionsTo = [this, &place, options, at](const Endpoint& node,
                                                           detail::net::ChannelKind kind,
                                                           detail::net::PubSubEvents& events) {
    return channels(place, at(node), options, events, kind);
  };
  return transports;
}

std::shared_ptr<SimCommandTransport> Peer::link(Place& place,
                                                std::function<Node&()> where,
                                                const Options& options,
                                                detail::net::LinkEvents& events,
                                                ClientObserver& observer) const {
  auto made =
      std::make_shared<SimCommandTransport>(place.env, std::move(where), options, events, observer);
  place.health.push_back([weak = std::weak_ptr(made)] {
    const auto commands = weak.lock();
    return !commands || commands->healthy();
  });
  return made;
}

std::unique_ptr<SimSubscriptions> Peer::channels(Place& place,
                                                 Node& node,
                                                 const Options& options,
                                                 detail::net::PubSubEvents& events,
                                                 detail::net::ChannelKind kind) const {
  auto made = std::make_unique<SimSubscriptions>(place.env, node, options, events, kind);
  place.health.push_back(made->health());
  return made;
}

Peer::~Peer() = default;

std::string Peer::field(std::uint64_t owner) const {
  return id_ + ':' + std::to_string(owner);
}

bool Peer::healthy() const {
  return std::all_of(places_.begin(), places_.end(), [](const Place& place) {
    return std::all_of(
        place.health.begin(), place.health.end(), [](const auto& well) { return well(); });
  });
}

void Peer::close(std::chrono::milliseconds limit) {
  for (Place& place : places_) {
    process_.enter(*place.env, [&place, limit] { place.client->close(limit); });
  }
}

bool Peer::closed() const {
  return std::all_of(
      places_.begin(), places_.end(), [](const Place& place) { return place.env->ended(); });
}

void Peer::kill() {
  process_.kill();
  died_ = true;
  for (const auto& node : nodes_) {
    node->processDied(index());
  }
}

void Peer::exhume() {
  std::vector<SimEnv*> loops;
  for (const Place& place : places_) {
    loops.push_back(place.env.get());
  }
  process_.exhume(loops);
}

}  // namespace rlock::sim
