// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace rlock::detail {

/// Where each of the holds that are left was in the order before a request; empty: nothing was
/// said, so that they are the first ones.
using PartIndexes = std::optional<std::vector<int>>;

/// What an acquisition leaves behind. Holds of one owner on one name that are of the same kind are
/// one hold: they have one count and one renewal.
enum class HoldKind : std::uint8_t {
  lock,    ///< the owner's field in the lock
  read,    ///< the shared side of a read-write lock
  write,   ///< its exclusive side
  simple,  ///< the value of a single key
  permit,  ///< a permit of a semaphore that is kept and renewed
  none     ///< nothing that belongs to an owner: counted permits, a latch that was opened
};

/// Which waiters of one client and lock try when something may have changed on the server, and what
/// the others do then.
enum class WakeRule : std::uint8_t {
  one,      ///< only the first in line tries: one of them can have it
  each,     ///< the first in line tries; if it gets in, so can all others, at once
  fitting,  ///< the first in line tries, then whoever needs less than those who were refused
  alone     ///< nobody is told: each looks again when its own time comes
};

/// What the engine must know of a kind of lock.
struct LockTraits {
  HoldKind holdKind = HoldKind::lock;
  WakeRule wakeRule = WakeRule::one;
  std::uint8_t lane = 0;         ///< waiters of one channel that are in different lines; 0 or 1
  int need = 1;                  ///< how much one acquisition takes; WakeRule::fitting compares it
  bool changesState = true;      ///< an attempt leaves something behind that a lost reply hides
  bool queuesOnServer = false;   ///< a waiter has an entry there, which it must give up
  bool channelPerOwner = false;  ///< each owner has a channel of its own
  /// The message after which whoever was waiting need not look: it has happened, whatever came
  /// next.
  std::string_view opensOn{};
  /// For how long a lost request can be settled. Zero: as long as its lease could last.
  std::chrono::milliseconds settleWithin{0};
  bool reentrant = true;  ///< an owner that holds it may take it again
  /// Each hold has a name of its own: a release that runs late finds nothing of a later hold.
  bool ownIds = false;
};

}  // namespace rlock::detail
