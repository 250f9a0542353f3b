-- SPDX-License-Identifier: Apache-2.0
-- Takes the lock for one owner if it is free and nobody came before, or counts one more hold of the same owner.
-- An owner that waits gets a place in the queue, or keeps the one it has from dying. An owner whose place was
-- taken away while it waits (by a client that changes others' times, or because it was silent for too long)
-- goes back before everybody who is not known to have come earlier.
-- KEYS: [1] lock hash  [2] list of waiting owners  [3] zset of the times from which they count as dead
--       [4] zset of the order in which they came  [5] tombstone of this request, only where a lost request cannot be fenced
-- ARGV: [1] lease in ms, 1 or more  [2] owner field  [3] 0 = one attempt, 1 = begins to wait, 2 = waits already
--       [4] ms for which a place lasts unless refreshed  [5] message  [6] PUBLISH or SPUBLISH
--       [7] channel, to which ':' and an owner field are added
--       [8] error for an owner that holds it already; absent = it may take it again
-- Returns: array {hold count} when held; integer = ms until it is worth looking again, -1 = not known. Never 0
--          while the lock is free.
-- When it runs twice: counts twice, waits once. A request is sent once; after a lost reply fair_settle decides.
-- Source: Redisson RedissonFairLock.tryLockInnerAsync, RedissonNonReentrantFairLock
if KEYS[5] and redis.call('exists', KEYS[5]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
-- include: fair_queue
local owner = ARGV[2]
-- Times come from outside: far away is far enough.
local horizon = 86400000

local function append()
  local last = redis.call('zrevrange', KEYS[4], 0, 0, 'withscores')[2] or 0
  redis.call('zadd', KEYS[4], number(last + 1), owner)
  redis.call('rpush', KEYS[2], owner)
end

-- Puts the owner where it belongs, and forgets what does not belong there. Looks at the whole queue.
local function place(returns)
  local waiting = redis.call('lrange', KEYS[2], 0, -1)
  local listed = {}
  for _, other in ipairs(waiting) do
    listed[other] = true
  end
  local dead = redis.call('zrangebyscore', KEYS[3], '-inf', number(now))
  for _, other in ipairs(dead) do
    if not listed[other] then
      redis.call('zrem', KEYS[3], other)
    end
  end
  if redis.call('zcard', KEYS[4]) > #waiting + 100 then
    -- Most of these died. Whoever did not goes to the end when it comes back.
    for _, other in ipairs(redis.call('zrange', KEYS[4], 0, -1)) do
      if not listed[other] and other ~= owner then
        redis.call('zrem', KEYS[4], other)
      end
    end
  end
  if listed[owner] then
    return
  end
  local ticket = returns and tonumber(redis.call('zscore', KEYS[4], owner) or '')
  if not ticket then
    append()
    return
  end
  for _, other in ipairs(waiting) do
    local earlier = tonumber(redis.call('zscore', KEYS[4], other) or '')
    if not earlier or earlier > ticket then
      redis.call('linsert', KEYS[2], 'before', other, owner)
      return
    end
  end
  redis.call('rpush', KEYS[2], owner)
end

local function enrol(returns)
  local known = redis.call('zscore', KEYS[3], owner)
  local length = redis.call('llen', KEYS[2])
  if length ~= redis.call('zcard', KEYS[3]) or redis.call('zcard', KEYS[4]) > length + 100
      or returns and not known then
    place(returns)
  elseif not known then
    append()
  end
  redis.call('zadd', KEYS[3], number(now + ARGV[4]), owner)
  local last = tonumber(redis.call('zrevrange', KEYS[3], 0, 0, 'withscores')[2])
  -- The margin is for clients that refresh neither places nor these keys.
  local life = number(math.min(last - now, horizon) + 600000)
  for i = 2, 4 do
    redis.call('pexpire', KEYS[i], life)
  end
end

local count = 1
local remaining = redis.call('pttl', KEYS[1])
local free = remaining == -2
local held = redis.call('hget', KEYS[1], owner)
local head, deadline, removed
if held then
  if ARGV[8] then
    return redis.error_reply(ARGV[8])
  end
  count = tonumber(held) + 1
elseif free and redis.call('lindex', KEYS[2], 0) == owner then
  head = owner
else
  if ARGV[3] == '2' then
    enrol(true)
  end
  head, deadline, removed = sweep()
end
if held or free and (not head or head == owner) then
-- include: hold_grant
  redis.call('lrem', KEYS[2], 1, owner)
  redis.call('zrem', KEYS[3], owner)
  redis.call('zrem', KEYS[4], owner)
  return {count}
end
if free and removed then
  -- Whoever is next now was not told when the lock became free.
  redis.pcall(ARGV[6], ARGV[7] .. ':' .. head, ARGV[5])
end
if ARGV[3] == '1' then
  enrol(false)
end
if head and head ~= owner then
  -- The lock is the first one's, unless that one dies.
  remaining = math.max(remaining, math.ceil(math.min(deadline - now, horizon)))
end
return remaining
