-- SPDX-License-Identifier: Apache-2.0
-- The queue of a fair lock.
-- Expects: KEYS[2] list of waiting owners, the next one first
--          KEYS[3] zset of the same owners, score = epoch ms from which Redisson takes an owner for dead
--          KEYS[4] zset of rlock's waiters among them, score = epoch ms at which a place lapses
-- Defines: now, epoch ms by this server's clock; number(x), x as Redis reads it, without exponent;
--          sweep(), wakeHead(publish command, lock's channel, message)
if redis.replicate_commands then
  -- Servers that replicate scripts as text refuse to write after TIME.
  redis.replicate_commands()
end
local clock = redis.call('time')
local now = tonumber(clock[1]) * 1000 + math.floor(tonumber(clock[2]) / 1000)

local function number(x)
  return string.format('%.0f', x)
end

-- Removes dead owners from the head. Returns the owner that is next, the time from which it counts as dead, and whether
-- an owner was removed; nothing when nobody waits.
local function sweep()
  local removed = false
  while true do
    local head = redis.call('lindex', KEYS[2], 0)
    if not head then
      return nil
    end
    local deadline = tonumber(redis.call('zscore', KEYS[4], head) or redis.call('zscore', KEYS[3], head) or '')
    if deadline and deadline > now then
      if removed and redis.pcall('exists', KEYS[4]) == 0 then
        -- The waiters that are left are Redisson's, which expects these keys to have no expiry.
        redis.pcall('persist', KEYS[2])
        redis.pcall('persist', KEYS[3])
      end
      return head, deadline, removed
    end
    removed = true
    redis.call('lpop', KEYS[2])
    redis.call('zrem', KEYS[3], head)
    redis.call('zrem', KEYS[4], head)
  end
end

-- Wakes the next owner. Returns the error text if that failed, else nothing.
local function wakeHead(publish, channel, message)
  local done, failure = pcall(function()
    local head = sweep()
    if head then
      redis.call(publish, channel .. ':' .. head, message)
    end
  end)
  if not done then
    return type(failure) == 'table' and failure.err or tostring(failure)
  end
end
