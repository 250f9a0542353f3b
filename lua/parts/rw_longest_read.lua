-- SPDX-License-Identifier: Apache-2.0
-- How long in ms the longest of all read holds of a read-write lock lasts; 0 or less = none lives. The search ends with
-- a hold that lasts for `enough`, so a lower number costs less: 1 asks whether anybody reads. `base` is the common
-- prefix of the keys of all its holds.
if redis.replicate_commands then
  -- Servers that replicate scripts as text refuse to write after HSCAN.
  redis.replicate_commands()
end
local function longestRead(hash, base, enough)
  local longest = -2
  local cursor = '0'
  repeat
    local page = redis.call('hscan', hash, cursor, 'count', 20)
    cursor = page[1]
    local fields = page[2]
    for field = 1, #fields, 2 do
      for i = tonumber(fields[field + 1]) or 0, 1, -1 do
        longest = math.max(longest, redis.call('pttl', base .. ':' .. fields[field] .. ':rwlock_timeout:' .. i))
        if longest >= enough then
          return longest
        end
      end
    end
  until cursor == '0'
  return longest
end
