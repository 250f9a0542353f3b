-- SPDX-License-Identifier: Apache-2.0
-- As lock_renew, for locks with a fencing counter, which must outlast the hold.
-- KEYS: for the i-th hold [2i-1] lock hash  [2i] fencing counter; all in one slot
-- ARGV: for the i-th hold [3i-2] lease in ms  [3i-1] owner field  [3i] how long the counter is kept at least, in ms,
--       0 = for ever
-- Returns: array, for each hold 1 = renewed, 0 = not this owner's, error text = the server refused it
-- When it runs twice: harmless, the expiries are set again. It never shortens one.
-- Cost: O(1) for each lock
-- Source: Redisson LockTask.renew
-- include: renew_key
local result = {}
for i = 1, #KEYS / 2 do
  local lock = KEYS[2 * i - 1]
  local counter = KEYS[2 * i]
  local lease = ARGV[3 * i - 2]
  result[i] = renew(redis.pcall('hexists', lock, ARGV[3 * i - 1]), lock, lease)
  if result[i] == 1 then
    local remaining = redis.call('pttl', counter)
    if remaining >= 0 and ARGV[3 * i] == '0' then
      -- Redisson gives the counter an expiry by expire(), and as a member of a multi-lock with a lease.
      redis.pcall('persist', counter)
    elseif remaining >= 0 then
      local keep = math.max(tonumber(lease), tonumber(ARGV[3 * i]))
      -- A counter without expiry is not touched here: somebody else has kept it so.
      if remaining < keep then
        redis.pcall('pexpire', counter, string.format('%.0f', keep))
      end
    end
  end
end
return result
