-- SPDX-License-Identifier: Apache-2.0
-- Takes a lock that is one key with its owner as the value.
-- KEYS: [1] lock  [2] tombstone of this request, only where the old connection cannot be killed
-- ARGV: [1] lease in ms, 1 or more  [2] owner field  [3] 1 = the owner's client knows of a hold of it, else 0
-- Returns: array {1} when held; integer = remaining ms of the present holder, -1 = it has no expiry;
--          error NON_REENTRANT_REACQUIRE = this owner holds it already
-- When it runs twice: renews the lease. A request is sent once; after a lost reply simple_reconcile decides.
-- Cost: O(1)
-- Source: the pattern of the Redis documentation, SET key value NX PX
if KEYS[2] and redis.call('exists', KEYS[2]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
if redis.call('set', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1]) then
  return {1}
end
local remaining = redis.call('pttl', KEYS[1])
if redis.call('get', KEYS[1]) ~= ARGV[2] then
  return remaining
end
if ARGV[3] == '1' then
  return redis.error_reply('NON_REENTRANT_REACQUIRE this owner holds the lock already')
end
-- The owner has given up its hold as lost, but the hold is still on the server: the owner takes it again.
if remaining < tonumber(ARGV[1]) then
  redis.call('pexpire', KEYS[1], ARGV[1])
end
return {1}
