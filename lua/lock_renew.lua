-- SPDX-License-Identifier: Apache-2.0
-- Renews the holds of many locks in one request; each lock has its own answer.
-- KEYS: lock hashes, up to a few hundred, all in one slot
-- ARGV: for the i-th key [2i-1] lease in ms  [2i] owner field
-- Returns: array, for each key 1 = renewed, 0 = not this owner's, error text = the server refused that key
-- When it runs twice: harmless, the expiry is set again. It never shortens one.
-- Cost: O(1) for each lock
-- Source: Redisson LockTask.renew
-- include: renew_key
local result = {}
for i = 1, #KEYS do
  result[i] = renew(redis.pcall('hexists', KEYS[i], ARGV[2 * i]), KEYS[i], ARGV[2 * i - 1])
end
return result
