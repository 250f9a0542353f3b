-- SPDX-License-Identifier: Apache-2.0
-- Renews many locks that are one key each; each lock has its own answer.
-- KEYS: locks, up to a few hundred, all in one slot
-- ARGV: for the i-th key [2i-1] lease in ms  [2i] owner field
-- Returns: array, for each key 1 = renewed, 0 = not this owner's, error text = the server refused that key
-- When it runs twice: harmless, the expiry is set again. It never shortens one.
-- Cost: O(1) for each lock
-- Source: the pattern of the Redis documentation, compare and extend
-- include: renew_key
local result = {}
for i = 1, #KEYS do
  local held = redis.pcall('get', KEYS[i])
  if type(held) ~= 'table' then
    held = held == ARGV[2 * i] and 1 or 0
  end
  result[i] = renew(held, KEYS[i], ARGV[2 * i - 1])
end
return result
