-- SPDX-License-Identifier: Apache-2.0
-- Reconciles requests of one owner whose replies were lost: see lock_reconcile.
-- KEYS: [1] lock  [2] tombstone of the lost request (optional)
-- ARGV: [1] owner field  [2] target hold count, 0 or more  [3] message  [4] PUBLISH or SPUBLISH  [5] tombstone TTL in
--       ms  [6] channel  [7] number of this reconciliation of the request, 1 or more
-- Returns: array {hold count before, hold count now, remaining ms of the key or -2}
-- When it runs twice: the second run finds the target reached and changes nothing; with a tombstone, a run that comes
--          after a later reconciliation is refused.
-- Cost: O(1)
-- Source: design of this library
local tombstone, life = KEYS[2], ARGV[5]
-- include: reconcile_once
local before = 0
if redis.call('get', KEYS[1]) == ARGV[1] then
  before = 1
end
local now = before
if before > tonumber(ARGV[2]) then
  now = 0
  redis.call('del', KEYS[1])
  redis.pcall(ARGV[4], ARGV[6], ARGV[3])
end
return {before, now, redis.call('pttl', KEYS[1])}
