-- SPDX-License-Identifier: Apache-2.0
-- Renews permits, of one or several semaphores, in one request; each permit has its own answer.
-- KEYS: for each permit the permits taken, by expiry, of its semaphore; up to a few hundred, all in one slot
-- ARGV: for the i-th key [2i-1] lease in ms  [2i] id, 16 bytes
-- Returns: array, for each key 1 = renewed, 0 = no longer taken, error text = the server refused that key
-- When it runs twice: harmless, the expiry is set again. It never shortens one.
-- Cost: O(log n) for each permit, of n that are taken
-- Source: design of this library; Redisson does not renew permits
if redis.replicate_commands then
  -- Servers that replicate scripts as text refuse to write after TIME.
  redis.replicate_commands()
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local result = {}
for i = 1, #KEYS do
  local score = redis.pcall('zscore', KEYS[i], ARGV[2 * i])
  if type(score) == 'table' then
    -- A key of another type stands where the permits were: they are gone.
    result[i] = string.find(score.err, 'WRONGTYPE', 1, true) and 0 or score.err
  elseif not score or tonumber(score) <= now then
    result[i] = 0
  else
    local expiry = now + tonumber(ARGV[2 * i - 1])
    local renewed = 1
    if tonumber(score) < expiry then
      -- ZREMRANGEBYRANK removes nothing here. But the memory limit does not stop a script that has begun to write, and
      -- this script needs no memory.
      redis.pcall('zremrangebyrank', KEYS[i], 1, 0)
      renewed = redis.pcall('zadd', KEYS[i], 'XX', expiry, ARGV[2 * i])
    end
    result[i] = type(renewed) == 'table' and renewed.err or 1
  end
end
return result
