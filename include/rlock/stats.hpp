// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>
#include <rlock/histogram.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace rlock {

/// Counters and durations of a client's past work, and gauges of its present work.
///
/// **Thread safety:** A plain value; one thread at a time.
///
/// The first group counts since the client connected and never decreases, and so do the histograms;
/// the gauges say how many there are now. The numbers are read one after the other while work goes
/// on, so they need not fit each other exactly.
struct Stats {
  std::uint64_t acquired = 0;   ///< acquisitions that succeeded, re-entrant ones included
  std::uint64_t contended = 0;  ///< acquisitions that found the lock taken
  std::uint64_t refused = 0;    ///< calls whose time was over without what they asked for
  /// Releases that the server confirmed, partial ones included. Not of a hold that counts as lost.
  std::uint64_t released = 0;
  std::uint64_t renewals = 0;         ///< holds renewed by the watchdog, each time
  std::uint64_t renewalFailures = 0;  ///< renewals without an answer, to be tried again
  std::uint64_t lost = 0;             ///< holds that ended before their owner released them
  std::uint64_t reconnects = 0;       ///< connections made again after one was lost
  std::uint64_t lostReplies = 0;      ///< changing requests with a lost reply that was reconciled
  std::uint64_t undone = 0;           ///< acquisitions given back because the caller had left
  /// Commands sent on the connection to each node that all calls share, pings included. Handshakes
  /// do not count, nor what goes over connections of its own: subscriptions, WAIT.
  std::uint64_t commands = 0;
  std::uint64_t scriptsLoaded = 0;    ///< scripts sent in full because the server lacked them
  std::uint64_t messages = 0;         ///< pub/sub messages received
  std::uint64_t wakeUps = 0;          ///< waiters sent to try again by a message
  std::uint64_t safetyPolls = 0;      ///< waiters sent to try again by the safety poll or a BackOff
  std::uint64_t handlerFailures = 0;  ///< exceptions out of the user's callbacks, swallowed

  std::uint64_t holds = 0;     ///< gauge: holds that this client keeps
  std::uint64_t waiters = 0;   ///< gauge: calls waiting for a lock
  std::uint64_t channels = 0;  ///< gauge: channels subscribed, lingering ones included

  /// From the beginning of a call until it had what it asked for, of the calls that succeeded.
  Histogram waits{};
  /// From an owner's first hold until its last release was about to be sent, or until the hold was
  /// lost.
  Histogram holdTimes{};
  /// From when a renewal was due until it was confirmed. A renewal is due when a third of the lease
  /// is over, or, where many are renewed together, up to a tenth of that time earlier.
  Histogram renewalLags{};
  /// From when a request was sent until its reply was there: requests about locks and
  /// synchronizers, and renewals. With many requests under way it has their queue in it.
  Histogram roundTrips{};

  /// Field by field.
  friend bool operator==(const Stats&, const Stats&) noexcept = default;
};

/// The order of Client::topNames().
enum class TopBy {
  waited,     ///< for which names calls have waited longest, all together
  contended,  ///< for which names most calls found the lock taken
  held,       ///< which names were held longest, at one time
};

/// The enumerator's name; "unknown" for any other number.
RLOCK_EXPORT std::string_view toString(TopBy order) noexcept;

/// One line of Client::topNames().
struct TopName {
  std::string name{};       ///< as the application gave it
  std::uint64_t count = 0;  ///< calls that found the lock taken; 0 with TopBy::held
  /// How long they waited together; with TopBy::held the longest time that it was held.
  std::chrono::nanoseconds time{0};

  /// Field by field.
  friend bool operator==(const TopName&, const TopName&) = default;
};

}  // namespace rlock
