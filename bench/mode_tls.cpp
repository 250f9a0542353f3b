// SPDX-License-Identifier: Apache-2.0
#include "bench.hpp"
#include "measure.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <vector>

namespace rlock::bench {

namespace {

LoadResult runPairsOn(const Context& context, const Options& options, int threads) {
  auto client = Client::connect(options);
  return runThreads(context, threads, [&client](int thread) -> std::function<void()> {
    return [lock = client.getLock(fmt::format("bench:tls:{}", thread))]() mutable {
      lock.lock();
      lock.unlock();
    };
  });
}

}  // namespace

void runTls(const Context& context, Report& report) {
  printHeading(
      "tls",
      "Uncontended lock + unlock, blocking, one key per thread, one client with one\n"
      "connection: plain and encrypted, to the same server. Times in microseconds, CPU per\n"
      "pair.");
  if (context.tlsUri.empty()) {
    fmt::print("Left out: there is no port with TLS (see --tls-uri), or this build has no TLS.\n");
    return;
  }
  const Options encrypted = Options::fromUri(context.tlsUri);
  Table table({"threads",
               "subject",
               "pairs/s",
               "p50",
               "p99",
               "client cpu",
               "server cpu",
               "to plain",
               "target"},
              2);
  for (const int threads : {1, 4, 16, 64}) {
    const std::vector<Subject> subjects{
        {"plain", [&] { return runPairsOn(context, context.options, threads); }},
        {"TLS", [&] { return runPairsOn(context, encrypted, threads); }}};
    const auto results =
        alternate(fmt::format("tls, {} threads", threads), repetitions(context), subjects);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const LoadResult& result = results[i];
      const double toPlain = result.perSecond / results[0].perSecond;
      table.row(cells(std::to_string(threads), subjects[i].name, result),
                {showRatio(toPlain), i == 0 ? "" : ">= 0.70x"});
      auto values = figures(result);
      values.emplace_back("ratio_to_plain", toPlain);
      report.add("tls", subjects[i].name, fmt::format("threads={}", threads), std::move(values));
    }
    table.rule();
  }
  table.print();
}

}  // namespace rlock::bench
