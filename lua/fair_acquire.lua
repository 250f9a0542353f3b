-- SPDX-License-Identifier: Apache-2.0
-- Takes the lock for one owner if it is free and nobody came before, or counts one more hold of the same owner.
-- An owner that waits gets a place in the queue, or keeps the one it has from dying. An owner whose place was
-- taken away while it waits (by a client that changes others' times, or because it was silent for too long)
-- goes back before everybody who is not known to have come earlier.
-- KEYS: [1] lock hash  [2] list of waiting owners  [3] zset of the times from which they count as dead for Redisson
--       [4] zset of the times at which the leases end that rlock's waiters have on their places
--       [5] zset of the order in which those came  [6] zset of the waiting times of Redisson's waiters, in ms
--       [7] tombstone of this request, only where a lost request cannot be fenced
-- ARGV: [1] lease in ms, 1 or more  [2] owner field  [3] 0 = one attempt, 1 = begins to wait, 2 = waits already
--       [4] ms for which a place lasts unless refreshed  [5] message  [6] PUBLISH or SPUBLISH
--       [7] channel, to which ':' and an owner field are added
--       [8] error for an owner that holds it already; absent = it may take it again
-- Returns: array {hold count} when held; integer = ms until it is worth looking again, -1 = not known. Never 0
--          while the lock is free.
-- When it runs twice: counts twice, waits once. A request is sent once; after a lost reply fair_settle decides.
-- Source: Redisson RedissonFairLock.tryLockInnerAsync, RedissonNonReentrantFairLock
if KEYS[7] and redis.call('exists', KEYS[7]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
-- include: fair_queue
local owner = ARGV[2]
-- Times come from outside: far away is far enough.
local horizon = 86400000

-- Redisson's own, unless it was told another.
local usualWait = 300000

local function scoreOf(key, other)
  return tonumber(other and redis.call('zscore', key, other) or '')
end

-- Each of Redisson's waiters subtracts its own waiting time from everybody's when it acquires, and from those behind
-- it when it leaves. That is what it was given beyond the time of the one before it, which moves on when that one
-- refreshes it. So it is noted as soon as one of rlock's waiters looks. Returns the owner at an index below 0, the
-- lease of its place, and what it will subtract; with a lease, what those before it will.
local function lookAt(index)
  local other = redis.call('lindex', KEYS[2], index)
  local deadline = scoreOf(KEYS[3], other) or now
  local leased = scoreOf(KEYS[4], other)
  if leased then
    return other, leased, math.max(0, deadline - leased)
  end
  local before = redis.call('lindex', KEYS[2], index - 1)
  local wait = deadline - (scoreOf(KEYS[3], before) or now)
  if not before and wait > usualWait / 5 then
    -- The first may have waited for long already; with less than a fifth left it passes for somebody in a hurry.
    -- Who came behind nobody was given what the lock had left, too.
    wait = math.max(wait - math.max(0, redis.call('pttl', KEYS[1])), usualWait)
  end
  return other, nil, math.max(0, wait, scoreOf(KEYS[6], other) or 0)
end

local function noteWaits(length)
  for index = -1, -length, -1 do
    local other, leased, wait = lookAt(index)
    if leased or scoreOf(KEYS[6], other) == wait then
      return
    end
    redis.call('zadd', KEYS[6], number(math.min(wait, horizon)), other)
  end
end

-- How much will be taken off the time of whoever is at a position of the queue.
local function allowance(position, length)
  local sum = 0
  for i = position - 1, 0, -1 do
    local _, leased, wait = lookAt(i - length)
    sum = sum + wait
    if leased or sum >= horizon then
      break
    end
  end
  return sum
end

-- Both return the allowance for the new place.
local function append(length)
  local last = redis.call('zrevrange', KEYS[5], 0, 0, 'withscores')[2] or 0
  redis.call('zadd', KEYS[5], number(last + 1), owner)
  local allowed = allowance(length, length)
  redis.call('rpush', KEYS[2], owner)
  return allowed
end

-- Puts the owner where it belongs, and forgets what does not belong there. Looks at the whole queue. An owner that is
-- in the queue keeps at least what it is allowed already.
local function place(returns, allowed)
  local waiting = redis.call('lrange', KEYS[2], 0, -1)
  local listed = {}
  for position, other in ipairs(waiting) do
    listed[other] = position
  end
  for i = 3, 4 do
    for _, other in ipairs(redis.call('zrangebyscore', KEYS[i], '-inf', number(now))) do
      if not listed[other] then
        redis.call('zrem', KEYS[i], other)
      end
    end
  end
  for i = 5, 6 do
    if redis.call('zcard', KEYS[i]) > #waiting + 100 then
      -- Most of these died. Whoever did not goes to the end when it comes back.
      for _, other in ipairs(redis.call('zrange', KEYS[i], 0, -1)) do
        if not listed[other] and other ~= owner then
          redis.call('zrem', KEYS[i], other)
        end
      end
    end
  end
  if listed[owner] then
    return math.max(allowed, allowance(listed[owner] - 1, #waiting))
  end
  local ticket = returns and tonumber(redis.call('zscore', KEYS[5], owner) or '')
  if not ticket then
    return append(#waiting)
  end
  for position, other in ipairs(waiting) do
    local earlier = tonumber(redis.call('zscore', KEYS[5], other) or '')
    if not earlier or earlier > ticket then
      allowed = allowance(position - 1, #waiting)
      redis.call('linsert', KEYS[2], 'before', other, owner)
      return allowed
    end
  end
  allowed = allowance(#waiting, #waiting)
  redis.call('rpush', KEYS[2], owner)
  return allowed
end

local function enrol(returns)
  local deadline = scoreOf(KEYS[3], owner)
  local leased = scoreOf(KEYS[4], owner)
  local length = redis.call('llen', KEYS[2])
  -- Below 0 when more was taken off than was allowed for.
  local allowed = deadline and leased and deadline - leased or 0
  noteWaits(length)
  if length ~= redis.call('zcard', KEYS[3]) or redis.call('zcard', KEYS[4]) > length
      or redis.call('zcard', KEYS[5]) > length + 100 or redis.call('zcard', KEYS[6]) > length + 100
      or (returns or deadline) and not (deadline and leased) or allowed < 0 then
    allowed = place(returns, allowed)
  elseif not deadline then
    allowed = append(length)
  end
  if redis.call('lindex', KEYS[2], 0) == owner then
    allowed = 0
  end
  redis.call('zadd', KEYS[4], number(now + ARGV[4]), owner)
  redis.call('zadd', KEYS[3], number(now + ARGV[4] + math.min(allowed, horizon)), owner)
  local last = tonumber(redis.call('zrevrange', KEYS[3], 0, 0, 'withscores')[2])
  -- The margin is for clients that refresh neither places nor these keys.
  local life = number(math.min(last - now, horizon) + 600000)
  for i = 2, 6 do
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
  redis.call('zrem', KEYS[5], owner)
  if redis.call('exists', KEYS[2]) == 0 then
    redis.call('del', KEYS[6])
  end
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
