-- SPDX-License-Identifier: Apache-2.0
-- Prepares a change whose reply was lost for being asked for again: what is known of it is kept from here on, and that
-- it has not run is written down. The caller has made sure that its marker cannot have lapsed yet.
-- KEYS: [1] marker of this client
-- ARGV: [1] number of the lost request  [2] marker TTL in ms
-- Returns: 1 = it has run, 0 = it has not
-- When it runs twice: harmless, the marker's expiry is set again.
-- Cost: O(1)
-- Source: design of this library; answers Redisson's semaphores and latches that count twice when a reply is lost
-- include: request_number
if answer then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 1
end
redis.call('set', KEYS[1], string.format('%.0f:', tonumber(mine) - 1), 'PX', ARGV[2])
return 0
