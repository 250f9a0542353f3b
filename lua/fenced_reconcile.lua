-- SPDX-License-Identifier: Apache-2.0
-- As lock_reconcile, for a lock with a fencing counter; it also returns the token of the owner's hold. While the owner
-- holds the lock, no other owner draws a token, so the counter has the value of its token.
-- KEYS: [1] lock hash  [2] fencing counter  [3] tombstone of the lost request (optional)
-- ARGV: [1] owner field  [2] target hold count, 0 or more  [3] message  [4] PUBLISH or SPUBLISH  [5] tombstone TTL in
--       ms  [6] channel  [7] number of this reconciliation of the request, 1 or more
-- Returns: array {hold count before, hold count now, remaining ms of the key or -2, token as text, nil = nothing is
--          held or the counter is gone}
-- When it runs twice: the second run finds the target reached and changes nothing; with a tombstone, a run that comes
--          after a later reconciliation is refused.
-- Cost: O(1)
-- Source: design of this library
local tombstone, life = KEYS[3], ARGV[5]
-- include: reconcile_once
local message, publish, channel = ARGV[3], ARGV[4], ARGV[6]
-- include: announce
-- include: hold_reconcile
return {before, left, redis.call('pttl', KEYS[1]), left > 0 and redis.call('get', KEYS[2])}
