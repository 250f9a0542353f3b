// SPDX-License-Identifier: Apache-2.0
// The log as JSON lines: the fields of an event line become fields of the object.
#include "server_uri.hpp"
#include <rlock/rlock.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace {

/// Undoes the escapes of a quoted value.
std::string unescaped(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      result += text[i];
      continue;
    }
    const char c = text[++i];
    if (c == 'x' && i + 2 < text.size()) {
      result += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      result += c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
    }
  }
  return result;
}

/// Takes `key=value` or `key="value"` from the beginning of a line.
std::pair<std::string, nlohmann::json> takeField(std::string_view& line) {
  const std::size_t equals = line.find('=');
  std::string key(line.substr(0, equals));
  line.remove_prefix(equals + 1);
  std::size_t end = 0;
  if (line.starts_with('"')) {
    for (end = 1; line[end] != '"'; ++end) {
      end += line[end] == '\\' ? std::size_t{1} : 0;
    }
    std::string value = unescaped(line.substr(1, end - 1));
    line.remove_prefix(std::min(end + 2, line.size()));
    return {std::move(key), std::move(value)};
  }
  end = std::min(line.find(' '), line.size());
  const std::string value(line.substr(0, end));
  line.remove_prefix(std::min(end + 1, line.size()));
  if (value.find_first_not_of("0123456789") == std::string::npos) {
    return {std::move(key), std::stoull(value)};
  }
  return {std::move(key), value};
}

void writeJson(rlock::LogLevel level, std::string_view line) {
  nlohmann::json object;
  object["level"] = toString(level);
  object["time"] =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  if (line.starts_with("event=")) {
    while (!line.empty()) {
      const auto [key, value] = takeField(line);
      object[key] = value;
    }
  } else {
    object["message"] = line;
  }
  // A name may be any bytes, JSON is UTF-8. One call per line keeps lines of several threads apart.
  const std::string text =
      object.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + '\n';
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    rlock::Options options = rlock::Options::fromUri(serverUri(argc, argv));
    options.log = &writeJson;
    options.logLevel = rlock::LogLevel::debug;
    auto client = rlock::Client::connect(options);
    rlock::AcquireOptions acquisition;
    acquisition.label = "night run";
    rlock::Lease lease = client.getLock("example:\"json\"").acquire(acquisition);
    lease.release();
  } catch (const rlock::Error& error) {
    std::cerr << error.what() << '\n';
    return 1;
  }
}
