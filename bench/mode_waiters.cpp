// SPDX-License-Identifier: Apache-2.0
#include "bench.hpp"
#include "measure.hpp"
#include "server.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace rlock::bench {

namespace {

struct Contention {
  double perSecond = 0;
  double commands = 0;
  double wakeUps = 0;
  double p50 = 0;
  double p99 = 0;
  double clientMicros = 0;
  double serverMicros = 0;
};

/// One of the threads holds the lock for no time at all, the others wait. The thread that has
/// released waits until another has entered, so that every acquisition is a hand-off.
Contention contend(const Context& context, int waiters) {
  auto client = Client::connect(context.options);
  std::atomic<std::uint64_t> entries{0};
  std::atomic<std::int64_t> releasedAt{0};
  std::atomic<bool> stop{false};
  std::atomic<bool> measuring{false};
  Samples latencies;  // guarded by the lock that is measured
  std::mutex mutex;
  std::exception_ptr failure;

  Contention result;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i <= waiters; ++i) {
      threads.emplace_back([&] {
        try {
          RLock lock = client.getLock("bench:waiters");
          while (!stop) {
            lock.lock();
            const std::int64_t enteredAt = now();
            const std::uint64_t entry = entries.fetch_add(1) + 1;
            if (measuring) {
              latencies.add(enteredAt - releasedAt);
            }
            releasedAt = now();
            lock.unlock();
            while (!stop && entries == entry) {
              std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
          }
        } catch (...) {
          const std::lock_guard guard(mutex);
          failure = std::current_exception();
          stop = true;
        }
      });
    }
    // All of them have to be waiting before it counts.
    std::this_thread::sleep_for(std::chrono::milliseconds(300 + 2 * waiters));
    const Stats before = client.stats();
    const auto start = Clock::now();
    const std::uint64_t entriesBefore = entries;
    const double clientBefore = cpuMicros(::getpid());
    const double serverBefore = cpuMicros(context.serverPids);
    measuring = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(context.pick(3000, 500, 50)));
    measuring = false;
    const Stats after = client.stats();
    const auto handOffs = static_cast<double>(entries - entriesBefore);
    result.perSecond = handOffs / std::chrono::duration<double>(Clock::now() - start).count();
    result.commands = static_cast<double>(after.commands - before.commands) / handOffs;
    result.wakeUps = static_cast<double>(after.wakeUps - before.wakeUps) / handOffs;
    result.clientMicros = (cpuMicros(::getpid()) - clientBefore) / handOffs;
    result.serverMicros = (cpuMicros(context.serverPids) - serverBefore) / handOffs;
    stop = true;
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  result.p50 = latencies.percentile(0.5);
  result.p99 = latencies.percentile(0.99);
  return result;
}

/// Commands per second of a client with one waiter to which nothing happens.
double idleWaiter(const Context& context) {
  auto holder = Client::connect(context.options);
  auto client = Client::connect(context.options);
  const Lease held = holder.getLock("bench:waiters:idle").acquire();
  std::stop_source stop;
  std::jthread waiting([&] {
    try {
      client.getLock("bench:waiters:idle").lockInterruptibly(stop.get_token());
    } catch (const Error&) {
      // Cancelled.
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(context.pick(500, 500, 50)));
  const std::uint64_t before = client.stats().commands;
  const auto start = Clock::now();
  std::this_thread::sleep_for(std::chrono::milliseconds(context.pick(10'000, 2000, 100)));
  const auto sent = static_cast<double>(client.stats().commands - before);
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  stop.request_stop();
  return sent / seconds;
}

}  // namespace

void runWaiters(const Context& context, Report& report) {
  printHeading("waiters",
               "One process: a holder and 1, 10, 100 waiting threads, no time between entry and\n"
               "release. Commands as the client counts them. Microseconds, CPU per hand-off.");
  Table table({"waiters",
               "hand-offs/s",
               "commands",
               "target",
               "wake-ups",
               "p50",
               "p99",
               "client cpu",
               "server cpu"});
  for (const int waiters : {1, 10, 100}) {
    printProgress(fmt::format("waiters, {}", waiters));
    const Contention result = contend(context, waiters);
    table.row({fmt::format("1x{}", waiters),
               showCount(result.perSecond),
               showDecimal(result.commands, 2),
               "<= 4",
               showDecimal(result.wakeUps, 2),
               showDecimal(result.p50, 1),
               showDecimal(result.p99, 1),
               showDecimal(result.clientMicros, 1),
               showDecimal(result.serverMicros, 1)});
    report.add("waiters",
               "rlock",
               fmt::format("waiters={}", waiters),
               {{"hand_offs_per_second", result.perSecond},
                {"commands_per_hand_off", result.commands},
                {"wake_ups_per_hand_off", result.wakeUps},
                {"p50_us", result.p50},
                {"p99_us", result.p99},
                {"client_cpu_us", result.clientMicros},
                {"server_cpu_us", result.serverMicros}});
  }
  table.print();
  printProgress("waiters, idle");
  const double idle = idleWaiter(context);
  Table idleTable({"", "commands/s", "target"});
  idleTable.row({"an idle waiter", showDecimal(idle, 2), "<= 2"});
  idleTable.print();
  report.add("waiters", "idle waiter", "waiters=1", {{"commands_per_second", idle}});
}

}  // namespace rlock::bench
