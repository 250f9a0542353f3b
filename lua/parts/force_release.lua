-- SPDX-License-Identifier: Apache-2.0
-- Frees a lock, whoever holds it, tells the holder's client, and returns.
-- Expects: KEYS[1] lock; idempotency = the idempotency key; publish = PUBLISH or SPUBLISH; ARGV[3] idempotency key's TTL in
--          ms; ARGV[5] type of the lock's key, none = hash; announce(), which wakes waiters
local done = redis.call('get', idempotency)
if done then
  return tonumber(done)
end
local kind = redis.call('type', KEYS[1]).ok
if kind ~= (ARGV[5] or 'hash') and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the key holds no lock')
end
local name = KEYS[1]
local fields = {}
if kind == 'hash' then
  -- If the access rules forbid HKEYS, the holders find out at their next renewal.
  fields = redis.pcall('hkeys', name)
elseif kind == 'string' then
  fields = {redis.call('get', name)}
end
local existed = redis.call('del', name)
-- A server out of memory refuses to write the idempotency key, but not to release.
redis.pcall('set', idempotency, existed, 'PX', ARGV[3])
if existed == 1 then
  announce()
end
-- include: notify_holders
return existed
