-- SPDX-License-Identifier: Apache-2.0
-- Gives a permit that is taken a new lease from now on, after expired permits went back into the pool.
-- KEYS: [1] free permits  [2] permits taken, by expiry  [3] idempotency key of this client
-- ARGV: [1] number of this request  [2] idempotency key's TTL in ms  [3] PUBLISH or SPUBLISH  [4] channel
--       [5] score of a permit that never expires  [6] id, 16 bytes  [7] lease in ms, 0 = never expires
-- Returns: 1 = done, 0 = not taken, or expired; array {the same, error text} = the server refused to publish
-- When it runs twice: the idempotency key gives the first run's answer again, so a later change stays.
-- Cost: O(log n + e) of n permits taken and e that have expired
-- Source: Redisson RedissonPermitExpirableSemaphore.updateLeaseTimeAsync
-- include: request_number
if answer then
  return tonumber(answer)
end
local publish, channel = ARGV[3], ARGV[4]
-- include: permit_pool
-- include: permit_reclaim
local refused = announce()
local updated = 0
if redis.call('zscore', KEYS[2], ARGV[6]) then
  local expiry = ARGV[5]
  if ARGV[7] ~= '0' then
    expiry = now + tonumber(ARGV[7])
  end
  -- ZREMRANGEBYRANK removes nothing here. But the memory limit does not stop a script that has begun to write, and this
  -- script needs no memory.
  redis.call('zremrangebyrank', KEYS[2], 1, 0)
  redis.call('zadd', KEYS[2], 'XX', expiry, ARGV[6])
  updated = 1
end
pcall(remember, updated)
return refused and {updated, refused} or updated
