// SPDX-License-Identifier: Apache-2.0
#include <rlock/log.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>

namespace rlock {
namespace {

void writeToStderr(LogLevel level, std::string_view text) {
  std::string line("rlock: ");
  line.append(toString(level)).append(": ");
  const std::size_t start = line.size();
  line.append(text);
  const auto isControl = [](char c) { return (c >= 0 && c < ' ') || c == '\x7f'; };
  std::replace_if(line.begin() + static_cast<std::ptrdiff_t>(start), line.end(), isControl, ' ');
  line.push_back('\n');
  // One call per line keeps lines of several threads apart.
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

std::string_view toString(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::trace:
      return "trace";
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "unknown";
}

namespace detail {

Logger::Logger(LogHook hook, LogLevel min) : hook_(std::move(hook)), min_(min) {
  if (!hook_) {
    hook_ = &writeToStderr;
    min_ = std::max(min_, LogLevel::warning);
  }
}

void Logger::write(LogLevel level, std::string_view text) const noexcept {
  if (!enabled(level)) {
    return;
  }
  try {
    hook_(level, text);
  } catch (...) {
    // A failing log must not become a failing lock.
  }
}

}  // namespace detail
}  // namespace rlock
