// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/lock_scenario.hpp"

#include <cstddef>
#include <functional>

namespace rlock::sim {

/// The locks of a LockScenario, with its rules, on a cluster whose slots move and whose masters are
/// replaced. A failover to a replica that lags takes holds away as a server does that loses its
/// data: such holds are excused from validity, and counted.
class ClusterScenario final : public LockScenario {
 public:
  using LockScenario::LockScenario;

  void prepare(Plan& plan) override;
  void migrate(Cluster& cluster) override;

 private:
  [[nodiscard]] std::function<std::size_t(std::size_t lock)> whereabouts() const override;
  [[nodiscard]] Time newsTravel() const override;
};

}  // namespace rlock::sim
