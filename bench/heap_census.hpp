// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rlock::bench {

/// The blocks of memory that the program has from operator new, counted by their size: all that
/// this library and the standard library take. Replaces that operator in the whole program.
///
/// **Thread safety:** safe from any thread, but what others take meanwhile may be half counted.
class HeapCensus {
 public:
  /// The blocks of one size, counted with the allocator's own part of it.
  struct Blocks {
    std::size_t bytes = 0;
    std::int64_t count = 0;
  };

  /// False: the C library does not say how large a block is, and nothing is counted.
  [[nodiscard]] static bool works() noexcept;
  [[nodiscard]] static HeapCensus take();

  /// The blocks that have come since another census, less those that have gone, by size.
  [[nodiscard]] std::vector<Blocks> since(const HeapCensus& before) const;

 private:
  std::vector<std::int64_t> counts_;
  std::int64_t largeBytes_ = 0;
};

}  // namespace rlock::bench
