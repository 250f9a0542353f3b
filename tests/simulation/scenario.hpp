// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/sim_cluster.hpp"
#include "simulation/sim_network.hpp"
#include "simulation/sim_peer.hpp"
#include <rlock/options.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

namespace rlock::sim {

class Simulation;

/// Names under which faults are counted when they happen: not when they are planned, for there may
/// be nothing to break at that moment.
namespace fault {

inline constexpr const char* kCutCommands = "fault: cut of a connection for commands";
inline constexpr const char* kCutSubscriber = "fault: cut of a connection for messages";
inline constexpr const char* kCut = "fault: connection cut";
inline constexpr const char* kCutUnnoticed = "fault: connection cut, unnoticed";
inline constexpr const char* kBlackHole = "fault: nothing passes";
inline constexpr const char* kOutage = "fault: nothing passes for long";
inline constexpr const char* kFreeze = "fault: server frozen";
inline constexpr const char* kPause = "fault: process stopped";
inline constexpr const char* kCrash = "fault: process died";
inline constexpr const char* kForce = "fault: freed by force";
inline constexpr const char* kRestart = "fault: restart with the data";
inline constexpr const char* kLoss = "fault: restart without the data";
inline constexpr const char* kFlush = "fault: scripts flushed";
inline constexpr const char* kMessageLost = "fault: message lost";
inline constexpr const char* kLate = "fault: request came late";
inline constexpr const char* kWriteBlocked = "fault: no room in the socket";
inline constexpr const char* kKillRefused = "fault: kill refused";

}  // namespace fault

/// How often each fault happens while the applications work.
struct FaultPlan {
  int cutCommands = 0;
  int cutSubscribers = 0;
  int blackHoles = 0;
  int outages = 0;  ///< very long black holes
  int freezes = 0;
  int pauses = 0;
  int crashes = 0;
  int forces = 0;    ///< somebody frees a lock by force
  int restarts = 0;  ///< the server keeps its data
  int losses = 0;    ///< the server loses its data
  int flushes = 0;   ///< of the server's scripts

  [[nodiscard]] bool none() const noexcept {
    return cutCommands + cutSubscribers + blackHoles + outages + freezes + pauses + crashes +
               forces + restarts + losses + flushes ==
           0;
  }
};

/// The parameters of a schedule, drawn from its seed; a scenario may change them.
struct Plan {
  int processes = 2;
  int spares = 3;  ///< that may come after a crash
  int agentsMax = 4;
  int nodes = 1;
  Time workUntil{0};
  bool busy = false;  ///< agents think for a short time only
  ClusterConfig cluster{};
  NetworkConfig network{};
  Options options{};
  FaultPlan faults{};

  /// A request that is lost before the server has refused a kill for the first time keeps its owner
  /// waiting for two minutes, after which it counts as gone.
  [[nodiscard]] bool strandsOwners() const noexcept {
    return network.killDenied && network.killProbeLies;
  }
  [[nodiscard]] Time strandedFor() const noexcept {
    return strandsOwners() ? Time(std::chrono::seconds(140)) : Time(0);
  }
};

/// The applications of a schedule, and the rules of the objects they use.
class Scenario {
 public:
  explicit Scenario(Simulation& simulation) : sim_(simulation) {}
  Scenario(const Scenario&) = delete;
  Scenario& operator=(const Scenario&) = delete;
  virtual ~Scenario() = default;

  /// Changes what does not suit it.
  virtual void prepare(Plan& /*plan*/) {}
  /// A process was made: it gets its agents.
  virtual void start(Peer& peer) = 0;
  /// The process died.
  virtual void crashed(Peer& peer) = 0;
  /// No agent begins anything new, and what is held is given back.
  virtual void rest() = 0;
  /// Each waiter that is left is told to stop.
  virtual void stopWaiting() = 0;
  /// Something is under way, or held.
  [[nodiscard]] virtual bool busy() const = 0;
  /// Looks at the rules, every few milliseconds.
  virtual void check() = 0;
  /// After everything was given back and before the clients are closed.
  virtual void checkRest() {}

  virtual void force() {}
  virtual void emptied(Node& /*node*/) {}
  /// Some slot of a cluster is to go to another server.
  virtual void migrate(Cluster& /*cluster*/) {}
  /// Something keeps the process from acting in time, or its requests from arriving.
  virtual void hampered(Peer& /*peer*/) {}
  virtual void executing(Node& /*node*/, const Command& /*command*/) {}
  virtual void executed(Node& /*node*/,
                        const Command& /*command*/,
                        const detail::Reply& /*reply*/) {}
  virtual void sent(Peer& /*peer*/, Node& /*node*/, const Command& /*command*/) {}

  /// A key may stay for ever, because the documentation says so.
  [[nodiscard]] virtual bool mayStay(std::string_view /*key*/) const { return false; }

 protected:
  Simulation& sim_;
};

}  // namespace rlock::sim
