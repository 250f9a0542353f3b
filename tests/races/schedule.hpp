// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>

namespace rlock::races {

/// The calling thread's lots from here on follow from the seed, and it gives way at schedule points
/// by them.
void seedThread(std::uint64_t seed) noexcept;
/// One lot.
std::uint64_t draw() noexcept;
/// Whether an event that happens so many times in 1,000 happens now.
bool chance(const std::atomic<unsigned>& perMille) noexcept;

}  // namespace rlock::races
