-- SPDX-License-Identifier: Apache-2.0
-- Ends the script with the remaining time if another owner holds the lock.
-- Expects KEYS[1] lock hash, ARGV[2] owner field; defines count, the owner's holds including the requested one,
-- and remaining, the key's remaining ms, -1 = no key or no expiry.
local count = 1
local remaining = -1
if redis.call('exists', KEYS[1]) == 1 then
  local held = redis.call('hget', KEYS[1], ARGV[2])
  remaining = redis.call('pttl', KEYS[1])
  if not held then
    return remaining
  end
  count = tonumber(held) + 1
end
