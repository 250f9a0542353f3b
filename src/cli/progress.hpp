// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/acquisition.hpp"
#include "cli/arguments.hpp"
#include <rlock/duration.hpp>
#include <rlock/inspection.hpp>

#include <chrono>
#include <cstddef>
#include <future>
#include <optional>
#include <string>

namespace rlock::cli {

/// One line for somebody who waits: who holds the lock, since when, for how long at most.
/// @param info    what is known of the lock; empty: nothing
/// @param now     the time of day, to compare with the holder's
[[nodiscard]] std::string waitingLine(const std::string& name,
                                      const std::optional<LockInfo>& info,
                                      std::chrono::milliseconds waited,
                                      std::optional<Duration> limit,
                                      std::chrono::sys_seconds now);

/// Shows such a line on standard error while this program waits: kept up to date on a terminal, now
/// and then with --verbose, else never. One thread at a time.
class Progress {
 public:
  explicit Progress(const Arguments& arguments);

  /// How long until tick() wants to be called again; negative: never.
  [[nodiscard]] int untilNextTickMs() const;
  /// Asks the server or shows what it has said. Does not block.
  void tick(const Acquisition& acquisition);
  /// Removes the line from the terminal.
  void clear();

 private:
  [[nodiscard]] bool wanted() const { return terminal_ || verbose_; }

  /// The lock whose holder is asked for next.
  [[nodiscard]] const std::string& asked() const;

  const LockChoice& lock_;
  std::size_t asked_ = 0;       // 0: the first, otherwise one of the further ones
  std::size_t passedOver_ = 0;  // so many in a row were not held by others
  bool terminal_;
  bool verbose_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point began_;
  std::chrono::steady_clock::time_point next_;
  std::future<std::optional<LockInfo>> answer_;
};

}  // namespace rlock::cli
