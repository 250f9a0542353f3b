-- SPDX-License-Identifier: Apache-2.0
-- The pool of a semaphore whose permits expire.
-- Expects: KEYS[1] free permits, KEYS[2] permits taken, by expiry; locals `publish` (PUBLISH or SPUBLISH) and
--          `channel`.
-- Defines: `now`, ms since the epoch by the server's clock; `free`, the number in KEYS[1], false without the key;
--          giveBack(count) puts permits into the pool; without the key it does nothing, so that a semaphore that is
--          gone does not come back; it returns the error if the server refused. announce() tells waiters the number of free permits if some came back, and
--          returns the error text if the server refused.
if redis.replicate_commands then
  -- Servers that replicate scripts as text refuse to write after TIME.
  redis.replicate_commands()
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local free = redis.call('get', KEYS[1])
if free then
  free = tonumber(free)
  if not free then
    return redis.error_reply('WRONGTYPE the key holds no semaphore')
  end
end
local returned = 0
local function giveBack(count)
  if free and count > 0 then
    local total = redis.pcall('incrby', KEYS[1], count)
    if type(total) == 'table' then
      return total
    end
    free = total
    returned = returned + count
  end
end
local function announce()
  -- Redisson's readers take no number below 1.
  if returned > 0 and free > 0 then
    local sent = redis.pcall(publish, channel, free)
    if type(sent) == 'table' and sent.err then
      return sent.err
    end
  end
end
