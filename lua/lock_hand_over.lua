-- SPDX-License-Identifier: Apache-2.0
-- Gives the last hold of an owner back and takes the lock for another owner of the same client, in one step: the lock
-- is never free in between, so nobody is woken. An owner that has more holds gives one back, as in lock_release.
-- Without another owner the lock is free, and the reply says how many clients heard of it.
-- KEYS: [1] lock hash
-- ARGV: [1] owner field  [2] message  [3] PUBLISH or SPUBLISH  [4] lease in ms to restore when holds remain, 0 = leave
--       it  [5] channel  [6] field of the next owner, empty = nobody  [7] its lease in ms, 1 or more
-- Returns: array {1} = the next owner has the lock, with one hold; otherwise the next owner has nothing: nil = not the
--          owner; array {0, integer} = free now, so many clients were told; array {0, error text} = free now, but the
--          server refused to publish; integer = holds that remain
-- When it runs twice: the second run finds that the owner has no hold. A request is sent once; after a lost reply
--          lock_reconcile decides for each of the two owners.
-- Cost: O(1)
-- Source: design of this library; the layout is Redisson's
local message, publish, channel = ARGV[2], ARGV[3], ARGV[5]
-- include: announce
if redis.call('hget', KEYS[1], ARGV[1]) == '1' then
  redis.call('del', KEYS[1])
  if ARGV[6] ~= '' then
    local taken = redis.pcall('hincrby', KEYS[1], ARGV[6], 1)
    if type(taken) ~= 'table' then
      taken = redis.pcall('pexpire', KEYS[1], ARGV[7])
    end
    if type(taken) ~= 'table' then
      return {1}
    end
    -- A lock that could not be taken in full is free: one without expiry would outlive its holder.
    redis.call('del', KEYS[1])
  end
  local failure, told = announce()
  return {0, failure or told}
end
-- include: release_hold
