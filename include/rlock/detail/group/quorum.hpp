// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <span>

namespace rlock::detail {

/// The arithmetic of a lock that is held when a majority of its members is.
struct Quorum {
  using Clock = std::chrono::steady_clock;

  /// The smallest size for which any two sets of members of that size have a member in common.
  static constexpr std::size_t majority(std::size_t members) noexcept { return members / 2 + 1; }

  /// The part of a lease that does not count as valid: clocks of different machines drift apart by
  /// up to 1 %, and the server's expiry is precise to a few milliseconds.
  static constexpr std::chrono::nanoseconds drift(std::chrono::nanoseconds lease) noexcept {
    return lease / 100 + std::chrono::milliseconds(2);
  }

  /// How long one node is asked before it counts as unreachable: a small part of the lease, so that
  /// most of the validity is left.
  static std::chrono::nanoseconds patience(std::chrono::nanoseconds lease,
                                           std::chrono::nanoseconds commandTimeout) noexcept {
    constexpr std::chrono::nanoseconds kShortest = std::chrono::milliseconds(10);
    constexpr std::chrono::nanoseconds kLongest = std::chrono::seconds(1);
    return std::max(kShortest, std::min({lease / 10, commandTimeout, kLongest}));
  }

  /// The end of a member's validity, less its margin; time_point::min() stays what it is.
  static constexpr Clock::time_point shortened(Clock::time_point until,
                                               Clock::duration margin) noexcept {
    return until == Clock::time_point::min() ? until : until - margin;
  }

  /// Until when at least `need` of the members are valid.
  /// @param until  the end of each member's validity; time_point::min() for a member that is not
  ///               held. The call reorders the elements.
  static Clock::time_point validUntil(std::span<Clock::time_point> until,
                                      std::size_t need) noexcept {
    if (need == 0 || need > until.size()) {
      return Clock::time_point::min();
    }
    std::sort(until.begin(), until.end(), std::greater<>());
    return until[need - 1];
  }
};

}  // namespace rlock::detail
