// SPDX-License-Identifier: Apache-2.0
#include <rlock/detail/base/fork.hpp>
#include <rlock/detail/base/random_bits.hpp>

#include <random>

namespace rlock::detail {

namespace {

struct Generator {
  Generator() { seedBySystem(); }

  void seedBySystem() {
    std::random_device device;
    std::seed_seq seed{
        device(), device(), device(), device(), device(), device(), device(), device()};
    bits.seed(seed);
    generation = forkGeneration();
  }

  std::mt19937_64 bits;
  std::uint32_t generation = 0;
};

Generator& generatorOfThread() {
  thread_local Generator generator;
  return generator;
}

}  // namespace

std::uint64_t randomBits() {
  Generator& generator = generatorOfThread();
  if (generator.generation != forkGeneration()) {
    // The state is a copy of the parent's, which would give the same bits here and there.
    generator.seedBySystem();
  }
  return generator.bits();
}

void seedRandomBits(std::uint64_t seed) {
  generatorOfThread().bits.seed(seed);
}

}  // namespace rlock::detail
