-- SPDX-License-Identifier: Apache-2.0
-- Deletes a semaphore with all permits, free and taken.
-- KEYS: [1] free permits  [2] permits taken, by expiry  [3] idempotency key of this client
-- ARGV: [1] number of this request  [2] idempotency key's TTL in ms
-- Returns: 1 = there was one, 0 = there was none
-- When it runs twice: the idempotency key gives the first run's answer again, so a semaphore made in between stays.
-- Cost: O(n) of n permits taken, in one command of the server
-- Source: Redisson RedissonPermitExpirableSemaphore.deleteAsync
-- include: request_number
if answer then
  return tonumber(answer)
end
local free = redis.call('get', KEYS[1])
if free and not tonumber(free) then
  return redis.error_reply('WRONGTYPE the key holds no semaphore')
end
-- ZCARD ends the script with an error if the key has another type.
redis.call('zcard', KEYS[2])
local existed = math.min(redis.call('del', KEYS[1], KEYS[2]), 1)
pcall(remember, existed)
return existed
