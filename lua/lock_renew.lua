-- SPDX-License-Identifier: Apache-2.0
-- Renews the holds of many locks in one request; each answers for itself.
-- KEYS: lock hashes, up to a few hundred, all in one slot
-- ARGV: for the i-th key [2i-1] lease in ms  [2i] owner field
-- Returns: array, for each key 1 = renewed, 0 = not this owner's, error text = the server refused that key
-- When it runs twice: harmless, the expiry is set again. It never shortens one.
-- Source: Redisson LockTask.renew
local result = {}
for i = 1, #KEYS do
  local lease = ARGV[2 * i - 1]
  local held = redis.pcall('hexists', KEYS[i], ARGV[2 * i])
  if held == 1 then
    local renewed = 1
    if redis.call('pttl', KEYS[i]) < tonumber(lease) then
      renewed = redis.pcall('pexpire', KEYS[i], lease)
    end
    if type(renewed) == 'table' then
      renewed = renewed.err
    end
    result[i] = renewed
  elseif type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    result[i] = held.err
  else
    -- A key of another type stands where the lock was: the hold is gone.
    result[i] = 0
  end
end
return result
