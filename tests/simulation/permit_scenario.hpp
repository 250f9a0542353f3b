// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/scenario.hpp"
#include "simulation/simulation.hpp"
#include <rlock/permit_expirable_semaphore.hpp>

#include <cstdint>
#include <list>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

namespace rlock::sim {

/// Agents that take and return the permits of one semaphore whose permits have ids, as objects and
/// as ids.
///
///  - conserved: free and taken permits together are as many as were set, at every moment; at the
///  end
///    all are free.
///  - validity: a permit that somebody believes to have is taken on the server, and nobody else has
///    the same. So there are never more believers than permits.
///  - renewal: no permit is renewed that was returned or lost.
///  - wake-up: a free permit does not stay so while somebody waits and nothing is broken.
class PermitScenario final : public Scenario {
 public:
  explicit PermitScenario(Simulation& simulation) : Scenario(simulation) {}

  void prepare(Plan& plan) override;
  void start(Peer& peer) override;
  void crashed(Peer& peer) override;
  void rest() override {}
  void stopWaiting() override;
  [[nodiscard]] bool busy() const override;
  void check() override;
  void checkRest() override;
  void emptied(Node& node) override;
  void executed(Node& node, const Command& command, const detail::Reply& reply) override;
  void sent(Peer& peer, Node& node, const Command& command) override;
  [[nodiscard]] bool mayStay(std::string_view key) const override;

 private:
  /// Permits that were taken together: one as an object, or ids with a lease.
  struct Held {
    std::optional<Permit> permit;
    std::vector<std::string> ids;
    TimePoint validUntil;  ///< of ids; max(): they have no lease
    std::uint64_t epoch;
    bool releasing = false;
  };
  struct Agent {
    Peer* peer = nullptr;
    std::optional<PermitExpirableSemaphore> semaphore{};
    std::vector<Held> held{};
    bool calling = false;
    int need = 0;
    bool waits = false;
    Time callingSince{0};
    std::stop_source stop{};
    Time unclearUntil{0};
  };

  void next(Agent& agent, Time delay);
  void step(Agent& agent);
  void makeSemaphore(Agent& agent);
  void acquire(Agent& agent);
  void release(Agent& agent);
  template <class T, class Took>
  void started(Agent& agent,
               std::string what,
               std::optional<milliseconds> limit,
               Operation<T> operation,
               Took took);
  void obtained(Agent& agent, Held held);
  void unclear(Agent& agent);
  [[nodiscard]] bool believes(const Agent& agent, const Held& held) const;
  void checkPermits();

  int permits_ = 1;
  bool neverExpires_ = false;  ///< some are taken without a lease
  bool made_ = false;
  std::uint64_t epoch_ = 0;  ///< of the data
  Time freeSince_ = Time::max();
  std::list<Agent> agents_;
};

}  // namespace rlock::sim
