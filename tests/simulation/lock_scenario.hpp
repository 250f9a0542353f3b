// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/lock_kinds.hpp"
#include "simulation/scenario.hpp"
#include "simulation/script_command.hpp"
#include "simulation/simulation.hpp"
#include <rlock/lease.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::sim {

/// Agents that take and release a few locks of one family, in all ways that their handles have.
///
///  - validity: who believes to hold a lock has it on the server, so no two believe it at once; a
///    writer is alone. Excepted is what a force or a loss of data has just taken away.
///  - renewal: nothing is renewed that was released or lost: not from the moment on in which the
///    last release was sent or the loss could be seen.
///  - count: while nothing of an owner is under way, the server counts as many holds as the owner.
///  - wake-up: a lock that is free does not stay so while somebody waits and nothing is broken; nor
///    do several together that somebody waits for, or a majority of the servers of a red lock.
///  - order: a fair lock is given in the order in which the server heard of the waiters. A waiter
///    may lose its place only if its own process is hampered, so it is served whatever becomes of
///    others.
///  - token: the tokens of later holds are greater.
///  - kept: a watched hold is not lost where nothing was ever broken.
class LockScenario : public Scenario {
 public:
  LockScenario(Simulation& simulation, Family family) : Scenario(simulation), family_(family) {}

  void prepare(Plan& plan) override;
  void start(Peer& peer) override;
  void crashed(Peer& peer) override;
  void rest() override {}
  void stopWaiting() override;
  [[nodiscard]] bool busy() const override;
  void check() override;
  void force() override;
  void emptied(Node& node) override;
  void hampered(Peer& peer) override;
  void executing(Node& node, const Command& command) override;
  void executed(Node& node, const Command& command, const detail::Reply& reply) override;
  void sent(Peer& peer, Node& node, const Command& command) override;
  [[nodiscard]] bool mayStay(std::string_view key) const override;

 protected:
  /// The server that has a lock, where that is not for ever.
  [[nodiscard]] virtual std::function<std::size_t(std::size_t lock)> whereabouts() const {
    return nullptr;
  }
  [[nodiscard]] std::size_t locks() const noexcept { return locks_.size(); }
  /// How long it may take until all clients know of what has moved, beside the usual.
  [[nodiscard]] virtual Time newsTravel() const { return Time(0); }

 private:
  struct Held {
    const Handle* handle;
    Lease lease;
    Time startedAt;  ///< the call
    bool watched;
    bool limited;  ///< by maxHold
    bool releasing = false;
  };
  struct Agent {
    Peer* peer = nullptr;
    std::uint64_t owner = 0;
    std::string field{};
    std::vector<Handle> handles{};
    std::vector<Held> held{};
    bool calling = false;
    std::uint64_t calls = 0;
    const Handle* wanted = nullptr;  ///< by the call
    bool waits = false;              ///< the call, without a limit of its own
    Time callingSince{0};
    std::stop_source stop{};
    /// Until then it keeps what it has, beyond the end of the lease.
    Time keepsUntil = Time(-1);
    /// Until then the server may count more than the owner does: something goes on unseen.
    Time unclearUntil{0};
    /// Until then something that it has dropped may still be held, and renewed.
    Time droppedUntil{0};
    /// Until then its place in a queue may lapse, or come from a request that was late.
    Time hamperedUntil = Time(-1);
    /// By lock and side: all is lost, or the release of the last is sent, and nothing was asked for
    /// since.
    std::vector<std::array<bool, 2>> over{};
  };
  /// A lock on one of its servers.
  struct OnServer {
    Time freeSince = Time::max();
    bool freedAloud = false;
    bool wasHeld = false;  ///< before the command that is being executed
  };
  struct QueuePlace {
    std::string owner;
    bool sure;  ///< its owner refreshes it in time, whatever happens to others
  };
  struct Lock {
    Time lastForced = Time(-1);
    Time lastEmptied = Time(-1);
    std::vector<OnServer> on{};  ///< by the number of the server
    std::uint64_t greatestToken = 0;
    std::vector<QueuePlace> order{};  ///< of the owners that wait
  };

  /// It consists of others.
  [[nodiscard]] bool group(const Handle& handle) const noexcept {
    return handle.covers.size() > 1 || family_ == Family::red;
  }
  /// How much longer than its own limit a call may take.
  [[nodiscard]] milliseconds graceOfMembers(const Handle& handle) const noexcept {
    return milliseconds(group(handle) ? 120 : 0);
  }
  void next(Agent& agent, Time delay);
  void step(Agent& agent);
  void acquire(Agent& agent);
  template <class T>
  void started(Agent& agent,
               const Handle& handle,
               const AcquireOptions& options,
               Operation<T> operation);
  void granted(Agent& agent, const Handle& handle, Lease lease, const AcquireOptions& options);
  void release(Agent& agent);
  void forgetLost(Agent& agent);
  [[nodiscard]] Time unclearFor() const;
  void unclear(Agent& agent) { agent.unclearUntil = sim_.now() + unclearFor(); }
  [[nodiscard]] static std::ptrdiff_t held(const Agent& agent,
                                           std::size_t lock,
                                           bool shared,
                                           bool lost);
  [[nodiscard]] bool allLost(const Agent& agent, std::size_t lock, bool shared) const;
  void noteRelease(Peer& peer, const ScriptCommand& command);
  [[nodiscard]] Agent* find(std::string_view field);
  [[nodiscard]] std::optional<std::size_t> lockOf(std::string_view key) const;
  [[nodiscard]] bool disturbed(const Held& held) const;
  [[nodiscard]] bool believes(const Agent& agent, const Held& held) const;
  void checkHolds(std::size_t lock);
  void checkValidity(const Agent& agent, const Held& held, std::size_t lock);
  void checkCount(Agent& agent, std::size_t lock);
  void noteFree();
  [[nodiscard]] Time freeSince(const Handle& handle) const;
  [[nodiscard]] Time wakeUpLimit(const Handle& handle) const;
  void checkWakeUp();
  void checkToken(const Agent& agent, const Handle& handle, const Lease& lease);
  void leaveQueue(Lock& lock, std::string_view owner);
  void noteQueue(const ScriptCommand& command, const detail::Reply& reply, std::size_t lock);

  const Family family_;
  std::optional<LockKind> kind_;
  std::list<Agent> agents_;
  std::vector<Lock> locks_;
  /// Objects whose holds were released by their owner. Kept until the clients are closed.
  std::vector<Lease> unlocked_;
};

}  // namespace rlock::sim
