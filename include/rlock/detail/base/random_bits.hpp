// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rlock::detail {

/// Returns 64 random bits, never the same ones in a parent process and its child. The system seeds
/// the generator.
///
/// **Thread safety:** Safe to call concurrently from any thread.
std::uint64_t randomBits();

}  // namespace rlock::detail
