-- SPDX-License-Identifier: Apache-2.0
-- Ends the wait of a writer: readers that it held back may come. If another writer waits as well, that one holds the
-- readers back again when it looks next.
-- KEYS: [1] intent of a waiting writer
-- ARGV: [1] owner field as a writer  [2] PUBLISH or SPUBLISH  [3] channel
-- Returns: 1 = readers were held back by this writer, 0 = they were not
-- When it runs twice: the second run finds nothing and changes nothing.
-- Cost: O(1)
-- Source: design of this library
if redis.call('get', KEYS[1]) ~= ARGV[1] then
  return 0
end
redis.call('del', KEYS[1])
redis.pcall(ARGV[2], ARGV[3], '1')
return 1
