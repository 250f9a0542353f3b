// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "simulation/sim_client.hpp"
#include "simulation/sim_core.hpp"
#include "simulation/sim_server.hpp"
#include <rlock/options.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rlock::sim {

/// How often each fault happens while the applications work; everything follows from the seed.
struct FaultPlan {
  int cutCommands = 0;
  int cutSubscribers = 0;
  int blackHoles = 0;
  int outages = 0;  ///< very long black holes
  int freezes = 0;
  int slowDowns = 0;
  int pauses = 0;
  int crashes = 0;
  int forces = 0;    ///< somebody frees a lock by force
  int restarts = 0;  ///< the server loses its data
};

struct Violation {
  std::string rule;
  std::string what;
  Time at{0};
};

/// One schedule: several clients with several owners each work on a few locks, faults happen, then
/// everything heals and comes to rest. The rules are checked at every instant that matters.
///
///  - validity: who believes to hold a lock holds it on the server, so no two believe it at once.
///    Excepted is what a force or a loss of data has just taken away.
///  - announcement: a loss is announced before the server can give the lock to another.
///  - told: what was taken by force or lost is announced within one renewal period.
///  - wake-up: a lock that is free does not stay so while somebody waits and nothing is broken.
///  - deadline: every call ends in time.
///  - renewal: no hold is renewed after its release was sent or its loss was told, and none too
///  early.
///  - kept: a watched hold is not lost while nothing is broken.
///  - count: while nothing is under way, server, client and application count the same holds.
///  - order: the requests of one owner about one lock run in the order they were sent, or not at
///  all.
///  - residue: at the end nothing is left, neither on the server nor in the clients.
class Simulation final : private ClientObserver, private ServerObserver {
 public:
  Simulation(std::uint64_t seed, Mutation mutation, bool traced, Coverage& coverage)
      : random_(seed), trace_(traced), coverage_(coverage) {
    plan(mutation);
    ServerObserver& observer = *this;
    network_ = std::make_unique<Network>(networkConfig_, queue_, random_, observer, trace_);
    locks_.resize(static_cast<std::size_t>(networkConfig_.locks));
    processes_.reserve(static_cast<std::size_t>(networkConfig_.clients));
    for (int i = 0; i < clientsAtStart_; ++i) {
      addClient();
    }
    planFaults();
  }

  /// Empty when every rule was kept.
  std::optional<Violation> run() {
    queue_.after(kTick, [this] { tick(); });
    runUntil(workUntil_);
    resting_ = true;
    runUntil(workUntil_ + kRest);
    if (faults_.outages > 0) {
      runUntil(workUntil_ + kRest + 3 * kLongOutage);
    }
    // Whoever still waits now waits for somebody who waits for him, or without a safety poll.
    stopAll();
    const Time drained = queue_.now() + 2 * Time(clientConfig_.watchdogTimeout) +
                         Time(clientConfig_.linger) + 2 * clientConfig_.commandTimeout +
                         milliseconds(600);
    runUntil(drained);
    if (!violation_) {
      checkResidue();
    }
    return violation_;
  }

  [[nodiscard]] std::uint64_t events() const noexcept { return queue_.executed(); }
  [[nodiscard]] const Network& network() const noexcept { return *network_; }

 private:
  static constexpr Time kTick = milliseconds(10);
  static constexpr Time kRest = milliseconds(700);
  /// How late a timer may be, with some reserve.
  static constexpr Time kTimerGrace = milliseconds(2);

  /// What one owner has to do with one lock.
  struct Slot {
    // What the application counts on.
    int depth = 0;
    int releasing = 0;        ///< releases of the present holds under way
    int acquiring = 0;        ///< acquisitions whose caller waits
    std::uint64_t epoch = 0;  ///< grows with every loss
    IntrusivePtr<HoldHandle> handle{};
    bool watched = false;  ///< to be renewed until the last hold is released
    bool wantsLateRelease = false;
    // What the server has.
    int serverCount = 0;
    Cause cause = Cause::none;
    Time vanishedAt{0};
    std::uint64_t lastExecuted = 0;
    bool disturbed = false;  ///< taken by force or lost with the data while somebody counted on it
    // What the rules need.
    bool remnant = false;  ///< the server may have holds that nobody counts on
    bool renewedSinceGrant = false;
    std::optional<TimePoint> renewalSentAt{};
  };

  struct Agent {
    OwnerId owner{};
    int atOnce = 1;  ///< acquisitions that may be under way together
    bool scheduled = false;
    std::vector<Slot> slots{};
  };

  struct Process {
    std::unique_ptr<SimClient> client{};
    std::vector<Agent> agents{};
    std::vector<std::pair<ReleaseCourse*, std::uint64_t>> releaseEpochs{};
    std::vector<const AcquireCourse*> acquires{};  ///< perhaps not answered yet
    std::vector<const ReleaseCourse*> releases{};
    Time awakeSince{0};
  };

  struct Lock {
    Time freeSince{0};
    bool free = true;
    bool freedAloud = false;  ///< waiters are told, by a message or by a new subscription
    Time waitSince = Time::max();
  };

  // ---- Planning

  void plan(Mutation mutation) {
    clientsAtStart_ = random_.between(2, 5);
    networkConfig_.clients = clientsAtStart_ + kSpareClients;
    networkConfig_.locks = random_.between(1, 3);
    static constexpr std::array<int, 4> kDelays{80, 300, 1000, 3000};
    const Time longest = microseconds(kDelays[random_.upTo(kDelays.size() - 1)]);
    networkConfig_.delayMin = longest / random_.between(2, 20);
    networkConfig_.delayMax = longest;
    if (random_.chance(30)) {
      networkConfig_.spikePercent = random_.between(1, 5);
      networkConfig_.spikeMax = milliseconds(random_.between(5, 40));
    }
    networkConfig_.serverStart = random_.between(Time(0), Time(milliseconds(100'000)));
    networkConfig_.serverPpm = random_.between(-kPpm, kPpm);
    if (random_.chance(8)) {
      networkConfig_.deniedLock = 0;
    }
    networkConfig_.errorPercent = random_.chance(15) ? random_.between(1, 5) : 0;

    static constexpr std::array<int, 4> kWatchdog{90, 200, 400, 1500};
    clientConfig_.mutation = mutation;
    clientConfig_.watchdogTimeout = milliseconds(kWatchdog[random_.upTo(kWatchdog.size() - 1)]);
    clientConfig_.commandTimeout = milliseconds(random_.between(40, 120));
    clientConfig_.connectTimeout = milliseconds(random_.between(40, 120));
    // Without polls nothing covers up a wake-up that was lost.
    clientConfig_.safetyPoll =
        random_.chance(50) ? milliseconds(3'600'000) : random_.betweenMs(30, 200);
    static constexpr std::array<int, 3> kLinger{0, 10, 200};
    clientConfig_.linger = milliseconds(kLinger[random_.upTo(kLinger.size() - 1)]);
    clientConfig_.batchSize = static_cast<std::size_t>(random_.between(1, 4));

    workUntil_ = milliseconds(random_.between(300, 1200));
    busy_ = random_.chance(60);

    if (random_.chance(12)) {
      return;  // nothing goes wrong
    }
    const auto some = [this](int percent, int most) {
      return random_.chance(percent) ? random_.between(1, most) : 0;
    };
    faults_.cutCommands = some(60, random_.chance(25) ? 80 : 12);
    faults_.cutSubscribers = some(40, 8);
    faults_.blackHoles = some(30, 3);
    faults_.freezes = some(25, 3);
    faults_.slowDowns = some(20, 2);
    faults_.pauses = some(20, 3);
    faults_.crashes = some(25, kSpareClients);
    faults_.forces = some(15, 4);
    faults_.restarts = some(10, 1);
    if (random_.chance(15)) {
      // Longer than anybody's patience, and what was sent before may come after.
      networkConfig_.lateMax = 2 * kLongOutage;
      faults_.outages = random_.between(1, 3);
      workUntil_ = 2 * kLongOutage;
    }
  }

  template <class Fault>
  void planFault(int times, Fault fault) {
    planFault(times, workUntil_, fault);
  }
  template <class Fault>
  void planFault(int times, Time before, Fault fault) {
    for (int i = 0; i < times; ++i) {
      queue_.at(random_.between(Time(milliseconds(20)), before), [this, fault] {
        upset();
        fault();
      });
    }
  }

  void planFaults() {
    planFault(faults_.cutCommands,
              [this] { cut(processes_[anyLiving()].client->commandConnection()); });
    planFault(faults_.cutSubscribers,
              [this] { cut(processes_[anyLiving()].client->subscriberConnection()); });
    planFault(faults_.blackHoles, [this] {
      const int client = static_cast<int>(anyLiving());
      trace_(queue_.now(), "NET black hole around client ", client);
      network_->blackHole(client, someTime(10, random_.oneIn(6) ? 700 : 200));
    });
    planFault(faults_.outages, workUntil_ / 2, [this] {
      const SimClient& client = *processes_[anyLiving()].client;
      trace_(queue_.now(), "NET outage around client ", client.index());
      network_->blackHole(client.index(), random_.between(kLongOutage / 3, kLongOutage));
    });
    planFault(faults_.freezes, [this] {
      trace_(queue_.now(), "SERVER freezes");
      network_->freeze(someTime(5, random_.oneIn(5) ? 500 : 120));
    });
    planFault(faults_.slowDowns, [this] { network_->slowDown(someTime(20, 150)); });
    planFault(faults_.pauses, [this] {
      Process& process = processes_[anyLiving()];
      const int client = process.client->index();
      trace_(queue_.now(), "client ", client, " is paused");
      network_->pause(client, someTime(2, 250));
      process.awakeSince = process.client->pausedUntil();
    });
    planFault(faults_.crashes, [this] { crash(); });
    planFault(faults_.forces,
              [this] { network_->force(random_.between(0, networkConfig_.locks - 1)); });
    planFault(faults_.restarts, [this] { network_->restartEmpty(someTime(1, 150)); });
  }

  Time someTime(int fromMs, int toMs) {
    return random_.between(Time(milliseconds(fromMs)), Time(milliseconds(toMs)));
  }

  std::size_t anyLiving() {
    for (;;) {
      const std::size_t index = random_.upTo(processes_.size() - 1);
      if (!processes_[index].client->dead()) {
        return index;
      }
    }
  }

  void cut(const ConnectionPtr& connection) {
    // Between two connections there is nothing to cut.
    if (connection) {
      network_->cut(*connection);
    }
  }

  void crash() {
    const int living = static_cast<int>(std::count_if(
        processes_.begin(), processes_.end(), [](const Process& p) { return !p.client->dead(); }));
    if (living < 2) {
      return;
    }
    processes_[anyLiving()].client->crash();
    if (random_.chance(70)) {
      queue_.after(someTime(1, 100), [this] {
        upset();
        addClient();
      });
    }
  }

  void addClient() {
    const int index = static_cast<int>(processes_.size());
    const World world{queue_, random_, trace_, *network_, *this, coverage_};
    Process& process = processes_.emplace_back();
    // One after the other: compilers evaluate arguments in different orders.
    const Time clockStart =
        random_.between(Time(milliseconds(1'000'000)), Time(milliseconds(9'000'000)));
    const int ppm = random_.between(-kPpm, kPpm);
    process.client = std::make_unique<SimClient>(
        world, clientConfig_, index, networkConfig_.locks, clockStart, ppm);
    const int agents = random_.between(1, 4);
    for (int i = 0; i < agents; ++i) {
      Agent& agent = process.agents.emplace_back();
      agent.owner = OwnerId{static_cast<std::uint64_t>(i + 1)};
      agent.atOnce = random_.chance(20) ? 2 : 1;
      agent.slots.resize(locks_.size());
      act(index, static_cast<std::size_t>(i), someTime(0, 10));
    }
  }

  // ---- The applications

  void act(int client, std::size_t agent, Time delay) {
    Agent& it = processes_[static_cast<std::size_t>(client)].agents[agent];
    if (it.scheduled) {
      return;
    }
    it.scheduled = true;
    queue_.after(delay, [this, client, agent] {
      Process& process = processes_[static_cast<std::size_t>(client)];
      if (process.client->dead() || violation_) {
        return;
      }
      process.agents[agent].scheduled = false;
      if (process.client->paused()) {
        act(client, agent, process.client->pausedUntil() - queue_.now());
        return;
      }
      resting_ ? rest(process, process.agents[agent]) : work(process, process.agents[agent]);
      act(client, agent, thinkingTime());
    });
  }

  Time thinkingTime() {
    if (resting_) {
      return milliseconds(4);
    }
    if (random_.chance(3)) {
      return someTime(50, 250);
    }
    return random_.between(Time(microseconds(100)), Time(milliseconds(busy_ ? 8 : 40)));
  }

  static int counted(const Slot& slot) noexcept { return slot.depth - slot.releasing; }

  void work(Process& process, Agent& agent) {
    const std::size_t lock = random_.chance(60) ? 0 : random_.upTo(locks_.size() - 1);
    Slot& slot = agent.slots[lock];
    if (releaseIfDue(process, agent, lock, counted(slot) > 0 && random_.chance(55))) {
      return;
    }
    int acquiring = 0;
    bool holdsOther = false;
    for (std::size_t i = 0; i < agent.slots.size(); ++i) {
      acquiring += agent.slots[i].acquiring;
      holdsOther = holdsOther || (i != lock && agent.slots[i].depth > 0);
    }
    if (acquiring < agent.atOnce && counted(slot) < 3 &&
        (counted(slot) <= 0 || random_.chance(25))) {
      acquire(process, agent, static_cast<int>(lock), holdsOther);
    }
  }

  void rest(Process& process, Agent& agent) {
    for (std::size_t lock = 0; lock < agent.slots.size(); ++lock) {
      releaseIfDue(process, agent, lock, counted(agent.slots[lock]) > 0);
    }
  }

  bool releaseIfDue(Process& process, Agent& agent, std::size_t lock, bool wanted) {
    Slot& slot = agent.slots[lock];
    // An owner that releases while it acquires would not know which hold goes.
    if (slot.acquiring > 0) {
      return false;
    }
    const bool late = slot.wantsLateRelease && slot.depth == 0 && slot.releasing == 0;
    slot.wantsLateRelease = false;
    if (!wanted && !late) {
      return false;
    }
    ++slot.releasing;
    ReleaseCourse& course = process.client->release(static_cast<int>(lock), agent.owner);
    process.releaseEpochs.emplace_back(&course, slot.epoch);
    trace_(queue_.now(),
           "client ",
           process.client->index(),
           " owner ",
           agent.owner.value,
           " releases lock ",
           lock,
           late ? " too late" : "");
    process.releases.push_back(&course);
    course.begin();
    return true;
  }

  void acquire(Process& process, Agent& agent, int lock, bool holdsOther) {
    AcquireSpec spec;
    spec.lock = lock;
    spec.owner = agent.owner;
    if (random_.chance(25)) {
      spec.oneAttempt = true;
    } else if (holdsOther || random_.chance(50)) {
      spec.wait = someTime(1, random_.chance(50) ? 20 : 200);
    }
    if (random_.chance(35)) {
      spec.lease = random_.betweenMs(1, random_.chance(50) ? 30 : 250);
    }
    if (random_.chance(6)) {
      spec.maxHold = random_.betweenMs(2, 150);
    }
    Slot& slot = agent.slots[static_cast<std::size_t>(lock)];
    ++slot.acquiring;
    AcquireCourse& course = process.client->acquire(spec);
    trace_(queue_.now(),
           "client ",
           process.client->index(),
           " owner ",
           agent.owner.value,
           " wants lock ",
           lock,
           spec.oneAttempt ? ", one attempt" : "",
           inMs(", for ", spec.wait),
           inMs(", lease ", spec.lease),
           inMs(", at most ", spec.maxHold));
    process.acquires.push_back(&course);
    course.begin();
    if (random_.chance(15)) {
      stopLater(process, course, someTime(0, random_.chance(50) ? 10 : 150));
    }
  }

  /// Many applications start over as soon as they have lost a lock.
  void acquireAgain(int client, std::size_t agent, int lock) {
    queue_.after(random_.between(Time(0), Time(milliseconds(2))), [this, client, agent, lock] {
      Process& process = processes_[static_cast<std::size_t>(client)];
      Agent& it = process.agents[agent];
      if (!process.client->dead() && !process.client->paused() && !resting_ &&
          it.slots[static_cast<std::size_t>(lock)].acquiring == 0) {
        acquire(process, it, lock, true);
      }
    });
  }

  template <class Duration>
  static std::string inMs(const char* what, const std::optional<Duration>& duration) {
    return duration
               ? what + std::to_string(std::chrono::floor<milliseconds>(*duration).count()) + " ms"
               : std::string();
  }

  void stopLater(Process& process, AcquireCourse& course, Time delay) {
    SimClient* const client = process.client.get();
    queue_.after(delay, [this, client, &course] {
      if (client->dead() || course.answered()) {
        return;
      }
      if (client->paused()) {
        return;
      }
      course.stop();
      checkAnswered(course.answered(), "a call that was stopped goes on");
    });
  }

  void stopAll() {
    for (Process& process : processes_) {
      if (process.client->dead()) {
        continue;
      }
      for (const auto& course : process.client->acquires()) {
        if (!course->answered()) {
          course->stop();
          checkAnswered(course->answered(), "a call that was stopped goes on");
        }
      }
    }
  }

  // ---- What the clients do

  Slot& slotOf(const SimClient& client, int lock, OwnerId owner) {
    return processes_[static_cast<std::size_t>(client.index())]
        .agents[static_cast<std::size_t>(owner.value - 1)]
        .slots[static_cast<std::size_t>(lock)];
  }

  void acquireAnswered(SimClient& client, AcquireCourse& course) override {
    Slot& slot = slotOf(client, course.lock(), course.owner());
    --slot.acquiring;
    checkDeadline(client, course);
    switch (course.result()) {
      case AcquireFsm::Result::granted:
        ++coverage_.granted;
        ++slot.depth;
        slot.disturbed = slot.disturbed && (slot.depth > 1 || slot.serverCount == 0);
        slot.handle = course.hold()->handle;
        slot.remnant = false;
        slot.watched = (slot.depth > 1 && slot.watched) || !course.spec().lease;
        slot.renewedSinceGrant = false;
        slot.renewalSentAt.reset();
        checkValid(client, slot);
        checkAlone(client, course.lock(), course.owner());
        return;
      case AcquireFsm::Result::refused:
        ++coverage_.refused;
        return;
      case AcquireFsm::Result::failed:
        ++coverage_.failed;
        return;
      case AcquireFsm::Result::pending:
        broken("harness", "answered without a result");
    }
  }

  void releaseAnswered(SimClient& client, ReleaseCourse& course) override {
    checkDeadline(client, course);
    const Slot& slot = slotOf(client, course.lock(), course.owner());
    switch (course.result()) {
      case ReleaseFsm::Result::released:
        ++coverage_.released;
        if (slot.depth != 1) {
          broken("count", "released, says the client, but the owner counts other holds");
        }
        return;
      case ReleaseFsm::Result::stillHeld:
        ++coverage_.stillHeld;
        if (slot.depth < 2) {
          broken("count", "still held, says the client, but the owner counts no more holds");
        }
        return;
      case ReleaseFsm::Result::notOwner:
        ++coverage_.notOwner;
        if (slot.depth != 0) {
          broken("count", "not held, says the client, but the owner was told of no loss");
        }
        return;
      case ReleaseFsm::Result::failed:
      case ReleaseFsm::Result::pending:
        return;
    }
  }

  void releaseEnded(SimClient& client, ReleaseCourse& course) override {
    Slot& slot = slotOf(client, course.lock(), course.owner());
    auto& epochs = processes_[static_cast<std::size_t>(client.index())].releaseEpochs;
    const auto found = std::find_if(
        epochs.begin(), epochs.end(), [&](const auto& entry) { return entry.first == &course; });
    const std::uint64_t epoch = found->second;
    epochs.erase(found);
    if (course.result() != ReleaseFsm::Result::failed) {
      slot.remnant = false;
    } else if (slot.depth == 1) {
      // The client lets a hold run out whose owner wanted to be rid of it.
      slot.watched = false;
    }
    if (epoch != slot.epoch) {
      return;
    }
    --slot.releasing;
    if (course.done() && slot.depth > 0) {
      --slot.depth;
    }
    if (slot.depth == 0) {
      slot.handle.reset();
    }
  }

  void lossTold(SimClient& client, const Hold& hold, LossReason reason) override {
    Slot& slot = slotOf(client, SimClient::lockOf(hold), hold.owner);
    checkKept(slot, reason);
    slot.depth = 0;
    slot.releasing = 0;
    ++slot.epoch;
    slot.handle.reset();
    // What is being granted just now may have been taken, too.
    slot.disturbed = slot.disturbed && slot.acquiring > 0;
    slot.remnant = slot.remnant || slot.serverCount > 0;
    slot.wantsLateRelease = random_.chance(50);
    if (random_.chance(70)) {
      acquireAgain(
          client.index(), static_cast<std::size_t>(hold.owner.value - 1), SimClient::lockOf(hold));
    }
    if (reason == LossReason::none) {
      broken("announcement", "a loss without a reason");
    }
  }

  void settleGivenUp(SimClient& client, int lock, OwnerId owner) override {
    slotOf(client, lock, owner).remnant = true;
  }

  void renewalSent(SimClient& client, const Hold& hold) override {
    Slot& slot = slotOf(client, SimClient::lockOf(hold), hold.owner);
    if (hold.lost || hold.count == 0) {
      broken("renewal", "a hold is renewed that is over");
    }
    if (slot.handle && slot.handle->reason() != LossReason::none) {
      broken("renewal", "a hold is renewed whose loss was told");
    }
    for (const auto& course : client.releases()) {
      if (!course->ended() && course->last() && course->hold().get() == &hold) {
        broken("renewal", "a hold is renewed whose release is under way");
      }
    }
    const TimePoint now = client.now();
    const Time period = Time(clientConfig_.watchdogTimeout) / 3;
    // Half a period: the reply to a renewal sent before a grant may be taken for a later one's.
    if (slot.renewalSentAt && hold.renewalFailures == 0 && now < *slot.renewalSentAt + period / 2) {
      broken("renewal", "a hold is renewed too early");
    }
    if (std::exchange(slot.renewedSinceGrant, true)) {
      slot.renewalSentAt = now;
    }
  }

  void gateFree(SimClient& client, int lock, OwnerId owner) override {
    checkCounts(client, lock, owner);
  }

  // ---- What the server does

  Slot* slotOf(int lock, Who who) {
    Process& process = processes_[static_cast<std::size_t>(who.client)];
    return &process.agents[static_cast<std::size_t>(who.owner - 1)]
                .slots[static_cast<std::size_t>(lock)];
  }

  void executing(const Request& request, Who who) override {
    const SimClient& client = *processes_[static_cast<std::size_t>(who.client)].client;
    Slot& slot = *slotOf(request.lock, who);
    const std::uint64_t before = std::exchange(slot.lastExecuted, request.id);
    if (client.dead()) {
      return;
    }
    if (request.id < before) {
      broken("order", "a request about a hold runs after one that was sent later");
    }
    const HoldPtr hold = client.peek(request.lock, OwnerId{who.owner});
    if ((!hold || !hold->busy) && client.orphans().empty()) {
      broken("order", "a request about a hold runs after its sender had done with it");
    }
  }

  void counted(int lock, Who who, int count) override {
    Lock& it = locks_[static_cast<std::size_t>(lock)];
    it.free = false;
    Slot& slot = *slotOf(lock, who);
    slot.serverCount = count;
    const SimClient& client = *processes_[static_cast<std::size_t>(who.client)].client;
    if (!client.dead() && claims(slot, client) && count < counted(slot) && !slot.disturbed) {
      broken("count", "the server counts fewer holds than the owner counts on");
    }
    for (const Process& process : processes_) {
      for (std::size_t agent = 0; agent < process.agents.size(); ++agent) {
        const Slot& other = process.agents[agent].slots[static_cast<std::size_t>(lock)];
        const Who whose{process.client->index(), std::uint64_t{agent} + 1};
        if (whose != who && !process.client->dead() && believes(other) && !other.disturbed &&
            !sleepy(process)) {
          broken("announcement", "a lock is given away before its holder was told of the loss");
        }
      }
    }
  }

  void vanished(int lock, Who who, Cause cause) override {
    Lock& it = locks_[static_cast<std::size_t>(lock)];
    it.free = true;
    it.freeSince = queue_.now();
    it.freedAloud = cause != Cause::expired;
    Slot& slot = *slotOf(lock, who);
    slot.serverCount = 0;
    slot.cause = cause;
    slot.vanishedAt = queue_.now();
    slot.remnant = false;
    const Process& process = processes_[static_cast<std::size_t>(who.client)];
    if (process.client->dead()) {
      return;
    }
    if (cause == Cause::forced || cause == Cause::dataLoss) {
      slot.disturbed = slot.depth > 0 || slot.acquiring > 0;
      return;
    }
    if (slot.disturbed) {
      return;
    }
    if (claims(slot, *process.client)) {
      broken("validity",
             cause == Cause::expired ? "a hold that its owner counts on expires"
                                     : "a hold that its owner counts on is released");
    }
    if (cause == Cause::expired && believes(slot) && !sleepy(process)) {
      broken("announcement", "a hold expires before its owner was told of the loss");
    }
  }

  // ---- The rules

  void broken(const std::string& rule, const std::string& what) override {
    if (violation_) {
      return;
    }
    trace_(queue_.now(), "BROKEN ", rule, ": ", what);
    violation_ = Violation{rule, what, queue_.now()};
  }

  /// The owner counts on the hold and was not told that it is lost.
  static bool believes(const Slot& slot) noexcept {
    return counted(slot) > 0 && slot.handle && slot.handle->reason() == LossReason::none &&
           !slot.handle->released();
  }
  /// As believes(), and the hold says that it is valid.
  static bool claims(const Slot& slot, const SimClient& client) noexcept {
    return counted(slot) > 0 && slot.handle && slot.handle->heldAt(client.now());
  }
  /// It could not act lately.
  [[nodiscard]] bool sleepy(const Process& process) const {
    return queue_.now() < process.awakeSince + kTimerGrace;
  }

  void checkAnswered(bool answered, const char* what) {
    if (!answered) {
      broken("deadline", what);
    }
  }

  void checkDeadline(const SimClient& client, const Course& course) {
    const Process& process = processes_[static_cast<std::size_t>(client.index())];
    if (!sleepy(process) && client.now() > course.deadline() &&
        client.now() - course.deadline() > kTimerGrace) {
      broken("deadline", "a call ends too late");
    }
  }

  void checkValid(const SimClient& client, const Slot& slot) {
    if (claims(slot, client) && slot.serverCount == 0 && !slot.disturbed) {
      broken("validity", "an owner believes to hold what the server does not know");
    }
  }

  void checkAlone(const SimClient& client, int lock, OwnerId owner) {
    const auto place = static_cast<std::size_t>(lock);
    const Slot& mine = slotOf(client, lock, owner);
    if (!claims(mine, client) || mine.disturbed) {
      return;
    }
    for (const Process& process : processes_) {
      for (const Agent& agent : process.agents) {
        const Slot& other = agent.slots[place];
        if (&other != &mine && !process.client->dead() && claims(other, *process.client) &&
            !other.disturbed) {
          broken("validity", "two owners believe to hold one lock");
        }
      }
    }
  }

  void checkKept(const Slot& slot, LossReason reason) {
    const bool byTime = reason == LossReason::expired || reason == LossReason::unreachable;
    const bool roomy = networkConfig_.spikePercent == 0 &&
                       Time(clientConfig_.watchdogTimeout) > 100 * networkConfig_.delayMax;
    const Time calmSince = lastUpset_ + Time(clientConfig_.watchdogTimeout) + kTick;
    if (byTime && slot.watched && counted(slot) > 0 && roomy && queue_.now() > calmSince) {
      broken("kept", "a hold that the watchdog keeps is lost though nothing is broken");
    }
  }

  void checkCounts(const SimClient& client, int lock, OwnerId owner) {
    const Slot& slot = slotOf(client, lock, owner);
    const HoldPtr hold = client.peek(lock, owner);
    if (hold && hold->busy) {
      return;
    }
    const int known = hold && !hold->lost ? hold->count : 0;
    if (slot.serverCount != known && slot.serverCount != 0 && !(known == 0 && slot.remnant)) {
      broken("count",
             "the server counts " + std::to_string(slot.serverCount) + " holds, the client " +
                 std::to_string(known));
    }
    if (slot.releasing == 0 && slot.depth != known) {
      broken("count",
             "the owner counts " + std::to_string(slot.depth) + " holds, the client " +
                 std::to_string(known));
    }
  }

  void upset() { lastUpset_ = queue_.now(); }

  [[nodiscard]] bool healthy() const {
    return network_->calm() && !network_->anyCutUnnoticed() &&
           std::all_of(processes_.begin(), processes_.end(), [](const Process& process) {
             return process.client->dead() ||
                    (!process.client->paused() && process.client->healthy());
           });
  }

  void tick() {
    if (violation_) {
      return;
    }
    if (!healthy()) {
      upset();
    }
    const Time now = queue_.now();
    const Time bound = 10 * networkConfig_.delayMax + 4 * networkConfig_.spikeMax + 2 * kTick;
    for (Process& process : processes_) {
      std::erase_if(process.acquires,
                    [](const AcquireCourse* course) { return course->answered(); });
      std::erase_if(process.releases,
                    [](const ReleaseCourse* course) { return course->answered(); });
    }
    for (std::size_t lock = 0; lock < locks_.size(); ++lock) {
      checkWakeUp(lock, now, bound);
    }
    for (Process& process : processes_) {
      if (!process.client->dead()) {
        checkProcess(process, now, bound);
      }
    }
    queue_.after(kTick, [this] { tick(); });
  }

  void checkWakeUp(std::size_t lock, Time now, Time bound) {
    Lock& it = locks_[lock];
    const bool waited = std::any_of(processes_.begin(), processes_.end(), [&](const Process& p) {
      return !p.client->dead() &&
             std::any_of(p.acquires.begin(), p.acquires.end(), [&](const AcquireCourse* course) {
               return course->lock() == static_cast<int>(lock) && course->waits();
             });
    });
    it.waitSince = waited ? std::min(it.waitSince, now) : Time::max();
    if (!it.free || !waited) {
      return;
    }
    const Time since = std::max({it.freeSince, it.waitSince, lastUpset_});
    const bool heard = it.freedAloud && static_cast<int>(lock) != networkConfig_.deniedLock;
    const Time limit = heard ? bound : bound + Time(clientConfig_.safetyPoll);
    if (now - since > limit) {
      broken("wake-up", "lock " + std::to_string(lock) + " is free and nobody takes it");
    }
  }

  void checkProcess(Process& process, Time now, Time bound) {
    SimClient& client = *process.client;
    for (const AcquireCourse* course : process.acquires) {
      checkDeadline(client, *course);
    }
    for (const ReleaseCourse* course : process.releases) {
      checkDeadline(client, *course);
    }
    const Time period = Time(clientConfig_.watchdogTimeout) / 3;
    for (Agent& agent : process.agents) {
      for (std::size_t lock = 0; lock < agent.slots.size(); ++lock) {
        const Slot& slot = agent.slots[lock];
        checkValid(client, slot);
        checkCounts(client, static_cast<int>(lock), agent.owner);
        const HoldPtr hold = client.peek(static_cast<int>(lock), agent.owner);
        if (hold && hold->watched && hold->maxHoldUntil == TimePoint::max() && !hold->busy &&
            claims(slot, client) && slot.disturbed && slot.serverCount == 0 &&
            now - std::max(slot.vanishedAt, lastUpset_) > period + period / 8 + bound) {
          broken("told", "a holder is not told that its hold was taken");
        }
      }
    }
  }

  void checkResidue() {
    for (int lock = 0; lock < networkConfig_.locks; ++lock) {
      if (network_->held(lock)) {
        broken("residue", "a lock is held though nobody wants it");
      }
    }
    if (network_->subscriptions() != 0) {
      broken("residue", "a channel stays subscribed");
    }
    for (const Process& process : processes_) {
      const SimClient& client = *process.client;
      if (client.dead()) {
        continue;
      }
      if (client.hub().waiting() != 0 || client.hub().channels() != 0) {
        broken("residue", "the hub is not empty");
      }
      if (client.ledger().size() != 0 || client.watchdog().size() != 0) {
        broken("residue", "the ledger is not empty");
      }
      checkEnded(client.acquires());
      checkEnded(client.releases());
    }
  }

  template <class Courses>
  void checkEnded(const Courses& courses) {
    for (const auto& course : courses) {
      if (!course->ended() || course->references() != 0) {
        broken("residue", "a call has not come to its end");
      }
    }
  }

  void runUntil(Time end) {
    while (!violation_ && queue_.runNext(end)) {
    }
  }

  static constexpr Time kLongOutage = milliseconds(1500);
  static constexpr int kSpareClients = 3;
  /// Any two clocks differ by less than the 1000 ppm that the library allows for.
  static constexpr int kPpm = 495;

  Random random_;
  const Trace trace_;
  Coverage& coverage_;
  EventQueue queue_;
  NetworkConfig networkConfig_;
  ClientConfig clientConfig_;
  FaultPlan faults_;
  int clientsAtStart_ = 0;
  Time workUntil_{0};
  bool busy_ = false;
  bool resting_ = false;
  Time lastUpset_{0};
  std::unique_ptr<Network> network_;
  std::vector<Process> processes_;
  std::vector<Lock> locks_;
  std::optional<Violation> violation_;
};

}  // namespace rlock::sim
