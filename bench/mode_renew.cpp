// SPDX-License-Identifier: Apache-2.0
#include "bench.hpp"
#include "holds.hpp"
#include "measure.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <thread>
#include <unistd.h>

namespace rlock::bench {

void runRenew(const Context& context, Report& report) {
  const std::size_t count = context.pick<std::size_t>(100'000, 10'000, 500);
  Options options = context.options;
  options.watchdogTimeout = std::chrono::milliseconds(context.pick(30'000, 9000, 900));
  const auto round = options.watchdogTimeout / 3;
  const int rounds = context.pick(2, 1, 1);

  printHeading("renew",
               fmt::format("One client holds {} locks, which its watchdog renews every {} s.\n"
                           "Processor time per round, and as part of one processor.",
                           showCount(static_cast<double>(count)),
                           round.count() / 1000));
  printProgress("renew, taking the locks");
  auto client = Client::connect(options);
  const Holds holds(client, count, "bench:renew:lock");

  // The first renewals come one third of the timeout after the acquisitions.
  std::this_thread::sleep_for(round / 2);
  const Stats statsBefore = client.stats();
  const double clientBefore = cpuMicros(::getpid());
  const double serverBefore = cpuMicros(context.serverPids);
  const auto start = Clock::now();
  for (int i = 0; i < rounds; ++i) {
    printProgress(fmt::format("renew, round {} of {}", i + 1, rounds));
    std::this_thread::sleep_until(start + (i + 1) * round);
  }
  const Stats stats = client.stats();
  const double perRound = 1e3 * rounds;
  const double clientMs = (cpuMicros(::getpid()) - clientBefore) / perRound;
  const double serverMs = (cpuMicros(context.serverPids) - serverBefore) / perRound;
  const double roundMs = static_cast<double>(round.count());
  const double renewals = static_cast<double>(stats.renewals - statsBefore.renewals) / rounds;
  const double commands = static_cast<double>(stats.commands - statsBefore.commands) / rounds;
  const auto lost = static_cast<double>(stats.lost);

  Table table({"renewals",
               "commands",
               "lost",
               "client ms",
               "part",
               "target",
               "server ms",
               "part",
               "target",
               "bytes/hold"});
  table.row({showCount(renewals),
             showCount(commands),
             showCount(lost),
             showDecimal(clientMs, 1),
             showDecimal(100 * clientMs / roundMs, 2) + "%",
             "<= 2%",
             showDecimal(serverMs, 1),
             showDecimal(100 * serverMs / roundMs, 2) + "%",
             "<= 4%",
             showDecimal(holds.bytesPerHold(), 0)});
  table.print();
  report.add("renew",
             "rlock",
             fmt::format("holds={} round_ms={}", count, round.count()),
             {{"renewals_per_round", renewals},
              {"commands_per_round", commands},
              {"lost", lost},
              {"client_cpu_ms_per_round", clientMs},
              {"server_cpu_ms_per_round", serverMs},
              {"client_memory_per_hold_bytes", holds.bytesPerHold()}});

  printProgress("renew, giving the locks back");
}

}  // namespace rlock::bench
