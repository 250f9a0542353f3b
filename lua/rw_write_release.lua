-- SPDX-License-Identifier: Apache-2.0
-- Gives one write hold of an owner back; the last one frees the lock or leaves it to the owner's read holds, and wakes
-- waiters.
-- KEYS: [1] lock hash  [2] a key that never exists. It stands for the keys of the holds, which cannot be named in
--       advance: while the slot is on its way to another node of a cluster, nothing is executed that lacks a key, and
--       so the script does not stop half-way at a hold that is elsewhere
--       [3] tombstone of this request, only where the old connection cannot be killed
-- ARGV: [1] owner field as a writer  [2] common prefix of the keys of all read holds  [3] PUBLISH or SPUBLISH
--       [4] channel  [5] lease in ms to restore when holds remain, 0 = leave it
-- Returns: nil = not the owner; integer = write holds that remain; array {0, error text} = none remains, but the server
--          refused to publish
-- When it runs twice: releases twice. A request is sent once; after a lost reply rw_write_reconcile decides.
-- Cost: O(h) of the h read holds that the writer has itself
-- Source: Redisson RedissonWriteLock.unlockInnerAsync; it does not publish when read holds remain
-- include: rw_write_ended
if KEYS[3] and redis.call('exists', KEYS[3]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
local held = redis.call('hget', KEYS[1], ARGV[1])
if not held then
  return nil
end
if tonumber(held) > 1 then
  local lease = tonumber(ARGV[5])
  if lease > 0 and redis.call('pttl', KEYS[1]) < lease then
    redis.call('pexpire', KEYS[1], ARGV[5])
  end
  return redis.call('hincrby', KEYS[1], ARGV[1], -1)
end
local refused = writeEnded(KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4])
if refused then
  return {0, refused}
end
return 0
