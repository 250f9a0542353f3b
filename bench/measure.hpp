// SPDX-License-Identifier: Apache-2.0
// Time, processor time, and how figures are made of them. A virtual machine loses its processors
// for up to seconds at a time without a trace, so throughput is the 90th percentile of 20 ms
// windows, and subjects that are compared take turns.
#pragma once

#include "bench.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <sys/types.h>
#include <vector>

namespace rlock::bench {

using Clock = std::chrono::steady_clock;

/// CLOCK_MONOTONIC in nanoseconds, which all processes of a machine share.
std::int64_t now();

/// Processor time of all threads of a process, in microseconds; NaN when it cannot be read.
double cpuMicros(pid_t pid);
/// Of several processes together; NaN without any.
double cpuMicros(const std::vector<pid_t>& pids);
/// Resident memory of this process in bytes.
double residentBytes();

/// Returns when it is so; an exception after a minute.
void waitUntil(const std::function<bool()>& reached);

/// Durations in nanoseconds.
class Samples {
 public:
  void add(std::int64_t nanoseconds);
  void append(const Samples& other);
  [[nodiscard]] std::size_t size() const { return values_.size(); }
  /// In microseconds; NaN when there is none.
  [[nodiscard]] double percentile(double part) const;

 private:
  static constexpr std::size_t kMost = std::size_t{1} << 20;

  std::vector<std::uint32_t> values_;
};

/// The middle one (the mean of the two middle ones); those that are not numbers do not count.
double median(std::vector<double> values);

struct Timing {
  std::chrono::milliseconds warmUp;
  std::chrono::milliseconds measured;
};
Timing timing(const Context& context);
int repetitions(const Context& context);

struct LoadResult {
  double perSecond = 0;                                   ///< 90th percentile of 20 ms windows
  double average = 0;                                     ///< over the whole time
  double p50 = std::numeric_limits<double>::quiet_NaN();  ///< microseconds
  double p99 = std::numeric_limits<double>::quiet_NaN();  ///< microseconds
  double clientMicros = 0;  ///< processor time of this process per operation
  double serverMicros = 0;  ///< of the server
};
Report::Figures figures(const LoadResult& result);
/// The first cells of a row: the condition, the subject, and the figures of a table of pairs.
std::vector<std::string> cells(std::string condition,
                               std::string subject,
                               const LoadResult& result);

/// Measures what others are doing: `count` says how many operations are done so far. `measuring` is
/// true during the time that counts, for those who collect latencies.
LoadResult observe(const Context& context,
                   const Timing& timing,
                   const std::function<std::uint64_t()>& count,
                   std::atomic<bool>& measuring);

/// Runs `threads` threads that each repeat the operation that `makeWorker(index)` returns.
LoadResult runThreads(const Context& context,
                      int threads,
                      const std::function<std::function<void()>(int)>& makeWorker);

struct Subject {
  std::string name;
  std::function<LoadResult()> run;
};
/// Lets the subjects take turns and returns the medians for each.
std::vector<LoadResult> alternate(const std::string& what,
                                  int repetitions,
                                  const std::vector<Subject>& subjects);

}  // namespace rlock::bench
