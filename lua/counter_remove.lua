-- SPDX-License-Identifier: Apache-2.0
-- Deletes a counter: the permits of a semaphore, the count of a latch.
-- KEYS: [1] counter  [2] idempotency key of this client
-- ARGV: [1] number of this request  [2] idempotency key's TTL in ms  [3] PUBLISH or SPUBLISH  [4] channel
--       [5] message, empty = none
-- Returns: 1 = deleted, 0 = there was none; array {1, error text} = deleted, but the server refused to publish
-- When it runs twice: the idempotency key gives the first run's answer again, so a counter set in between stays.
-- Cost: O(1)
-- Source: Redisson RedissonObject.deleteAsync, RedissonCountDownLatch.deleteAsync
-- include: request_number
-- include: counter_exists
local existed = 0
if kind == 'string' then
  existed = 1
end
remember(existed)
if existed == 1 then
  local done = redis.pcall('del', KEYS[1])
  if type(done) == 'table' then
    forget()
    return done
  end
  if ARGV[5] ~= '' then
    local told = redis.pcall(ARGV[3], ARGV[4], ARGV[5])
    if type(told) == 'table' then
      return {existed, told.err}
    end
  end
end
return existed
