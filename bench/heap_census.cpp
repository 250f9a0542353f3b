// SPDX-License-Identifier: Apache-2.0
#include "heap_census.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

// The sanitizers have an operator new of their own, which finds errors.
#if __has_include(<malloc.h>) && !defined(RLOCK_BENCH_SANITIZED)
#include <malloc.h>
#ifdef __GLIBC__
#define RLOCK_BENCH_CENSUS
#endif
#endif

namespace {

/// glibc's blocks are multiples of this; what lies before one is its own.
constexpr std::size_t kGrain = 16;
constexpr std::size_t kHeader = sizeof(std::size_t);
/// Larger ones are counted together: they are tables, not objects.
constexpr std::size_t kClasses = 512;

std::array<std::atomic<std::int64_t>, kClasses> counts{};
std::atomic<std::int64_t> largeBytes{0};

#ifdef RLOCK_BENCH_CENSUS

void count(void* memory, std::int64_t by) noexcept {
  const std::size_t bytes = ::malloc_usable_size(memory) + kHeader;
  if (bytes / kGrain < kClasses) {
    counts[bytes / kGrain].fetch_add(by, std::memory_order_relaxed);
  } else {
    largeBytes.fetch_add(by * static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  }
}

#endif

}  // namespace

#ifdef RLOCK_BENCH_CENSUS

void* operator new(std::size_t size) {
  void* const memory = std::malloc(size != 0 ? size : 1);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  count(memory, 1);
  return memory;
}

void operator delete(void* memory) noexcept {
  if (memory != nullptr) {
    count(memory, -1);
    std::free(memory);
  }
}

void operator delete(void* memory, std::size_t /*size*/) noexcept {
  ::operator delete(memory);
}

#endif

namespace rlock::bench {

bool HeapCensus::works() noexcept {
#ifdef RLOCK_BENCH_CENSUS
  return true;
#else
  return false;
#endif
}

HeapCensus HeapCensus::take() {
  HeapCensus census;
  census.counts_.reserve(kClasses);
  for (const std::atomic<std::int64_t>& counted : counts) {
    census.counts_.push_back(counted.load(std::memory_order_relaxed));
  }
  census.largeBytes_ = largeBytes.load(std::memory_order_relaxed);
  return census;
}

std::vector<HeapCensus::Blocks> HeapCensus::since(const HeapCensus& before) const {
  std::vector<Blocks> result;
  for (std::size_t at = 0; at < counts_.size(); ++at) {
    if (const std::int64_t more = counts_[at] - before.counts_[at]; more != 0) {
      result.push_back({at * kGrain, more});
    }
  }
  if (const std::int64_t more = largeBytes_ - before.largeBytes_; more != 0) {
    result.push_back({1, more});
  }
  return result;
}

}  // namespace rlock::bench
