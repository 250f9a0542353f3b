-- SPDX-License-Identifier: Apache-2.0
-- Gives one hold of an owner back and returns.
-- Expects: KEYS[1] lock hash; ARGV[1] owner field; ARGV[4] lease in ms to restore when holds remain,
--          0 = leave it; announce(), which wakes waiters and returns the error text, or nothing
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
-- The lock is free from here on, so a refused message must not look like a refused release.
local failure = announce()
if failure then
  return {0, failure}
end
return 0
