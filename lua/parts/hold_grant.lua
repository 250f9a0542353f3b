-- SPDX-License-Identifier: Apache-2.0
-- Counts one more hold and lengthens the expiry. Ends the script with the error if that is refused.
-- Expects KEYS[1] lock hash, ARGV[1] lease in ms, ARGV[2] owner field, and hold_refuse; defines lease.
local lease = tonumber(ARGV[1])
redis.call('hincrby', KEYS[1], ARGV[2], 1)
if remaining < lease then
  local expire = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(expire) == 'table' and expire.err then
    -- A lock without expiry would outlive its holder: take the hold back.
    if count == 1 then
      redis.call('del', KEYS[1])
    else
      redis.call('hincrby', KEYS[1], ARGV[2], -1)
    end
    return expire
  end
end
