-- SPDX-License-Identifier: Apache-2.0
-- Says how long a permit lasts, after expired permits went back into the pool.
-- KEYS: [1] free permits  [2] permits taken, by expiry
-- ARGV: [1] PUBLISH or SPUBLISH  [2] channel  [3] score of a permit that never expires  [4] id, 16 bytes
-- Returns: remaining ms, -1 = never expires, -2 = not taken; array {the same, error text} = the server refused to publish
-- When it runs twice: harmless, an expired permit goes back once.
-- Cost: O(log n + e) of n permits taken and e that have expired
-- Source: Redisson RedissonPermitExpirableSemaphore.getLeaseTimeAsync
local publish, channel = ARGV[1], ARGV[2]
-- include: permit_pool
-- include: permit_reclaim
local refused = announce()
local score = redis.call('zscore', KEYS[2], ARGV[4])
local remaining = -2
if score and tonumber(score) >= tonumber(ARGV[3]) then
  remaining = -1
elseif score then
  remaining = tonumber(score) - now
end
return refused and {remaining, refused} or remaining
