-- SPDX-License-Identifier: Apache-2.0
-- The resource's part of fencing, for a value in Redis: writes the value unless a younger token has been seen. The
-- library never runs this script; it is for programs that use the lock, see docs/fencing.md.
-- KEYS: [1] value  [2] youngest token seen, the writer's own key beside the value; both in one slot
-- ARGV: [1] token, a positive decimal number without leading zeros  [2] new value
-- Returns: 1 = written, 0 = refused: a younger token has been here
-- When it runs twice: writes the same value again, or is refused if a younger token has come in between. Within one
--                     token the writes are in the order in which they arrive.
-- Cost: O(1)
-- Source: design of this library
local token = ARGV[1]
if not string.find(token, '^[1-9]%d*$') then
  return redis.error_reply('ERR the token is not a positive decimal number')
end
local seen = redis.call('get', KEYS[2])
-- Tokens are compared as text, because a Lua number is exact only up to 2^53.
if seen and (#seen > #token or (#seen == #token and seen > token)) then
  return 0
end
redis.call('set', KEYS[2], token)
redis.call('set', KEYS[1], ARGV[2])
return 1
