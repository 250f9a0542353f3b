// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

namespace rlock::detail {

/// Some of the parts of a hold, counted from 1 in the server's order.
using PartIndexes = std::vector<int>;

/// The kind of hold that an acquisition leaves behind. Holds of one owner on one name that are of
/// the same kind are one hold: they have one count and one renewal.
enum class HoldKind : std::uint8_t {
  lock,    ///< the owner's field in the lock
  read,    ///< the shared side of a read-write lock
  write,   ///< its exclusive side
  simple,  ///< the value of a single key
  permit,  ///< a permit of a semaphore that is kept and renewed
  none     ///< no hold of an owner: counted permits, a latch that was opened
};

/// How the waiters of one client and lock react to a wake-up: FIFO, broadcast,
/// best fit or polling.
enum class WakeRule : std::uint8_t {
  fifo,       ///< only the first in the queue tries, because one of them can have it
  broadcast,  ///< the first in the queue tries; if it gets in, all others can, too
  bestFit,    ///< the first tries, then a waiter that needs less than the refused ones
  polling     ///< no wake-ups; each waiter looks again at its own time
};

/// The properties of a kind of lock that the engine must know.
struct LockTraits {
  HoldKind holdKind = HoldKind::lock;
  WakeRule wakeRule = WakeRule::fifo;
  std::uint8_t wakeupQueue = 0;  ///< which of the two wake-up queues of a channel; 0 or 1
  bool changesState = true;      ///< a grant changes the server: a lost reply must be reconciled
  bool queuesOnServer = false;   ///< a waiter has an entry on the server, which it must give up
  bool channelPerOwner = false;  ///< each owner has a channel of its own
  bool reentrant = true;         ///< an owner that holds it may take it again
  /// Its last hold may be given to a waiting owner of the same client in one request.
  bool handsOver = false;
  /// Each hold has an id of its own, so a release that runs late finds nothing of a later hold.
  bool ownIds = false;
  int need = 1;  ///< permits that one acquisition takes; for WakeRule::bestFit
  /// The message that ends the waits of all present waiters without another look at the server,
  /// whatever happened after it.
  std::string_view opensOn{};
  /// For how long after it was sent a request can be reconciled. Zero: as long as its lease could
  /// last.
  std::chrono::milliseconds reconcileWithin{0};
};

}  // namespace rlock::detail
