-- SPDX-License-Identifier: Apache-2.0
-- Answers a request that runs for the second time, and defines kind, the type of the counter KEYS[1]: string or none.
-- Ends the script with an error if the key has another type. Expects request_number.
if answer then
  return tonumber(answer)
end
local kind = redis.call('type', KEYS[1]).ok
if kind ~= 'string' and kind ~= 'none' then
  return redis.error_reply('WRONGTYPE the key holds no counter')
end
