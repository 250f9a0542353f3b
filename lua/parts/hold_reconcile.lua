-- SPDX-License-Identifier: Apache-2.0
-- Brings one owner's hold count down to at most a target.
-- Expects: KEYS[1] lock hash; ARGV[1] owner field; ARGV[2] target hold count; announce(), which wakes waiters
-- Defines: before and left, the hold counts
local before = tonumber(redis.call('hget', KEYS[1], ARGV[1]) or 0)
local left = math.min(before, tonumber(ARGV[2]))
if left < before then
  if left == 0 then
    redis.call('del', KEYS[1])
    announce()
  else
    redis.call('hincrby', KEYS[1], ARGV[1], left - before)
  end
end
