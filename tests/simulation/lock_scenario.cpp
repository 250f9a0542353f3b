// SPDX-License-Identifier: Apache-2.0
#include "simulation/lock_scenario.hpp"

#include <algorithm>
#include <utility>

namespace rlock::sim {

// The plan.

void LockScenario::prepare(Plan& plan) {
  Random& random = sim_.random();
  std::size_t locks = static_cast<std::size_t>(random.between(1, 3));
  if (family_ == Family::multi) {
    locks = static_cast<std::size_t>(random.between(2, 3));
    plan.nodes = plan.cluster.shards > 0 ? plan.nodes : random.between(1, 2);
  }
  if (family_ == Family::red) {
    locks = 1;
    plan.nodes = random.chance(25) ? 5 : 3;
    plan.processes = random.between(2, 3);
    // A server that comes back empty must stay away for as long as the longest lease.
    plan.faults.losses = 0;
    plan.faults.forces = 0;
    plan.agentsMax = 2;
    plan.options.watchdogTimeout = std::max(plan.options.watchdogTimeout, milliseconds(400));
  }
  kind_.emplace(family_, locks, static_cast<std::size_t>(plan.nodes), whereabouts());
  locks_.resize(locks);
  for (Lock& lock : locks_) {
    lock.on.resize(static_cast<std::size_t>(plan.nodes));
  }
}

void LockScenario::start(Peer& peer) {
  const int count = sim_.random().between(1, sim_.plan().agentsMax);
  for (int i = 0; i < count; ++i) {
    Agent& agent = agents_.emplace_back();
    agent.peer = &peer;
    // Odd: even numbers stand for threads.
    agent.owner = 2 * static_cast<std::uint64_t>(i) + 1;
    agent.field = peer.field(agent.owner);
    agent.handles = kind_->handles(peer);
    agent.over.resize(locks_.size());
    next(agent, sim_.random().someMs(0, 10));
  }
}

void LockScenario::crashed(Peer& peer) {
  for (Agent& agent : agents_) {
    if (agent.peer == &peer) {
      agent.calling = false;
    }
  }
  // The server keeps the places until they lapse, and may serve a request that is still on the way.
  hampered(peer);
}

void LockScenario::stopWaiting() {
  for (Agent& agent : agents_) {
    if (agent.calling && !agent.peer->process().dead()) {
      agent.peer->run([&agent] { agent.stop.request_stop(); });
    }
  }
}

bool LockScenario::busy() const {
  return std::any_of(agents_.begin(), agents_.end(), [](const Agent& agent) {
    return !agent.peer->process().dead() && (agent.calling || !agent.held.empty());
  });
}

void LockScenario::force() {
  Agent& agent =
      *std::next(agents_.begin(), static_cast<std::ptrdiff_t>(sim_.random().below(agents_.size())));
  if (agent.peer->process().dead()) {
    return;
  }
  const Handle& handle = agent.handles[sim_.random().below(agent.handles.size())];
  agent.peer->run([this, &agent, &handle] {
    RLock lock = handle.lock;
    sim_.call<bool>(*agent.peer,
                    "somebody frees " + lock.getName() + " by force",
                    std::nullopt,
                    lock.forceUnlockAsync(),
                    [](const Result<bool>&) {});
  });
}

void LockScenario::emptied(Node& node) {
  for (std::size_t i = 0; i < locks_.size(); ++i) {
    const auto where = kind_->nodesOf(i);
    if (std::find(where.begin(), where.end(), static_cast<std::size_t>(node.index())) !=
        where.end()) {
      locks_[i].lastEmptied = sim_.now();
      locks_[i].greatestToken = 0;
      locks_[i].order.clear();
    }
  }
}

/// Its places in queues may lapse before it can say that it is still there.
void LockScenario::hampered(Peer& peer) {
  for (Agent& agent : agents_) {
    if (agent.peer != &peer) {
      continue;
    }
    agent.hamperedUntil = sim_.now() + sim_.plan().network.lateMax + milliseconds(100);
    for (Lock& lock : locks_) {
      for (QueuePlace& place : lock.order) {
        place.sure = place.sure && place.owner != agent.field;
      }
    }
  }
}

// The steps of agents.

void LockScenario::next(Agent& agent, Time delay) {
  sim_.world().after(delay, [this, &agent] { agent.peer->run([this, &agent] { step(agent); }); });
}

void LockScenario::step(Agent& agent) {
  if (sim_.over()) {
    return;
  }
  Random& random = sim_.random();
  forgetLost(agent);
  if (!agent.calling && (sim_.resting() || sim_.now() >= agent.keepsUntil)) {
    if (!agent.held.empty() && (sim_.resting() || random.chance(55))) {
      release(agent);
    } else if (!sim_.resting() && agent.held.size() < 3 &&
               (agent.held.empty() || random.chance(25))) {
      acquire(agent);
    }
  }
  if (!sim_.resting() || agent.calling || !agent.held.empty()) {
    next(agent, sim_.resting() ? Time(milliseconds(4)) : sim_.thinkingTime());
  }
}

/// A lost hold is over for the application, too.
void LockScenario::forgetLost(Agent& agent) {
  for (auto held = agent.held.begin(); held != agent.held.end();) {
    if (held->releasing || held->lease.lossReason() == LossReason::none) {
      ++held;
      continue;
    }
    sim_.count("lost: " + std::string(toString(held->lease.lossReason())));
    sim_.trace("process ",
               agent.peer->index(),
               " owner ",
               agent.owner,
               " has lost ",
               std::as_const(held->handle->lock).getName());
    const auto reason = held->lease.lossReason();
    const bool byItself = reason == LossReason::expired || reason == LossReason::unreachable ||
                          reason == LossReason::refused || reason == LossReason::failover;
    const Plan& plan = sim_.plan();
    // A renewal of read holds needs several keys, and is refused as long as their slot moves.
    const bool moves = plan.cluster.migrations > 0 && held->handle->shared;
    if (byItself && held->watched && !held->limited && plan.faults.none() && !moves &&
        plan.network.spikePercent == 0 &&
        Time(plan.options.watchdogTimeout) > 100 * plan.network.delayMax) {
      sim_.broken("kept", "a hold that the watchdog keeps is lost though nothing is broken");
    }
    const std::size_t lock = held->handle->covers.front();
    const bool shared = held->handle->shared;
    agent.over[lock][shared] = agent.over[lock][shared] || allLost(agent, lock, shared);
    held = agent.held.erase(held);
    unclear(agent);
  }
}

Time LockScenario::unclearFor() const {
  return 3 * Time(sim_.callTimeout()) + 2 * Time(sim_.plan().options.watchdogTimeout) +
         milliseconds(300) + sim_.plan().strandedFor();
}

void LockScenario::acquire(Agent& agent) {
  Random& random = sim_.random();
  const Handle& handle = agent.handles[random.below(agent.handles.size())];
  AcquireOptions options;
  const bool forEver = agent.held.empty() && random.chance(40);
  if (!forEver && random.chance(65)) {
    options.wait = random.betweenMs(1, random.chance(50) ? 20 : 200);
  }
  if (random.chance(35)) {
    // A group is never held whose lease is over before the last member was asked.
    options.lease = group(handle) ? random.betweenMs(300, 700)
                                  : random.betweenMs(1, random.chance(50) ? 30 : 250);
  }
  if (random.chance(6)) {
    options.maxHold = random.betweenMs(group(handle) ? 150 : 2, 300);
  }
  if (random.chance(5)) {
    options.label = "agent " + std::to_string(agent.owner);
  }
  for (const std::size_t lock : handle.covers) {
    agent.over[lock][handle.shared] = false;
  }
  agent.stop = std::stop_source();
  options.stop = agent.stop.get_token();
  agent.waits = forEver;
  RLock lock = handle.lock;
  if (forEver) {
    started(agent, handle, options, lock.acquireAsync(options, OwnerId{agent.owner}));
  } else {
    started(agent, handle, options, lock.tryAcquireAsync(options, OwnerId{agent.owner}));
  }
  if (random.chance(15)) {
    const std::uint64_t call = agent.calls;
    sim_.world().after(random.someMs(0, random.chance(50) ? 10 : 150), [this, &agent, call] {
      agent.peer->run([this, &agent, call] {
        if (sim_.over() || !agent.calling || agent.calls != call) {
          return;
        }
        agent.stop.request_stop();
        // A group gives back what it has before it answers.
        const milliseconds patience =
            milliseconds(60) + (group(*agent.wanted) ? 2 * sim_.callTimeout() : milliseconds(0));
        sim_.world().after(patience, [this, &agent, call] {
          if (!sim_.over() && agent.calling && agent.calls == call && !sim_.sleepy(*agent.peer) &&
              !agent.peer->process().dead()) {
            sim_.broken("deadline", "a call that was stopped goes on");
          }
        });
      });
    });
  }
}

template <class T>
void LockScenario::started(Agent& agent,
                           const Handle& handle,
                           const AcquireOptions& options,
                           Operation<T> operation) {
  agent.calling = true;
  ++agent.calls;
  agent.wanted = &handle;
  agent.callingSince = sim_.now();
  std::optional<CallLimit> limit;
  if (!agent.waits) {
    limit = {options.wait ? options.wait->ceilMilliseconds() : sim_.callTimeout(),
             graceOfMembers(handle)};
  }
  std::string what = "owner " + std::to_string(agent.owner) + " wants " +
                     std::as_const(handle.lock).getName() + (handle.shared ? " to read" : "");
  if (sim_.world().traced()) {
    what += agent.waits ? ", waits" : options.wait ? ", " + toString(*options.wait) : ", one try";
    what += options.lease ? ", lease " + toString(*options.lease) : "";
    what += options.maxHold ? ", at most " + toString(*options.maxHold) : "";
  }
  sim_.call<T>(*agent.peer,
               std::move(what),
               limit,
               std::move(operation),
               [this, &agent, &handle, options](Result<T> result) {
                 if (sim_.over()) {
                   return;
                 }
                 agent.calling = false;
                 if (!result.has_value()) {
                   unclear(agent);
                   return;
                 }
                 if constexpr (std::is_same_v<T, Lease>) {
                   granted(agent, handle, std::move(*result), options);
                 } else if (*result) {
                   granted(agent, handle, std::move(**result), options);
                 } else {
                   sim_.count("refused");
                   unclear(agent);
                 }
               });
}

void LockScenario::granted(Agent& agent,
                           const Handle& handle,
                           Lease lease,
                           const AcquireOptions& options) {
  sim_.count("granted");
  if (!agent.held.empty()) {
    sim_.count("granted again");
  }
  checkToken(agent, handle, lease);
  agent.held.push_back(
      {&handle, std::move(lease), agent.callingSince, !options.lease, options.maxHold.has_value()});
  if (family_ == Family::red && sim_.random().chance(4)) {
    // Otherwise none is ever lost, for its servers do not lose their data.
    agent.keepsUntil = sim_.now() + milliseconds(20) +
                       (options.lease ? Time(options.lease->ceilMilliseconds())
                                      : 2 * Time(sim_.plan().options.watchdogTimeout));
  }
  for (const std::size_t lock : handle.covers) {
    checkHolds(lock);
  }
}

void LockScenario::release(Agent& agent) {
  Random& random = sim_.random();
  Held& held = agent.held.back();
  // A hold with an object is given back by it: where the server has dropped it, unlock() means the
  // one before it.
  const bool gone = held.handle->shared && held.lease.lossReason() != LossReason::none;
  if (random.chance(15) || gone) {
    // By the object, which does not say what became of it.
    sim_.count("dropped");
    sim_.trace("process ", agent.peer->index(), " owner ", agent.owner, " drops a lease");
    // On another loop than that of its client it would block.
    const bool onLoop =
        sim_.cluster() != nullptr || kind_->nodesOf(held.handle->covers.front()).front() == 0;
    if (!group(*held.handle) && onLoop && random.chance(50)) {
      static_cast<void>(held.lease.release());
    }
    agent.over[held.handle->covers.front()][held.handle->shared] = false;
    agent.held.pop_back();
    unclear(agent);
    agent.droppedUntil = agent.unclearUntil;
    return;
  }
  held.releasing = true;
  agent.calling = true;
  agent.waits = false;
  ++agent.calls;
  RLock lock = held.handle->lock;
  sim_.call<void>(*agent.peer,
                  "owner " + std::to_string(agent.owner) + " releases " + lock.getName(),
                  CallLimit(sim_.callTimeout(), graceOfMembers(*held.handle)),
                  lock.unlockAsync(OwnerId{agent.owner}),
                  [this, &agent](const Result<void>& result) {
                    if (sim_.over()) {
                      return;
                    }
                    agent.calling = false;
                    const Held& over = agent.held.back();
                    if (result.has_value()) {
                      sim_.count("released");
                    } else {
                      unclear(agent);
                      if (result.error().errc() == Errc::notOwner &&
                          over.lease.lossReason() == LossReason::none && !disturbed(over) &&
                          over.lease.held()) {
                        sim_.broken("count",
                                    "not held, says the client, but the owner was told of no loss");
                      }
                    }
                    if (group(*over.handle)) {
                      // A majority has answered; the others may still be on the way.
                      unclear(agent);
                    }
                    // The object would give back one more hold of the same owner.
                    unlocked_.push_back(std::move(agent.held.back().lease));
                    agent.held.pop_back();
                  });
}

}  // namespace rlock::sim
