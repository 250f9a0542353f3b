-- SPDX-License-Identifier: Apache-2.0
-- Counts one more hold and lengthens the expiry. Ends the script with the error if that is refused.
-- Expects KEYS[1] lock hash, ARGV[1] lease in ms, ARGV[2] owner field, and hold_refuse; defines lease and takeBack().
local lease = tonumber(ARGV[1])
local function takeBack()
  if count > 1 then
    redis.call('hincrby', KEYS[1], ARGV[2], -1)
  elseif type(redis.pcall('del', KEYS[1])) == 'table' then
    redis.call('hdel', KEYS[1], ARGV[2])
  end
end
redis.call('hincrby', KEYS[1], ARGV[2], 1)
if remaining < lease then
  local expire = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(expire) == 'table' and expire.err then
    -- A lock without expiry would outlive its holder.
    takeBack()
    return expire
  end
end
