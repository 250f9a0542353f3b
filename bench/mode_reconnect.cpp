// SPDX-License-Identifier: Apache-2.0
#include "bench.hpp"
#include "holds.hpp"
#include "measure.hpp"
#include "server.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace rlock::bench {

namespace {

/// Notes when the connection was there again.
class ReconnectClock final : public Observer {
 public:
  void reconnected(const ReconnectedEvent& /*event*/) override {
    std::int64_t never = 0;
    first_.compare_exchange_strong(never, now());
  }
  /// 0: not yet.
  [[nodiscard]] std::int64_t first() const { return first_.load(); }
  void reset() { first_.store(0); }

 private:
  std::atomic<std::int64_t> first_{0};
};

/// How often a script was called by its hash, and how often the server did not know it.
struct ScriptCalls {
  double calls = 0;
  double unknown = 0;

  static ScriptCalls of(Connection& server) {
    return {number(server.info("commandstats", "cmdstat_evalsha"), "calls="),
            number(server.info("errorstats", "errorstat_NOSCRIPT"), "count=")};
  }

 private:
  static double number(std::string_view field, std::string_view key) {
    const std::size_t at = field.find(key);
    double value = 0;
    if (at != std::string_view::npos) {
      const std::string_view digits = field.substr(at + key.size());
      std::uint64_t whole = 0;
      std::from_chars(digits.data(), digits.data() + digits.size(), whole);
      value = static_cast<double>(whole);
    }
    return value;
  }
};

/// When each of the pairs that one thread runs one after the other was complete, and how long the
/// longest took.
class Pairs {
 public:
  explicit Pairs(RLock lock)
      : thread_([this, lock = std::move(lock)](const std::stop_token& stop) mutable {
          run(lock, stop);
        }) {}

  /// The end of the first pair that was complete after a point in time.
  std::int64_t firstAfter(std::int64_t time) {
    const std::lock_guard guard(mutex_);
    const auto first = std::upper_bound(ends_.begin(), ends_.end(), time);
    return first == ends_.end() ? 0 : *first;
  }
  std::int64_t longest() {
    const std::lock_guard guard(mutex_);
    return longest_;
  }

 private:
  void run(RLock& lock, const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const std::int64_t begin = now();
      try {
        lock.lock();
        lock.unlock();
      } catch (const Error&) {
        // Without a connection. The time counts.
        continue;
      }
      const std::int64_t end = now();
      const std::lock_guard guard(mutex_);
      ends_.push_back(end);
      longest_ = std::max(longest_, end - begin);
    }
  }

  std::mutex mutex_;
  std::vector<std::int64_t> ends_;
  std::int64_t longest_ = 0;
  std::jthread thread_;
};

struct Case {
  std::string_view name;
  bool flush;  ///< the server forgets the scripts, as one that was restarted has
};

}  // namespace

void runReconnect(const Context& context, Report& report) {
  const std::vector<std::size_t> counts =
      context.pick<std::vector<std::size_t>>({100'000, 1'000'000}, {10'000, 100'000}, {500});
  Options options = context.options;
  // A round of renewals of its own must not fall into the time that is looked at.
  options.watchdogTimeout = std::chrono::milliseconds(context.pick(120'000, 60'000, 10'000));
  options.maxOperations = 10'000;
  const auto limit = options.watchdogTimeout / 3;

  printHeading("reconnect",
               "One client holds many locks, and all its connections are killed. From when it has\n"
               "a connection again: when the first pair of lock and unlock of another lock is\n"
               "complete, and when each hold is renewed.");
  Table table({"holds",
               "scripts",
               "first pair ms",
               "longest pair ms",
               "last renewal ms",
               "renewals",
               "commands",
               "NOSCRIPT",
               "texts",
               "lost"});
  for (const std::size_t count : counts) {
    const auto clock = std::make_shared<ReconnectClock>();
    options.observer = clock;
    printProgress(fmt::format("reconnect, taking {} locks", count));
    auto client = Client::connect(options);
    Connection server(context.options);
    const Holds holds(client, count, "bench:reconnect:lock");
    for (const Case& each : {Case{"kept", false}, Case{"forgotten", true}}) {
      printProgress(fmt::format("reconnect, {} holds, scripts {}", count, each.name));
      Pairs pairs(client.getLock("bench:reconnect:probe"));
      while (pairs.longest() == 0) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      clock->reset();
      const Stats before = client.stats();
      const ScriptCalls callsBefore = ScriptCalls::of(server);
      if (each.flush) {
        server.command({"SCRIPT", "FLUSH"});
      }
      server.command({"CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"});
      const auto giveUp = Clock::now() + limit;
      while (client.stats().renewals - before.renewals < count) {
        if (Clock::now() > giveUp) {
          throw std::runtime_error("the holds were not renewed after a reconnection");
        }
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      const std::int64_t renewed = now();
      const std::int64_t up = clock->first();
      const Stats stats = client.stats();
      const ScriptCalls calls = ScriptCalls::of(server);
      std::int64_t first = 0;
      while ((first = pairs.firstAfter(up)) == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      const double firstMs = static_cast<double>(first - up) / 1e6;
      const double longestMs = static_cast<double>(pairs.longest()) / 1e6;
      const double renewedMs = static_cast<double>(renewed - up) / 1e6;
      const auto renewals = static_cast<double>(stats.renewals - before.renewals);
      const double commands = calls.calls - callsBefore.calls;
      const double unknown = calls.unknown - callsBefore.unknown;
      const auto texts = static_cast<double>(stats.scriptsLoaded - before.scriptsLoaded);
      const auto lost = static_cast<double>(stats.lost - before.lost);
      table.row({showCount(static_cast<double>(count)),
                 std::string(each.name),
                 showDecimal(firstMs, 1),
                 showDecimal(longestMs, 1),
                 showDecimal(renewedMs, 1),
                 showCount(renewals),
                 showCount(commands),
                 showCount(unknown),
                 showCount(texts),
                 showCount(lost)});
      report.add("reconnect",
                 "rlock",
                 fmt::format("holds={} scripts={}", count, each.name),
                 {{"first_pair_ms", firstMs},
                  {"longest_pair_ms", longestMs},
                  {"last_renewal_ms", renewedMs},
                  {"renewals", renewals},
                  {"commands", commands},
                  {"noscript", unknown},
                  {"texts", texts},
                  {"lost", lost}});
    }
    printProgress("reconnect, giving the locks back");
  }
  table.print();
}

}  // namespace rlock::bench
