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
  places_.reserve(nodes.size());
  for (const auto& node : nodes) {
    Place& place = places_.emplace_back();
    place.env = std::make_shared<SimEnv>(process_);
    Options here = options;
    here.endpoints = {Endpoint{"server" + std::to_string(node->index()), 6379, {}}};
    detail::net::Transports transports;
    transports.commands = [&](detail::net::LinkEvents& events) {
      auto link = std::make_shared<SimCommandTransport>(place.env, *node, here, events, observer);
      place.commands = link;
      return link;
    };
    transports.subscriptions = [&](detail::net::PubSubEvents& events) {
      auto link = std::make_unique<SimSubscriptions>(place.env, *node, here, events);
      place.subscriptions = link.get();
      return link;
    };
    auto core = std::make_shared<detail::ClientCore>(
        detail::ClientWorld{place.env, transports, false}, id_, here, log);
    core->open(here);
    place.client = std::make_unique<Client>(detail::ClientAccess::make(std::move(core)));
  }
}

Peer::~Peer() = default;

std::string Peer::field(std::uint64_t owner) const {
  return id_ + ':' + std::to_string(owner);
}

bool Peer::healthy() const {
  return std::all_of(places_.begin(), places_.end(), [](const Place& place) {
    const auto commands = place.commands.lock();
    return !commands || (commands->healthy() && place.subscriptions->healthy());
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
