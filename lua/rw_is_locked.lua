-- SPDX-License-Identifier: Apache-2.0
-- Whether anybody holds one side of a read-write lock. A writer that reads as well holds both.
-- KEYS: [1] lock hash  [2] a key that never exists, which stands for the keys of the holds: see rw_write_release
-- ARGV: [1] the side, read or write  [2] common prefix of the keys of all read holds
-- Returns: 1 = yes, 0 = no
-- When it runs twice: harmless, it changes nothing.
-- Cost: write: O(1); read: O(1 + e) of the e read holds that have expired and are still counted
-- Source: Redisson RedissonReadLock.isLocked, RedissonWriteLock.isLocked
-- include: rw_longest_read
if ARGV[1] == 'read' then
  return longestRead(KEYS[1], ARGV[2], 1) > 0 and 1 or 0
end
return redis.call('hget', KEYS[1], 'mode') == 'write' and 1 or 0
