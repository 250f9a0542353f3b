// SPDX-License-Identifier: Apache-2.0
#include "baseline.hpp"
#include "bench.hpp"
#include "measure.hpp"
#include "raw_pipeline.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace rlock::bench {

namespace {

/// Chains of lock, unlock, lock, ..., each started by the handler of the one before.
class Chains {
 public:
  Chains(const Options& options, int count) : client_(Client::connect(options)) {
    for (int i = 0; i < count; ++i) {
      chains_.push_back(
          std::make_unique<Chain>(*this, client_.getLock(fmt::format("bench:async:{}", i))));
    }
    running_ = count;
    for (const auto& chain : chains_) {
      chain->begin();
    }
  }
  Chains(const Chains&) = delete;
  Chains& operator=(const Chains&) = delete;
  ~Chains() {
    stop_ = true;
    while (running_ > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  LoadResult measure(const Context& context) {
    LoadResult result = observe(
        context,
        timing(context),
        [this] { return pairs_.load(std::memory_order_relaxed); },
        measuring_);
    stop_ = true;
    while (running_ > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (failure_) {
      throw Error(*failure_);
    }
    result.p50 = latencies_.percentile(0.50);
    result.p99 = latencies_.percentile(0.99);
    return result;
  }

 private:
  struct Chain {
    Chain(Chains& all, RLock mine) : chains(all), lock(std::move(mine)) {}

    void begin() {
      if (chains.stop_.load(std::memory_order_relaxed)) {
        --chains.running_;
        return;
      }
      startedAt = now();
      lock.lockAsync({}, owner).start([this](const Result<void>& locked) {
        if (!locked) {
          chains.fail(locked.error());
          return;
        }
        lock.unlockAsync(owner).start([this](const Result<void>& unlocked) {
          if (!unlocked) {
            chains.fail(unlocked.error());
            return;
          }
          // Handlers run one after the other on the loop thread.
          if (chains.measuring_.load(std::memory_order_relaxed)) {
            chains.latencies_.add(now() - startedAt);
          }
          chains.pairs_.fetch_add(1, std::memory_order_relaxed);
          begin();
        });
      });
    }

    Chains& chains;
    RLock lock;
    const OwnerId owner = newOwner();
    std::int64_t startedAt = 0;
  };

  void fail(const Error& error) {
    if (!failure_) {
      failure_ = error;
    }
    stop_ = true;
    --running_;
  }

  Client client_;
  std::vector<std::unique_ptr<Chain>> chains_;
  std::atomic<std::uint64_t> pairs_{0};
  std::atomic<int> running_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> measuring_{false};
  Samples latencies_;             // loop thread, until running_ is 0
  std::optional<Error> failure_;  // loop thread, until running_ is 0
};

LoadResult runRaw(const Context& context, const Scripts& scripts, int connections, int inFlight) {
  RawPipeline pipeline(context, scripts, connections, inFlight);
  std::atomic<bool> measuring{false};
  const LoadResult result = observe(
      context, timing(context), [&pipeline] { return pipeline.pairs(); }, measuring);
  pipeline.check();
  return result;
}

}  // namespace

void runAsync(const Context& context, Report& report) {
  Connection connection(context.options);
  const Scripts scripts(connection);

  printHeading(
      "async",
      "lockAsync + unlockAsync in chains that their handlers continue, against prebuilt requests\n"
      "of the same protocol on bare sockets: on one with as many in flight, and on 16 with 64 in\n"
      "flight each. Microseconds, CPU per pair.");
  Table table({"in flight",
               "subject",
               "pairs/s",
               "p50",
               "p99",
               "client cpu",
               "server cpu",
               "to 1xN",
               "to 16x64",
               "target"},
              2);
  for (const int inFlight : {1, 256, 4096}) {
    const std::vector<Subject> subjects{
        {"raw 16x64", [&] { return runRaw(context, scripts, 16, 64); }},
        {"raw 1xN", [&] { return runRaw(context, scripts, 1, inFlight); }},
        {"rlock", [&] { return Chains(context.options, inFlight).measure(context); }}};
    const auto results =
        alternate(fmt::format("async, {} in flight", inFlight), repetitions(context), subjects);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const LoadResult& result = results[i];
      const double toMany = result.perSecond / results[0].perSecond;
      const double toOne = result.perSecond / results[1].perSecond;
      const bool judged = inFlight == 256 && subjects[i].name == "rlock";
      table.row(cells(std::to_string(inFlight), subjects[i].name, result),
                {showRatio(toOne), showRatio(toMany), judged ? ">= 0.90x" : ""});
      auto values = figures(result);
      values.emplace_back("ratio_to_raw_1xN", toOne);
      values.emplace_back("ratio_to_raw_16x64", toMany);
      report.add(
          "async", subjects[i].name, fmt::format("in_flight={}", inFlight), std::move(values));
    }
    table.rule();
  }
  table.print();
}

}  // namespace rlock::bench
