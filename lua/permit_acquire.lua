-- SPDX-License-Identifier: Apache-2.0
-- Takes permits, each under an id of the caller's choice.
-- KEYS: [1] free permits  [2] permits taken, by expiry  [3] tombstone of this request, only where the old
--       connection cannot be killed
-- ARGV: [1] lease in ms, 0 = never expires  [2] score of a permit that never expires  [3] PUBLISH or SPUBLISH
--       [4] channel  [5...] ids, 16 bytes each
-- Returns: array {1} when taken; integer = ms until the next permit expires, -1 = none will. If the server refused to
--          publish what came back meanwhile: array {1, error text} or {0, the ms, error text}
-- When it runs twice: ids that are taken already are not taken again, their lease begins anew.
-- Cost: O((k + e) log n) of k permits asked for, e that have expired and n that are taken
-- Source: Redisson RedissonPermitExpirableSemaphore.tryAcquireAsync
if KEYS[3] and redis.call('exists', KEYS[3]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
local publish, channel = ARGV[3], ARGV[4]
-- include: permit_pool
-- Asked before the first write: an error after it would leave permits that nobody has.
local ttl = redis.call('pttl', KEYS[1])
-- include: permit_reclaim
local fresh = {}
for i = 5, #ARGV do
  if not redis.call('zscore', KEYS[2], ARGV[i]) then
    fresh[#fresh + 1] = ARGV[i]
  end
end
if #fresh > 0 and (not free or free < #fresh) then
  local refused = announce()
  local first = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
  local remaining = -1
  if first[2] and tonumber(first[2]) < tonumber(ARGV[2]) then
    remaining = tonumber(first[2]) - now
  end
  return refused and {0, remaining, refused} or remaining
end
if #fresh > 0 then
  free = redis.call('decrby', KEYS[1], #fresh)
end
-- The caller takes an error for a request that has done nothing.
local function undone(failure)
  for _, id in ipairs(fresh) do
    redis.call('zrem', KEYS[2], id)
  end
  if #fresh > 0 then
    -- The opposite of what was allowed a moment ago.
    free = redis.call('decrby', KEYS[1], -#fresh)
  end
  announce()
  return failure
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
    return undone(added)
  end
end
local kept
if ttl > 0 then
  kept = redis.pcall('pexpire', KEYS[2], ttl)
elseif ttl == -1 then
  -- Redisson takes the counter's expiry away when it changes the number of permits.
  kept = redis.pcall('persist', KEYS[2])
end
if type(kept) == 'table' then
  return undone(kept)
end
local refused = announce()
return refused and {1, refused} or {1}
