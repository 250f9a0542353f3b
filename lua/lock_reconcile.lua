-- SPDX-License-Identifier: Apache-2.0
-- Reconciles requests of one owner whose replies were lost: brings its hold count down to at most
-- a target. The caller has made sure that none of those requests can still run: it had their connection
-- killed on the server, or names their tombstone.
-- KEYS: [1] lock hash  [2] tombstone of the lost request (optional)
-- ARGV: [1] owner field  [2] target hold count, 0 or more  [3] message  [4] PUBLISH or SPUBLISH  [5] tombstone TTL in
--       ms  [6] channel  [7] number of this reconciliation of the request, 1 or more
-- Returns: array {hold count before, hold count now, remaining ms of the key or -2}
-- When it runs twice: the second run finds the target reached and changes nothing; with a tombstone, a run that comes
--          after a later reconciliation is refused.
-- Cost: O(1)
-- Source: design of this library; answers the weaknesses of Redisson's unlock latch
local tombstone, life = KEYS[2], ARGV[5]
-- include: reconcile_once
local message, publish, channel = ARGV[3], ARGV[4], ARGV[6]
-- include: announce
-- include: hold_reconcile
return {before, left, redis.call('pttl', KEYS[1])}
