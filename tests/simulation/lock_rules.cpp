// SPDX-License-Identifier: Apache-2.0
#include "simulation/lock_scenario.hpp"
#include <rlock/detail/executor/read_write_scripts.hpp>
#include <rlock/detail/group/multi_acquire.hpp>
#include <rlock/detail/group/quorum_acquire.hpp>

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace rlock::sim {

namespace {

/// How the renewing scripts name what they renew: so many keys and arguments for each.
struct RenewalForm {
  std::size_t keys;
  std::size_t arguments;
};

std::optional<RenewalForm> renewalForm(const ScriptCommand& command) {
  if (!command.is("_renew")) {
    return std::nullopt;
  }
  if (command.script == "fenced_renew") {
    return RenewalForm{2, 3};
  }
  return RenewalForm{command.script == "rw_read_renew" ? std::size_t{2} : 1, 2};
}

/// The owner field in what stands for an owner on the server.
std::string_view ownerOf(std::string_view field) {
  const std::size_t write = field.find(":write");
  return write == std::string_view::npos ? field : field.substr(0, write);
}

}  // namespace

LockScenario::Agent* LockScenario::find(std::string_view field) {
  const auto found = std::find_if(
      agents_.begin(), agents_.end(), [&](const Agent& agent) { return agent.field == field; });
  return found == agents_.end() ? nullptr : &*found;
}

std::optional<std::size_t> LockScenario::lockOf(std::string_view key) const {
  for (std::size_t i = 0; i < locks_.size(); ++i) {
    if (key == LockKind::nameOf(i)) {
      return i;
    }
  }
  return std::nullopt;
}

/// Taken by force or lost with the data of the server, which nobody can know at once.
bool LockScenario::disturbed(const Held& held) const {
  return std::any_of(held.handle->covers.begin(), held.handle->covers.end(), [&](std::size_t i) {
    return locks_[i].lastForced >= held.startedAt || locks_[i].lastEmptied >= held.startedAt;
  });
}

/// The application counts on the hold.
bool LockScenario::believes(const Agent& agent, const Held& held) const {
  return !agent.peer->process().dead() && !held.releasing && held.lease.held() && !disturbed(held);
}

void LockScenario::checkHolds(std::size_t lock) {
  const Agent* holder = nullptr;
  const Held* theirs = nullptr;
  for (const Agent& agent : agents_) {
    for (const Held& held : agent.held) {
      const auto& covers = held.handle->covers;
      if (std::find(covers.begin(), covers.end(), lock) == covers.end() || !believes(agent, held)) {
        continue;
      }
      if (!kind_->held(sim_.nodes(), lock, agent.field, held.handle->shared)) {
        sim_.broken("validity",
                    agent.field + " believes to hold " + LockKind::nameOf(lock) +
                        ", which the server does not know");
      }
      checkValidity(agent, held, lock);
      if (holder != nullptr && holder != &agent &&
          !(theirs->handle->shared && held.handle->shared)) {
        sim_.broken(
            "validity",
            holder->field + " and " + agent.field + " believe to hold " + LockKind::nameOf(lock));
      }
      if (holder == nullptr || !held.handle->shared) {
        holder = &agent;
        theirs = &held;
      }
    }
  }
}

/// However fast the two clocks run, the owner counts on its hold no longer than the server keeps
/// it.
void LockScenario::checkValidity(const Agent& agent, const Held& held, std::size_t lock) {
  if (family_ == Family::red) {
    return;
  }
  const Time kept = sim_.node(kind_->nodesOf(lock).front()).expiryOf(LockKind::nameOf(lock));
  if (kept != Time::max() && agent.peer->process().when(held.lease.validUntil()) > kept) {
    sim_.broken("validity",
                agent.field + " counts on " + LockKind::nameOf(lock) +
                    " for longer than the server keeps it");
  }
}

void LockScenario::checkToken(const Agent& agent, const Handle& handle, const Lease& lease) {
  if (family_ != Family::fenced) {
    return;
  }
  Lock& lock = locks_[handle.covers.front()];
  if (!lease.token()) {
    sim_.broken("token", "a hold of a fenced lock has no token");
    return;
  }
  if (!lease.held() || lock.lastEmptied >= agent.callingSince ||
      lock.lastForced >= agent.callingSince) {
    return;
  }
  // A nested hold has the token of the first.
  for (const Agent& other : agents_) {
    for (const Held& held : other.held) {
      if (held.lease.token() == lease.token() && held.lease.owner() == lease.owner() &&
          held.handle->covers == handle.covers && held.lease.lossReason() == LossReason::none) {
        return;
      }
    }
  }
  // Also where an owner has lost its hold while it took the lock once more.
  if (*lease.token() <= lock.greatestToken) {
    sim_.broken("token",
                "token " + std::to_string(*lease.token()) + " comes after " +
                    std::to_string(lock.greatestToken));
  }
  lock.greatestToken = *lease.token();
}

void LockScenario::checkCount(Agent& agent, std::size_t lock) {
  int own = 0;
  for (const Held& held : agent.held) {
    if (held.handle->covers.front() == lock) {
      if (disturbed(held) || !held.lease.held()) {
        return;
      }
      ++own;
    }
  }
  const int counted = kind_->countOf(sim_.nodes(), lock, agent.field);
  if (counted < own) {
    sim_.broken("count",
                "the server counts " + std::to_string(counted) + " holds of " + agent.field +
                    ", the owner " + std::to_string(own));
  }
  const Time calm = std::max(agent.unclearUntil, sim_.lastUpset() + milliseconds(800));
  if (counted > own && !sim_.plan().strandsOwners() &&
      sim_.now() > calm + 2 * Time(sim_.plan().options.watchdogTimeout)) {
    sim_.broken("count",
                "the server goes on counting " + std::to_string(counted) + " holds of " +
                    agent.field + ", the owner has " + std::to_string(own));
  }
}

void LockScenario::noteFree() {
  for (std::size_t i = 0; i < locks_.size(); ++i) {
    for (const std::size_t node : kind_->nodesOf(i)) {
      OnServer& here = locks_[i].on[node];
      if (kind_->free(sim_.nodes(), i, node)) {
        here.freeSince = std::min(here.freeSince, sim_.now());
      } else {
        here = OnServer();
      }
    }
  }
}

/// Since when nobody has had to wait: all locks are free, each on as many servers as it takes.
Time LockScenario::freeSince(const Handle& handle) const {
  Time since{0};
  for (const std::size_t lock : handle.covers) {
    std::vector<Time> each;
    for (const std::size_t node : kind_->nodesOf(lock)) {
      each.push_back(locks_[lock].on[node].freeSince);
    }
    std::sort(each.begin(), each.end());
    since = std::max(since, each[each.size() / 2]);
  }
  return since;
}

/// How long what somebody waits for may stay free while nothing is broken.
Time LockScenario::wakeUpLimit(const Handle& handle) const {
  const Options& options = sim_.plan().options;
  Time limit = sim_.bound() + newsTravel();
  if (family_ == Family::red) {
    // Nobody tells them anything: they try again, and in vain where two meet.
    return limit + 2 * Time(detail::kLongestRedPause);
  }
  if (group(handle)) {
    limit += sim_.bound() + Time(detail::kLongestMultiPause);
  }
  const auto among = [&](std::size_t lock) {
    return std::find(handle.covers.begin(), handle.covers.end(), lock) != handle.covers.end();
  };
  const bool somebodyPolls = std::any_of(agents_.begin(), agents_.end(), [&](const Agent& other) {
    return !other.peer->process().dead() && other.calling && other.waits && other.wanted->polls &&
           among(other.wanted->covers.front());
  });
  limit += somebodyPolls ? milliseconds(30) : milliseconds(0);
  if (sim_.plan().network.lostMessages > 0) {
    limit += 2 * Time(options.safetyPoll);
  }
  const bool aloud = std::all_of(handle.covers.begin(), handle.covers.end(), [&](std::size_t i) {
    return locks_[i].on[kind_->nodesOf(i).front()].freedAloud;
  });
  if (!aloud) {
    // Nobody was told: it expired. A waiter that never looked does not know when that was to be.
    limit += Time(options.watchdogTimeout) + Time(options.safetyPoll);
  }
  if (family_ == Family::fair) {
    // Somebody who is gone may have a place in front of the others.
    limit += 2 * Time(options.fairWaiterLease) + milliseconds(1100);
  }
  if (family_ == Family::readWrite) {
    // Readers stand back for a writer that is gone.
    limit += Time(detail::WriteLockScripts::kIntentLife) + milliseconds(1100);
  }
  return limit;
}

void LockScenario::checkWakeUp() {
  noteFree();
  if (sim_.plan().strandsOwners()) {
    return;
  }
  for (const Agent& agent : agents_) {
    if (agent.peer->process().dead() || !agent.calling || !agent.waits) {
      continue;
    }
    const Time since = freeSince(*agent.wanted);
    if (since == Time::max()) {
      continue;
    }
    sim_.count(group(*agent.wanted) ? "looked for a lost wake-up of several locks"
                                    : "looked for a lost wake-up");
    if (sim_.now() - std::max({since, agent.callingSince, sim_.lastUpset()}) >
        wakeUpLimit(*agent.wanted)) {
      sim_.broken("wake-up",
                  std::as_const(agent.wanted->lock).getName() + " is free and nobody takes it");
    }
  }
}

void LockScenario::check() {
  for (std::size_t i = 0; i < locks_.size(); ++i) {
    checkHolds(i);
    if (kind_->counts()) {
      for (Agent& agent : agents_) {
        if (!agent.peer->process().dead() && !agent.calling) {
          checkCount(agent, i);
        }
      }
    }
  }
  checkWakeUp();
}

// The requests that are sent and executed.

std::ptrdiff_t LockScenario::held(const Agent& agent, std::size_t lock, bool shared, bool lost) {
  return std::count_if(agent.held.begin(), agent.held.end(), [&](const Held& held) {
    return held.handle->covers.front() == lock && held.handle->shared == shared &&
           (held.lease.lossReason() != LossReason::none) == lost;
  });
}

/// Its client was the one that said so, so it has no reason left to renew anything. Members of a
/// group are given back one after the other.
bool LockScenario::allLost(const Agent& agent, std::size_t lock, bool shared) const {
  return family_ != Family::multi && family_ != Family::red && !agent.calling &&
         sim_.now() > agent.droppedUntil && held(agent, lock, shared, true) > 0 &&
         held(agent, lock, shared, false) == 0;
}

/// From when the release of the last hold is sent, nothing may be renewed.
void LockScenario::noteRelease(Peer& peer, const ScriptCommand& command) {
  if ((!command.is("_release") && !command.is("_hand_over")) || command.keys.empty() ||
      command.arguments.empty() || family_ == Family::multi || family_ == Family::red) {
    return;
  }
  const auto lock = lockOf(command.keys.front());
  Agent* const agent = find(ownerOf(command.arguments.front()));
  const bool shared = command.script == "rw_read_release";
  if (lock && agent != nullptr && agent->peer == &peer && agent->calling && !agent->held.empty() &&
      agent->held.back().releasing && agent->held.back().handle->covers.front() == *lock &&
      agent->held.back().handle->shared == shared && sim_.now() > agent->unclearUntil &&
      held(*agent, *lock, shared, false) + held(*agent, *lock, shared, true) == 1) {
    agent->over[*lock][shared] = true;
  }
}

void LockScenario::sent(Peer& peer, Node& /*node*/, const Command& command) {
  const ScriptCommand parsed(command);
  noteRelease(peer, parsed);
  const auto form = renewalForm(parsed);
  if (!form) {
    return;
  }
  const bool shared = parsed.script == "rw_read_renew";
  for (std::size_t i = 0; i * form->keys < parsed.keys.size(); ++i) {
    const auto lock = lockOf(parsed.keys[i * form->keys]);
    Agent* const agent = find(ownerOf(parsed.arguments[i * form->arguments + 1]));
    // With the shortest lease it is only a question whether the hold is there.
    const bool asks = parsed.arguments[i * form->arguments] == "1";
    if (asks || !lock || agent == nullptr || agent->peer != &peer) {
      continue;
    }
    sim_.count("renewals sent");
    const bool has = std::any_of(agent->held.begin(), agent->held.end(), [&](const Held& held) {
      const auto& covers = held.handle->covers;
      // A hold that was just lost counts as well: a group gives back its members one after the
      // other, and a renewal that waited for a connection goes out with the first of others.
      return std::find(covers.begin(), covers.end(), *lock) != covers.end();
    });
    const bool releases = !agent->held.empty() && agent->held.back().releasing;
    if ((agent->over[*lock][shared] && (!agent->calling || releases)) ||
        allLost(*agent, *lock, shared)) {
      sim_.broken("renewal",
                  parsed.keys[i * form->keys] + " is renewed for " + agent->field +
                      (releases ? ", which is about to be rid of it" : ", which has lost it"));
    }
    if (!has && !agent->calling && sim_.now() > agent->unclearUntil) {
      sim_.broken("renewal",
                  agent->field + " does not hold " + parsed.keys[i * form->keys] +
                      ", which is renewed for it");
    }
  }
}

void LockScenario::executing(Node& node, const Command& command) {
  const ScriptCommand parsed(command);
  if (parsed.script.empty() || parsed.keys.empty()) {
    return;
  }
  if (const auto lock = lockOf(parsed.keys.front())) {
    const auto number = static_cast<std::size_t>(node.index());
    locks_[*lock].on[number].wasHeld = !kind_->free(sim_.nodes(), *lock, number);
    if (parsed.is("_force_release")) {
      sim_.count(fault::kForce);
      locks_[*lock].lastForced = sim_.now();
    }
  }
}

void LockScenario::executed(Node& node, const Command& command, const detail::Reply& reply) {
  const ScriptCommand parsed(command);
  if (parsed.script.empty() || parsed.keys.empty()) {
    return;
  }
  const auto index = lockOf(parsed.keys.front());
  if (!index || reply.isError()) {
    return;
  }
  Lock& lock = locks_[*index];
  const auto number = static_cast<std::size_t>(node.index());
  OnServer& here = lock.on[number];
  if (parsed.is("_hand_over") && reply.isArray() && reply.elements.size() == 2 &&
      reply.elements[1].integer > 1) {
    sim_.count("others go first");
  }
  const bool handedOver = parsed.is("_hand_over") && reply.isArray() && reply.elements.size() == 1;
  if (parsed.is("_renew") || parsed.is("_acquire") || handedOver) {
    // When it expires is the last moment at which anybody may believe in it.
    for (const std::string& key : parsed.keys) {
      const auto which = lockOf(key);
      const Time end = which ? node.expiryOf(key) : Time::max();
      if (end != Time::max()) {
        sim_.world().at(end, [this, which] {
          if (!sim_.over()) {
            checkHolds(*which);
          }
        });
      }
    }
  }
  if (handedOver) {
    sim_.count("handed over");
    here = OnServer();
    checkHolds(*index);
  } else if (parsed.is("_acquire")) {
    if (reply.isArray() || reply.isNil()) {
      here = OnServer();
    }
    if (family_ == Family::fair) {
      noteQueue(parsed, reply, *index);
    }
    checkHolds(*index);
  } else if (parsed.is("_withdraw")) {
    leaveQueue(lock, parsed.arguments.front());
  } else if (parsed.is("_release") || parsed.is("_hand_over") || parsed.is("_reconcile")) {
    // A release that came after the end of the lease has told nobody.
    here.freedAloud = here.freedAloud ||
                      (!reply.isNil() && here.wasHeld && kind_->free(sim_.nodes(), *index, number));
    checkHolds(*index);
  }
}

void LockScenario::leaveQueue(Lock& lock, std::string_view owner) {
  std::erase_if(lock.order, [&](const QueuePlace& place) { return place.owner == owner; });
}

/// The order in which the server heard of the waiters is the one in which they are served. A waiter
/// whose place may have lapsed comes at any time.
void LockScenario::noteQueue(const ScriptCommand& command,
                             const detail::Reply& reply,
                             std::size_t index) {
  if (command.arguments.size() < 3) {
    return;
  }
  const std::string& owner = command.arguments[1];
  std::vector<QueuePlace>& order = locks_[index].order;
  const auto place = std::find_if(
      order.begin(), order.end(), [&](const QueuePlace& each) { return each.owner == owner; });
  const Agent* const served = find(owner);
  if (!reply.isArray()) {
    if (place == order.end() && command.arguments[2] != "0") {
      order.push_back({owner, served != nullptr && sim_.now() > served->hamperedUntil});
    }
    return;
  }
  // An owner that holds the lock already takes it once more, past everybody.
  const bool first = place != order.end() || kind_->countOf(sim_.nodes(), index, owner) == 1;
  for (auto before = order.begin(); before != place; ++before) {
    const Agent* const agent = find(before->owner);
    // A waiter without a time limit is still there.
    const bool waits = agent != nullptr && agent->calling && agent->waits &&
                       !agent->stop.stop_requested() && agent->wanted->covers.front() == index;
    if (!waits || !first || !before->sure || (place != order.end() && !place->sure)) {
      continue;
    }
    sim_.broken("order",
                owner + (place == order.end() ? " was served past " : " was served before ") +
                    before->owner + ", who came earlier");
  }
  if (place != order.end()) {
    if (place->sure && !sim_.plan().faults.none()) {
      sim_.count("served in order among faults");
    }
    order.erase(place);
  }
}

bool LockScenario::mayStay(std::string_view key) const {
  return family_ == Family::fenced && key.starts_with("\"redisson_lock_token");
}

}  // namespace rlock::sim
