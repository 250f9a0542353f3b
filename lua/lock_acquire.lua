-- SPDX-License-Identifier: Apache-2.0
-- Takes the lock for one owner, or counts one more hold of the same owner.
-- KEYS: [1] lock hash  [2] tombstone of this request, only where a lost request cannot be fenced
-- ARGV: [1] lease in ms, 1 or more  [2] owner field
-- Returns: array {hold count} when held; integer = remaining ms of the present holder, -1 = it has no expiry
-- When it runs twice: counts twice. A request is sent once; after a lost reply lock_settle decides.
-- Source: Redisson RedissonLock.tryLockInnerAsync
if KEYS[2] and redis.call('exists', KEYS[2]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
local lease = tonumber(ARGV[1])
local count = 1
local remaining = -1
if redis.call('exists', KEYS[1]) == 1 then
  local held = redis.call('hget', KEYS[1], ARGV[2])
  remaining = redis.call('pttl', KEYS[1])
  if not held then
    return remaining
  end
  count = tonumber(held) + 1
end
redis.call('hincrby', KEYS[1], ARGV[2], 1)
if remaining < lease then
  local expire = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(expire) == 'table' and expire.err then
    -- A lock without expiry would outlive its holder: take the hold back.
    if count == 1 then
      redis.call('del', KEYS[1])
    else
      redis.call('hincrby', KEYS[1], ARGV[2], -1)
    end
    return expire
  end
end
return {count}
