-- SPDX-License-Identifier: Apache-2.0
-- Gives one hold of an owner back; the last one frees the lock and wakes waiters.
-- KEYS: [1] lock hash  [2] tombstone of this request, only where the old connection cannot be killed
-- ARGV: [1] owner field  [2] message  [3] PUBLISH or SPUBLISH  [4] lease in ms to restore when holds remain, 0 = leave
--       it  [5] channel
-- Returns: nil = not the owner; integer = holds that remain, 0 = free now;
--          array {0, error text} = free now, but the server refused to publish
-- When it runs twice: releases twice. A request is sent once; after a lost reply lock_reconcile decides.
-- Cost: O(1)
-- Source: Redisson RedissonLock.unlockInnerAsync
if KEYS[2] and redis.call('exists', KEYS[2]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
local message, publish, channel = ARGV[2], ARGV[3], ARGV[5]
-- include: announce
-- include: release_hold
