// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>

namespace rlock::cli {

/// The contents of a configuration file: the defaults of options of the same names.
struct Settings {
  std::optional<std::string> uri{};
  std::optional<std::string> wait{};
  std::optional<std::string> lease{};
  std::optional<std::string> killAfter{};
  std::optional<std::string> label{};
  std::optional<std::string> color{};
};

/// A configuration file that cannot be used; what() names the file and the line.
class SettingsError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Reads lines of the form `key = value`; `#` begins a comment at the start of a line. A key that
/// is unknown or given twice throws SettingsError.
/// @param place  the file's name, for messages
[[nodiscard]] Settings parseSettings(std::string_view text, std::string_view place);

/// The file that is named by `explicitPath` or else by RLOCK_CONFIG, and has to exist; otherwise
/// `$XDG_CONFIG_HOME/rlock/config` or `~/.config/rlock/config`, if there is one.
[[nodiscard]] Settings readSettings(const std::optional<std::string>& explicitPath);

}  // namespace rlock::cli
