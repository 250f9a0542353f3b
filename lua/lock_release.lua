-- SPDX-License-Identifier: Apache-2.0
-- Gives one hold of an owner back; the last one frees the lock and wakes waiters.
-- KEYS: [1] lock hash  [2] tombstone of this request, only where a lost request cannot be fenced
-- ARGV: [1] owner field  [2] message  [3] PUBLISH or SPUBLISH  [4] lease in ms to restore when holds remain, 0 = leave it
--       [5] channel
-- Returns: nil = not the owner; integer = holds that remain, 0 = free now;
--          array {0, error text} = free now, but the server refused to publish
-- When it runs twice: releases twice. A request is sent once; after a lost reply lock_settle decides.
-- Source: Redisson RedissonLock.unlockInnerAsync
if KEYS[2] and redis.call('exists', KEYS[2]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
local held = redis.call('hget', KEYS[1], ARGV[1])
if not held then
  return nil
end
local count = tonumber(held)
if count > 1 then
  count = redis.call('hincrby', KEYS[1], ARGV[1], -1)
  local lease = tonumber(ARGV[4])
  if lease > 0 and redis.call('pttl', KEYS[1]) < lease then
    redis.call('pexpire', KEYS[1], ARGV[4])
  end
  return count
end
redis.call('del', KEYS[1])
-- The lock is free from here on: a refused message must not look like a refused release.
local sent = redis.pcall(ARGV[3], ARGV[5], ARGV[2])
if type(sent) == 'table' and sent.err then
  return {0, sent.err}
end
return 0
