-- SPDX-License-Identifier: Apache-2.0
-- The places in the queue of a fair lock, and the effect that Redisson's waiters have on them.
-- Expects: fair_queue
--          KEYS[1] lock hash
--          KEYS[5] zset of the order in which rlock's waiters came
--          KEYS[6] zset of the waiting times of Redisson's waiters, in ms
-- Defines: horizon, the longest time that counts, in ms; scoreOf(key, owner); lookAt(index); noteWaits();
--          leave(owner)

-- Scores come from other programs, so every time is capped here.
local horizon = 86400000

-- Redisson's waiting time, unless it is configured otherwise.
local usualWait = 300000

local function scoreOf(key, other)
  return tonumber(other and redis.call('zscore', key, other) or '')
end

-- Each of Redisson's waiters subtracts its own waiting time from everybody's deadline when it acquires, and from the
-- deadlines behind it when it leaves. The waiting time is the difference between its deadline and that of the waiter
-- before it. The latter moves on when an rlock waiter refreshes it, so the waiting time is written down as soon as one
-- of rlock's waiters looks, and before one of them goes. Returns the owner at an index below 0, the end of its place if
-- it is one of rlock's, and the time that it will subtract; for one of rlock's the time that those before it will
-- subtract.
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
    -- The first waiter may have waited for long already; with less than a fifth left it counts as one with a short
    -- waiting time. The deadline of a waiter that came when nobody waited includes the rest of the holder's lease.
    wait = math.max(wait - math.max(0, redis.call('pttl', KEYS[1])), usualWait)
  end
  return other, nil, math.max(0, wait, scoreOf(KEYS[6], other) or 0)
end

-- Writes down the waiting times of the waiters behind the last of rlock's; those before it were written down when it
-- came. It looks at no more waiters than can subtract the horizon together.
local function noteWaits()
  local noted = false
  for index = -1, -math.min(redis.call('llen', KEYS[2]), horizon / usualWait), -1 do
    local other, leased, wait = lookAt(index)
    if leased then
      break
    end
    if scoreOf(KEYS[6], other) ~= wait then
      redis.call('zadd', KEYS[6], number(math.min(wait, horizon)), other)
      noted = true
    end
  end
  if noted then
    redis.call('pexpire', KEYS[6], number(horizon))
  end
end

-- Takes an owner out of the queue; returns whether it was in it. It fails neither without memory nor for a key of
-- another type, because the owner has the lock by now, or has stopped waiting.
local function leave(owner)
  if type(redis.pcall('zscore', KEYS[4], owner)) == 'string' then
    pcall(noteWaits)
  end
  local removed
  if redis.pcall('lindex', KEYS[2], 0) == owner then
    removed = redis.pcall('lpop', KEYS[2]) == owner and 1 or 0
  else
    removed = redis.pcall('lrem', KEYS[2], 0, owner)
  end
  for i = 3, 5 do
    redis.pcall('zrem', KEYS[i], owner)
  end
  if redis.call('exists', KEYS[2]) == 0 then
    redis.call('del', KEYS[6])
  elseif redis.call('exists', KEYS[4]) == 0 then
    -- The waiters that are left are Redisson's, which expects these keys to have no expiry.
    redis.call('persist', KEYS[2])
    redis.call('persist', KEYS[3])
  end
  return type(removed) == 'number' and removed > 0
end
