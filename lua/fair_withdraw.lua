-- SPDX-License-Identifier: Apache-2.0
-- Takes an owner out of the queue. If it was that owner's turn, wakes the next waiter: the lock may be free, and if it
-- is not, the next waiter must learn when the holder's lease ends.
-- KEYS: [1] lock hash  [2] list of waiting owners  [3] zset of the times from which Redisson takes them for dead
--       [4] zset of the times at which the places of rlock's waiters lapse
--       [5] zset of the order in which rlock's waiters came  [6] zset of the waiting times of Redisson's waiters, in ms
-- ARGV: [1] owner field  [2] message  [3] PUBLISH or SPUBLISH  [4] channel, to which ':' and the next owner's field
--       are added
-- Returns: 1 = the owner was in the queue, 0 = it was not
-- When it runs twice: the second run changes nothing, unless the owner has come back in between. Then the
--          owner enrols again when it next refreshes its place.
-- Cost: O(n) of n waiters, in one command of the server; O(log n) for the first and the last of them
-- Source: Redisson RedissonFairLock.acquireFailedAsync
-- include: fair_queue
-- include: fair_places
local first = redis.call('lindex', KEYS[2], 0) == ARGV[1]
local removed = leave(ARGV[1])
if first then
  wakeHead(ARGV[3], ARGV[4], ARGV[2])
end
return removed and 1 or 0
