// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/scenario.hpp"
#include "simulation/sim_cluster.hpp"
#include "simulation/sim_network.hpp"
#include "simulation/sim_peer.hpp"
#include "simulation/sim_world.hpp"
#include <rlock/error.hpp>
#include <rlock/result.hpp>

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlock::sim {

struct Violation {
  std::string rule;
  std::string what;
  Time at{0};
};

/// How often things happened in all schedules together: a rule that nothing happens to break proves
/// nothing.
using Coverage = std::map<std::string, std::uint64_t>;

/// How long a call may take, and how much longer its members, which have limits of their own.
struct CallLimit {
  // NOLINTNEXTLINE(google-explicit-constructor): most calls have none
  CallLimit(milliseconds ofTheCall, milliseconds ofItsMembers = milliseconds(0)) noexcept
      : time(ofTheCall), more(ofItsMembers) {}

  milliseconds time;
  milliseconds more;
};

/// A call that was started and has not answered yet.
struct OpenCall {
  Peer* peer;
  std::string what;
  Time startedAt;
  /// By the clock of its process; max(): without a limit.
  TimePoint limit;
  TimePoint latest;  ///< when its members must have answered
};

/// One schedule: processes with several agents each do what a scenario says, faults happen, then
/// everything heals and comes to rest. Rules of all scenarios:
///
///  - deadline: every call ends in time.
///  - progress: when nothing is broken any more, all that waits ends.
///  - error: where nothing was ever broken, no call fails.
///  - residue: at the end nothing is left, neither on the servers nor in the clients.
class Simulation final : private ServerObserver, private ClientObserver {
 public:
  using MakeScenario = std::function<std::unique_ptr<Scenario>(Simulation&)>;

  Simulation(std::uint64_t seed, bool traced, Coverage& coverage, const MakeScenario& make);
  ~Simulation() override;

  /// Empty when every rule was kept.
  std::optional<Violation> run();

  [[nodiscard]] std::uint64_t events() const noexcept { return world_.executed(); }
  [[nodiscard]] std::uint64_t hash() const noexcept { return world_.hash(); }

  // For scenarios.
  [[nodiscard]] World& world() noexcept { return world_; }
  [[nodiscard]] Random& random() noexcept { return world_.random(); }
  [[nodiscard]] Time now() const noexcept { return world_.now(); }
  [[nodiscard]] const Plan& plan() const noexcept { return plan_; }
  [[nodiscard]] Node& node(std::size_t index = 0) { return *nodes_[index]; }
  [[nodiscard]] const std::vector<std::unique_ptr<Node>>& nodes() const { return nodes_; }
  /// Null: the servers know nothing of each other.
  [[nodiscard]] const Cluster* cluster() const noexcept { return cluster_.get(); }
  [[nodiscard]] const std::vector<std::unique_ptr<Peer>>& peers() const { return peers_; }
  [[nodiscard]] bool resting() const noexcept { return resting_; }
  /// Nothing is looked at any more.
  [[nodiscard]] bool over() const noexcept { return over_ || violation_.has_value(); }
  /// When something was last broken, or not yet mended.
  [[nodiscard]] Time lastUpset() const noexcept { return lastUpset_; }
  /// How long a few messages take at most, when nothing is broken.
  [[nodiscard]] Time bound() const;
  /// The process could not act lately.
  [[nodiscard]] bool sleepy(const Peer& peer) const;
  void broken(const std::string& rule, const std::string& what);
  void count(const std::string& what) { ++coverage_[what]; }
  template <class... Parts>
  void trace(const Parts&... parts) const {
    world_.trace(parts...);
  }

  /// How long an agent does nothing.
  [[nodiscard]] Time thinkingTime();
  /// Options::callTimeout as it counts.
  [[nodiscard]] milliseconds callTimeout() const { return 2 * plan_.options.commandTimeout; }
  /// Starts an operation on the loop of the process. `then` gets its result, also after a
  /// violation.
  /// @param limit  how long it may take; empty: as long as it likes
  template <class T, class Then>
  void call(Peer& peer,
            std::string what,
            std::optional<CallLimit> limit,
            Operation<T> operation,
            Then then) {
    const auto record = open(peer, std::move(what), limit);
    std::move(operation).start([this, record, then = std::move(then)](Result<T> result) mutable {
      answered(*record, result.has_value() ? nullptr : &result.error());
      calls_.erase(record);
      then(std::move(result));
    });
  }
  [[nodiscard]] const std::list<OpenCall>& calls() const noexcept { return calls_; }

 private:
  using CallRecord = std::list<OpenCall>::iterator;

  void makePlan();
  void planFaults();
  void addPeer();
  template <class SomeNode>
  void cut(const SomeNode& someNode, bool commands);
  void hamperAll();
  void crash();
  [[nodiscard]] Peer* anyLiving();
  template <class Fault>
  void planFault(int times, Time before, Fault fault);
  [[nodiscard]] bool hampered(const Peer& peer) const;
  [[nodiscard]] bool healthy() const;
  void upset() noexcept { lastUpset_ = now(); }
  void tick();
  void runUntil(Time end);
  void checkLimits();
  void closeAll();
  void checkResidue();
  CallRecord open(Peer& peer, std::string what, std::optional<CallLimit> limit);
  void answered(const OpenCall& call, const Error* error);

  void executing(Node& node, const Command& command) override;
  void executed(Node& node, const Command& command, const detail::Reply& reply) override;
  void connectionCut(Node& node, int process) override;
  void sent(SimEnv& env, Node& node, const Command& command) override;

  World world_;
  Coverage& coverage_;
  Plan plan_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unique_ptr<Cluster> cluster_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::unique_ptr<Scenario> scenario_;
  std::list<OpenCall> calls_;
  bool resting_ = false;
  bool over_ = false;  ///< rules about what goes on do not apply any more
  Time lastUpset_{0};
  std::optional<Violation> violation_;
};

}  // namespace rlock::sim
