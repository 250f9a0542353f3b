-- SPDX-License-Identifier: Apache-2.0
-- Counts a latch down by one; the last one deletes it and opens it. A latch without a count stays as it is.
-- KEYS: [1] counter  [2] idempotency key of this client
-- ARGV: [1] number of this request  [2] idempotency key's TTL in ms  [3] PUBLISH or SPUBLISH  [4] channel  [5] message
--       of an opened latch
-- Returns: the count before, 0 = there was none; array {the count before, error text} = opened, but the server refused to
--          publish
-- When it runs twice: the idempotency key gives the first run's answer again.
-- Cost: O(1)
-- Source: Redisson RedissonCountDownLatch.countDownAsync
-- include: request_number
if answer then
  return tonumber(answer)
end
-- include: counter_value
remember(string.format('%.0f', count))
local done
if not value then
  return 0
elseif count > 1 then
  done = redis.pcall('decr', KEYS[1])
else
  done = redis.pcall('del', KEYS[1])
end
if type(done) == 'table' then
  forget()
  return done
end
if count == 1 then
  local told = redis.pcall(ARGV[3], ARGV[4], ARGV[5])
  if type(told) == 'table' then
    return {count, told.err}
  end
end
return count
