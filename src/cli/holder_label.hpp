// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace rlock::cli {

/// The text about its holder that a hold of this program keeps beside the lock, as its label:
/// `backup.sh (ana@web1, pid 4711, since 2026-01-31T07:02:11Z)`.
struct HolderLabel {
  std::string text{};  ///< the user's own words, or the command's name
  std::string user{};
  std::string host{};
  int pid = 0;
  std::optional<std::chrono::sys_seconds> since{};  ///< by the holder's clock

  friend bool operator==(const HolderLabel&, const HolderLabel&) = default;
};

/// At most 256 bytes, which is what a label may have; `text` is shortened for that.
[[nodiscard]] std::string composeLabel(const HolderLabel& label);

/// Of a label that another program wrote, only `text` is known.
[[nodiscard]] HolderLabel parseLabel(std::string_view label);

/// Of this process, now.
[[nodiscard]] HolderLabel ownLabel(std::string_view text);

/// `2026-01-31T07:02:11Z`.
[[nodiscard]] std::string showTime(std::chrono::sys_seconds time);

}  // namespace rlock::cli
