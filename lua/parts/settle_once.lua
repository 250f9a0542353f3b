-- SPDX-License-Identifier: Apache-2.0
-- Part: makes the tombstone of a lost request, so that it does nothing if it comes late. The tombstone holds the number
-- of the latest settling; one that comes after a later one ends here, because the hold count is another's by then.
-- Expects: tombstone = its key, nil = there is none; life = its TTL in ms; the last ARGV = number of this settling
if tombstone then
  local latest = redis.call('get', tombstone)
  if latest and tonumber(latest) > tonumber(ARGV[#ARGV]) then
    return redis.error_reply('RLOCKSETTLED this settling was given up by its sender')
  end
  redis.call('set', tombstone, ARGV[#ARGV], 'PX', life)
end
