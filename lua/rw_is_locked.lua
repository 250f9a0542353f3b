-- SPDX-License-Identifier: Apache-2.0
-- Whether anybody holds one side of a read-write lock. A writer that reads as well holds both.
-- KEYS: [1] lock hash
-- ARGV: [1] the side, read or write
-- Returns: 1 = yes, 0 = no
-- When it runs twice: harmless, it changes nothing.
-- Source: Redisson RedissonReadLock.isLocked, RedissonWriteLock.isLocked
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == ARGV[1] or (mode == 'write' and ARGV[1] == 'read' and redis.call('hlen', KEYS[1]) > 2) then
  return 1
end
return 0
