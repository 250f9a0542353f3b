// SPDX-License-Identifier: Apache-2.0
#include "measure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <exception>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <unistd.h>

namespace rlock::bench {

namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr std::chrono::milliseconds kWindow{20};

struct alignas(64) Counter {
  std::atomic<std::uint64_t> value{0};
};

}  // namespace

std::int64_t now() {
  timespec time{};
  ::clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
}

double cpuMicros(pid_t pid) {
  if (pid <= 0) {
    return kUnknown;
  }
  double total = 0;
  std::error_code error;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks, error)) {
    std::ifstream file(task.path() / "schedstat");
    double nanoseconds = 0;
    if (file >> nanoseconds) {
      total += nanoseconds / 1e3;
    }
  }
  return error ? kUnknown : total;
}

double cpuMicros(const std::vector<pid_t>& pids) {
  double total = pids.empty() ? kUnknown : 0;
  for (const pid_t pid : pids) {
    total += cpuMicros(pid);
  }
  return total;
}

double residentBytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

void waitUntil(const std::function<bool()>& reached) {
  const auto deadline = Clock::now() + std::chrono::minutes(1);
  while (!reached()) {
    if (Clock::now() > deadline) {
      throw std::runtime_error("what was waited for has not come in a minute");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Samples::add(std::int64_t nanoseconds) {
  if (values_.size() < kMost) {
    values_.push_back(static_cast<std::uint32_t>(
        std::clamp<std::int64_t>(nanoseconds, 0, std::numeric_limits<std::uint32_t>::max())));
  }
}

void Samples::append(const Samples& other) {
  values_.insert(values_.end(), other.values_.begin(), other.values_.end());
}

double Samples::percentile(double part) const {
  if (values_.empty()) {
    return kUnknown;
  }
  std::vector<std::uint32_t> values = values_;
  const auto index = std::min(values.size() - 1,
                              static_cast<std::size_t>(part * static_cast<double>(values.size())));
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(index);
  std::nth_element(values.begin(), middle, values.end());
  return *middle / 1e3;
}

double median(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) {
    return kUnknown;
  }
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

Timing timing(const Context& context) {
  using std::chrono::milliseconds;
  return context.pick(Timing{milliseconds(300), milliseconds(600)},
                      Timing{milliseconds(100), milliseconds(200)},
                      Timing{milliseconds(5), milliseconds(40)});
}

int repetitions(const Context& context) {
  return context.pick(4, 2, 1);
}

Report::Figures figures(const LoadResult& result) {
  return {{"per_second", result.perSecond},
          {"average_per_second", result.average},
          {"p50_us", result.p50},
          {"p99_us", result.p99},
          {"client_cpu_us", result.clientMicros},
          {"server_cpu_us", result.serverMicros}};
}

std::vector<std::string> cells(std::string condition,
                               std::string subject,
                               const LoadResult& result) {
  return {std::move(condition),
          std::move(subject),
          showCount(result.perSecond),
          showDecimal(result.p50, 1),
          showDecimal(result.p99, 1),
          showDecimal(result.clientMicros, 1),
          showDecimal(result.serverMicros, 1)};
}

LoadResult observe(const Context& context,
                   const Timing& timing,
                   const std::function<std::uint64_t()>& count,
                   std::atomic<bool>& measuring) {
  std::this_thread::sleep_for(timing.warmUp);

  std::vector<double> rates;
  const double clientBefore = cpuMicros(::getpid());
  const double serverBefore = cpuMicros(context.serverPids);
  const std::uint64_t before = count();
  const auto start = Clock::now();
  measuring = true;
  auto windowStart = start;
  std::uint64_t windowBefore = before;
  while (windowStart < start + timing.measured) {
    std::this_thread::sleep_until(windowStart + kWindow);
    const auto at = Clock::now();
    const std::uint64_t done = count();
    rates.push_back(static_cast<double>(done - windowBefore) /
                    std::chrono::duration<double>(at - windowStart).count());
    windowStart = at;
    windowBefore = done;
  }
  measuring = false;
  const auto operations = static_cast<double>(windowBefore - before);

  LoadResult result;
  result.average = operations / std::chrono::duration<double>(windowStart - start).count();
  std::sort(rates.begin(), rates.end());
  result.perSecond = rates[(rates.size() - 1) * 9 / 10];
  result.clientMicros = (cpuMicros(::getpid()) - clientBefore) / operations;
  result.serverMicros = (cpuMicros(context.serverPids) - serverBefore) / operations;
  return result;
}

LoadResult runThreads(const Context& context,
                      int threads,
                      const std::function<std::function<void()>(int)>& makeWorker) {
  std::vector<std::function<void()>> workers;
  for (int i = 0; i < threads; ++i) {
    workers.push_back(makeWorker(i));
  }
  const auto counters = std::make_unique<Counter[]>(workers.size());
  std::vector<Samples> latencies(workers.size());
  std::atomic<bool> stop{false};
  std::atomic<bool> measuring{false};
  std::mutex mutex;
  std::exception_ptr failure;

  LoadResult result;
  {
    std::vector<std::jthread> running;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      running.emplace_back([&, i] {
        try {
          while (!stop.load(std::memory_order_relaxed)) {
            const std::int64_t start = now();
            workers[i]();
            if (measuring.load(std::memory_order_relaxed)) {
              latencies[i].add(now() - start);
            }
            counters[i].value.fetch_add(1, std::memory_order_relaxed);
          }
        } catch (...) {
          const std::lock_guard lock(mutex);
          failure = std::current_exception();
        }
      });
    }
    result = observe(
        context,
        timing(context),
        [&] {
          std::uint64_t sum = 0;
          for (std::size_t i = 0; i < workers.size(); ++i) {
            sum += counters[i].value.load(std::memory_order_relaxed);
          }
          return sum;
        },
        measuring);
    stop = true;
  }
  if (failure) {
    std::rethrow_exception(failure);
  }
  Samples all;
  for (const Samples& samples : latencies) {
    all.append(samples);
  }
  result.p50 = all.percentile(0.50);
  result.p99 = all.percentile(0.99);
  return result;
}

std::vector<LoadResult> alternate(const std::string& what,
                                  int repetitions,
                                  const std::vector<Subject>& subjects) {
  std::vector<std::vector<LoadResult>> runs(subjects.size());
  for (int i = 0; i < repetitions; ++i) {
    for (std::size_t k = 0; k < subjects.size(); ++k) {
      printProgress(fmt::format("{}, {} ({} of {})", what, subjects[k].name, i + 1, repetitions));
      runs[k].push_back(subjects[k].run());
    }
  }
  std::vector<LoadResult> results;
  for (const auto& run : runs) {
    const auto medianOf = [&run](double LoadResult::*field) {
      std::vector<double> values;
      for (const LoadResult& result : run) {
        values.push_back(result.*field);
      }
      return median(std::move(values));
    };
    results.push_back({medianOf(&LoadResult::perSecond),
                       medianOf(&LoadResult::average),
                       medianOf(&LoadResult::p50),
                       medianOf(&LoadResult::p99),
                       medianOf(&LoadResult::clientMicros),
                       medianOf(&LoadResult::serverMicros)});
  }
  return results;
}

}  // namespace rlock::bench
