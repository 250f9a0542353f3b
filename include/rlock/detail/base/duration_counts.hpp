// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/histogram.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace rlock::detail {

/// The numbers behind a Histogram; relaxed, they order nothing.
///
/// **Thread safety:** Safe to call concurrently from any thread.
class DurationCounts {
 public:
  void add(std::chrono::nanoseconds duration) noexcept {
    counts_[Histogram::bucketOf(duration)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(std::max<std::int64_t>(duration.count(), 0), std::memory_order_relaxed);
  }

  [[nodiscard]] Histogram read() const noexcept {
    Histogram histogram;
    for (std::size_t bucket = 0; bucket < Histogram::kBuckets; ++bucket) {
      histogram.counts[bucket] = counts_[bucket].load(std::memory_order_relaxed);
    }
    histogram.sum = std::chrono::nanoseconds(sum_.load(std::memory_order_relaxed));
    return histogram;
  }

 private:
  std::array<std::atomic<std::uint64_t>, Histogram::kBuckets> counts_{};
  std::atomic<std::int64_t> sum_{0};
};

}  // namespace rlock::detail
