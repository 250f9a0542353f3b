-- SPDX-License-Identifier: Apache-2.0
-- Gives an owner's lock back and wakes waiters.
-- KEYS: [1] lock  [2] tombstone of this request, only where the old connection cannot be killed
-- ARGV: [1] owner field  [2] message  [3] PUBLISH or SPUBLISH  [4] channel
-- Returns: nil = not the owner; integer 0 = free now; array {0, error text} = free now, but the server refused to
--          publish
-- When it runs twice: the second run finds nothing of this owner. A request is sent once; after a lost reply
--                     simple_reconcile decides.
-- Cost: O(1)
-- Source: the pattern of the Redis documentation, compare and delete
if KEYS[2] and redis.call('exists', KEYS[2]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return nil
end
redis.call('del', KEYS[1])
-- The lock is free from here on, so a refused message must not look like a refused release.
local message, publish, channel = ARGV[2], ARGV[3], ARGV[4]
-- include: announce
local failure = announce()
if failure then
  return {0, failure}
end
return 0
