// SPDX-License-Identifier: Apache-2.0
#include "baseline.hpp"
#include "bench.hpp"
#include "child.hpp"
#include "measure.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

namespace rlock::bench {

namespace {

constexpr std::chrono::microseconds kPoll{20};
constexpr std::chrono::microseconds kPause{300};  // long enough for the waiter to fall asleep
constexpr std::string_view kName = "bench:handoff";
constexpr std::string_view kFloorChannel = "bench:floor";

bool awaitPhase(const SharedMemory& shared, std::uint32_t phase) {
  while (shared->phase != phase) {
    if (shared->stop) {
      return false;
    }
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

/// Takes the lock, waits until the other process waits for it, and gives it back.
int holder(const SharedMemory& shared, const Context& context) {
  auto client = Client::connect(context.options);
  RLock lock = client.getLock(kName);
  while (!shared->stop) {
    lock.lock();
    shared->phase = Shared::held;
    const bool asked = awaitPhase(shared, Shared::asking);
    std::this_thread::sleep_for(kPause);
    shared->stamp = now();
    lock.unlock();
    if (!asked || !awaitPhase(shared, Shared::done)) {
      break;
    }
  }
  return 0;
}

int waiter(const SharedMemory& shared, const Context& context) {
  auto client = Client::connect(context.options);
  RLock lock = client.getLock(kName);
  shared->ready = true;
  while (awaitPhase(shared, Shared::held)) {
    const std::uint64_t contendedBefore = client.stats().contended;
    shared->phase = Shared::asking;
    lock.lock();
    const std::int64_t enteredAt = now();
    // A process that came too late and found the lock free was handed nothing.
    if (client.stats().contended > contendedBefore) {
      shared->add(enteredAt - shared->stamp);
    }
    lock.unlock();
    shared->phase = Shared::done;
  }
  return 0;
}

int subscriber(const SharedMemory& shared, const Context& context) {
  Connection connection(context.options);
  connection.command({"SUBSCRIBE", kFloorChannel});
  shared->ready = true;
  while (!shared->stop) {
    connection.receive();
    shared->add(now() - shared->stamp);
  }
  return 0;
}

void awaitReady(const SharedMemory& shared, Child& child) {
  while (!shared->ready) {
    if (!child.running()) {
      throw std::runtime_error("a process of the hand-off measurement ended");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Samples handOffs(const Context& context, std::chrono::milliseconds length) {
  const SharedMemory shared;
  {
    Child waiting("handoff-waiter", shared, context);
    awaitReady(shared, waiting);
    const Child holding("handoff-holder", shared, context);
    std::this_thread::sleep_for(length);
    shared->stop = true;
    for (int i = 0; i < 2000 && waiting.running(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return shared.samples();
}

Samples deliveries(const Context& context, std::chrono::milliseconds length) {
  const SharedMemory shared;
  Child receiving("handoff-subscriber", shared, context);
  awaitReady(shared, receiving);
  Connection connection(context.options);
  const auto end = Clock::now() + length;
  while (Clock::now() < end) {
    std::this_thread::sleep_for(kPause);
    shared->stamp = now();
    connection.command({"PUBLISH", kFloorChannel, "0"});
  }
  return shared.samples();
}

Samples roundTrips(const Context& context,
                   const Scripts& scripts,
                   std::chrono::milliseconds length) {
  Connection connection(context.options);
  Samples samples;
  const auto end = Clock::now() + length;
  while (Clock::now() < end) {
    std::this_thread::sleep_for(kPause);
    const std::int64_t start = now();
    connection.command({"EVALSHA", scripts.acquire, "1", "bench:floor", "30000", "nobody:1"});
    samples.add(now() - start);
  }
  connection.command({"DEL", "bench:floor"});
  return samples;
}

}  // namespace

int runChild(std::string_view role, int sharedMemory, const Context& context) {
  const SharedMemory shared(sharedMemory);
  if (role == "handoff-holder") {
    return holder(shared, context);
  }
  if (role == "handoff-waiter") {
    return waiter(shared, context);
  }
  if (role == "handoff-subscriber") {
    return subscriber(shared, context);
  }
  return 2;
}

void runHandOff(const Context& context, Report& report) {
  Connection connection(context.options);
  const Scripts scripts(connection);

  printHeading(
      "handoff",
      "From the start of one process' unlock() to the other process holding the lock it\n"
      "waited for. floor: delivery of a published message to another process plus one round\n"
      "trip of the lock script, measured in turns with it. Microseconds.");
  Samples handOff;
  Samples delivery;
  Samples roundTrip;
  const int rounds = context.pick(4, 1, 1);
  const std::chrono::milliseconds length(context.pick(1500, 500, 100));
  for (int round = 0; round < rounds; ++round) {
    printProgress(fmt::format("handoff, {} of {}", round + 1, rounds));
    handOff.append(handOffs(context, length));
    delivery.append(deliveries(context, length / 2));
    roundTrip.append(roundTrips(context, scripts, length / 2));
  }

  const double floor = delivery.percentile(0.5) + roundTrip.percentile(0.5);
  const double ratio = handOff.percentile(0.5) / floor;
  Table table({"", "p50", "p99", "samples", "p50 to floor", "target"});
  const auto row = [&](const std::string& name,
                       const Samples& samples,
                       const std::string& ratioText,
                       const std::string& target) {
    table.row({name,
               showDecimal(samples.percentile(0.5), 1),
               showDecimal(samples.percentile(0.99), 1),
               showCount(static_cast<double>(samples.size())),
               ratioText,
               target});
    report.add("handoff",
               name,
               "processes=2",
               {{"p50_us", samples.percentile(0.5)},
                {"p99_us", samples.percentile(0.99)},
                {"samples", static_cast<double>(samples.size())}});
  };
  row("delivery", delivery, "", "");
  row("round trip", roundTrip, "", "");
  table.row({"floor", showDecimal(floor, 1), "", "", "1.00x"});
  row("rlock", handOff, showRatio(ratio), "<= 1.50x");
  report.add("handoff", "rlock to floor", "processes=2", {{"p50_ratio", ratio}});
  table.print();
}

}  // namespace rlock::bench
