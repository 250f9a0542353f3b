// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>

namespace rlock::cli {

/// When a command is told to end, and when it is killed, unless the hold is renewed meanwhile.
struct LossPlan {
  std::chrono::steady_clock::time_point terminateAt{};
  std::chrono::steady_clock::time_point killAt{};
};

/// The command has to be gone before another owner can have the lock, so both moments lie before
/// the end of the validity: the kill by the time that a busy machine may take to deliver it,
/// SIGTERM before that by the command's time to clean up.
///
/// @param validUntil  Lease::validUntil()
/// @param span        how long a hold is valid when it is fresh: lease or `--max-hold`
/// @param killAfter   how long the command may take after SIGTERM; a third of `span` at most, so
/// that
///                    a renewal that is a little late does not end the command
[[nodiscard]] inline LossPlan planLoss(std::chrono::steady_clock::time_point validUntil,
                                       std::chrono::milliseconds span,
                                       std::chrono::milliseconds killAfter) {
  using std::chrono::milliseconds;
  const milliseconds margin = std::clamp(span / 20, milliseconds(10), milliseconds(500));
  const milliseconds grace = std::clamp(killAfter, milliseconds(0), span / 3);
  const auto killAt = validUntil - margin;
  return {killAt - grace, killAt};
}

}  // namespace rlock::cli
