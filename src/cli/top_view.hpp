// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/terminal.hpp"
#include <rlock/inspection.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace rlock::cli {

/// The memory of `rlock top` of one lock between two looks.
struct TopHistory {
  std::uint64_t changes = 0;  ///< looks that have found other holders than the look before
  std::chrono::milliseconds longest{0};  ///< the longest lifetime seen since then
  std::string holders{};
  std::chrono::steady_clock::time_point heldSince{};  ///< when these holders were first seen
};

/// Follows locks from look to look: how often they change hands, and what a full bar is.
class TopTracker {
 public:
  /// @param now  of this look
  void update(const std::vector<LockInfo>& locks, std::chrono::steady_clock::time_point now);
  /// Of one lock of the last look.
  [[nodiscard]] const TopHistory& of(const std::string& name) const { return histories_.at(name); }
  /// Changes of holders that were seen since the first look, per second.
  [[nodiscard]] double changesPerSecond() const;

 private:
  std::map<std::string, TopHistory> histories_;
  std::uint64_t changes_ = 0;
  bool begun_ = false;
  std::chrono::steady_clock::time_point first_{};
  std::chrono::steady_clock::time_point last_{};
};

/// The lines above the table.
struct TopHeader {
  std::string server{};   ///< address without secrets
  std::string version{};  ///< such as "redis 7.0.15"
  std::chrono::microseconds roundTrip{0};
  std::string time{};   ///< of day
  std::string error{};  ///< not empty: the last look has failed
};

/// The picture, with line ends between its lines: exactly as many lines as there are rows, none of
/// them longer than there are columns (colours not counted).
[[nodiscard]] std::vector<std::string> topPicture(const TopHeader& header,
                                                  const std::vector<LockInfo>& locks,
                                                  const TopTracker& tracker,
                                                  std::chrono::sys_seconds now,
                                                  std::chrono::steady_clock::time_point steadyNow,
                                                  TerminalSize size,
                                                  const Style& style);

}  // namespace rlock::cli
