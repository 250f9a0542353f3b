// SPDX-License-Identifier: Apache-2.0
#include "simulation/counter_scenarios.hpp"

#include "simulation/script_command.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace rlock::sim {

namespace {

constexpr std::string_view kSemaphore = "semaphore";
constexpr std::string_view kLatch = "latch";

void keepData(Plan& plan) {
  plan.faults.crashes = 0;
  plan.faults.losses = 0;
  plan.faults.forces = 0;
}

}  // namespace

// The semaphore.

void SemaphoreScenario::prepare(Plan& plan) {
  keepData(plan);
  permits_ = sim_.random().between(1, 5);
}

void SemaphoreScenario::start(Peer& peer) {
  const int count = sim_.random().between(1, sim_.plan().agentsMax);
  for (int i = 0; i < count; ++i) {
    Agent& agent = agents_.emplace_back();
    agent.peer = &peer;
    agent.semaphore.emplace(peer.client().getSemaphore(kSemaphore));
    next(agent, sim_.random().someMs(0, 10));
  }
}

void SemaphoreScenario::stopWaiting() {
  for (Agent& agent : agents_) {
    if (agent.calling) {
      agent.peer->run([&agent] { agent.stop.request_stop(); });
    }
  }
}

bool SemaphoreScenario::busy() const {
  return !made_ || std::any_of(agents_.begin(), agents_.end(), [](const Agent& agent) {
    return agent.calling || agent.taken > 0;
  });
}

void SemaphoreScenario::next(Agent& agent, Time delay) {
  sim_.world().after(delay, [this, &agent] { agent.peer->run([this, &agent] { step(agent); }); });
}

template <class T, class Then>
void SemaphoreScenario::started(Agent& agent,
                                std::string what,
                                std::optional<milliseconds> limit,
                                Operation<T> operation,
                                Then then) {
  agent.calling = true;
  agent.callingSince = sim_.now();
  sim_.call<T>(*agent.peer,
               std::move(what),
               limit,
               std::move(operation),
               [this, &agent, then = std::move(then)](Result<T> result) mutable {
                 if (sim_.over()) {
                   return;
                 }
                 agent.calling = false;
                 agent.waits = false;
                 then(std::move(result));
               });
}

void SemaphoreScenario::step(Agent& agent) {
  if (sim_.over()) {
    return;
  }
  Random& random = sim_.random();
  if (!agent.calling && !made_) {
    started(agent,
            "sets the permits",
            sim_.callTimeout(),
            agent.semaphore->trySetPermitsAsync(permits_),
            [this](const Result<bool>& result) { made_ = made_ || result.has_value(); });
  } else if (!agent.calling && agent.taken > 0 && (sim_.resting() || random.chance(60))) {
    const int count = random.between(1, agent.taken);
    agent.taken -= count;
    out_ -= count;
    // The release takes effect once whatever it answers, if need be in the background.
    started(agent,
            "gives back " + std::to_string(count),
            sim_.callTimeout(),
            agent.semaphore->releaseAsync(count),
            [this](const Result<void>& result) {
              sim_.count(result.has_value() ? "released" : "released in the background");
            });
  } else if (!agent.calling && !sim_.resting() && agent.taken < 3) {
    acquire(agent);
  }
  if (!sim_.resting() || agent.calling || agent.taken > 0 || !made_) {
    next(agent, sim_.resting() ? Time(milliseconds(4)) : sim_.thinkingTime());
  }
}

void SemaphoreScenario::acquire(Agent& agent) {
  Random& random = sim_.random();
  agent.need = random.between(1, std::min(3, permits_));
  agent.stop = std::stop_source();
  const std::string what = std::to_string(agent.need) + " permits";
  if (agent.taken == 0 && random.chance(40)) {
    agent.waits = true;
    started(agent,
            "waits for " + what,
            std::nullopt,
            agent.semaphore->acquireAsync(agent.stop.get_token(), agent.need),
            [this, &agent](const Result<void>& result) {
              if (result.has_value()) {
                obtained(agent);
              }
            });
  } else {
    const milliseconds wait =
        random.chance(30) ? milliseconds(0) : random.betweenMs(1, random.chance(50) ? 20 : 200);
    started(agent,
            "wants " + what,
            wait.count() == 0 ? sim_.callTimeout() : wait,
            agent.semaphore->tryAcquireAsync(agent.stop.get_token(), agent.need, wait),
            [this, &agent](const Result<bool>& result) {
              if (result.has_value() && *result) {
                obtained(agent);
              }
            });
  }
  if (random.chance(15)) {
    // A stop that comes late stops the next call, or nothing.
    sim_.world().after(random.someMs(0, 100),
                       [&agent] { agent.peer->run([&agent] { agent.stop.request_stop(); }); });
  }
}

void SemaphoreScenario::obtained(Agent& agent) {
  sim_.count("granted");
  agent.taken += agent.need;
  out_ += agent.need;
  if (out_ > permits_) {
    sim_.broken("conserved",
                std::to_string(out_) + " of " + std::to_string(permits_) + " permits are taken");
  }
}

void SemaphoreScenario::check() {
  const int free = std::atoi(sim_.node().look({"GET", kSemaphore}).text.c_str());
  if (free < 0 || free > permits_) {
    sim_.broken("conserved",
                std::to_string(free) + " of " + std::to_string(permits_) + " permits are free");
  }
  int most = 0;
  Time waitingSince = Time::max();
  for (const Agent& agent : agents_) {
    if (agent.calling && agent.waits) {
      most = std::max(most, agent.need);
      waitingSince = std::min(waitingSince, agent.callingSince);
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
    sim_.broken("wake-up", "there are enough free permits, and nobody takes them");
  }
}

void SemaphoreScenario::checkRest() {
  const int free = std::atoi(sim_.node().look({"GET", kSemaphore}).text.c_str());
  if (free != permits_) {
    sim_.broken(
        "conserved",
        std::to_string(free) + " of " + std::to_string(permits_) + " permits are free at the end");
  }
}

bool SemaphoreScenario::mayStay(std::string_view key) const {
  return key.find(kSemaphore) != std::string_view::npos;
}

// The latch.

void LatchScenario::prepare(Plan& plan) {
  keepData(plan);
}

void LatchScenario::start(Peer& /*peer*/) {
  if (phase_ == Phase::idle && round_ == 0) {
    round_ = 1;
    sim_.world().after(milliseconds(1), [this] { step(); });
  }
}

Peer& LatchScenario::somePeer() {
  return *sim_.peers()[sim_.random().below(sim_.peers().size())];
}

bool LatchScenario::busy() const {
  return phase_ != Phase::idle || waiting_ > 0;
}

void LatchScenario::stopWaiting() {
  for (const auto& [peer, stop] : std::list(stops_)) {
    peer->run([stop = stop]() mutable { stop.request_stop(); });
  }
}

/// The rounds follow each other until the work is over.
void LatchScenario::step() {
  if (sim_.over()) {
    return;
  }
  if (phase_ == Phase::running && answered_ == count_ && waiting_ == 0) {
    phase_ = Phase::idle;
    if (unclear_) {
      // A count that goes on in the background must not meet the next round.
      sim_.world().after(2 * Time(sim_.callTimeout()) + milliseconds(200), [this] {
        unclear_ = false;
        step();
      });
      return;
    }
  }
  if (phase_ == Phase::idle && !sim_.resting() && onServer() == 0) {
    set();
  }
  if (phase_ != Phase::idle || !sim_.resting()) {
    sim_.world().after(sim_.thinkingTime(), [this] { step(); });
  }
}

void LatchScenario::set() {
  phase_ = Phase::setting;
  count_ = sim_.random().between(1, 5);
  Peer& peer = somePeer();
  peer.run([this, &peer] {
    CountDownLatch latch = peer.client().getCountDownLatch(kLatch);
    sim_.call<bool>(peer,
                    "sets the latch to " + std::to_string(count_),
                    sim_.callTimeout(),
                    latch.trySetCountAsync(count_),
                    [this](const Result<bool>& result) {
                      if (sim_.over()) {
                        return;
                      }
                      // Of an error nobody knows whether it took effect: then the count says so.
                      unclear_ = !result.has_value();
                      if (result.has_value() && !*result) {
                        sim_.broken("once", "an open latch could not be set");
                      }
                      begin();
                    });
  });
}

void LatchScenario::begin() {
  if (unclear_) {
    // Later than anything that is on its way can come, the server knows.
    const Time late = 2 * sim_.plan().network.lateMax + std::chrono::seconds(4);
    sim_.world().after(late, [this] {
      if (sim_.over()) {
        return;
      }
      unclear_ = false;
      count_ = static_cast<int>(onServer());
      if (count_ == 0) {
        phase_ = Phase::idle;
        return;
      }
      begin();
    });
    return;
  }
  phase_ = Phase::running;
  ++round_;
  begun_ = 0;
  answered_ = 0;
  openSince_ = Time::max();
  sim_.count("rounds");
  for (int i = 0; i < count_; ++i) {
    sim_.world().after(sim_.thinkingTime(), [this] { countDown(); });
  }
  const int waiters = sim_.random().between(1, 5);
  waiting_ = waiters;
  for (int i = 0; i < waiters; ++i) {
    sim_.world().after(sim_.random().someMs(0, 30), [this] { await(sim_.random().chance(60)); });
  }
}

void LatchScenario::await(bool forEver) {
  if (sim_.over()) {
    return;
  }
  Peer& peer = somePeer();
  peer.run([this, &peer, forEver] {
    if (sim_.over()) {
      return;
    }
    CountDownLatch latch = peer.client().getCountDownLatch(kLatch);
    const auto stop = stops_.emplace(stops_.end(), &peer, std::stop_source());
    ++asking_;
    const auto let = [this, stop](bool through) {
      stops_.erase(stop);
      --waiting_;
      --asking_;
      if (through) {
        sim_.count("let through");
        if (begun_ < count_) {
          sim_.broken("opened",
                      "somebody is let through after " + std::to_string(begun_) + " of " +
                          std::to_string(count_) + " counts");
        }
      }
    };
    const milliseconds timeout = forEver ? milliseconds(0) : sim_.random().betweenMs(1, 200);
    sim_.call<bool>(peer,
                    "waits for the latch",
                    forEver ? std::nullopt : std::optional(timeout),
                    latch.awaitAsync(stop->second.get_token(), forEver ? Duration::max() : timeout),
                    [this, let](const Result<bool>& result) {
                      if (!sim_.over()) {
                        let(result.has_value() && *result);
                      }
                    });
  });
}

void LatchScenario::countDown() {
  if (sim_.over()) {
    return;
  }
  Peer& peer = somePeer();
  peer.run([this, &peer] {
    if (sim_.over()) {
      return;
    }
    ++begun_;
    CountDownLatch latch = peer.client().getCountDownLatch(kLatch);
    sim_.call<void>(peer,
                    "counts down",
                    sim_.callTimeout(),
                    latch.countDownAsync(),
                    [this](const Result<void>& result) {
                      if (sim_.over()) {
                        return;
                      }
                      ++answered_;
                      unclear_ = unclear_ || !result.has_value();
                      if (!unclear_ && begun_ == answered_ && onServer() != count_ - answered_) {
                        sim_.broken("once",
                                    "the count is " + std::to_string(onServer()) + " after " +
                                        std::to_string(answered_) + " of " +
                                        std::to_string(count_));
                      }
                    });
  });
}

std::int64_t LatchScenario::onServer() {
  return std::atoll(sim_.node().look({"GET", kLatch}).text.c_str());
}

void LatchScenario::executed(Node& /*node*/,
                             const Command& command,
                             const detail::Reply& /*reply*/) {
  const ScriptCommand parsed(command);
  if (parsed.script == "latch_count_down" && phase_ == Phase::running &&
      onServer() < count_ - begun_) {
    sim_.broken("once",
                "the count is " + std::to_string(onServer()) + " although only " +
                    std::to_string(begun_) + " of " + std::to_string(count_) + " were begun");
  }
}

void LatchScenario::check() {
  const bool open = phase_ == Phase::running && onServer() == 0;
  openSince_ = open ? std::min(openSince_, sim_.now()) : Time::max();
  if (!open || asking_ == 0) {
    return;
  }
  Time limit = sim_.bound() + milliseconds(40);
  if (sim_.plan().network.lostMessages > 0) {
    // Of several waiters one looks at a time.
    limit += 3 * Time(sim_.plan().options.safetyPoll);
  }
  if (sim_.now() - std::max(openSince_, sim_.lastUpset()) > limit) {
    sim_.broken("opened", "the latch is open, and somebody waits for it");
  }
}

void LatchScenario::checkRest() {
  if (onServer() != 0) {
    sim_.broken("once", "the latch stays closed at " + std::to_string(onServer()));
  }
}

}  // namespace rlock::sim
