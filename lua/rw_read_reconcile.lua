-- SPDX-License-Identifier: Apache-2.0
-- Reconciles requests of one reader whose replies were lost: brings its holds down to at most a target. The
-- caller has made sure that none of those requests can still run: it had their connection killed on the server, or
-- names their tombstone.
-- KEYS: [1] lock hash  [2] prefix of the owner's hold keys; no key has this name itself  [3] intent of a waiting writer
--       [4] tombstone of the lost request (optional)
-- ARGV: [1] owner field  [2] common prefix of the keys of all holds  [3] PUBLISH or SPUBLISH  [4] channel
--       [5] target, 0 or more  [6] tombstone TTL in ms  [7] 1 = the latest hold is the last of those that stay, 0 = the
--       first ones stay
--       [8] place of the hold that the lost request was to release, 0 = none  [9] holds counted before that request
--       [10] number of this reconciliation of the request, 1 or more
-- Returns: array {holds before, holds now, ms that the longest of them lasts}
-- When it runs twice: the second run finds the target reached and changes nothing; with a tombstone, a run that comes
--          after a later reconciliation is refused.
-- Cost: as rw_read_release
-- Source: design of this library; answers the weaknesses of Redisson's unlock latch
-- include: rw_own_reads
-- include: rw_reads_ended
local tombstone, life = KEYS[4], ARGV[6]
-- include: reconcile_once
local counted = countReads(KEYS[1], ARGV[1])
local lasted = 0
if tonumber(ARGV[8]) > 0 and counted == tonumber(ARGV[9]) then
  -- The count is still the one from before the request, so the request was not executed.
  local key = KEYS[2] .. ':' .. ARGV[8]
  lasted = redis.call('pttl', key)
  redis.call('del', key)
end
local before = pruneReads(KEYS[1], ARGV[1], KEYS[2], counted)
local target = tonumber(ARGV[5])
local now = math.min(before, target)
if now < before then
  lasted = math.max(lasted, longestOwnRead(KEYS[2], before))
  if now > 0 and ARGV[7] == '1' then
    redis.call('rename', KEYS[2] .. ':' .. before, KEYS[2] .. ':' .. now)
  end
  for i = now + 1, before do
    redis.call('del', KEYS[2] .. ':' .. i)
  end
  setReads(KEYS[1], ARGV[1], now)
end
if now < counted then
  readsEnded(KEYS[1], ARGV[2], KEYS[3], ARGV[3], ARGV[4], lasted)
end
return {before, now, longestOwnRead(KEYS[2], now)}
