// SPDX-License-Identifier: Apache-2.0
#include "simulation/simulation.hpp"

#include <rlock/detail/base/random_bits.hpp>
#include <rlock/detail/executor/lua_scripts.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace rlock::sim {

namespace {

constexpr Time kTick = milliseconds(10);
constexpr Time kLongOutage = milliseconds(1500);
/// Any two clocks differ by less than the 1000 ppm that the library allows for.
constexpr int kPpm = 495;
/// How late an answer may come behind its limit: the grace for replies, and late loops.
constexpr milliseconds kAnswerGrace{40};

DriftingClock someClock(Random& random) {
  // One after the other: compilers evaluate arguments in different orders.
  const Time start = random.someMs(1'000'000, 9'000'000);
  const int ppm = random.between(-kPpm, kPpm);
  return {start, ppm};
}

/// With the names of scripts, for people.
std::string describe(const Command& command) {
  std::string line;
  for (std::size_t i = 0; i < command.size(); ++i) {
    std::string_view word = command[i];
    if (i == 1 && command[0].starts_with("EVAL")) {
      for (const auto* script : detail::lua::allScripts()) {
        if (word == script->sha1 || word == script->body) {
          word = script->name;
          break;
        }
      }
    }
    line.append(" ").append(word);
  }
  return line;
}

}  // namespace

Simulation::Simulation(std::uint64_t seed,
                       bool traced,
                       Coverage& coverage,
                       const MakeScenario& make)
    : world_(seed, traced), coverage_(coverage) {
  detail::seedRandomBits(seed);
  scenario_ = make(*this);
  makePlan();
  scenario_->prepare(plan_);
  std::optional<DriftingClock> wall;
  for (int i = 0; i < plan_.nodes; ++i) {
    ServerObserver& observer = *this;
    if (!wall || plan_.cluster.shards == 0) {
      wall = someClock(random());
    }
    nodes_.push_back(std::make_unique<Node>(world_, i, plan_.network, observer, *wall));
  }
  if (plan_.cluster.shards > 0) {
    cluster_ = std::make_unique<Cluster>(
        world_,
        nodes_,
        plan_.cluster,
        [this](Node& successor) { scenario_->emptied(successor); },
        [this](const char* what) { count(what); });
  }
  for (int i = 0; i < plan_.processes; ++i) {
    addPeer();
  }
  planFaults();
}

Simulation::~Simulation() {
  world_.clear();
  scenario_.reset();
}

// Planning.

void Simulation::makePlan() {
  Random& random = world_.random();
  plan_.processes = random.between(2, 4);
  NetworkConfig& network = plan_.network;
  constexpr std::array<int, 4> kDelays{80, 300, 1000, 3000};
  network.delayMax = microseconds(kDelays[random.below(kDelays.size())]);
  network.delayMin = network.delayMax / random.between(2, 20);
  if (random.chance(30)) {
    network.spikePercent = random.between(1, 5);
    network.spikeMax = random.someMs(5, 40);
  }
  network.blockedPerMille = random.chance(20) ? random.between(1, 40) : 0;
  network.killDenied = random.chance(20);
  network.killProbeLies = random.chance(50);

  Options& options = plan_.options;
  constexpr std::array<int, 4> kWatchdog{120, 200, 400, 1500};
  options.watchdogTimeout = milliseconds(kWatchdog[random.below(kWatchdog.size())]);
  options.commandTimeout = random.betweenMs(40, 120);
  options.connectTimeout = random.betweenMs(40, 120);
  options.heartbeatInterval = random.betweenMs(50, 300);
  options.reconnectDelayMin = milliseconds(5);
  options.reconnectDelayMax = milliseconds(60);
  options.retryDelayMin = milliseconds(5);
  options.retryDelayMax = milliseconds(40);
  options.fairWaiterLease = random.betweenMs(300, 1000);
  options.outageTimeout = milliseconds(20'000);
  constexpr std::array<int, 4> kHandOvers{16, 16, 2, 1};
  options.handOverLimit = kHandOvers[random.below(kHandOvers.size())];
  // So long that a poll does not cover up a wake-up that was lost.
  options.safetyPoll = random.chance(60) ? milliseconds(5000) : random.betweenMs(30, 200);
  constexpr std::array<int, 3> kLinger{0, 10, 200};
  options.subscriptionLinger = milliseconds(kLinger[random.below(kLinger.size())]);
  options.watchdogBatchSize = random.between(1, 4);
  constexpr std::array<LostReplyPolicy, 4> kPolicies{LostReplyPolicy::automatic,
                                                     LostReplyPolicy::automatic,
                                                     LostReplyPolicy::fence,
                                                     LostReplyPolicy::marker};
  options.lostReplyPolicy = kPolicies[random.below(kPolicies.size())];

  plan_.workUntil = random.someMs(300, 1200);
  plan_.busy = random.chance(60);
  if (random.chance(12)) {
    network.blockedPerMille = 0;
    return;  // nothing goes wrong
  }
  const auto some = [&](int percent, int most) {
    return random.chance(percent) ? random.between(1, most) : 0;
  };
  FaultPlan& faults = plan_.faults;
  faults.cutCommands = some(70, random.chance(25) ? 60 : 12);
  faults.cutSubscribers = some(50, 8);
  faults.blackHoles = some(30, 3);
  faults.freezes = some(25, 3);
  faults.pauses = some(25, 3);
  faults.crashes = some(25, plan_.spares);
  faults.forces = some(15, 4);
  faults.restarts = some(12, 2);
  faults.losses = some(10, 1);
  faults.flushes = some(20, 3);
  if (options.safetyPoll < std::chrono::seconds(1) && random.chance(30)) {
    network.lostMessages = random.between(5, 50);
  }
  if (random.chance(12)) {
    // Longer than anybody's patience, and what was sent before may come after.
    network.lateMax = 2 * kLongOutage;
    faults.outages = random.between(1, 3);
    plan_.workUntil = 2 * kLongOutage;
  }
}

template <class Fault>
void Simulation::planFault(int times, Time before, Fault fault) {
  for (int i = 0; i < times; ++i) {
    world_.at(random().between(Time(milliseconds(20)), before), [this, fault] {
      upset();
      fault();
    });
  }
}

void Simulation::planFaults() {
  const FaultPlan& faults = plan_.faults;
  const Time end = plan_.workUntil;
  const auto someNode = [this]() -> Node& { return node(random().below(nodes_.size())); };
  planFault(faults.cutCommands, end, [this, someNode] { cut(someNode, true); });
  planFault(faults.cutSubscribers, end, [this, someNode] { cut(someNode, false); });
  const auto hole = [this, someNode](const char* kind, Time length) {
    if (Peer* const peer = anyLiving()) {
      Node& node = someNode();
      count(kind);
      trace("nothing passes between process ", peer->index(), " and server ", node.index());
      node.blackHole(peer->index(), length);
      scenario_->hampered(*peer);
    }
  };
  planFault(faults.blackHoles, end, [this, hole] {
    hole(fault::kBlackHole, random().someMs(10, random().oneIn(6) ? 700 : 200));
  });
  planFault(faults.outages, end / 2, [this, hole] {
    hole(fault::kOutage, random().between(kLongOutage / 3, kLongOutage));
  });
  planFault(faults.freezes, end, [this, someNode] {
    Node& node = someNode();
    count(fault::kFreeze);
    trace("server ", node.index(), " freezes");
    node.freeze(random().someMs(5, random().oneIn(5) ? 500 : 120));
    hamperAll();
  });
  planFault(faults.pauses, end, [this] {
    if (Peer* const peer = anyLiving()) {
      count(fault::kPause);
      trace("process ", peer->index(), " is stopped");
      peer->process().pause(random().someMs(2, 250));
      scenario_->hampered(*peer);
    }
  });
  planFault(faults.crashes, end, [this] { crash(); });
  planFault(faults.forces, end, [this] { scenario_->force(); });
  planFault(faults.restarts, end, [this, someNode] {
    count(fault::kRestart);
    someNode().restart(true, random().someMs(1, 150));
    hamperAll();
  });
  planFault(faults.losses, end, [this, someNode] {
    Node& node = someNode();
    count(fault::kLoss);
    node.restart(false, random().someMs(1, 150));
    scenario_->emptied(node);
    hamperAll();
  });
  planFault(plan_.cluster.migrations, end, [this] { scenario_->migrate(*cluster_); });
  planFault(plan_.cluster.failovers, end, [this] {
    cluster_->failOver();
    hamperAll();
  });
  planFault(faults.flushes, end, [this, someNode] {
    count(fault::kFlush);
    trace("a server forgets its scripts");
    someNode().flushScripts();
  });
}

template <class SomeNode>
void Simulation::cut(const SomeNode& someNode, bool commands) {
  Peer* const peer = anyLiving();
  if (peer != nullptr && someNode().cut(peer->index(), commands)) {
    count(commands ? fault::kCutCommands : fault::kCutSubscriber);
  }
}

void Simulation::hamperAll() {
  for (const auto& peer : peers_) {
    scenario_->hampered(*peer);
  }
}

void Simulation::connectionCut(Node& /*node*/, int process) {
  scenario_->hampered(*peers_[static_cast<std::size_t>(process)]);
}

Peer* Simulation::anyLiving() {
  std::vector<Peer*> living;
  for (const auto& peer : peers_) {
    if (!peer->process().dead()) {
      living.push_back(peer.get());
    }
  }
  return living.empty() ? nullptr : living[random().below(living.size())];
}

void Simulation::addPeer() {
  const DriftingClock clock = someClock(random());
  ClientObserver& observer = *this;
  peers_.push_back(std::make_unique<Peer>(
      world_, static_cast<int>(peers_.size()), clock, nodes_, plan_.options, observer));
  scenario_->start(*peers_.back());
}

void Simulation::crash() {
  const auto living = std::count_if(
      peers_.begin(), peers_.end(), [](const auto& peer) { return !peer->process().dead(); });
  if (living < 2) {
    return;
  }
  Peer& peer = *anyLiving();
  count(fault::kCrash);
  trace("process ", peer.index(), " dies");
  peer.kill();
  scenario_->crashed(peer);
  if (random().chance(70)) {
    world_.after(random().someMs(1, 100), [this] {
      upset();
      addPeer();
    });
  }
}

Time Simulation::thinkingTime() {
  if (random().chance(3)) {
    return random().someMs(50, 250);
  }
  return random().between(Time(microseconds(100)), Time(milliseconds(plan_.busy ? 8 : 40)));
}

// The run.

std::optional<Violation> Simulation::run() {
  world_.after(kTick, [this] { tick(); });
  runUntil(plan_.workUntil);
  resting_ = true;
  scenario_->rest();
  if (plan_.faults.outages > 0) {
    runUntil(plan_.workUntil + 2 * kLongOutage + plan_.network.lateMax);
  }
  // Leases of the dead run out, connections are made anew, and everybody has had a turn.
  const Options& options = plan_.options;
  const Time patience = 3 * Time(options.watchdogTimeout) + 4 * Time(options.fairWaiterLease) +
                        6 * Time(options.commandTimeout) + 4 * Time(options.connectTimeout) +
                        milliseconds(1500) + 2 * Time(options.safetyPoll) +
                        2 * plan_.network.lateMax + std::chrono::seconds(4) + plan_.strandedFor();
  const Time end = now() + patience;
  while (!violation_ && scenario_->busy() && now() < end) {
    runUntil(now() + kTick);
  }
  if (!violation_ && scenario_->busy()) {
    std::string what = "something still goes on when all is well: ";
    for (const OpenCall& call : calls_) {
      if (!call.peer->process().dead()) {
        what += "process " + std::to_string(call.peer->index()) + ": " + call.what + "; ";
      }
    }
    broken("progress", what);
  }
  scenario_->stopWaiting();
  // Background releases end, channels linger.
  runUntil(now() + Time(options.subscriptionLinger) + 2 * Time(callTimeout()) +
           2 * Time(options.watchdogTimeout) + milliseconds(500) + plan_.strandedFor());
  if (!violation_) {
    scenario_->checkRest();
    checkResidue();
  }
  over_ = true;
  closeAll();
  for (const auto& node : nodes_) {
    const NodeCounts& counts = node->counts();
    coverage_[fault::kCut] += counts.cuts;
    coverage_[fault::kCutUnnoticed] += counts.cutsUnnoticed;
    coverage_[fault::kMessageLost] += counts.messagesLost;
    coverage_[fault::kLate] += counts.arrivedLate;
    coverage_[fault::kWriteBlocked] += counts.writesBlocked;
    coverage_["connections killed"] += counts.killed;
    coverage_["requests kept from coming late"] += counts.killedWithRequests;
  }
  return violation_;
}

void Simulation::runUntil(Time end) {
  while (!violation_ && world_.runNext(end)) {
  }
}

void Simulation::closeAll() {
  for (const auto& peer : peers_) {
    peer->exhume();
    peer->close(milliseconds(200));
  }
  const auto allClosed = [this] {
    return std::all_of(peers_.begin(), peers_.end(), [](const auto& p) { return p->closed(); });
  };
  const Time end = now() + std::chrono::seconds(10);
  while (!allClosed() && world_.runNext(end)) {
  }
  if (!allClosed()) {
    broken("residue", "a client does not close");
    return;
  }
  for (const OpenCall& call : calls_) {
    // Of what was to happen in a process that died, a part is gone.
    if (!call.peer->died()) {
      broken("residue", "a call of a closed client was not answered: " + call.what);
    }
  }
  if (violation_) {
    return;
  }
  // The servers' memory of requests lapses.
  const Time later = now() + std::chrono::minutes(30);
  while (world_.runNext(later)) {
  }
  for (const auto& node : nodes_) {
    const std::string dump = node->model().dump();
    for (std::size_t at = 0; at < dump.size();) {
      const std::size_t next = std::min(dump.find('\n', at), dump.size());
      const std::string line = dump.substr(at, next - at);
      if (!line.empty() && !scenario_->mayStay(line)) {
        broken("residue", "a key stays on the server: " + line);
      }
      at = next + 1;
    }
  }
}

void Simulation::checkResidue() {
  for (const auto& peer : peers_) {
    if (peer->process().dead()) {
      continue;
    }
    for (std::size_t i = 0; i < peer->clients(); ++i) {
      const Stats stats = peer->client(i).stats();
      if (stats.holds != 0) {
        broken("residue", std::to_string(stats.holds) + " holds are kept that nobody has");
      }
      if (stats.waiters != 0) {
        broken("residue", "somebody waits whom nobody knows");
      }
      if (stats.channels != 0) {
        broken("residue", "a channel stays subscribed");
      }
    }
  }
}

// The calls under way.

Simulation::CallRecord Simulation::open(Peer& peer,
                                        std::string what,
                                        std::optional<CallLimit> limit) {
  trace("process ", peer.index(), ": ", what);
  const TimePoint end = limit ? peer.now() + limit->time : TimePoint::max();
  calls_.push_back({&peer, std::move(what), now(), end, limit ? end + limit->more : end});
  return std::prev(calls_.end());
}

void Simulation::answered(const OpenCall& call, const Error* error) {
  trace("process ",
        call.peer->index(),
        ": ",
        call.what,
        error == nullptr ? " is answered" : std::string(" fails: ") + error->what());
  count(error == nullptr ? "answered" : "failed");
  if (over_) {
    return;
  }
  if (call.limit != TimePoint::max() && !sleepy(*call.peer) &&
      call.peer->now() > call.latest + kAnswerGrace) {
    broken("deadline", "a call ends too late: " + call.what);
  }
  if (error != nullptr) {
    count("error: " + std::string(toString(error->errc())));
    const bool connection =
        error->errc() == Errc::connectionFailed || error->errc() == Errc::serverError;
    // Until the first connection there may be no time to wait for it; a node of a cluster is
    // connected to when it is first needed. While a slot moves there may be no time left for
    // another pause or to follow a redirection; that is what is said then, and not the redirection.
    const bool noPauseLeft = call.peer->now() + plan_.options.retryDelayMax >= call.limit &&
                             (error->serverMessage().starts_with("TRYAGAIN") ||
                              error->serverMessage().starts_with("MOVED"));
    const bool noTimeLeft =
        call.peer->now() >= call.limit && error->errc() == Errc::connectionFailed;
    const bool tooLate = plan_.cluster.shards > 0 && (noPauseLeft || noTimeLeft);
    if (connection && call.startedAt > milliseconds(200) && plan_.faults.none() && !tooLate &&
        plan_.network.spikePercent == 0 && !plan_.network.killDenied) {
      broken("error", call.what + " fails although nothing is broken: " + error->what());
    }
  }
}

void Simulation::broken(const std::string& rule, const std::string& what) {
  if (violation_) {
    return;
  }
  trace("BROKEN ", rule, ": ", what);
  violation_ = Violation{rule, what, now()};
}

Time Simulation::bound() const {
  return 10 * plan_.network.delayMax + 4 * plan_.network.spikeMax + 2 * kTick + milliseconds(10) +
         (plan_.network.blockedPerMille > 0 ? milliseconds(60) : milliseconds(0));
}

bool Simulation::sleepy(const Peer& peer) const {
  return peer.process().paused() || now() < peer.process().awakeSince() + milliseconds(60);
}

/// Something keeps the process from acting in time, or its requests from arriving.
bool Simulation::hampered(const Peer& peer) const {
  return peer.process().paused() || !peer.healthy() ||
         std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
           return !node->reachable(peer.index());
         });
}

bool Simulation::healthy() const {
  return (!cluster_ || cluster_->settled()) &&
         std::all_of(nodes_.begin(),
                     nodes_.end(),
                     [](const auto& node) { return node->calm() && !node->anyHalfOpen(); }) &&
         std::all_of(peers_.begin(), peers_.end(), [](const auto& peer) {
           return peer->process().dead() || (!peer->process().paused() && peer->healthy());
         });
}

void Simulation::tick() {
  if (violation_ || over_) {
    return;
  }
  if (!healthy()) {
    upset();
  }
  for (const auto& node : nodes_) {
    lastUpset_ = std::max(lastUpset_, node->lastCut());
  }
  for (const auto& peer : peers_) {
    if (!peer->process().dead() && hampered(*peer)) {
      scenario_->hampered(*peer);
    }
  }
  checkLimits();
  scenario_->check();
  world_.after(kTick, [this] { tick(); });
}

void Simulation::checkLimits() {
  for (const OpenCall& call : calls_) {
    if (!call.peer->process().dead() && call.limit != TimePoint::max() && !sleepy(*call.peer) &&
        call.peer->now() > call.latest + kAnswerGrace) {
      broken("deadline", "a call goes on too long: " + call.what);
    }
  }
}

void Simulation::executing(Node& node, const Command& command) {
  if (world_.traced()) {
    trace("server ", node.index(), " executes", describe(command));
  }
  if (!over_) {
    scenario_->executing(node, command);
  }
}

void Simulation::executed(Node& node, const Command& command, const detail::Reply& reply) {
  if (reply.isError() && command.front() == "EVALSHA" && reply.text.starts_with("NOSCRIPT")) {
    count("scripts found missing");
  }
  if (reply.isError() && command.size() > 1 && command[0] == "CLIENT" && command[1] == "KILL") {
    count(fault::kKillRefused);
  }
  if (!over_) {
    scenario_->executed(node, command, reply);
  }
}

void Simulation::sent(SimEnv& env, Node& node, const Command& command) {
  if (world_.traced()) {
    trace("process ", env.process().index(), " sends", describe(command));
  }
  if (!over_) {
    scenario_->sent(*peers_[static_cast<std::size_t>(env.process().index())], node, command);
  }
}

}  // namespace rlock::sim
