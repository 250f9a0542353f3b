-- SPDX-License-Identifier: Apache-2.0
-- Brings the permits of one acquisition to a target: keeps them if all are there, or gives back those that are there.
-- It reconciles a lost request, and releases a permit that is held as an object.
-- KEYS: [1] free permits  [2] permits taken, by expiry  [3] tombstone of the lost request (optional)
-- ARGV: [1] 1 = keep them, 0 = give them back  [2] PUBLISH or SPUBLISH  [3] channel  [4] tombstone TTL in ms
--       [5...] ids, 16 bytes each
-- Returns: array {1 = all were there and not expired, else 0; 1 = they still are, else 0}, followed, if they are
--          kept, by how long they last in ms, or by the error text if the server refused to publish
-- When it runs twice: the second run finds the target reached and changes nothing.
-- Cost: O(k log n) of k permits named and n that are taken
-- Source: design of this library; answers the weaknesses of Redisson's acquisitions
if redis.replicate_commands then
  -- As in permit_pool, which comes after a write.
  redis.replicate_commands()
end
if KEYS[3] then
  redis.call('set', KEYS[3], '1', 'PX', ARGV[4])
end
local publish, channel = ARGV[2], ARGV[3]
-- include: permit_pool
local present = {}
local scores = {}
local valid = 0
-- Ten years stand for ever: the score of a permit that never expires is too great to be exact.
local remaining = 315360000000
for i = 5, #ARGV do
  local score = redis.call('zscore', KEYS[2], ARGV[i])
  if score then
    present[#present + 1] = ARGV[i]
    scores[#present] = score
    if tonumber(score) > now then
      valid = valid + 1
      remaining = math.min(remaining, tonumber(score) - now)
    end
  end
end
local before = 0
if valid == #ARGV - 4 then
  before = 1
end
if before == 1 and ARGV[1] == '1' then
  return {1, 1, math.floor(remaining)}
end
for _, id in ipairs(present) do
  redis.call('zrem', KEYS[2], id)
end
local failure = giveBack(#present)
if failure then
  for i, id in ipairs(present) do
    redis.pcall('zadd', KEYS[2], scores[i], id)
  end
  return failure
end
return {before, 0, announce()}
