// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/scenario.hpp"
#include "simulation/simulation.hpp"
#include <rlock/count_down_latch.hpp>
#include <rlock/semaphore.hpp>

#include <cstdint>
#include <list>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

namespace rlock::sim {

/// Agents that take and add the permits of one semaphore. A permit has no owner, so nobody may die
/// here, and the data stays.
///
///  - conserved: never are more permits taken than were set, and at the end exactly those are free:
///    whatever became of a reply, each call took effect once.
///  - wake-up: permits that are free are taken by somebody who waits for so many.
class SemaphoreScenario final : public Scenario {
 public:
  explicit SemaphoreScenario(Simulation& simulation) : Scenario(simulation) {}

  void prepare(Plan& plan) override;
  void start(Peer& peer) override;
  void crashed(Peer& /*peer*/) override {}
  void rest() override {}
  void stopWaiting() override;
  [[nodiscard]] bool busy() const override;
  void check() override;
  void checkRest() override;
  [[nodiscard]] bool mayStay(std::string_view key) const override;

 private:
  struct Agent {
    Peer* peer = nullptr;
    std::optional<Semaphore> semaphore{};
    int taken = 0;
    int need = 0;
    bool calling = false;
    bool waits = false;
    Time callingSince{0};
    std::stop_source stop{};
  };

  void next(Agent& agent, Time delay);
  void step(Agent& agent);
  void acquire(Agent& agent);
  template <class T, class Then>
  void started(Agent& agent,
               std::string what,
               std::optional<milliseconds> limit,
               Operation<T> operation,
               Then then);
  void obtained(Agent& agent);

  int permits_ = 1;
  int out_ = 0;  ///< permits whose return was not begun
  bool made_ = false;
  Time freeSince_ = Time::max();
  std::list<Agent> agents_;
};

/// Rounds of one latch: it is set, as many agents count down once each, others wait for it.
///
///  - once: the count is never below what the counts that were begun can make it, and after the
///  last
///    answer it is what they must make it.
///  - opened: nobody is let through before the last count was begun, and everybody after it.
class LatchScenario final : public Scenario {
 public:
  explicit LatchScenario(Simulation& simulation) : Scenario(simulation) {}

  void prepare(Plan& plan) override;
  void start(Peer& peer) override;
  void crashed(Peer& /*peer*/) override {}
  void rest() override {}
  void stopWaiting() override;
  [[nodiscard]] bool busy() const override;
  void check() override;
  void checkRest() override;
  void executed(Node& node, const Command& command, const detail::Reply& reply) override;

 private:
  enum class Phase : std::uint8_t { idle, setting, running };

  [[nodiscard]] Peer& somePeer();
  void step();
  void set();
  void begin();
  void await(bool forEver);
  void countDown();
  [[nodiscard]] std::int64_t onServer();

  Phase phase_ = Phase::idle;
  int count_ = 0;
  int begun_ = 0;         ///< calls that count down
  int answered_ = 0;      ///< of them
  bool unclear_ = false;  ///< one of them goes on in the background, or the round's beginning did
  int waiting_ = 0;       ///< that have not got an answer, also those that have not asked yet
  int asking_ = 0;        ///< of them, those that have asked
  std::uint64_t round_ = 0;
  Time openSince_ = Time::max();
  /// Of those that ask.
  std::list<std::pair<Peer*, std::stop_source>> stops_;
};

}  // namespace rlock::sim
