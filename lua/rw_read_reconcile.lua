-- SPDX-License-Identifier: Apache-2.0
-- Reconciles requests of one reader whose replies were lost: brings its holds down to at most a target. The
-- caller has made sure that none of those requests can still run: it had their connection killed on the server, or
-- names their tombstone.
-- KEYS: [1] lock hash  [2] prefix of the owner's hold keys; no key has this name itself  [3] intent of a waiting writer
--       [4] tombstone of the lost request (optional)
-- ARGV: [1] owner field  [2] common prefix of the keys of all holds  [3] PUBLISH or SPUBLISH  [4] channel
--       [5] target, 0 or more  [6] tombstone TTL in ms
--       [7] the lost request: acquire = its hold is the latest and the last of those that stay; undo = its hold is not
--       to stay; release = all stay but the hold at a place, or the first ones
--       [8] place of the hold that it was to release, 0 = the latest  [9] holds counted before it
--       [10] number of this reconciliation of the request, 1 or more
-- Returns: array {holds before (release: without one that had ended), holds now, ms that the longest of them lasts,
--          acquire, undo: ms that its hold lasts, 0 = it is not there; release: the places of those that are over}. The
--          holds are counted as rw_read_acquire and rw_read_release do.
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

if ARGV[7] == 'release' then
  -- A release takes away what its owner does not know of, so that it would have left fewer than there were.
  local executed = counted < expected
  local known = math.min(counted, expected)
  local _, lasted = endReads(KEYS[2], known + 1, counted)
  local place = tonumber(ARGV[8])
  local before = 0
  local longest
  local left
  if place > 0 and not executed then
    before, longest = takeRead(KEYS[2], place, known)
    left = known - 1
  else
    before, longest = endReads(KEYS[2], target + 1, known)
    left = math.min(known, target)
  end
  local now, remaining, over = keepReads(KEYS[1], ARGV[1], KEYS[2], left, counted)
  if now < counted then
    readsEnded(KEYS[1], ARGV[2], KEYS[3], ARGV[3], ARGV[4], math.max(lasted, longest))
  end
  return {before + now, now, remaining, over}
end

local now = math.min(counted, target)
local latest = 0
local lasted = 0
local _
if ARGV[7] == 'acquire' and counted >= target then
  latest = target
  _, lasted = endReads(KEYS[2], target, counted - 1)
  if target < counted and redis.call('exists', KEYS[2] .. ':' .. counted) == 1 then
    redis.call('rename', KEYS[2] .. ':' .. counted, KEYS[2] .. ':' .. target)
  end
elseif counted == 1 and counted < expected then
  -- All holds from before the request were over, so that it took the first place.
  latest = 1
  if ARGV[7] == 'undo' then
    _, lasted = endReads(KEYS[2], 1, 1)
  end
else
  _, lasted = endReads(KEYS[2], target + 1, counted)
end
local taken = 0
if latest > 0 then
  taken = math.max(redis.call('pttl', KEYS[2] .. ':' .. latest), 0)
  if taken == 0 then
    now = latest - 1
    endReads(KEYS[2], latest, latest)
  else
    now = latest
  end
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
