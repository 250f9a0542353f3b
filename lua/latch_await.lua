-- SPDX-License-Identifier: Apache-2.0
-- Asks whether a latch is open.
-- KEYS: [1] counter
-- ARGV: none
-- Returns: array {1} = open; integer = closed: ms until the count expires, -1 = it does not expire
-- When it runs twice: harmless, it reads.
-- Cost: O(1)
-- Source: Redisson RedissonCountDownLatch.getCountAsync
-- include: counter_value
if count <= 0 then
  return {1}
end
return redis.call('pttl', KEYS[1])
