// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rlock::detail {

/// Returns 64 random bits, never the same ones in a parent process and its child. The system seeds
/// the generator. Everything that the library draws by lot comes from here.
///
/// **Thread safety:** Safe to call concurrently from any thread.
std::uint64_t randomBits();

/// From here on the bits of the calling thread follow from `seed`: a simulation, which is one
/// thread, is repeated by its seed.
void seedRandomBits(std::uint64_t seed);

}  // namespace rlock::detail
