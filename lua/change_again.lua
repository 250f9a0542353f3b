-- SPDX-License-Identifier: Apache-2.0
-- Prepares a change whose reply was lost for being sent again. If the change has run, its answer is kept from here on;
-- if not, the idempotency key records that. The caller has made sure that the key cannot have expired yet.
-- KEYS: [1] idempotency key of this client
-- ARGV: [1] number of the lost request  [2] idempotency key's TTL in ms
-- Returns: 1 = the change has run, 0 = it has not
-- When it runs twice: harmless, the expiry of the idempotency key is set again.
-- Cost: O(1)
-- Source: design of this library; answers Redisson's semaphores and latches that count twice when a reply is lost
-- include: request_number
if answer then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 1
end
forget()
return 0
