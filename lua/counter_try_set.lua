-- SPDX-License-Identifier: Apache-2.0
-- Sets a counter that does not exist yet: the permits of a semaphore, the count of a latch.
-- KEYS: [1] counter  [2] idempotency key of this client
-- ARGV: [1] number of this request  [2] idempotency key's TTL in ms  [3] value  [4] TTL of the counter in ms, 0 = none
--       [5] PUBLISH or SPUBLISH  [6] channel  [7] message, empty = none
-- Returns: 1 = set, 0 = there is one; array {1, error text} = set, but the server refused to publish
-- When it runs twice: the idempotency key gives the first run's answer again.
-- Cost: O(1)
-- Source: Redisson RedissonSemaphore.trySetPermitsAsync, RedissonCountDownLatch.trySetCountAsync
-- include: request_number
-- include: counter_exists
local isNew = 0
if kind == 'none' then
  isNew = 1
end
remember(isNew)
if isNew == 1 then
  local done
  if ARGV[4] == '0' then
    done = redis.pcall('set', KEYS[1], ARGV[3])
  else
    done = redis.pcall('set', KEYS[1], ARGV[3], 'PX', ARGV[4])
  end
  if done.err then
    forget()
    return done
  end
  if ARGV[7] ~= '' then
    local told = redis.pcall(ARGV[5], ARGV[6], ARGV[7])
    if type(told) == 'table' then
      return {isNew, told.err}
    end
  end
end
return isNew
