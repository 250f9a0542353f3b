// SPDX-License-Identifier: Apache-2.0
#include "cli/duration_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>

namespace rlock::cli {

namespace {

// The factor of a unit in seconds; empty for another word.
std::optional<double> secondsOf(std::string_view unit) {
  if (unit == "ms") {
    return 0.001;
  }
  if (unit == "s" || unit.empty()) {
    return 1;
  }
  if (unit == "m") {
    return 60;
  }
  if (unit == "h") {
    return 3600;
  }
  if (unit == "d") {
    return 86400;
  }
  return std::nullopt;
}

template <class Pred>
std::string_view takeWhile(std::string_view& text, Pred pred) {
  const auto end = std::find_if_not(text.begin(), text.end(), pred);
  const auto length = static_cast<std::size_t>(end - text.begin());
  const std::string_view taken = text.substr(0, length);
  text.remove_prefix(length);
  return taken;
}

}  // namespace

std::optional<Duration> parseDuration(std::string_view text) {
  if (text == "forever") {
    return Duration::max();
  }
  if (text.empty()) {
    return std::nullopt;
  }
  double seconds = 0;
  bool first = true;
  while (!text.empty()) {
    const std::string digits(
        takeWhile(text, [](char c) { return (c >= '0' && c <= '9') || c == '.'; }));
    const std::string_view unit = takeWhile(text, [](char c) { return c >= 'a' && c <= 'z'; });
    const auto factor = secondsOf(unit);
    if (digits.empty() || digits == "." || std::count(digits.begin(), digits.end(), '.') > 1 ||
        !factor || (unit.empty() && !(first && text.empty()))) {
      return std::nullopt;
    }
    seconds += std::strtod(digits.c_str(), nullptr) * *factor;
    first = false;
  }
  return Duration(std::chrono::duration<double>(seconds));
}

std::string showDuration(std::chrono::milliseconds length) {
  const std::int64_t ms = std::max<std::int64_t>(0, length.count());
  if (ms < 1000) {
    return fmt::format("{}ms", ms);
  }
  if (ms < 10'000 && ms % 1000 >= 100) {
    return fmt::format("{}.{}s", ms / 1000, ms % 1000 / 100);
  }
  const std::int64_t seconds = ms / 1000;
  if (seconds < 60) {
    return fmt::format("{}s", seconds);
  }
  if (seconds < 3600) {
    return fmt::format("{}m{:02}s", seconds / 60, seconds % 60);
  }
  if (seconds < 86'400) {
    return fmt::format("{}h{:02}m", seconds / 3600, seconds % 3600 / 60);
  }
  return fmt::format("{}d{:02}h", seconds / 86'400, seconds % 86'400 / 3600);
}

}  // namespace rlock::cli
