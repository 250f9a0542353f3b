// SPDX-License-Identifier: Apache-2.0
#include "cli/settings.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace rlock::cli {

namespace {

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) {
    return {};
  }
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Settings parseSettings(std::string_view text, std::string_view place) {
  Settings settings;
  const std::array<std::pair<std::string_view, std::optional<std::string> Settings::*>, 6> keys{{
      {"uri", &Settings::uri},
      {"wait", &Settings::wait},
      {"lease", &Settings::lease},
      {"kill-after", &Settings::killAfter},
      {"label", &Settings::label},
      {"color", &Settings::color},
  }};
  int number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++number;
    if (line.empty() || line.front() == '#') {
      continue;
    }
    const std::size_t equals = line.find('=');
    if (equals == std::string_view::npos) {
      throw SettingsError(fmt::format("{}:{}: a line is KEY = VALUE", place, number));
    }
    const std::string_view key = trimmed(line.substr(0, equals));
    bool known = false;
    for (const auto& [name, member] : keys) {
      if (name != key) {
        continue;
      }
      known = true;
      if (settings.*member) {
        throw SettingsError(fmt::format("{}:{}: {} is given twice", place, number, key));
      }
      settings.*member = std::string(trimmed(line.substr(equals + 1)));
    }
    if (!known) {
      throw SettingsError(fmt::format(
          "{}:{}: unknown key \"{}\"; there are uri, wait, lease, kill-after, label and color",
          place,
          number,
          key));
    }
  }
  return settings;
}

Settings readSettings(const std::optional<std::string>& explicitPath) {
  std::string path = explicitPath.value_or(environment("RLOCK_CONFIG"));
  const bool mustExist = !path.empty();
  if (!mustExist) {
    std::string home = environment("XDG_CONFIG_HOME");
    if (home.empty()) {
      home = environment("HOME");
      if (home.empty()) {
        return {};
      }
      home += "/.config";
    }
    path = home + "/rlock/config";
  }
  // A file that cannot be read is not taken for one that does not exist: the default server would
  // come in place of its own. Nobody can say what is in a folder of another user, though, which is
  // where HOME points after a change of the user.
  std::error_code failure;
  const auto kind = std::filesystem::status(path, failure).type();
  if (!mustExist &&
      (kind == std::filesystem::file_type::not_found || failure == std::errc::permission_denied)) {
    return {};
  }
  std::ifstream file(path);
  std::ostringstream text;
  if (file && file.peek() != std::ifstream::traits_type::eof()) {
    text << file.rdbuf();
  }
  // A directory can be opened, but not read.
  if (!file.is_open() || file.bad() || text.fail()) {
    throw SettingsError(fmt::format("{}: cannot be read", path));
  }
  return parseSettings(text.str(), path);
}

}  // namespace rlock::cli
