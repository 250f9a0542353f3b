// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/detail/base/reply.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace rlock::detail {

/// The longest time that a server's answer can mean: ten years. A key that lasts longer, as far as
/// a key's expiry goes (292 million years), lasts so long, and can be added to any time without
/// overflow.
inline constexpr std::chrono::milliseconds kLongestTime = std::chrono::hours(24 * 365 * 10);

/// A time in ms that a server named. A negative one means without end or not known, and is -1.
constexpr std::chrono::milliseconds timeOf(std::int64_t milliseconds) noexcept {
  return std::chrono::milliseconds(
      std::clamp<std::int64_t>(milliseconds, -1, kLongestTime.count()));
}

/// A number that is to be an `int`, or what is next to it.
constexpr int saturated(std::int64_t number) noexcept {
  return static_cast<int>(std::clamp<std::int64_t>(
      number, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()));
}

/// A number of holds, at most what an `int` can say. Empty: no integer, or below 0.
inline std::optional<int> countIn(const Reply& reply) noexcept {
  return reply.isInteger() && reply.integer >= 0 ? std::optional(saturated(reply.integer))
                                                 : std::nullopt;
}

}  // namespace rlock::detail
