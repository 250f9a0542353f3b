-- SPDX-License-Identifier: Apache-2.0
-- Changes how many permits there are, after expired permits went back into the pool.
-- KEYS: [1] free permits  [2] permits taken, by expiry  [3] idempotency key of this client
-- ARGV: [1] number of this request  [2] idempotency key's TTL in ms
--       [3] init = sets the number if there is no such semaphore, total = sets the number with those taken, add = adds
--       [4] permits  [5] PUBLISH or SPUBLISH  [6] channel
-- Returns: 1 = done, 0 = init, and there is one already, -1 = the number of free permits would leave 32 bits;
--          array {the same, error text} = the server refused to publish
-- When it runs twice: the idempotency key gives the first run's answer again.
-- Cost: O(log n + e) of n permits taken and e that have expired
-- Source: Redisson RedissonPermitExpirableSemaphore.trySetPermitsAsync, setPermitsAsync, addPermitsAsync
-- include: request_number
if answer then
  return tonumber(answer)
end
local publish, channel = ARGV[5], ARGV[6]
-- include: permit_pool
-- include: permit_reclaim
local result = 1
if ARGV[3] == 'init' and free then
  result = 0
else
  local change = tonumber(ARGV[4])
  if not free and ARGV[3] == 'init' and redis.call('exists', KEYS[2]) == 1 then
    -- The permits in this zset belong to a semaphore that is gone. DEL comes only when the key exists: after a write
    -- the memory limit would no longer stop the commands that follow.
    redis.call('del', KEYS[2])
  end
  if ARGV[3] == 'total' then
    change = change - (free or 0) - redis.call('zcard', KEYS[2])
  end
  local after = (free or 0) + change
  if after > 2147483647 or after < -2147483648 then
    result = -1
  else
    -- INCRBY and not SET, which would take the key's expiry away.
    free = redis.call('incrby', KEYS[1], change)
    returned = returned + math.max(change, 0)
  end
end
local refused = announce()
pcall(remember, result)
return refused and {result, refused} or result
