-- SPDX-License-Identifier: Apache-2.0
-- The fencing token of an owner's own hold.
-- KEYS: [1] lock hash  [2] fencing counter
-- ARGV: [1] owner field
-- Returns: token as text; nil = this owner does not hold the lock; error RLOCKFENCE = the owner holds it, but the
--          counter is gone
-- When it runs twice: harmless, it changes nothing.
-- Cost: O(1)
-- Source: Redisson RedissonFencedLock.getTokenAsync
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return nil
end
return redis.call('get', KEYS[2]) or redis.error_reply('RLOCKFENCE the fencing counter is gone')
