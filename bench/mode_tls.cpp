// SPDX-License-Identifier: Apache-2.0
#include "baseline.hpp"
#include "bench.hpp"
#include "blocking_stream.hpp"
#include "measure.hpp"
#include "server.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
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

LoadResult runBlockingPairsOn(const Context& context,
                              const Options& options,
                              const Scripts& scripts,
                              int threads) {
  return runThreads(context, threads, [&](int thread) -> std::function<void()> {
    auto lock = std::make_shared<BlockingStreamLock>(
        options, scripts, fmt::format("bench:tls:blocking:{}", thread));
    return [lock] {
      lock->lock();
      lock->unlock();
    };
  });
}

}  // namespace

void runTls(const Context& context, Report& report) {
  printHeading(
      "tls",
      "Uncontended lock + unlock, blocking, one key per thread, one client with one\n"
      "connection: plain and encrypted, to the same server. As baseline the same pairs by a\n"
      "blocking connection for each thread, which does nothing besides: \"to plain\" is to the\n"
      "baseline's own plain one there. Times in microseconds, CPU per pair.");
  if (context.tlsUri.empty()) {
    fmt::print("Left out: there is no port with TLS (see --tls-uri), or this build has no TLS.\n");
    return;
  }
  const Options encrypted = Options::fromUri(context.tlsUri);
  Connection connection(context.options);
  const Scripts scripts(connection);
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
        {"TLS", [&] { return runPairsOn(context, encrypted, threads); }},
        {"blocking, plain",
         [&] { return runBlockingPairsOn(context, context.options, scripts, threads); }},
        {"blocking, TLS",
         [&] { return runBlockingPairsOn(context, encrypted, scripts, threads); }}};
    const auto results =
        alternate(fmt::format("tls, {} threads", threads), repetitions(context), subjects);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const LoadResult& result = results[i];
      const std::size_t plain = i - i % 2;  // each subject with TLS comes after its plain one
      const double toPlain = result.perSecond / results[plain].perSecond;
      table.row(cells(std::to_string(threads), subjects[i].name, result),
                {showRatio(toPlain), i == 1 ? ">= 0.70x" : ""});
      auto values = figures(result);
      values.emplace_back("ratio_to_plain", toPlain);
      report.add("tls", subjects[i].name, fmt::format("threads={}", threads), std::move(values));
    }
    table.rule();
  }
  table.print();
}

}  // namespace rlock::bench
