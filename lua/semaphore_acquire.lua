-- SPDX-License-Identifier: Apache-2.0
-- Takes permits if there are enough.
-- KEYS: [1] counter  [2] idempotency key of this client
-- ARGV: [1] number of this request  [2] idempotency key's TTL in ms  [3] permits, 1 or more
-- Returns: array {1} = taken; -1 = there are not so many
-- When it runs twice: the idempotency key says that the request took its permits or was given up; nothing changes. A
--          request is sent once; after a lost reply semaphore_reconcile decides.
-- Cost: O(1)
-- Source: Redisson RedissonSemaphore.tryAcquireAsync0
-- include: request_number
if answer == '1' then
  return {1}
elseif answer then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
-- include: counter_value
if count < tonumber(ARGV[3]) then
  return -1
end
remember('1')
local left = redis.pcall('decrby', KEYS[1], ARGV[3])
if type(left) == 'table' then
  remember('0')
  return left
end
return {1}
