-- SPDX-License-Identifier: Apache-2.0
-- Defines renew(held, key, lease): held is the reply that says whether the owner still has the key, 1 or 0 or an
-- error; the result is 1 = renewed, 0 = gone, text = the server refused it. renew() never shortens an expiry.
local function renew(held, key, lease)
  if held == 1 then
    local renewed = 1
    if redis.call('pttl', key) < tonumber(lease) then
      renewed = redis.pcall('pexpire', key, lease)
    end
    if type(renewed) == 'table' then
      renewed = renewed.err
    end
    return renewed
  elseif type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
    return held.err
  end
  -- A key of another type stands where the lock was: the hold is gone.
  return 0
end
