-- SPDX-License-Identifier: Apache-2.0
-- include: rw_longest_read
-- An owner has fewer read holds than before: the lock lasts as long as the longest that is left, and is free when none
-- lives. Holds of dead readers end here, too. `ended` is how long the longest of those that the owner gave back would
-- have lasted, in ms. Returns what the server answered to a message it refused.
local function readsEnded(hash, base, intent, publish, channel, ended)
  if redis.call('hget', hash, 'mode') ~= 'read' then
    -- The write hold around it has its expiry in the same key.
    return nil
  end
  local before = redis.call('pttl', hash)
  -- Among many, the lock may last for a second longer than they do: looking for the very last one is looking at all.
  local most = 1000
  local enough = math.huge
  if before >= 0 and ended + most < before then
    -- It was not the longest that ended. That one is among those that are left, so anybody who lives is enough.
    enough = 1
  elseif before >= 0 then
    enough = math.max(before - (redis.call('hlen', hash) > 100 and most or 2), 1)
  end
  local awaited = redis.call('exists', intent) == 1
  local longest = longestRead(hash, base, enough)
  local message = awaited and '1' or '0'
  if longest > 0 then
    if longest > before or longest < enough then
      redis.call('pexpire', hash, longest)
    end
    if not awaited or longest >= enough or longest >= before then
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
