// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rlock/export.hpp>
#include <rlock/lock.hpp>

#include <vector>

namespace rlock {

/// One lock out of several of any kind, on any clients: held when all of them are.
///
/// The members are taken one after the other, each in the name of the caller's owner and with the
/// caller's lease. Their order is the same for every list of them, so that groups with common
/// members never wait for each other in a circle. (The order is by name, then by database and the
/// node's address as its client was given it: clients of one node should name it alike.) When a
/// member cannot be had, or one was lost before the last was obtained, all others are given back
/// before the call returns or waits again. A grant that a node does not confirm in time is given
/// back in the background. The call waits for a node that is away while the caller's time lasts. A
/// call without a time limit waits for the longest `Options::outageTimeout` of the members, and
/// then throws `connectionFailed`.
///
/// The result behaves as follows. `unlock()` releases all members at the same time, also when some
/// were lost, and then throws `notOwner`; a loss ends all acquisitions of the owner at once. The
/// hold is lost as soon as one member is. `isLocked()` means that every member is locked,
/// `getHoldCount()` is the smallest of theirs, `remainTimeToLive()` the shortest, empty when one is
/// free. `forceUnlock()` frees all and says whether any was held. `getName()` is `multi(a,b)`.
///
/// Copies of the result share their holds. A second group of the same members and owner is
/// re-entrant like its members, but has holds of its own.
///
/// **A hold belongs to the object that took it, and to its copies. Keep one as long as the hold**,
/// or use `acquire()`, whose Lease keeps it. When the last of them is gone and a member is lost,
/// nobody gives the others back: `unlock()` by a new object then is `notOwner` and releases
/// nothing, and their watchdogs renew them until each is released by its own RLock or by force, or
/// its client is closed.
///
/// @param members  at least one, none twice, none made by multiLock() or redLock()
/// @throws Error  invalidArgument
/// @par Cost      none; acquiring costs what the members cost, one after the other, other calls
///                what the slowest member costs
/// @par Blocking  as RLock; a blocking call fails with `wouldDeadlock` on the loop thread of any
///                member's client. Handlers run on the callback thread of the first member's client
/// @par Source    Redisson `getMultiLock(RLock...)`
RLOCK_EXPORT RLock multiLock(std::vector<RLock> members);

/// One lock out of several on independent nodes: held while a majority of them is (the RedLock
/// algorithm), so that it outlives the loss of a minority of the nodes.
///
/// An attempt asks all members at the same time, each for a tenth of the lease, but at least 10 ms
/// and at most 1 s and the longest `Options::commandTimeout` of the members. It succeeds when a
/// majority has granted and enough is left of the lease: the hold is valid for the lease, counted
/// from before the requests were sent, less 1 % and 2 ms for clocks. An attempt that fails gives
/// everything back, also late grants, and is made again after a random pause of 5 to 200 ms, while
/// the caller's time lasts. While the hold lasts, members that are missing are asked for again,
/// every third of the lease, at least every 10 s.
///
/// `noQuorum` is thrown when so many nodes could not be asked that there was no majority: by one
/// attempt at once, by a call with a time limit at its end, by lock() when that has lasted for the
/// longest `Options::outageTimeout` of the members. `unlock()` succeeds while a majority was held
/// and valid, else `notOwner`; it releases all members and returns when a majority has confirmed
/// it. Questions are answered by a majority: `isLocked()` means that so many members are locked,
/// not that they are by one owner. `getName()` is `red(a,b,c)`. Copies of the result share their
/// holds; another group of the same members has holds of its own, as with multiLock().
///
/// **A node that restarts without its data must stay out of use for the longest lease in use.**
/// Otherwise it can complete a second majority while the first is valid. See docs/multi-lock.md.
///
/// @param members  at least one, better three or five; none twice, none made by multiLock() or
///                 redLock(); each on a node that fails independently of the others
/// @throws Error  invalidArgument
/// @par Cost      none; acquiring: one request to each member, at the same time
/// @par Blocking  as multiLock()
/// @par Source    Redisson `RedissonRedLock`
RLOCK_EXPORT RLock redLock(std::vector<RLock> members);

}  // namespace rlock
