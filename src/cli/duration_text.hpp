// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/duration.hpp>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace rlock::cli {

/// Reads a length of time: numbers with units (`ms`, `s`, `m`, `h`, `d`), fractions allowed, one
/// after the other (`1h30m`, `2.5s`); a number alone is seconds; `forever` is Duration::max().
/// Empty: it is none of these, or negative.
[[nodiscard]] std::optional<Duration> parseDuration(std::string_view text);

/// For people, at most two units: `850ms`, `2.5s`, `47s`, `3m07s`, `2h05m`, `4d03h`. Negative
/// lengths are shown as 0.
[[nodiscard]] std::string showDuration(std::chrono::milliseconds length);

}  // namespace rlock::cli
