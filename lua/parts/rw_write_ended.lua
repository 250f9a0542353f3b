-- SPDX-License-Identifier: Apache-2.0
-- include: rw_longest_read
-- Called when the last write hold of an owner ends: the lock is free, or the owner's own read holds stay and others may
-- read, too. Returns the error text if the server refused the message.
local function writeEnded(hash, writer, base, publish, channel)
  redis.call('hdel', hash, writer)
  local longest = longestRead(hash, base, math.huge)
  if longest > 0 then
    redis.call('hset', hash, 'mode', 'read')
    redis.call('pexpire', hash, longest)
  else
    redis.call('del', hash)
  end
  local sent = redis.pcall(publish, channel, '1')
  return type(sent) == 'table' and sent.err or nil
end
