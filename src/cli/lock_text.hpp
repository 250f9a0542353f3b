// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal.hpp"
#include <rlock/inspection.hpp>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rlock::cli {

/// Several lines about one lock, for people.
/// @param now  the time of day, to compare with that of holders
[[nodiscard]] std::string describeLock(const LockInfo& info,
                                       std::chrono::sys_seconds now,
                                       const Style& style);

/// A table, one line a lock.
[[nodiscard]] std::string tableOfLocks(const std::vector<LockInfo>& locks,
                                       std::chrono::sys_seconds now,
                                       const Style& style);

///@{
/// As JSON; bytes that are no UTF-8 are replaced. Lengths are in milliseconds; -1: without end.
[[nodiscard]] std::string jsonOfLock(const LockInfo& info);
[[nodiscard]] std::string jsonOfLocks(const std::vector<LockInfo>& locks);
///@}

/// For people, such as "read-write lock".
[[nodiscard]] std::string kindText(LockKind kind);

/// Whether another could take it at once. A key that names no holder keeps everybody out, too,
/// unless it counts what is left.
[[nodiscard]] bool isFree(const std::optional<LockInfo>& info);

/// A text that is longer than the width loses its middle, for which "..." stands: names that begin
/// alike differ at their ends. An escape sequence stays whole.
/// @param text  of detail::escapeForDisplay()
[[nodiscard]] std::string abridged(std::string_view text, std::size_t width);

/// The lock's name, escaped and abridged.
[[nodiscard]] std::string shownName(const LockInfo& info, std::size_t width);

/// The holder in one short text: label and place, or else the owner.
[[nodiscard]] std::string holderText(const LockHolder& holder);

}  // namespace rlock::cli
