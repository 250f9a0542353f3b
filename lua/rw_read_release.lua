-- SPDX-License-Identifier: Apache-2.0
-- Gives a read hold of an owner back, the latest or another; the last one of all frees the lock.
-- KEYS: [1] lock hash  [2] prefix of the owner's hold keys; no key has this name itself  [3] intent of a waiting writer
--       [4] tombstone of this request, only where the old connection cannot be killed
-- ARGV: [1] owner field  [2] common prefix of the keys of all holds  [3] PUBLISH or SPUBLISH  [4] channel
--       [5] lease in ms to restore when holds remain, 0 = leave them  [6] place of the hold, 0 = the latest
--       [7] holds that the owner knows of, 0 = not known; those that are counted besides end, too
-- Returns: nil = this owner holds nothing; array {1 = released or 0 = that hold had expired or is not counted, holds that
--          remain, ms that the longest of them lasts, error text = the server refused to publish or empty, the places of
--          those of them that are over}. A hold that is over is counted like the others, unless all are over.
-- When it runs twice: releases twice. A request is sent once; after a lost reply rw_read_reconcile decides.
-- Cost: O(h) of the owner's own h holds; more readers cost more only when the hold was the last to expire by more than
--       a second: then O(all read holds)
-- Source: Redisson RedissonReadLock.unlockInnerAsync
-- include: rw_own_reads
-- include: rw_reads_ended
if KEYS[4] and redis.call('exists', KEYS[4]) == 1 then
  return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
end
local counted = countReads(KEYS[1], ARGV[1])
if counted == 0 then
  return nil
end
-- A request that was given up can leave a hold, which comes after those that the owner knows of. Without it the count
-- after a release is lower than the one before, so that the count says whether a lost release was executed.
local known = tonumber(ARGV[7])
known = known > 0 and math.min(known, counted) or counted
local _, lasted = endReads(KEYS[2], known + 1, counted)
local place = tonumber(ARGV[6])
if place == 0 then
  place = known
end
local left = known
local released, longestReleased = 0, 0
if place <= known then
  released, longestReleased = takeRead(KEYS[2], place, known)
  left = known - 1
end
local longest, over
left, longest, over = keepReads(KEYS[1], ARGV[1], KEYS[2], left, counted)
local lease = tonumber(ARGV[5])
if lease > 0 and left > 0 and over[#over] ~= left then
  for _, key in ipairs({KEYS[2] .. ':' .. left, KEYS[1]}) do
    if redis.call('pttl', key) < lease then
      redis.call('pexpire', key, lease)
    end
  end
  longest = math.max(longest, lease)
end
local failure = readsEnded(KEYS[1], ARGV[2], KEYS[3], ARGV[3], ARGV[4], math.max(lasted, longestReleased))
return {released, left, longest, failure or '', over}
