-- SPDX-License-Identifier: Apache-2.0
-- Takes all permits there are. The expiry of the key stays.
-- KEYS: [1] counter  [2] idempotency key of this client
-- ARGV: [1] number of this request  [2] idempotency key's TTL in ms
-- Returns: how many there were; a negative number becomes 0, too
-- When it runs twice: the idempotency key gives the first run's answer again.
-- Cost: O(1)
-- Source: Redisson RedissonSemaphore.drainPermitsAsync
-- include: request_number
if answer then
  return tonumber(answer)
end
-- include: counter_value
remember(string.format('%d', count))
if count ~= 0 then
  local left = redis.pcall('decrby', KEYS[1], value)
  if type(left) == 'table' then
    redis.call('del', KEYS[2])
    return left
  end
end
return count
