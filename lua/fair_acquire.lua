-- SPDX-License-Identifier: Apache-2.0
-- Takes the lock for one owner if it is free and no other owner came earlier, or counts one more hold of the same
-- owner. An owner that waits gets a place in the queue, or refreshes the place it has. An owner may lose its place
-- while it waits: a client may change the times of others, or the owner may be silent for too long. It then goes back
-- before every waiter that is not known to have come earlier.
-- KEYS: [1] lock hash  [2] list of waiting owners  [3] zset of the times from which Redisson takes them for dead
--       [4] zset of the times at which the places of rlock's waiters lapse
--       [5] zset of the order in which those came  [6] zset of the waiting times of Redisson's waiters, in ms
--       [7] tombstone of this request, only where the old connection cannot be killed
-- ARGV: [1] lease in ms, 1 or more  [2] owner field  [3] 0 = one attempt, 1 = begins to wait, 2 = waits already
--       [4] ms for which a place lasts unless refreshed  [5] message  [6] PUBLISH or SPUBLISH
--       [7] channel, to which ':' and an owner field are added
--       [8] error for an owner that holds it already; absent = it may take it again
-- Returns: array {hold count} when held; integer = ms until it is worth looking again, -1 = not known. Never 0
--          while the lock is free.
-- When it runs twice: counts twice, waits once. A request is sent once; after a lost reply fair_reconcile decides.
-- Cost: O(log n) of n waiters; O(n) when an owner goes back to a place that was taken away, and once for each
--       hundred that died
-- Source: Redisson RedissonFairLock.tryLockInnerAsync, RedissonNonReentrantFairLock
if KEYS[7] and redis.call('exists', KEYS[7]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
-- include: fair_queue
-- include: fair_places
local owner = ARGV[2]

-- The time that will be subtracted from the deadline of the waiter at a position of the queue.
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

-- append() and place() return the allowance for the new place.
local function append(length)
  local last = redis.call('zrevrange', KEYS[5], 0, 0, 'withscores')[2] or 0
  redis.call('zadd', KEYS[5], number(last + 1), owner)
  local allowed = allowance(length, length)
  redis.call('rpush', KEYS[2], owner)
  return allowed
end

-- Puts the owner where it belongs, and deletes entries of owners that are not in the queue. Looks at the whole queue.
-- An owner that is in the queue keeps at least the allowance that it has.
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
  -- Most tickets of owners that are not listed belong to dead waiters. An owner that is alive after all goes to the end
  -- when it comes back. The waiting time of an owner says nothing about the next time that the owner comes.
  local most = {[5] = #waiting + 100, [6] = #waiting - redis.call('zcard', KEYS[4])}
  for i = 5, 6 do
    if redis.call('zcard', KEYS[i]) > most[i] then
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
  if leased and leased <= now and not returns then
    -- An earlier call of the owner left this place behind, because it could not give it back.
    leave(owner)
    deadline = nil
    leased = nil
  end
  local length = redis.call('llen', KEYS[2])
  -- The allowance is below 0 when more was subtracted than rlock had expected.
  local allowed = deadline and leased and deadline - leased or 0
  noteWaits()
  local ours = redis.call('zcard', KEYS[4])
  if length ~= redis.call('zcard', KEYS[3]) or ours > length or redis.call('zcard', KEYS[5]) > length + 100
      or redis.call('zcard', KEYS[6]) > length - ours or (returns or deadline) and not (deadline and leased)
      or allowed < 0 then
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
  -- The margin is for Redisson's waiters, who refresh neither places nor these keys.
  local margin = redis.call('zcard', KEYS[4]) < redis.call('llen', KEYS[2]) and horizon or 600000
  local life = number(math.min(last - now, horizon) + margin)
  for i = 2, 6 do
    redis.call('pexpire', KEYS[i], life)
  end
end

-- A place that lasts longer than any client grants dates from before the server's clock was set back. Other clients may
-- grant up to twice the time that this client grants.
local function capPlaces()
  local lease = tonumber(ARGV[4])
  local stale = '(' .. number(now + math.max(2 * lease, 5000))
  for _, other in ipairs(redis.call('zrangebyscore', KEYS[4], stale, '+inf')) do
    local most = now + lease
    local excess = scoreOf(KEYS[4], other) - most
    redis.call('zadd', KEYS[4], number(most), other)
    if redis.call('zscore', KEYS[3], other) then
      redis.call('zincrby', KEYS[3], number(-excess), other)
    end
  end
end

-- Race: the next waiter knows only when the hold before this one would have ended. It would sleep beyond the end of
-- this hold if this lease is shorter, so it is woken to look. One of rlock's looks anyway before its place lapses.
local function tellNext(lease)
  local other = redis.call('lindex', KEYS[2], 0)
  if other and (lease <= tonumber(ARGV[4]) or not redis.call('zscore', KEYS[4], other)) then
    redis.call(ARGV[6], ARGV[7] .. ':' .. other, ARGV[5])
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
  -- An error here is ignored: if the times are damaged, the commands that need them report it.
  pcall(capPlaces)
  if ARGV[3] == '2' then
    enrol(true)
  end
  head, deadline, removed = sweep()
end
if held or free and (not head or head == owner) then
-- include: hold_grant
  -- A refusal to take the owner out of the queue must not hide that the owner has the lock.
  pcall(leave, owner)
  if not held then
    pcall(tellNext, lease)
  end
  return {count}
end
if free and removed then
  -- Race: dead waiters were removed, so the present first waiter was not told when the lock became free.
  redis.pcall(ARGV[6], ARGV[7] .. ':' .. head, ARGV[5])
end
if ARGV[3] == '1' then
  enrol(false)
end
if head and head ~= owner then
  -- The lock belongs to the first waiter, unless that one dies.
  remaining = math.max(remaining, math.ceil(math.min(deadline - now, horizon)))
end
return remaining
