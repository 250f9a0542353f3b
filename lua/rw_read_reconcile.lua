-- SPDX-License-Identifier: Apache-2.0
-- Reconciles requests of one reader whose replies were lost: brings its holds down to at most a target. The
-- caller has made sure that none of those requests can still run: it had their connection killed on the server, or
-- names their tombstone.
-- KEYS: [1] lock hash  [2] prefix of the owner's hold keys; no key has this name itself  [3] intent of a waiting writer
--       [4] tombstone of the lost request (optional)
-- ARGV: [1] owner field  [2] common prefix of the keys of all holds  [3] PUBLISH or SPUBLISH  [4] channel
--       [5] target, 0 or more  [6] tombstone TTL in ms
--       [7] the lost request: acquire = its hold is the latest and the last of those that stay; undo = its hold is not
--       to stay; release = the first ones stay
--       [8] place of the hold that it was to release, 0 = the latest  [9] holds counted before it
--       [10] number of this reconciliation of the request, 1 or more
-- Returns: array {holds before, holds now, ms that the longest of them lasts,
--          acquire, undo: 1 = its hold is there;
--          release: the places that the holds had before it, if that is known}. For acquire and undo the holds are counted
--          as rw_read_acquire does.
-- When it runs twice: the second run finds the target reached and changes nothing; with a tombstone, a run that comes
--          after a later reconciliation is refused.
-- Cost: as rw_read_release
-- Source: design of this library; answers the weaknesses of Redisson's unlock latch
-- include: rw_own_reads
-- include: rw_reads_ended
local tombstone, life = KEYS[4], ARGV[6]
-- include: reconcile_once
local counted = countReads(KEYS[1], ARGV[1])
local target = tonumber(ARGV[5])
local expected = tonumber(ARGV[9])
local lasted = 0

-- Returns how many of them lived.
local function drop(first, last)
  local dropped = 0
  for place = first, last do
    local key = KEYS[2] .. ':' .. place
    lasted = math.max(lasted, redis.call('pttl', key))
    dropped = dropped + redis.call('del', key)
  end
  return dropped
end

if ARGV[7] == 'release' then
  local place = tonumber(ARGV[8])
  local before = 0
  if place > 0 and counted == expected then
    -- The count is still the one from before the request, so the request was not executed.
    drop(place, place)
  else
    before = drop(target + 1, counted)
  end
  local now, places = pruneReads(KEYS[1], ARGV[1], KEYS[2], counted)
  if now < counted then
    readsEnded(KEYS[1], ARGV[2], KEYS[3], ARGV[3], ARGV[4], lasted)
  end
  return {before + now, now, longestOwnRead(KEYS[2], now), counted == expected and places or nil}
end

local now = math.min(counted, target)
local latest = 0
if ARGV[7] == 'acquire' and counted >= target then
  latest = target
  drop(target, counted - 1)
  if target < counted and redis.call('exists', KEYS[2] .. ':' .. counted) == 1 then
    redis.call('rename', KEYS[2] .. ':' .. counted, KEYS[2] .. ':' .. target)
  end
elseif counted == 1 and counted < expected then
  -- All holds from before the request were over, so that it took the first place.
  latest = 1
  if ARGV[7] == 'undo' then
    drop(1, 1)
  end
else
  drop(target + 1, counted)
end
local taken = 0
if latest > 0 then
  taken = redis.call('exists', KEYS[2] .. ':' .. latest)
  now = latest - 1 + taken
end
if now < counted then
  setReads(KEYS[1], ARGV[1], now)
end
if now > 0 and not anyReadLives(KEYS[2], now) then
  setReads(KEYS[1], ARGV[1], 0)
  now = 0
end
if now < counted then
  readsEnded(KEYS[1], ARGV[2], KEYS[3], ARGV[3], ARGV[4], lasted)
end
return {counted, now, longestOwnRead(KEYS[2], now), taken}
