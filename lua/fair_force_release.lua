-- SPDX-License-Identifier: Apache-2.0
-- Frees the lock, whoever holds it, and wakes the owner that is next. The queue stays.
-- KEYS: [1] lock hash  [2] list of waiting owners  [3] zset of the times from which Redisson takes them for dead
--       [4] zset of the times at which the places of rlock's waiters lapse
--       [5] idempotency key of this request
-- ARGV: [1] message  [2] PUBLISH or SPUBLISH  [3] idempotency key's TTL in ms
--       [4] channel, to which ':' and the next owner's field are added
-- Returns: 1 = somebody held it, 0 = it was free
-- When it runs twice: the idempotency key gives the first run's answer again, so a lock taken in between stays.
-- Cost: O(h + d) of h holders and d dead waiters at the head of the queue
-- Source: Redisson RedissonFairLock.forceUnlockAsync
local idempotency = KEYS[5]
local publish = ARGV[2]
-- include: fair_queue
local function announce()
  return wakeHead(publish, ARGV[4], ARGV[1])
end
-- include: force_release
