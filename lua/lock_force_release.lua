-- SPDX-License-Identifier: Apache-2.0
-- Frees the lock, whoever holds it, and tells the holder's client.
-- KEYS: [1] lock  [2] idempotency key of this request
-- ARGV: [1] message  [2] PUBLISH or SPUBLISH  [3] idempotency key's TTL in ms  [4] channel  [5] type of the lock's key,
--       none = hash
-- Returns: 1 = somebody held it, 0 = it was free
-- When it runs twice: the idempotency key gives the first run's answer again, so a lock taken in between stays.
-- Cost: O(h) of h holders, who are told
-- Source: Redisson RedissonLock.forceUnlockAsync
local idempotency = KEYS[2]
local message, publish, channel = ARGV[1], ARGV[2], ARGV[4]
-- include: announce
-- include: force_release
