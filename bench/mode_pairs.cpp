// SPDX-License-Identifier: Apache-2.0
#include "baseline.hpp"
#include "bench.hpp"
#include "measure.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <memory>
#include <vector>

namespace rlock::bench {

namespace {

std::string lockName(int thread) {
  return fmt::format("bench:pairs:{}", thread);
}

LoadResult runRlock(const Context& context, int threads, bool spin) {
  Options options = context.options;
  if (!spin) {
    options.spin = std::chrono::microseconds(0);
  }
  auto client = Client::connect(options);
  return runThreads(context, threads, [&client](int thread) -> std::function<void()> {
    return [lock = client.getLock(lockName(thread))]() mutable {
      lock.lock();
      lock.unlock();
    };
  });
}

LoadResult runHiredis(const Context& context,
                      const Scripts& scripts,
                      int threads,
                      Protocol protocol) {
  return runThreads(context, threads, [&](int thread) -> std::function<void()> {
    auto lock = std::make_shared<HiredisLock>(context, scripts, protocol, lockName(thread));
    return [lock] {
      lock->lock();
      lock->unlock();
    };
  });
}

}  // namespace

void runPairs(const Context& context, Report& report) {
  Connection connection(context.options);
  const Scripts scripts(connection);

  printHeading(
      "pairs",
      "Uncontended lock + unlock, blocking, one key per thread. rlock: one client, one\n"
      "connection. hiredis: a connection per thread; (R) with what Redisson sends, (r) with\n"
      "what rlock sends. Times in microseconds, CPU per pair.");
  Table table({"threads",
               "subject",
               "pairs/s",
               "p50",
               "p99",
               "client cpu",
               "server cpu",
               "to (R)",
               "target",
               "to (r)"},
              2);
  for (const int threads : {1, 4, 16, 64}) {
    std::vector<Subject> subjects{
        {"hiredis (R)", [&] { return runHiredis(context, scripts, threads, Protocol::redisson); }},
        {"hiredis (r)", [&] { return runHiredis(context, scripts, threads, Protocol::rlock); }},
        {"rlock", [&] { return runRlock(context, threads, true); }}};
    std::vector<std::string> targets{"",
                                     "",
                                     threads == 1    ? ">= 2.00x"
                                     : threads == 16 ? ">= 1.60x"
                                                     : ">= 1.70x"};
    if (threads <= 4) {
      subjects.push_back({"rlock, no spin", [&] { return runRlock(context, threads, false); }});
      targets.emplace_back(threads == 1 ? ">= 0.95x" : ">= 0.85x");
    }
    const auto results =
        alternate(fmt::format("pairs, {} threads", threads), repetitions(context), subjects);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const LoadResult& result = results[i];
      const double toRedisson = result.perSecond / results[0].perSecond;
      const double toSame = result.perSecond / results[1].perSecond;
      table.row(cells(std::to_string(threads), subjects[i].name, result),
                {showRatio(toRedisson), targets[i], showRatio(toSame)});
      auto values = figures(result);
      values.emplace_back("ratio_to_redisson_protocol", toRedisson);
      values.emplace_back("ratio_to_same_protocol", toSame);
      report.add("pairs", subjects[i].name, fmt::format("threads={}", threads), std::move(values));
    }
    table.rule();
  }
  table.print();
}

}  // namespace rlock::bench
