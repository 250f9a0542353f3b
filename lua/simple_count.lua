-- SPDX-License-Identifier: Apache-2.0
-- Whether an owner holds a lock that is one key.
-- KEYS: [1] lock
-- ARGV: [1] owner field
-- Returns: 1 = the owner holds it, 0 = it does not
-- When it runs twice: harmless, it changes nothing.
-- Cost: O(1)
-- Source: design of this library
return redis.call('get', KEYS[1]) == ARGV[1] and 1 or 0
