// SPDX-License-Identifier: Apache-2.0
#include "simulation/permit_scenario.hpp"

#include "simulation/script_command.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <utility>

namespace rlock::sim {

namespace {

constexpr std::string_view kName = "permits";
constexpr std::string_view kTaken = "{permits}:timeout";

std::string bytesOf(const std::string& id) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < id.size(); i += 2) {
    bytes += static_cast<char>(std::strtol(id.substr(i, 2).c_str(), nullptr, 16));
  }
  return bytes;
}

std::string hexOf(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id;
  for (const char byte : bytes) {
    const auto value = static_cast<unsigned char>(byte);
    id += kDigits[value >> 4U];
    id += kDigits[value & 15U];
  }
  return id;
}

}  // namespace

void PermitScenario::prepare(Plan& plan) {
  permits_ = sim_.random().between(1, 4);
  plan.faults.forces = 0;
  // A waiter for permits that are gone with the data would wait for ever.
  plan.faults.losses = 0;
  // Nobody could give back what a dead process took without a lease.
  neverExpires_ = plan.faults.crashes == 0 && plan.faults.losses == 0;
}

void PermitScenario::start(Peer& peer) {
  const int count = sim_.random().between(1, sim_.plan().agentsMax);
  for (int i = 0; i < count; ++i) {
    Agent& agent = agents_.emplace_back();
    agent.peer = &peer;
    agent.semaphore.emplace(peer.client().getPermitExpirableSemaphore(kName));
    next(agent, sim_.random().someMs(0, 10));
  }
}

void PermitScenario::crashed(Peer& peer) {
  for (Agent& agent : agents_) {
    agent.calling = agent.calling && agent.peer != &peer;
  }
}

void PermitScenario::emptied(Node& /*node*/) {
  made_ = false;
  ++epoch_;
}

void PermitScenario::stopWaiting() {
  for (Agent& agent : agents_) {
    if (agent.calling && !agent.peer->process().dead()) {
      agent.peer->run([&agent] { agent.stop.request_stop(); });
    }
  }
}

bool PermitScenario::busy() const {
  return std::any_of(agents_.begin(), agents_.end(), [this](const Agent& agent) {
    return !agent.peer->process().dead() && (agent.calling || !agent.held.empty() || !made_);
  });
}

void PermitScenario::next(Agent& agent, Time delay) {
  sim_.world().after(delay, [this, &agent] { agent.peer->run([this, &agent] { step(agent); }); });
}

void PermitScenario::step(Agent& agent) {
  if (sim_.over()) {
    return;
  }
  Random& random = sim_.random();
  for (auto held = agent.held.begin(); held != agent.held.end();) {
    const bool lost =
        !held->releasing && held->permit && held->permit->lossReason() != LossReason::none;
    if (lost) {
      sim_.count("lost: " + std::string(toString(held->permit->lossReason())));
      unclear(agent);
    }
    held = lost ? agent.held.erase(held) : std::next(held);
  }
  if (!agent.calling) {
    if (!made_) {
      makeSemaphore(agent);
    } else if (!agent.held.empty() && (sim_.resting() || random.chance(55))) {
      release(agent);
    } else if (!sim_.resting() && agent.held.size() < 2 &&
               (agent.held.empty() || random.chance(20))) {
      acquire(agent);
    }
  }
  if (!sim_.resting() || agent.calling || !agent.held.empty() || !made_) {
    next(agent, sim_.resting() ? Time(milliseconds(4)) : sim_.thinkingTime());
  }
}

template <class T, class Took>
void PermitScenario::started(Agent& agent,
                             std::string what,
                             std::optional<milliseconds> limit,
                             Operation<T> operation,
                             Took took) {
  agent.calling = true;
  agent.callingSince = sim_.now();
  sim_.call<T>(*agent.peer,
               std::move(what),
               limit,
               std::move(operation),
               [this, &agent, took = std::move(took)](Result<T> result) mutable {
                 if (sim_.over()) {
                   return;
                 }
                 agent.calling = false;
                 agent.waits = false;
                 if (!result.has_value()) {
                   unclear(agent);
                 }
                 took(std::move(result));
               });
}

void PermitScenario::makeSemaphore(Agent& agent) {
  const std::uint64_t epoch = epoch_;
  started(agent,
          "sets the permits",
          sim_.callTimeout(),
          agent.semaphore->trySetPermitsAsync(permits_),
          [this, epoch](const Result<bool>& result) {
            made_ = made_ || (result.has_value() && epoch == epoch_);
          });
}

void PermitScenario::unclear(Agent& agent) {
  agent.unclearUntil = sim_.now() + 3 * Time(sim_.callTimeout()) +
                       2 * Time(sim_.plan().options.watchdogTimeout) + milliseconds(300) +
                       sim_.plan().strandedFor();
}

void PermitScenario::acquire(Agent& agent) {
  Random& random = sim_.random();
  agent.stop = std::stop_source();
  agent.waits = agent.held.empty() && random.chance(40);
  agent.need = 1;
  const std::uint64_t epoch = epoch_;
  std::optional<Duration> lease;
  if (random.chance(40)) {
    lease = random.betweenMs(5, 250);
  }
  std::optional<Duration> wait;
  if (random.chance(65)) {
    wait = random.betweenMs(1, random.chance(50) ? 20 : 200);
  }
  const auto limit = wait ? wait->ceilMilliseconds() : sim_.callTimeout();
  if (random.chance(50)) {
    AcquireOptions options;
    options.lease = lease;
    options.stop = agent.stop.get_token();
    if (agent.waits) {
      started(agent,
              "waits for a permit",
              std::nullopt,
              agent.semaphore->holdAsync(options),
              [this, &agent, epoch](Result<Permit> result) {
                if (result.has_value()) {
                  obtained(agent, {std::move(*result), {}, {}, epoch});
                }
              });
      return;
    }
    options.wait = wait;
    started(agent,
            "tries to get a permit",
            limit,
            agent.semaphore->tryHoldAsync(options),
            [this, &agent, epoch](Result<std::optional<Permit>> result) {
              if (result.has_value() && *result) {
                obtained(agent, {std::move(*result), {}, {}, epoch});
              }
            });
    return;
  }
  if (!lease && !neverExpires_) {
    lease = random.betweenMs(5, 250);
  }
  agent.need = random.between(1, std::min(2, permits_));
  const TimePoint validUntil = lease ? agent.peer->now() + lease->ceilMilliseconds() -
                                           nanoseconds(lease->ceilMilliseconds()) / 1000 -
                                           milliseconds(1)
                                     : TimePoint::max();
  const auto took = [this, &agent, epoch, validUntil](Result<std::vector<std::string>> result) {
    if (result.has_value() && !result->empty()) {
      obtained(agent, {std::nullopt, std::move(*result), validUntil, epoch});
    }
  };
  if (agent.waits) {
    // The lease begins some time later than now, so what is believed is no longer than it is.
    started(agent,
            "waits for " + std::to_string(agent.need) + " permits",
            std::nullopt,
            agent.semaphore->acquireManyAsync(agent.stop.get_token(), agent.need, lease),
            took);
    return;
  }
  started(agent,
          "tries to get " + std::to_string(agent.need) + " permits",
          limit,
          agent.semaphore->tryAcquireManyAsync(
              agent.stop.get_token(), agent.need, wait.value_or(Duration::zero()), lease),
          took);
}

void PermitScenario::obtained(Agent& agent, Held held) {
  sim_.count("granted");
  if (held.permit) {
    held.ids = {held.permit->id()};
  }
  if (sim_.world().traced()) {
    sim_.trace("process ", agent.peer->index(), " has permit ", held.ids.front());
  }
  agent.held.push_back(std::move(held));
  checkPermits();
}

void PermitScenario::release(Agent& agent) {
  Held& held = agent.held.back();
  if (held.permit && sim_.random().chance(25)) {
    sim_.count("dropped");
    agent.held.pop_back();
    unclear(agent);
    return;
  }
  held.releasing = true;
  const bool sure = believes(agent, held) || held.validUntil == TimePoint::max();
  const std::uint64_t epoch = held.epoch;
  started(agent,
          "gives back " + held.ids.front(),
          sim_.callTimeout(),
          agent.semaphore->tryReleaseAsync(std::span<const std::string>(held.ids)),
          [this, &agent, sure, epoch](const Result<int>& result) {
            if (result.has_value()) {
              sim_.count(*result > 0 ? "released" : "gone when released");
              if (*result == 0 && sure && epoch == epoch_ && !agent.held.back().permit &&
                  agent.held.back().validUntil == TimePoint::max()) {
                sim_.broken("conserved", "a permit without a lease is gone");
              }
            }
            // The object, which does not know of it, gives it back once more.
            agent.held.pop_back();
            unclear(agent);
          });
}

bool PermitScenario::believes(const Agent& agent, const Held& held) const {
  if (agent.peer->process().dead() || held.releasing || held.epoch != epoch_) {
    return false;
  }
  return held.permit ? held.permit->held() : agent.peer->now() < held.validUntil;
}

void PermitScenario::checkPermits() {
  int believers = 0;
  std::set<std::string> ids;
  for (const Agent& agent : agents_) {
    for (const Held& held : agent.held) {
      if (!believes(agent, held)) {
        continue;
      }
      for (const std::string& id : held.ids) {
        ++believers;
        if (!ids.insert(id).second) {
          sim_.broken("validity", "two believe to have permit " + id);
        }
        if (sim_.node().look({"ZSCORE", kTaken, bytesOf(id)}).isNil()) {
          sim_.broken("validity", "permit " + id + " is not taken, its holder believes");
        }
      }
    }
  }
  if (believers > permits_) {
    sim_.broken("validity",
                std::to_string(believers) + " believe to have one of " + std::to_string(permits_) +
                    " permits");
  }
}

void PermitScenario::check() {
  checkPermits();
  const auto free = std::atoi(sim_.node().look({"GET", kName}).text.c_str());
  Time waitingSince = Time::max();
  int most = 0;
  for (const Agent& agent : agents_) {
    if (agent.calling && agent.waits && !agent.peer->process().dead()) {
      waitingSince = std::min(waitingSince, agent.callingSince);
      most = std::max(most, agent.need);
    }
  }
  if (most == 0 || free < most || !made_) {
    freeSince_ = Time::max();
    return;
  }
  freeSince_ = std::min(freeSince_, sim_.now());
  Time limit = sim_.bound();
  if (sim_.plan().network.lostMessages > 0) {
    // Of several waiters one looks at a time.
    limit += 3 * Time(sim_.plan().options.safetyPoll);
  }
  if (sim_.now() - std::max({freeSince_, waitingSince, sim_.lastUpset()}) > limit) {
    sim_.broken("wake-up", "there are free permits, and nobody takes them");
  }
}

void PermitScenario::executed(Node& node, const Command& command, const detail::Reply& reply) {
  const ScriptCommand parsed(command);
  if (parsed.script.empty() || reply.isError() || !parsed.script.starts_with("permit_")) {
    return;
  }
  const detail::Reply free = node.look({"GET", kName});
  if (!free.isNil()) {
    const auto taken = node.look({"ZCARD", kTaken}).integer;
    if (std::atoi(free.text.c_str()) + taken != permits_) {
      sim_.broken("conserved",
                  free.text + " permits are free and " + std::to_string(taken) + " taken, of " +
                      std::to_string(permits_));
    }
  }
  checkPermits();
}

void PermitScenario::sent(Peer& peer, Node& /*node*/, const Command& command) {
  const ScriptCommand parsed(command);
  if (parsed.script != "permit_renew") {
    return;
  }
  for (std::size_t i = 1; i < parsed.arguments.size(); i += 2) {
    const std::string id = hexOf(parsed.arguments[i]);
    sim_.count("renewals sent");
    bool mine = false;
    for (const Agent& agent : agents_) {
      mine = mine || (agent.peer == &peer &&
                      (agent.calling || sim_.now() <= agent.unclearUntil ||
                       std::any_of(agent.held.begin(), agent.held.end(), [&](const Held& held) {
                         return held.permit && held.permit->lossReason() == LossReason::none &&
                                held.permit->id() == id;
                       })));
    }
    if (!mine) {
      sim_.broken("renewal", "permit " + id + " is renewed, which nobody has any more");
    }
  }
}

void PermitScenario::checkRest() {
  const detail::Reply time = sim_.node().look({"TIME"});
  const std::string now = "(" + std::to_string(std::atoll(time.elements[0].text.c_str()) * 1000);
  const auto left = sim_.node().look({"ZRANGEBYSCORE", kTaken, now, "+inf"}).elements.size();
  const bool anyDead = std::any_of(sim_.peers().begin(), sim_.peers().end(), [](const auto& peer) {
    return peer->process().dead();
  });
  if (left != 0 && !anyDead) {
    sim_.broken("conserved", std::to_string(left) + " permits were never given back");
  }
}

bool PermitScenario::mayStay(std::string_view key) const {
  return key.starts_with(kName) || key.starts_with(kTaken) || key.starts_with("\"permits") ||
         key.starts_with("\"{permits}:timeout");
}

}  // namespace rlock::sim
