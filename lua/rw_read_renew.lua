-- SPDX-License-Identifier: Apache-2.0
-- Renews the read holds of many owners in one request; each owner has its own answer. It renews only the holds of these
-- owners, so that a dead reader does not live on the renewals of others.
-- KEYS: for the i-th owner [2i-1] lock hash  [2i] prefix of the owner's hold keys; no key has this name itself
-- ARGV: for the i-th owner [2i-1] lease in ms  [2i] owner field
-- Returns: array, for each owner 1 = renewed, 0 = it holds nothing, error text = the server refused
-- When it runs twice: harmless, expiries are set again. It never shortens one.
-- Cost: O(h) for each owner, of its own h holds
-- Source: Redisson ReadLockTask.renew
local function raise(key, lease)
  local left = redis.call('pttl', key)
  if left == -1 or left >= lease then
    return 1
  end
  local renewed = redis.pcall('pexpire', key, lease)
  return type(renewed) == 'table' and renewed.err or renewed
end

local result = {}
for i = 1, #KEYS / 2 do
  local lease = tonumber(ARGV[2 * i - 1])
  local held = redis.pcall('hget', KEYS[2 * i - 1], ARGV[2 * i])
  local answer = 0
  if type(held) == 'table' then
    -- A key of another type stands where the lock was: the hold is gone.
    if not string.find(held.err, 'WRONGTYPE', 1, true) then
      answer = held.err
    end
  elseif held then
    for hold = 1, tonumber(held) do
      local renewed = raise(KEYS[2 * i] .. ':' .. hold, lease)
      if renewed ~= 0 and answer ~= renewed and type(answer) == 'number' then
        answer = renewed
      end
    end
    if answer == 1 then
      answer = raise(KEYS[2 * i - 1], lease)
    end
  end
  result[i] = answer
end
return result
