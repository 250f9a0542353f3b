-- SPDX-License-Identifier: Apache-2.0
-- Takes permits, each under an id of the caller's choice.
-- KEYS: [1] free permits  [2] permits taken, by expiry  [3] tombstone of this request, only where the old
--       connection cannot be killed
-- ARGV: [1] lease in ms, 0 = never expires  [2] score of a permit that never expires  [3] PUBLISH or SPUBLISH
--       [4] channel  [5...] ids, 16 bytes each
-- Returns: array {1} when taken; integer = ms until the next permit expires, -1 = none will
-- When it runs twice: ids that are taken already are not taken again, their lease begins anew.
-- Cost: O((k + e) log n) of k permits asked for, e that have expired and n that are taken
-- Source: Redisson RedissonPermitExpirableSemaphore.tryAcquireAsync
if KEYS[3] and redis.call('exists', KEYS[3]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
local publish, channel = ARGV[3], ARGV[4]
-- include: permit_pool
-- include: permit_reclaim
local wanted = 0
for i = 5, #ARGV do
  if not redis.call('zscore', KEYS[2], ARGV[i]) then
    wanted = wanted + 1
  end
end
if wanted > 0 and (not free or free < wanted) then
  announce()
  local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
  if not first[2] or tonumber(first[2]) >= tonumber(ARGV[2]) then
    return -1
  end
  return tonumber(first[2]) - now
end
if wanted > 0 then
  free = redis.call('decrby', KEYS[1], wanted)
end
local expiry = ARGV[2]
if ARGV[1] ~= '0' then
  expiry = now + tonumber(ARGV[1])
end
-- Lua passes at most some thousand values to a function at once.
for first = 5, #ARGV, 1000 do
  local members = {}
  for i = first, math.min(first + 999, #ARGV) do
    members[#members + 1] = expiry
    members[#members + 1] = ARGV[i]
  end
  local added = redis.pcall('zadd', KEYS[2], unpack(members))
  if type(added) == 'table' and added.err then
    redis.call('decrby', KEYS[1], -wanted)
    return added
  end
end
local ttl = redis.call('pttl', KEYS[1])
if ttl > 0 then
  redis.call('pexpire', KEYS[2], ttl)
elseif ttl == -1 then
  -- Redisson takes the counter's expiry away when it changes the number of permits.
  redis.call('persist', KEYS[2])
end
announce()
return {1}
