-- SPDX-License-Identifier: Apache-2.0
-- The read holds of one owner: a count in the hash and a key for each, `<prefix>:1` to `<prefix>:<count>`. A hold
-- whose key has expired is over, and keeps its place until its owner gives it back or all of the owner's are over.
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

-- Ends one of the holds that are counted. The holds after it move up, also those that are over, so that the owner knows
-- which hold is where without a reply. Returns as endReads.
local function takeRead(prefix, place, counted)
  local lived, lasted = endReads(prefix, place, place)
  for i = place + 1, counted do
    local key = prefix .. ':' .. i
    if redis.call('exists', key) == 1 then
      redis.call('rename', key, prefix .. ':' .. (i - 1))
    end
  end
  return lived, lasted
end

-- Counts the holds that are left; if all are over, none is. Returns how many are counted, how long in ms the longest of
-- them lasts, and the places of those that are over.
local function keepReads(hash, owner, prefix, left, counted)
  local longest = 0
  local over = {}
  for i = 1, left do
    local ms = redis.call('pttl', prefix .. ':' .. i)
    longest = math.max(longest, ms)
    if ms == -2 then
      over[#over + 1] = i
    end
  end
  if #over == left then
    left, over = 0, {}
  end
  -- Where none was counted the hash may be a lock of another kind.
  if left < counted then
    setReads(hash, owner, left)
  end
  return left, longest, over
end

-- How long in ms the longest of an owner's read holds lasts.
local function longestOwnRead(prefix, count)
  local longest = 0
  for i = 1, count do
    longest = math.max(longest, redis.call('pttl', prefix .. ':' .. i))
  end
  return longest
end
