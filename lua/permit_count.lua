-- SPDX-License-Identifier: Apache-2.0
-- Counts permits, after expired permits went back into the pool.
-- KEYS: [1] free permits  [2] permits taken, by expiry
-- ARGV: [1] PUBLISH or SPUBLISH  [2] channel
-- Returns: array {free, taken, 1 = there is such a semaphore, else 0}, followed by the error text if the server refused to
--          publish
-- When it runs twice: harmless, an expired permit goes back once.
-- Cost: O(log n + e) of n permits taken and e that have expired
-- Source: Redisson RedissonPermitExpirableSemaphore.availablePermitsAsync, getPermitsAsync, acquiredPermitsAsync
local publish, channel = ARGV[1], ARGV[2]
-- include: permit_pool
-- include: permit_reclaim
return {free or 0, redis.call('zcard', KEYS[2]), free and 1 or 0, announce()}
