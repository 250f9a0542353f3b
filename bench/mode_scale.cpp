// SPDX-License-Identifier: Apache-2.0
#include "bench.hpp"
#include "holds.hpp"
#include "measure.hpp"
#include <rlock/rlock.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace rlock::bench {

namespace {

/// Processor time of the whole process, of threads that have ended, too.
double processMicros() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) / 1e3;
}

/// Counts events that come on other threads.
class Tally {
 public:
  void add() {
    const std::lock_guard guard(mutex_);
    ++count_;
    changed_.notify_all();
  }
  void await(std::size_t count) {
    std::unique_lock guard(mutex_);
    if (!changed_.wait_for(guard, std::chrono::minutes(2), [&] { return count_ >= count; })) {
      throw std::runtime_error(fmt::format("only {} of {} came", count_, count));
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t count_ = 0;
};

/// An operation's processor time beside few and beside many.
struct Costs {
  std::string operation;
  std::vector<double> micros;
};

class Scale {
 public:
  explicit Scale(const Context& context) : options_(context.options), context_(context) {
    // No renewal, poll or pause of the machine is to come in between.
    options_.watchdogTimeout = std::chrono::minutes(30);
    options_.safetyPoll = std::chrono::minutes(5);
    options_.maxOperations = 1'000'000;
    // Each loss would be a line.
    options_.log = [](LogLevel /*level*/, std::string_view /*line*/) {};
  }

  /// The cost of operations on another lock in a client with so many holds.
  void besideHolds(std::size_t count) {
    Tally losses;
    Options settings = options_;
    settings.onLost = [&](const LostHold& /*lost*/) { losses.add(); };
    auto client = Client::connect(settings);
    auto other = Client::connect(options_);
    const Holds holds(client, count, "bench:scale:hold");
    const std::size_t times = context_.pick<std::size_t>(1'000, 200, 5);

    RLock lock = client.getLock("bench:scale:pair");
    measure("lock and unlock", times, [&] {
      lock.lock();
      lock.unlock();
    });
    measure("a thread that locks, unlocks and ends", times, [&] {
      std::thread([&] {
        lock.lock();
        lock.unlock();
      }).join();
    });
    // A client listens for forced releases a moment after its first hold.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    std::size_t lost = 0;
    measure("a forced release by this client", times, [&] {
      lock.lock();
      if (!client.getLock("bench:scale:pair").forceUnlock()) {
        throw std::runtime_error("there was nothing to release");
      }
      losses.await(++lost);
    });
    measure("a forced release by another client", times, [&] {
      lock.lock();
      if (!other.getLock("bench:scale:pair").forceUnlock()) {
        throw std::runtime_error("there was nothing to release");
      }
      losses.await(++lost);
    });
  }

  /// The cost of one waiter where so many wait for the same lock.
  void amongWaiters(std::size_t count) {
    auto client = Client::connect(options_);
    RLock lock = client.getLock("bench:scale:wait");
    const OwnerId holder = newOwner();
    lock.lockAsync({}, holder).get();
    Tally released;
    Tally cancelled;
    std::stop_source stop;
    const auto wait = [&](AcquireOptions terms) {
      const OwnerId owner = newOwner();
      lock.acquireAsync(std::move(terms), owner).start([&, owner](const Result<Lease>& lease) {
        if (!lease) {
          cancelled.add();
          return;
        }
        lock.unlockAsync(owner).start([&](const Result<void>& /*result*/) { released.add(); });
      });
    };
    const std::size_t times = std::min(count, context_.pick<std::size_t>(1'000, 200, 5));
    std::size_t begun = 0;
    const auto begin = [&](std::size_t number, const AcquireOptions& terms) {
      for (std::size_t i = 0; i < number; ++i) {
        wait(terms);
      }
      begun += number;
      waitUntil([&] { return client.stats().waiters == begun; });
    };
    begin(count, {});
    measureAll("a waiter that comes", times, [&] { begin(times, {.stop = stop.get_token()}); });
    measureAll("a waiter that is cancelled", times, [&] {
      stop.request_stop();
      cancelled.await(times);
      begun -= times;
    });
    measureAll("a waiter's turn, its hold and release", count, [&] {
      lock.unlockAsync(holder).get();
      released.await(count);
    });
    client.close(std::chrono::seconds(10));
  }

  /// The cost of a pair where so many threads have one at a time.
  void byThreads(std::size_t count) {
    auto client = Client::connect(options_);
    const std::size_t times = context_.pick<std::size_t>(50, 10, 2);
    measureAll("lock and unlock, a lock for each thread", count * times, [&] {
      std::barrier begin(static_cast<std::ptrdiff_t>(count));
      std::vector<std::jthread> threads;
      threads.reserve(count);
      for (std::size_t i = 0; i < count; ++i) {
        threads.emplace_back([&, i] {
          RLock lock = client.getLock(fmt::format("bench:scale:thread:{}", i));
          begin.arrive_and_wait();
          for (std::size_t n = 0; n < times; ++n) {
            lock.lock();
            lock.unlock();
          }
        });
      }
    });
  }

  [[nodiscard]] const std::vector<Costs>& costs() const { return costs_; }

 private:
  void measure(std::string_view operation, std::size_t times, const std::function<void()>& once) {
    once();
    measureAll(operation, times, [&] {
      for (std::size_t i = 0; i < times; ++i) {
        once();
      }
    });
  }
  void measureAll(std::string_view operation, std::size_t times, const std::function<void()>& all) {
    const double before = processMicros();
    all();
    const double micros = (processMicros() - before) / static_cast<double>(times);
    const auto known = std::find_if(costs_.begin(), costs_.end(), [&](const Costs& each) {
      return each.operation == operation;
    });
    if (known == costs_.end()) {
      costs_.push_back({std::string(operation), {micros}});
    } else {
      known->micros.push_back(micros);
    }
  }

  Options options_;
  const Context& context_;
  std::vector<Costs> costs_;
};

void print(const std::string& what,
           const std::vector<std::size_t>& numbers,
           const Scale& scale,
           Report& report) {
  std::vector<std::string> header{what};
  for (const std::size_t number : numbers) {
    header.push_back(showCount(static_cast<double>(number)));
  }
  header.emplace_back("last to first");
  Table table(std::move(header));
  for (const Costs& costs : scale.costs()) {
    std::vector<std::string> cells{costs.operation};
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      cells.push_back(showDecimal(costs.micros[i], 1));
      report.add("scale",
                 costs.operation,
                 fmt::format("{}={}", what, numbers[i]),
                 {{"client_cpu_us", costs.micros[i]}});
    }
    cells.push_back(showRatio(costs.micros.back() / costs.micros.front()));
    table.row(std::move(cells));
  }
  table.print();
}

}  // namespace

void runScale(const Context& context, Report& report) {
  printHeading("scale",
               "Processor time of this process for one operation, in microseconds, beside few and\n"
               "beside many holds, waiters of the same lock, and threads.");
  const std::vector<std::size_t> holds{1, context.pick<std::size_t>(1'000'000, 20'000, 200)};
  Scale besideHolds(context);
  for (const std::size_t number : holds) {
    printProgress(fmt::format("scale, {} holds", number));
    besideHolds.besideHolds(number);
  }
  print("holds", holds, besideHolds, report);

  const std::vector<std::size_t> waiters{1'000, context.pick<std::size_t>(100'000, 10'000, 2'000)};
  Scale amongWaiters(context);
  for (const std::size_t number : waiters) {
    printProgress(fmt::format("scale, {} waiters", number));
    amongWaiters.amongWaiters(number);
  }
  print("waiters", waiters, amongWaiters, report);

  const std::vector<std::size_t> threads{16, context.pick<std::size_t>(1'024, 256, 32)};
  Scale byThreads(context);
  for (const std::size_t number : threads) {
    printProgress(fmt::format("scale, {} threads", number));
    byThreads.byThreads(number);
  }
  print("threads", threads, byThreads, report);
}

}  // namespace rlock::bench
