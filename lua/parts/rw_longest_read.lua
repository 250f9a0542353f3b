-- SPDX-License-Identifier: Apache-2.0
-- How long in ms the longest of all read holds of a read-write lock lasts; 0 or less = none lives. `base` is what the
-- keys of all its holds begin with.
local function longestRead(hash, base)
  local longest = -2
  local fields = redis.call('hgetall', hash)
  for field = 1, #fields, 2 do
    for i = tonumber(fields[field + 1]) or 0, 1, -1 do
      longest = math.max(longest, redis.call('pttl', base .. ':' .. fields[field] .. ':rwlock_timeout:' .. i))
    end
  end
  return longest
end
