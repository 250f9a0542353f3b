// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/base/random_bits.hpp>

#include <random>

namespace rlock::detail {

std::uint64_t randomBits() {
  const auto seeded = [] {
    std::random_device device;
    std::seed_seq seed{
        device(), device(), device(), device(), device(), device(), device(), device()};
    return std::mt19937_64(seed);
  };
  thread_local std::mt19937_64 random = seeded();
  thread_local std::uint32_t generation = forkGeneration();
  if (generation != forkGeneration()) {
    // The state is a copy of the parent's, which would give the same bits here and there.
    random = seeded();
    generation = forkGeneration();
  }
  return random();
}

}  // namespace rlock::detail
