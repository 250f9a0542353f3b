-- SPDX-License-Identifier: Apache-2.0
-- Gives one hold of an owner back; the last one frees the lock and wakes the owner that is next.
-- KEYS: [1] lock hash  [2] list of waiting owners  [3] zset of the times from which Redisson takes them for dead
--       [4] zset of the times at which the places of rlock's waiters lapse
--       [5] tombstone of this request, only where the old connection cannot be killed
-- ARGV: [1] owner field  [2] message  [3] PUBLISH or SPUBLISH  [4] lease in ms to restore when holds remain, 0 = leave
--       it  [5] channel, to which ':' and the next owner's field are added
-- Returns: nil = not the owner, also when nobody holds it; integer = holds that remain, 0 = free now;
--          array {0, error text} = free now, but the next owner could not be told
-- When it runs twice: releases twice. A request is sent once; after a lost reply fair_reconcile decides.
-- Cost: O(log n) of n waiters, and for each dead one at the head of the queue once
-- Source: Redisson RedissonFairLock.unlockInnerAsync
if KEYS[5] and redis.call('exists', KEYS[5]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
-- include: fair_queue
local function announce()
  return wakeHead(ARGV[3], ARGV[5], ARGV[2])
end
-- include: release_hold
