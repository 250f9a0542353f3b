-- SPDX-License-Identifier: Apache-2.0
-- include: rw_longest_read
-- Called when an owner has fewer read holds than before: the lock lasts as long as the longest hold that is left, and
-- is free when none lives. Holds of dead readers end here, too. `ended` is how long the longest of the holds that the
-- owner gave back would have lasted, in ms. Returns the error text if the server refused the message.
local function readsEnded(hash, base, intent, publish, channel, ended)
  if redis.call('hget', hash, 'mode') ~= 'read' then
    -- The write hold around it has its expiry in the same key.
    return nil
  end
  local before = redis.call('pttl', hash)
  -- Among many read holds the lock may last up to a second longer than they do, because to find the very last one the
  -- script would have to look at all.
  local most = 1000
  local enough = math.huge
  if before >= 0 and ended + most < before then
    -- The hold that ended was not the longest. The longest is among those that are left, so one that lives is enough.
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
    -- A waiting writer sleeps until the end that it was told, and must learn of an earlier one.
    message = '0'
  else
    redis.call('del', hash)
  end
  local sent = redis.pcall(publish, channel, message)
  return type(sent) == 'table' and sent.err or nil
end
