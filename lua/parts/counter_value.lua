-- SPDX-License-Identifier: Apache-2.0
-- Reads the counter KEYS[1]. Defines value, its text or false, and count, the number, 0 without a counter. Ends the
-- script with an error if the key holds no number.
local value = redis.call('get', KEYS[1])
local count = tonumber(value or '0')
if not count then
  return redis.error_reply('WRONGTYPE the key holds no counter')
end
