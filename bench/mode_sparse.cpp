// SPDX-License-Identifier: Apache-2.0
#include "baseline.hpp"
#include "bench.hpp"
#include "measure.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <functional>
#include <random>
#include <thread>
#include <vector>

namespace rlock::bench {

void runSparse(const Context& context, Report& report) {
  Connection connection(context.options);
  const Scripts scripts(connection);
  auto client = Client::connect(context.options);
  RLock lock = client.getLock("bench:sparse:rlock");
  HiredisLock redisson(context, scripts, Protocol::redisson, "bench:sparse:R");
  HiredisLock same(context, scripts, Protocol::rlock, "bench:sparse:r");

  struct Party {
    std::string name;
    std::function<void()> pair;
    Samples samples;
  };
  const auto pairOf = [](HiredisLock& of) {
    return [&of] {
      of.lock();
      of.unlock();
    };
  };
  std::vector<Party> parties;
  parties.push_back({"hiredis (R)", pairOf(redisson), {}});
  parties.push_back({"hiredis (r)", pairOf(same), {}});
  parties.push_back({"rlock",
                     [&lock] {
                       lock.lock();
                       lock.unlock();
                     },
                     {}});

  printHeading(
      "sparse",
      "One thread, a random pause of 0 to 4 ms before each pair, as in most services; the\n"
      "subjects take turns every 50 pairs. Microseconds per pair.");
  const int rounds = context.pick(20, 4, 1);
  std::minstd_rand random(1);
  for (int round = 0; round < rounds; ++round) {
    printProgress(fmt::format("sparse, {} of {}", round + 1, rounds));
    for (Party& party : parties) {
      for (int i = 0; i < context.pick(50, 50, 5); ++i) {
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 4000));
        const std::int64_t start = now();
        party.pair();
        party.samples.add(now() - start);
      }
    }
  }
  Table table({"subject", "p50", "p99", "p50 to (R)", "target"});
  const double base = parties[0].samples.percentile(0.5);
  for (const Party& party : parties) {
    const double p50 = party.samples.percentile(0.5);
    const double p99 = party.samples.percentile(0.99);
    table.row({party.name,
               showDecimal(p50, 1),
               showDecimal(p99, 1),
               showRatio(p50 / base),
               party.name == "rlock" ? "<= 1.15x" : ""});
    report.add("sparse",
               party.name,
               "pause_ms=0..4",
               {{"p50_us", p50}, {"p99_us", p99}, {"p50_ratio_to_redisson_protocol", p50 / base}});
  }
  table.print();
}

}  // namespace rlock::bench
