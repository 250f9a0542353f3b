-- SPDX-License-Identifier: Apache-2.0
-- Reconciles an acquisition whose reply was lost: says whether it took its permits, gives them back if they
-- are not wanted, and ensures that it takes none later.
-- KEYS: [1] counter  [2] idempotency key of this client
-- ARGV: [1] number of the lost request  [2] idempotency key's TTL in ms  [3] permits  [4] 1 = keep them, 0 = give them
--       back  [5] PUBLISH or SPUBLISH  [6] channel
-- Returns: array {1 = they were taken, 1 = they are kept, -1}, followed by the error text if the server refused to publish
-- When it runs twice: the second run finds the target reached and changes nothing; after a later request it does
--          nothing.
-- Cost: O(1)
-- Source: design of this library; answers Redisson's semaphores that take or give twice when a reply is lost
local seen = redis.call('get', KEYS[2])
if seen and tonumber(string.match(seen, '^%d+')) > tonumber(ARGV[1]) then
  return {0, 0, -1}
end
local taken = seen == ARGV[1] .. ':1'
if taken and ARGV[4] == '1' then
  return {1, 1, -1}
end
local total
-- Race: the semaphore may have been removed meanwhile. Then the permits must not make it anew.
if taken and redis.call('exists', KEYS[1]) == 1 then
  total = redis.call('incrby', KEYS[1], ARGV[3])
end
local noted = redis.pcall('set', KEYS[2], ARGV[1] .. ':0', 'PX', ARGV[2])
if noted.err then
  if total then
    redis.call('incrby', KEYS[1], '-' .. ARGV[3])
  end
  return noted
end
if not taken then
  return {0, 0, -1}
end
if total and total > 0 then
  local told = redis.pcall(ARGV[5], ARGV[6], total)
  if type(told) == 'table' then
    return {1, 0, -1, told.err}
  end
end
return {1, 0, -1}
