-- SPDX-License-Identifier: Apache-2.0
-- The read holds of one owner: a count in the hash and a key for each, `<prefix>:1` to `<prefix>:<count>`. A hold
-- whose key has expired is over, although it is still counted.
local function countReads(hash, owner)
  local values = redis.call('hmget', hash, 'mode', owner)
  -- A hash without a mode is a lock of another kind, in which owner fields have the same form.
  return values[1] and tonumber(values[2] or 0) or 0
end

local function setReads(hash, owner, count)
  if count > 0 then
    redis.call('hset', hash, owner, count)
  else
    redis.call('hdel', hash, owner)
  end
end

local function anyReadLives(prefix, counted)
  -- The latest is the likeliest to live.
  for i = counted, 1, -1 do
    if redis.call('exists', prefix .. ':' .. i) == 1 then
      return true
    end
  end
  return false
end

-- Deletes the holds that are over and closes the gaps. Returns how many are left, and the former place of each.
local function pruneReads(hash, owner, prefix, counted)
  local live = 0
  local places = {}
  for i = 1, counted do
    local key = prefix .. ':' .. i
    if redis.call('exists', key) == 1 then
      live = live + 1
      places[live] = i
      if live < i then
        redis.call('rename', key, prefix .. ':' .. live)
      end
    end
  end
  if live < counted then
    setReads(hash, owner, live)
  end
  return live, places
end

-- Ends the holds at some places. Returns how many of them lived, and how long in ms the longest would have lasted.
local function endReads(prefix, first, last)
  local lived = 0
  local longest = 0
  for i = first, last do
    local key = prefix .. ':' .. i
    longest = math.max(longest, redis.call('pttl', key))
    lived = lived + redis.call('del', key)
  end
  return lived, longest
end

-- How long in ms the longest of an owner's read holds lasts.
local function longestOwnRead(prefix, count)
  local longest = 0
  for i = 1, count do
    longest = math.max(longest, redis.call('pttl', prefix .. ':' .. i))
  end
  return longest
end
