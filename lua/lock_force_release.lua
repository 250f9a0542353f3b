-- SPDX-License-Identifier: Apache-2.0
-- Frees the lock whoever holds it, and tells the holder's client.
-- KEYS: [1] lock hash  [2] marker of this request
-- ARGV: [1] message  [2] PUBLISH or SPUBLISH  [3] marker TTL in ms  [4] channel
-- Returns: 1 = somebody held it, 0 = it was free
-- When it runs twice: the marker gives the first run's answer again, so a lock taken in between stays.
-- Source: Redisson RedissonLock.forceUnlockAsync
local done = redis.call('get', KEYS[2])
if done then
  return tonumber(done)
end
local kind = redis.call('type', KEYS[1]).ok
if kind ~= 'hash' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the key holds no lock')
end
local name = KEYS[1]
local publish = ARGV[2]
local fields = {}
if kind == 'hash' then
  fields = redis.call('hkeys', name)
end
local existed = redis.call('del', name)
-- A server out of memory refuses the marker but not the release.
redis.pcall('set', KEYS[2], existed, 'PX', ARGV[3])
if existed == 1 then
  redis.pcall(publish, ARGV[4], ARGV[1])
end
-- include: notify_holders
return existed
