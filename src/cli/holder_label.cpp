// SPDX-License-Identifier: Apache-2.0
#include "cli/holder_label.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <pwd.h>
#include <unistd.h>

namespace rlock::cli {

namespace {

constexpr std::size_t kLongestLabel = 256;

std::optional<std::chrono::sys_seconds> parseTime(const std::string& text) {
  std::tm parts{};
  char end = 0;
  if (std::sscanf(text.c_str(),  // NOLINT(cert-err34-c): the numbers are checked below
                  "%4d-%2d-%2dT%2d:%2d:%2d%c",
                  &parts.tm_year,
                  &parts.tm_mon,
                  &parts.tm_mday,
                  &parts.tm_hour,
                  &parts.tm_min,
                  &parts.tm_sec,
                  &end) != 7 ||
      end != 'Z') {
    return std::nullopt;
  }
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return std::chrono::sys_seconds(std::chrono::seconds(::timegm(&parts)));
}

// Longer text may not be cut inside a character of UTF-8.
std::string shortened(std::string_view text, std::size_t limit) {
  if (text.size() <= limit) {
    return std::string(text);
  }
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0U) == 0x80U) {
    --limit;
  }
  return std::string(text.substr(0, limit));
}

}  // namespace

std::string showTime(std::chrono::sys_seconds time) {
  const std::time_t seconds = time.time_since_epoch().count();
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
                     parts.tm_year + 1900,
                     parts.tm_mon + 1,
                     parts.tm_mday,
                     parts.tm_hour,
                     parts.tm_min,
                     parts.tm_sec);
}

std::string composeLabel(const HolderLabel& label) {
  const std::string place = fmt::format(" ({}@{}, pid {}, since {})",
                                        shortened(label.user, 32),
                                        shortened(label.host, 64),
                                        label.pid,
                                        showTime(label.since.value_or(std::chrono::sys_seconds())));
  return shortened(label.text, kLongestLabel - place.size()) + place;
}

HolderLabel parseLabel(std::string_view label) {
  HolderLabel parsed;
  parsed.text = std::string(label);
  const std::size_t open = label.rfind(" (");
  if (open == std::string_view::npos || label.back() != ')') {
    return parsed;
  }
  const std::string_view place = label.substr(open + 2, label.size() - open - 3);
  const std::size_t comma = place.rfind(", pid ");
  // A user of a directory service may have an @ in the name; no host has one.
  const std::size_t at = comma == std::string_view::npos ? comma : place.rfind('@', comma);
  if (at == std::string_view::npos || at == 0 || at + 1 == comma) {
    return parsed;
  }
  std::array<char, 32> since{};
  int pid = 0;
  if (std::sscanf(std::string(place.substr(comma)).c_str(),  // NOLINT(cert-err34-c): is checked
                  ", pid %9d, since %31s",
                  &pid,
                  since.data()) != 2) {
    return parsed;
  }
  const auto time = parseTime(since.data());
  if (!time) {
    return parsed;
  }
  parsed.text = std::string(label.substr(0, open));
  parsed.user = std::string(place.substr(0, at));
  parsed.host = std::string(place.substr(at + 1, comma - at - 1));
  parsed.pid = pid;
  parsed.since = time;
  return parsed;
}

HolderLabel ownLabel(std::string_view text) {
  HolderLabel own;
  own.text = std::string(text);
  const passwd* const entry = ::getpwuid(::geteuid());
  own.user = entry != nullptr ? entry->pw_name : std::to_string(::geteuid());
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) == 0) {
    own.host = host.data();
  }
  own.pid = ::getpid();
  own.since = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  return own;
}

}  // namespace rlock::cli
