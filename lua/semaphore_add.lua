-- SPDX-License-Identifier: Apache-2.0
-- Adds permits, or takes some away without asking whether there are so many. The expiry of the key stays.
-- KEYS: [1] counter  [2] idempotency key of this client
-- ARGV: [1] number of this request  [2] idempotency key's TTL in ms  [3] permits, may be negative  [4] 1 = only if the
--       counter exists  [5] PUBLISH or SPUBLISH  [6] channel
-- Returns: array {1, permits now} = added; {0, 0} = no counter; {-1, permits now} = the sum would not fit;
--          {1, permits now, error text} = added, but the server refused to publish
-- When it runs twice: the idempotency key gives the first run's answer again.
-- Cost: O(1)
-- Source: Redisson RedissonSemaphore.releaseAsync, releaseIfExistsAsync, addPermitsAsync
-- include: request_number
if answer then
  local code, total = string.match(answer, '^(%-?%d+)/(%-?%d+)$')
  return {tonumber(code), tonumber(total)}
end
-- include: counter_value
local code = 1
local total = count + tonumber(ARGV[3])
if not value and ARGV[4] == '1' then
  code = 0
  total = 0
elseif total > 2147483647 or total < -2147483648 then
  -- Redisson reads the number as a 32-bit integer.
  code = -1
  total = count
end
remember(string.format('%d/%d', code, total))
if code == 1 then
  local sum = redis.pcall('incrby', KEYS[1], ARGV[3])
  if type(sum) == 'table' then
    redis.call('del', KEYS[2])
    return sum
  end
  -- Redisson's waiters cannot read a total below 1, and no waiter could get in with it.
  if sum > 0 then
    local told = redis.pcall(ARGV[5], ARGV[6], sum)
    if type(told) == 'table' then
      return {code, total, told.err}
    end
  end
end
return {code, total}
