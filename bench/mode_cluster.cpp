// SPDX-License-Identifier: Apache-2.0
#include "bench.hpp"
#include "cluster_nodes.hpp"
#include "holds.hpp"
#include "measure.hpp"
#include "server.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace rlock::bench {

namespace {

constexpr std::string_view kHolds = "bench:cluster:hold";
/// The master that is made to stand still.
constexpr std::size_t kStill = ClusterServers::kMasters - 1;

/// The nodes are told their other port, which a server before 7.0 cannot be.
bool knowsBusPort(std::string_view version) {
  const std::string_view number = version.substr(version.find(' ') + 1);
  int major = 0;
  std::from_chars(number.data(), number.data() + number.size(), major);
  return major >= 7;
}

/// The beginning of names that are all in one slot of a master.
std::string tagOf(std::size_t master) {
  for (int i = 0;; ++i) {
    const std::string tag = fmt::format("{{{:04}}}", i);
    if (ClusterServers::masterOf(tag) == master) {
      return tag;
    }
  }
}

/// Each thread has a lock for each tag, and takes them in turns.
LoadResult runPairsOn(const Context& context, const std::vector<std::string>& tags, int threads) {
  auto client = Client::connect(context.options);
  return runThreads(context, threads, [&](int thread) -> std::function<void()> {
    std::vector<RLock> locks;
    for (const std::string& tag : tags) {
      locks.push_back(client.getLock(fmt::format("{}:bench:cluster:{}", tag, thread)));
    }
    return [locks = std::move(locks), next = static_cast<std::size_t>(thread)]() mutable {
      RLock& lock = locks[next++ % locks.size()];
      lock.lock();
      lock.unlock();
    };
  });
}

void measurePairs(const Context& context, const ClusterServers& cluster, Report& report) {
  Context one = context;
  one.options = Options::fromUri(cluster.uri());
  one.serverPids = {cluster.pid(0)};
  Context all = one;
  all.serverPids = cluster.pids();
  const std::vector<std::string> tag{tagOf(0)};
  std::vector<std::string> tags;
  for (std::size_t i = 0; i < ClusterServers::kMasters; ++i) {
    tags.push_back(tagOf(i));
  }
  const std::vector<std::string> targets{"", ">= 0.90x", ""};

  Table table({"threads",
               "subject",
               "pairs/s",
               "p50",
               "p99",
               "client cpu",
               "server cpu",
               "to single",
               "target"},
              2);
  for (const int threads : context.pick<std::vector<int>>({1, 4, 16}, {1, 4, 16}, {4})) {
    const std::vector<Subject> subjects{
        {"single server", [&] { return runPairsOn(context, tag, threads); }},
        {"one shard", [&] { return runPairsOn(one, tag, threads); }},
        {"three shards", [&] { return runPairsOn(all, tags, threads); }}};
    const auto results =
        alternate(fmt::format("cluster, {} threads", threads), repetitions(context), subjects);
    for (std::size_t i = 0; i < results.size(); ++i) {
      const LoadResult& result = results[i];
      const double toSingle = result.perSecond / results[0].perSecond;
      table.row(cells(std::to_string(threads), subjects[i].name, result),
                {showRatio(toSingle), targets[i]});
      auto values = figures(result);
      values.emplace_back("ratio_to_single", toSingle);
      report.add(
          "cluster", subjects[i].name, fmt::format("threads={}", threads), std::move(values));
    }
    table.rule();
  }
  table.print();
}

Histogram difference(const Histogram& before, Histogram after) {
  for (std::size_t i = 0; i < Histogram::kBuckets; ++i) {
    after.counts[i] -= before.counts[i];
  }
  after.sum -= before.sum;
  return after;
}

/// How many holds were lost on the master that stands still, and on the others.
struct Losses {
  std::atomic<std::size_t> still{0};
  std::atomic<std::size_t> others{0};

  void add(std::string_view name) { ++(ClusterServers::masterOf(name) == kStill ? still : others); }
};

/// Renewals while all masters work, and while one stands still.
class Renewals {
 public:
  Renewals(std::chrono::milliseconds lease, Report& report) : lease_(lease), report_(report) {}

  /// Looks at what a client does for some time.
  /// @param holds  those whose renewals can be confirmed
  /// @param lost   how many of them are lost so far
  void observe(const std::string& subject,
               std::size_t holds,
               int leases,
               const Client& client,
               const std::function<std::size_t()>& lost) {
    const Histogram before = client.stats().renewalLags;
    const std::size_t lostBefore = lost();
    const auto start = Clock::now();
    for (int i = 0; i < leases; ++i) {
      printProgress(fmt::format("cluster, {}, lease {} of {}", subject, i + 1, leases));
      std::this_thread::sleep_until(start + (i + 1) * lease_);
    }
    const Histogram lags = difference(before, client.stats().renewalLags);
    const auto count = static_cast<double>(lags.count());
    const auto lostNow = static_cast<double>(lost() - lostBefore);
    const double p50 = part(lags, 0.50);
    const double p99 = part(lags, 0.99);
    table_.row({subject,
                showCount(static_cast<double>(holds)),
                showCount(count),
                showDecimal(100 * p50, 2) + "%",
                showDecimal(100 * p99, 2) + "%",
                showCount(lostNow),
                "0"});
    report_.add("cluster",
                subject,
                fmt::format("holds={} lease_ms={}", holds, lease_.count()),
                {{"renewals", count},
                 {"lag_p50_part_of_lease", p50},
                 {"lag_p99_part_of_lease", p99},
                 {"lost", lostNow}});
  }

  void frozen(std::size_t holds, std::size_t lost) {
    const auto lostNow = static_cast<double>(lost);
    table_.row({"the frozen one",
                showCount(static_cast<double>(holds)),
                "-",
                "-",
                "-",
                showCount(lostNow),
                ""});
    report_.add("cluster",
                "the frozen one",
                fmt::format("holds={} lease_ms={}", holds, lease_.count()),
                {{"lost", lostNow}});
  }

  void print() const { table_.print(); }

 private:
  [[nodiscard]] double part(const Histogram& lags, double quantile) const {
    using Part = std::chrono::duration<double, std::milli>;
    return lags.count() == 0 ? std::numeric_limits<double>::quiet_NaN()
                             : Part(lags.quantile(quantile)) / Part(lease_);
  }

  const std::chrono::milliseconds lease_;
  Report& report_;
  Table table_{{"masters", "holds", "renewals", "lag p50", "p99", "lost", "target"}};
};

void measureRenewals(const Context& context, const ClusterServers& cluster, Report& report) {
  const std::size_t count = context.pick<std::size_t>(3000, 900, 90);
  const std::chrono::milliseconds lease(context.pick(6000, 3000, 200));
  Losses losses;
  Options options = Options::fromUri(cluster.uri());
  options.watchdogTimeout = lease;
  options.onLost = [&losses](const LostHold& lost) { losses.add(lost.name); };
  // The client warns of the master that stands still.
  options.log = [](LogLevel, std::string_view) {};

  printHeading(
      "cluster, renewals",
      fmt::format("One client holds {} locks on three masters, with a lease of {} ms, and\n"
                  "one of the masters stands still (SIGSTOP). From when a renewal was due\n"
                  "until it was confirmed, as part of the lease, and the holds lost\n"
                  "meanwhile.",
                  showCount(static_cast<double>(count)),
                  lease.count()));
  printProgress("cluster, taking the locks");
  auto client = Client::connect(options);
  const Holds holds(client, count, kHolds);
  const auto onStill = static_cast<std::size_t>(
      std::count_if(holds.locks().begin(), holds.locks().end(), [](const RLock& lock) {
        return ClusterServers::masterOf(lock.getName()) == kStill;
      }));

  Renewals renewals(lease, report);
  renewals.observe("all work", count, context.pick(2, 1, 1), client, [&] {
    return losses.still + losses.others;
  });
  {
    const Frozen frozen(cluster.pid(kStill));
    renewals.observe("the other two", count - onStill, context.pick(3, 2, 1), client, [&] {
      return losses.others.load();
    });
    // Nobody can renew these.
    waitUntil([&] { return losses.still >= onStill; });
  }
  renewals.frozen(onStill, losses.still);
  renewals.print();
  printProgress("cluster, giving the locks back");
  if (context.check && losses.others > 0) {
    throw std::runtime_error("holds were lost on masters that work");
  }
}

}  // namespace

void runCluster(const Context& context, Report& report) {
  printHeading("cluster",
               "Uncontended lock + unlock, blocking, one client. One key per thread, on a single\n"
               "server and in one slot of a cluster of three masters; and three keys per thread\n"
               "in turns, one on each master. Times in microseconds, CPU per pair.");
  if (context.program.empty() || !knowsBusPort(context.serverVersion)) {
    fmt::print("Left out: it needs servers of its own (no --uri), of Redis 7.0 or later.\n");
    return;
  }
  printProgress("cluster, starting it");
  const ClusterServers cluster(context.program);
  measurePairs(context, cluster, report);
  measureRenewals(context, cluster, report);
}

}  // namespace rlock::bench
