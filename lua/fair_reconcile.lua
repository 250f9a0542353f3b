-- SPDX-License-Identifier: Apache-2.0
-- Reconciles requests of one owner whose replies were lost: brings its hold count down to at most
-- a target. Its place in the queue stays: an owner that does not wait any longer leaves by fair_withdraw.
-- The caller has made sure that none of those requests can still run.
-- KEYS: [1] lock hash  [2] list of waiting owners  [3] zset of the times from which Redisson takes them for dead
--       [4] zset of the times at which the places of rlock's waiters lapse
--       [5] tombstone of the lost request (optional)
-- ARGV: [1] owner field  [2] target hold count, 0 or more  [3] message  [4] PUBLISH or SPUBLISH  [5] tombstone TTL in
--       ms  [6] channel, to which ':' and the next owner's field are added  [7] number of this reconciliation of the
--       request, 1 or more
-- Returns: array {hold count before, hold count now, remaining ms of the key or -2}
-- When it runs twice: the second run finds the target reached and changes nothing; with a tombstone, a run that comes
--          after a later reconciliation is refused.
-- Cost: O(log n) of n waiters, and for each dead one at the head of the queue once
-- Source: design of this library; answers the weaknesses of Redisson's unlock latch
local tombstone, life = KEYS[5], ARGV[5]
-- include: fair_queue
-- include: reconcile_once
local function announce()
  return wakeHead(ARGV[4], ARGV[6], ARGV[3])
end
-- include: hold_reconcile
return {before, left, redis.call('pttl', KEYS[1])}
