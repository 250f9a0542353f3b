-- SPDX-License-Identifier: Apache-2.0
-- Reconciles requests of one writer whose replies were lost: brings its hold count down to at most a target.
-- The caller has made sure that none of those requests can still run: it had their connection killed on the server, or
-- names their tombstone.
-- KEYS: [1] lock hash  [2] a key that never exists, which stands for the keys of the holds: see rw_write_release
--       [3] tombstone of the lost request (optional)
-- ARGV: [1] owner field as a writer  [2] common prefix of the keys of all read holds  [3] PUBLISH or SPUBLISH
--       [4] channel  [5] target, 0 or more  [6] tombstone TTL in ms
--       [7] number of this reconciliation of the request, 1 or more
-- Returns: array {hold count before, hold count now, remaining ms of the key or -2}
-- When it runs twice: the second run finds the target reached and changes nothing; with a tombstone, a run that comes
--          after a later reconciliation is refused.
-- Cost: O(h) of the h read holds that the writer has itself
-- Source: design of this library; answers the weaknesses of Redisson's unlock latch
-- include: rw_write_ended
local tombstone, life = KEYS[3], ARGV[6]
-- include: reconcile_once
local before = tonumber(redis.call('hget', KEYS[1], ARGV[1]) or 0)
local target = tonumber(ARGV[5])
local now = math.min(before, target)
if now < before then
  if now == 0 then
    writeEnded(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
  else
    redis.call('hset', KEYS[1], ARGV[1], now)
  end
end
return {before, now, redis.call('pttl', KEYS[1])}
