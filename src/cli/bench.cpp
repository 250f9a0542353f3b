// SPDX-License-Identifier: Apache-2.0
#include "cli/commands.hpp"
#include "cli/connection.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace rlock::cli {

namespace {

using Clock = std::chrono::steady_clock;
using Samples = std::vector<std::chrono::nanoseconds>;

// Lock and unlock until the time is over; each sample is one such pair.
Samples measure(Client& client, const std::string& name, Clock::time_point end) {
  Samples samples;
  RLock lock = client.getLock(name);
  for (auto now = Clock::now(); now < end;) {
    lock.lock();
    lock.unlock();
    const auto later = Clock::now();
    samples.push_back(later - now);
    now = later;
  }
  return samples;
}

double micros(const Samples& sorted, double part) {
  if (sorted.empty()) {
    return 0;
  }
  const auto index = static_cast<std::size_t>(part * static_cast<double>(sorted.size() - 1));
  return std::chrono::duration<double, std::micro>(sorted[index]).count();
}

}  // namespace

int benchCommand(const Arguments& arguments) {
  Client client = connectClient(arguments);
  const auto begin = Clock::now();
  const auto end = begin + arguments.duration;
  std::mutex mutex;
  Samples all;
  std::exception_ptr failure;
  // Where the system refuses one more, the threads that run are waited for.
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<std::size_t>(arguments.threads));
  for (int i = 0; i < arguments.threads; ++i) {
    threads.emplace_back([&, i] {
      try {
        const Samples samples =
            measure(client, fmt::format("rlock-bench:{}:{}", ::getpid(), i), end);
        const std::scoped_lock lock(mutex);
        all.insert(all.end(), samples.begin(), samples.end());
      } catch (...) {
        const std::scoped_lock lock(mutex);
        failure = std::current_exception();
      }
    });
  }
  threads.clear();
  if (failure) {
    std::rethrow_exception(failure);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  std::sort(all.begin(), all.end());
  const double rate = static_cast<double>(all.size()) / seconds;
  if (arguments.json) {
    const nlohmann::ordered_json json{{"threads", arguments.threads},
                                      {"seconds", seconds},
                                      {"pairs", all.size()},
                                      {"pairsPerSecond", rate},
                                      {"medianUs", micros(all, 0.5)},
                                      {"p99Us", micros(all, 0.99)},
                                      {"maxUs", micros(all, 1)}};
    fmt::print("{}\n", json.dump());
  } else {
    fmt::print("{:.0f} pairs of lock and unlock per second, {} threads\n", rate, arguments.threads);
    fmt::print("a pair took {:.0f} us (median), {:.0f} us (99 %), {:.0f} us (longest)\n",
               micros(all, 0.5),
               micros(all, 0.99),
               micros(all, 1));
  }
  return 0;
}

}  // namespace rlock::cli
