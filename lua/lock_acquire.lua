-- SPDX-License-Identifier: Apache-2.0
-- Takes the lock for one owner, or counts one more hold of the same owner.
-- KEYS: [1] lock hash  [2] tombstone of this request, only where the old connection cannot be killed
-- ARGV: [1] lease in ms, 1 or more  [2] owner field  [3] error for an owner that holds it already; absent = it may
--       take it again
-- Returns: array {hold count} when held; integer = remaining ms of the present holder, -1 = it has no expiry
-- When it runs twice: counts twice. A request is sent once; after a lost reply lock_reconcile decides.
-- Cost: O(1)
-- Source: Redisson RedissonLock.tryLockInnerAsync, RedissonNonReentrantLock
if KEYS[2] and redis.call('exists', KEYS[2]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
-- include: hold_refuse
if ARGV[3] and count > 1 then
  return redis.error_reply(ARGV[3])
end
-- include: hold_grant
return {count}
