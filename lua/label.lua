-- SPDX-License-Identifier: Apache-2.0
-- Notes what a holder says about its hold, beside the lock and never in it.
-- KEYS: [1] labels hash
-- ARGV: [1] owner field  [2] label, empty = take it away  [3] how long it is kept at least, ms
-- Returns: 1
-- When it runs twice: harmless.
-- Source: design of this library
if ARGV[2] == '' then
  redis.call('hdel', KEYS[1], ARGV[1])
else
  redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
  if redis.call('pttl', KEYS[1]) < tonumber(ARGV[3]) then
    redis.call('pexpire', KEYS[1], ARGV[3])
  end
end
return 1
