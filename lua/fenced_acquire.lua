-- SPDX-License-Identifier: Apache-2.0
-- Takes the lock for one owner and draws its fencing token, or counts one more hold under the token of the first.
-- KEYS: [1] lock hash  [2] fencing counter  [3] tombstone of this request, only where the old connection cannot be
--       killed
-- ARGV: [1] lease in ms, 1 or more  [2] owner field  [3] how long the counter is kept at least, in ms, 0 = for ever
-- Returns: array {hold count, token as text} when held; integer = remaining ms of the present holder, -1 = it has no
--          expiry; error RLOCKFENCE = the counter is no positive number, or is gone although the owner holds the lock
-- When it runs twice: counts twice, under one token. A request is sent once; after a lost reply fenced_reconcile decides.
-- Cost: O(1)
-- Source: Redisson RedissonFencedLock.tryLockInnerAsync
if KEYS[3] and redis.call('exists', KEYS[3]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
-- include: hold_refuse
if count == 1 then
  redis.call('incr', KEYS[2])
end
-- The token is returned as text, because a Lua number is exact only up to 2^53.
local token = redis.call('get', KEYS[2])
if not token or not string.find(token, '^[1-9]') then
  return redis.error_reply('RLOCKFENCE the fencing counter is gone or no positive number')
end
-- Asked before the grant: an error after it would leave a lock that nobody has.
local lasts = redis.call('pttl', KEYS[2])
-- include: hold_grant
local keep = tonumber(ARGV[3])
local kept
if keep == 0 and lasts >= 0 then
  kept = redis.pcall('persist', KEYS[2])
elseif keep > 0 and lasts < math.max(keep, lease) then
  kept = redis.pcall('pexpire', KEYS[2], string.format('%.0f', math.max(keep, lease)))
end
if type(kept) == 'table' then
  -- The counter would go before its time, and give out its tokens once more.
  takeBack()
  return kept
end
return {count, token}
