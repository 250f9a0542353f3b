-- SPDX-License-Identifier: Apache-2.0
-- Gives permits back: all of them, or none if one is not taken or has expired. Expired permits go back into
-- the pool in either case.
-- KEYS: [1] free permits  [2] permits taken, by expiry  [3] idempotency key of this client
-- ARGV: [1] number of this request  [2] idempotency key's TTL in ms  [3] PUBLISH or SPUBLISH  [4] channel
--       [5...] ids, 16 bytes each, none twice
-- Returns: how many were given back; array {how many, error text} = the server refused to publish
-- When it runs twice: the idempotency key gives the first run's answer again.
-- Cost: O((k + e) log n) of k permits named, e that have expired and n that are taken
-- Source: Redisson RedissonPermitExpirableSemaphore.tryReleaseAsync
-- include: request_number
if answer then
  return tonumber(answer)
end
local publish, channel = ARGV[3], ARGV[4]
-- include: permit_pool
local valid = 0
local scores = {}
for i = 5, #ARGV do
  local score = redis.call('zscore', KEYS[2], ARGV[i])
  if score and tonumber(score) > now then
    valid = valid + 1
    scores[i] = score
  end
end
-- include: permit_reclaim
local released = 0
if valid == #ARGV - 4 then
  for i = 5, #ARGV do
    released = released + redis.call('zrem', KEYS[2], ARGV[i])
  end
  local failure = giveBack(released)
  if failure then
    for i, score in pairs(scores) do
      redis.pcall('zadd', KEYS[2], score, ARGV[i])
    end
    return failure
  end
end
local refused = announce()
-- A server out of memory refuses to write the idempotency key, but not to release.
pcall(remember, released)
return refused and {released, refused} or released
