-- SPDX-License-Identifier: Apache-2.0
-- Counts the read holds of one owner that have not expired.
-- KEYS: [1] lock hash  [2] prefix of the owner's hold keys; no key has this name itself
-- ARGV: [1] owner field
-- Returns: integer
-- When it runs twice: harmless, it changes nothing.
-- Cost: O(h) of the owner's own h holds
-- Source: design of this library; Redisson's RedissonReadLock.getHoldCount counts expired holds, too
local live = 0
for i = 1, tonumber(redis.call('hget', KEYS[1], ARGV[1]) or 0) do
  live = live + redis.call('exists', KEYS[2] .. ':' .. i)
end
return live
