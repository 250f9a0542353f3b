-- SPDX-License-Identifier: Apache-2.0
-- Takes one more read hold of a read-write lock for one owner.
-- KEYS: [1] lock hash  [2] prefix of the owner's hold keys; no key has this name itself  [3] intent of a waiting writer
--       [4] tombstone of this request, only where the old connection cannot be killed
-- ARGV: [1] lease in ms, 1 or more  [2] owner field  [3] owner field as a writer
-- Returns: array {read holds of this owner; those before it that are over are among them unless all are} when held;
--          integer = ms after which it is worth looking again, -1 = not known
-- When it runs twice: takes two holds. A request is sent once; after a lost reply rw_read_reconcile decides.
-- Cost: O(e) of the owner's own e latest holds that are over
-- Source: Redisson RedissonReadLock.tryLockInnerAsync; the intent is this library's
-- include: rw_own_reads
if KEYS[4] and redis.call('exists', KEYS[4]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
local lease = tonumber(ARGV[1])
local mode = redis.call('hget', KEYS[1], 'mode')
local counted = 0
local remaining = -1
if mode then
  if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 0 then
    return redis.call('pttl', KEYS[1])
  end
  counted = countReads(KEYS[1], ARGV[2])
  -- One that is over keeps its place as long as another lives. So after a lost reply the count says whether this request
  -- was executed, and the owner knows which hold is where.
  if counted > 0 and not anyReadLives(KEYS[2], counted) then
    counted = 0
    setReads(KEYS[1], ARGV[2], counted)
  end
  if mode == 'read' and counted == 0 and redis.call('hlen', KEYS[1]) == 1 then
    redis.call('del', KEYS[1])
    mode = false
  end
  remaining = redis.call('pttl', KEYS[1])
elseif redis.call('exists', KEYS[1]) == 1 then
  -- The key is a lock of another kind.
  return redis.call('pttl', KEYS[1])
end
if mode ~= 'write' and counted == 0 then
  -- Race: new readers stand back for a waiting writer also when the lock is free, because many readers would win nearly
  -- every race against one writer. An owner that reads already gets in; otherwise it would wait for a writer that waits
  -- for it.
  local writer = redis.call('get', KEYS[3])
  if writer and writer ~= ARGV[3] then
    local intent = redis.call('pttl', KEYS[3])
    return remaining >= 0 and math.min(remaining, intent) or intent
  end
end
local key = KEYS[2] .. ':' .. (counted + 1)
redis.call('set', key, '1', 'PX', ARGV[1])
if not mode then
  redis.call('hset', KEYS[1], 'mode', 'read')
end
setReads(KEYS[1], ARGV[2], counted + 1)
if remaining < lease then
  local expire = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(expire) == 'table' and expire.err then
    -- A lock without expiry would outlive its holder: take the hold back.
    redis.call('del', key)
    if mode then
      setReads(KEYS[1], ARGV[2], counted)
    else
      redis.call('del', KEYS[1])
    end
    return expire
  end
end
return {counted + 1}
