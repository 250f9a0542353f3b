// SPDX-License-Identifier: Apache-2.0
#include "simulation/cluster_scenario.hpp"

#include <string>

namespace rlock::sim {

void ClusterScenario::prepare(Plan& plan) {
  Random& random = sim_.random();
  plan.cluster.shards = 3;
  plan.nodes = 6;
  plan.cluster.old = random.chance(20);
  plan.cluster.hasty = random.chance(50) ? 50 : 0;
  plan.cluster.migrations = random.chance(80) ? random.between(1, 12) : 0;
  // Data are lost by failovers to replicas that lag. Where nothing else breaks, no master does.
  plan.faults.losses = 0;
  plan.cluster.failovers = random.chance(70) && !plan.faults.none() ? random.between(1, 6) : 0;
  plan.cluster.lagMax = random.chance(50) ? random.someMs(1, 60) : Time(0);
  plan.options.topology = Topology::cluster;
  for (int i = 0; i < 2; ++i) {
    const std::string host = "server" + std::to_string(random.below(6));
    plan.options.endpoints.push_back(Endpoint{host, 6379, {}});
  }
  // Each fault is at one of six servers, of which a process uses one or two at a time.
  plan.faults.cutCommands *= 4;
  plan.faults.cutSubscribers *= 4;
  plan.faults.blackHoles *= 2;
  plan.faults.freezes *= 2;
  plan.faults.restarts *= 2;
  LockScenario::prepare(plan);
}

std::function<std::size_t(std::size_t lock)> ClusterScenario::whereabouts() const {
  return [this](std::size_t lock) { return sim_.cluster()->holderOf(LockKind::nameOf(lock)); };
}

void ClusterScenario::migrate(Cluster& cluster) {
  cluster.migrate(LockKind::nameOf(sim_.random().below(locks())));
}

Time ClusterScenario::newsTravel() const {
  // The longest pause between two looks at the map, and one that a server does not answer.
  return milliseconds(1900);
}

}  // namespace rlock::sim
