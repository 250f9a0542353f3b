-- SPDX-License-Identifier: Apache-2.0
-- Puts expired permits back into the pool. Expects permit_pool. It writes only if a permit has expired, because
-- after a write the memory limit no longer stops the commands that follow.
local lowest = redis.call('zrange', KEYS[2], 0, 0, 'withscores')
if lowest[2] and tonumber(lowest[2]) <= now then
  if free then
    -- An access rule that forbids to give them back must not take them out either. Removing nothing is the first write,
    -- which needs no memory.
    redis.call('zremrangebyrank', KEYS[2], 1, 0)
    redis.call('incrby', KEYS[1], 0)
  end
  giveBack(redis.call('zremrangebyscore', KEYS[2], '-inf', now))
end
