-- SPDX-License-Identifier: Apache-2.0
-- Takes the write side of a read-write lock for one owner, or counts one more hold of the same owner.
-- KEYS: [1] lock hash  [2] intent of a waiting writer  [3] a key that never exists, which stands for the keys of the
--       holds: see rw_write_release
--       [4] tombstone of this request, only where the old connection cannot be killed
-- ARGV: [1] lease in ms, 1 or more  [2] owner field as a writer  [3] owner field  [4] common prefix of the keys of all
--       read holds  [5] how long new readers are held back if it is refused, in ms, 0 = not at all
-- Returns: array {hold count} when held; integer = remaining ms of the present holders, -1 = without expiry;
--          error RLOCKUPGRADE = the owner itself reads
-- When it runs twice: counts twice. A request is sent once; after a lost reply rw_write_reconcile decides.
-- Cost: O(1) while it is free or written; O(h) of all h read holds while it is read
-- Source: Redisson RedissonWriteLock.tryLockInnerAsync; the intent is this library's
if KEYS[4] and redis.call('exists', KEYS[4]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end

-- include: rw_longest_read
local function reads(owner, count)
  for i = tonumber(count) or 0, 1, -1 do
    if redis.call('exists', ARGV[4] .. ':' .. owner .. ':rwlock_timeout:' .. i) == 1 then
      return true
    end
  end
  return false
end

local lease = tonumber(ARGV[1])
local mode = redis.call('hget', KEYS[1], 'mode')
local count = 1
local remaining = -1
if mode == 'write' then
  local held = redis.call('hget', KEYS[1], ARGV[2])
  remaining = redis.call('pttl', KEYS[1])
  if not held then
    return remaining
  end
  count = tonumber(held) + 1
elseif mode then
  if reads(ARGV[3], redis.call('hget', KEYS[1], ARGV[3])) then
    return redis.error_reply('RLOCKUPGRADE this owner reads: it would wait for itself')
  end
  local longest = longestRead(KEYS[1], ARGV[4], math.huge)
  if longest > 0 then
    if ARGV[5] ~= '0' then
      -- If the server refuses the intent, the writer only waits longer.
      redis.pcall('set', KEYS[2], ARGV[2], 'PX', ARGV[5])
    end
    remaining = redis.call('pttl', KEYS[1])
    if remaining >= 0 and remaining < longest then
      -- A reader of Redisson that renews its hold sets the lock's expiry to its own, however long others read.
      redis.call('pexpire', KEYS[1], longest)
    end
    -- The key may last longer than its readers, for example after a writer of Redisson that goes on reading.
    return longest
  end
  -- Every read hold has expired, although the hash has not.
  redis.call('del', KEYS[1])
elseif redis.call('exists', KEYS[1]) == 1 then
  -- The key is a lock of another kind.
  return redis.call('pttl', KEYS[1])
end
-- Asked before anything is written: what cannot be read refuses the request whole.
local announced = count == 1 and redis.call('get', KEYS[2]) == ARGV[2]
if count == 1 then
  redis.call('hset', KEYS[1], 'mode', 'write', ARGV[2], 1)
else
  redis.call('hset', KEYS[1], ARGV[2], count)
end
if remaining < lease then
  local expire = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(expire) == 'table' and expire.err then
    -- A lock without expiry would outlive its holder: take the hold back.
    if count == 1 then
      redis.call('del', KEYS[1])
    else
      redis.call('hset', KEYS[1], ARGV[2], count - 1)
    end
    return expire
  end
end
if announced then
  redis.call('del', KEYS[2])
end
return {count}
