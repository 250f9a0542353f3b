-- SPDX-License-Identifier: Apache-2.0
-- include: rw_longest_read
-- An owner has fewer read holds than before: the lock lasts as long as the longest that is left, and is free when none
-- lives. Holds of dead readers end here, too. Returns what the server answered to a message it refused.
local function readsEnded(hash, base, intent, publish, channel)
  if redis.call('hget', hash, 'mode') ~= 'read' then
    -- The write hold around it has its expiry in the same key.
    return nil
  end
  local awaited = redis.call('exists', intent) == 1
  local longest = longestRead(hash, base)
  local message = awaited and '1' or '0'
  if longest > 0 then
    local before = redis.call('pttl', hash)
    redis.call('pexpire', hash, longest)
    if not awaited or longest >= before then
      return nil
    end
    -- A waiting writer sleeps until the end it was told.
    message = '0'
  else
    redis.call('del', hash)
  end
  local sent = redis.pcall(publish, channel, message)
  return type(sent) == 'table' and sent.err or nil
end
