-- SPDX-License-Identifier: Apache-2.0
-- Frees one side of a read-write lock, whoever holds it, deletes the keys of all holds, and tells the holders' clients.
-- KEYS: [1] lock hash  [2] idempotency key of this request
-- ARGV: [1] the side, read or write  [2] common prefix of the keys of all read holds  [3] PUBLISH or SPUBLISH
--       [4] idempotency key's TTL in ms  [5] channel
-- Returns: 1 = that side was held, 0 = it was not
-- When it runs twice: the idempotency key gives the first run's answer again, so a lock taken in between stays.
-- Cost: O(h) of all h holds of that side
-- Source: Redisson RedissonReadLock.forceUnlockAsync, RedissonWriteLock.forceUnlockAsync; they leave the hold keys
local done = redis.call('get', KEYS[2])
if done then
  return tonumber(done)
end
local name = KEYS[1]
local publish = ARGV[3]
local fields = {}
local freed = 0
if redis.call('hget', KEYS[1], 'mode') == ARGV[1] then
  local content = redis.call('hgetall', name)
  redis.call('del', name)
  for i = 1, #content, 2 do
    local field = content[i]
    if field ~= 'mode' then
      fields[#fields + 1] = field
    end
    for hold = 1, tonumber(content[i + 1]) or 0 do
      redis.call('del', ARGV[2] .. ':' .. field .. ':rwlock_timeout:' .. hold)
    end
  end
  freed = 1
end
-- A server out of memory refuses to write the idempotency key, but not to release.
redis.pcall('set', KEYS[2], freed, 'PX', ARGV[4])
if freed == 1 then
  redis.pcall(publish, ARGV[5], '1')
end
-- include: notify_holders
return freed
