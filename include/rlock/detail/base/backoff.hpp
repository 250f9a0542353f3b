// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

namespace rlock::detail {

/// The pause before the n-th repetition. It doubles from `min` to `max`; a random part of its
/// second half is left out, so that many callers do not come back together.
/// @param attempt  0 for the first repetition
/// @param random   any number; only its low 10 bits count
inline std::chrono::nanoseconds backoffPause(std::chrono::nanoseconds min,
                                             std::chrono::nanoseconds max,
                                             int attempt,
                                             std::uint32_t random) noexcept {
  std::chrono::nanoseconds pause = min;
  for (int i = 0; i < attempt && pause < max; ++i) {
    pause *= 2;
  }
  pause = std::min(pause, max);
  return pause - pause / 2 * static_cast<std::int64_t>(random % 1024) / 1024;
}

}  // namespace rlock::detail
