// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace rlock {

/// Counters of a client's past work, and gauges of its present work.
///
/// **Thread safety:** A plain value; one thread at a time.
///
/// The first group counts since the client connected and never decreases; the second says how many
/// there are now. The numbers are read one after the other while work goes on, so they need not fit
/// each other exactly.
struct Stats {
  std::uint64_t acquired = 0;         ///< acquisitions that succeeded, re-entrant ones included
  std::uint64_t contended = 0;        ///< acquisitions that found the lock taken and had to wait
  std::uint64_t refused = 0;          ///< try-calls that ended without the lock
  std::uint64_t released = 0;         ///< releases that the server confirmed, partial ones included
  std::uint64_t renewals = 0;         ///< holds renewed by the watchdog, each time
  std::uint64_t renewalFailures = 0;  ///< renewals without an answer, to be tried again
  std::uint64_t lost = 0;             ///< holds that ended before their owner released them
  std::uint64_t reconnects = 0;       ///< connections made again after one was lost
  std::uint64_t lostReplies = 0;      ///< changing requests with a lost reply that was reconciled
  std::uint64_t undone = 0;           ///< acquisitions given back because the caller had left
  std::uint64_t commands = 0;         ///< commands sent, handshakes and pings included
  std::uint64_t scriptsLoaded = 0;    ///< scripts sent in full because the server lacked them
  std::uint64_t messages = 0;         ///< pub/sub messages received
  std::uint64_t wakeUps = 0;          ///< waiters sent to try again by a message
  std::uint64_t safetyPolls = 0;      ///< waiters sent to try again by the safety poll or a BackOff
  std::uint64_t handlerFailures = 0;  ///< exceptions out of the user's callbacks, swallowed

  std::uint64_t holds = 0;     ///< gauge: holds that this client keeps
  std::uint64_t waiters = 0;   ///< gauge: calls waiting for a lock
  std::uint64_t channels = 0;  ///< gauge: channels subscribed, lingering ones included

  /// Field by field.
  friend bool operator==(const Stats&, const Stats&) noexcept = default;
};

}  // namespace rlock
