-- SPDX-License-Identifier: Apache-2.0
-- Writes the labels of holds, beside the locks and never in them.
-- KEYS: for each hold the labels hash of its lock, up to a few hundred, all in one slot
-- ARGV: for the i-th hold [3i-2] owner field  [3i-1] label, empty = delete it  [3i] shortest time for which it is kept,
--       ms
-- Returns: 1
-- When it runs twice: harmless.
-- Cost: O(1)
-- Source: design of this library
for i = 1, #KEYS do
  local key, owner, label, keep = KEYS[i], ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i]
  if label == '' then
    redis.pcall('hdel', key, owner)
  else
    redis.pcall('hset', key, owner, label)
    if redis.call('pttl', key) < tonumber(keep) then
      redis.pcall('pexpire', key, keep)
    end
  end
end
return 1
