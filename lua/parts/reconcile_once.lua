-- SPDX-License-Identifier: Apache-2.0
-- Makes the tombstone of a lost request, so that the request does nothing if it comes late. The tombstone holds the
-- number of the latest reconciliation. Race: a reconciliation may come after a later one. It ends here, because by then
-- the hold count is another request's business.
-- Expects: tombstone = its key, nil = there is none; life = its TTL in ms; the last ARGV = number of this
--          reconciliation
if tombstone then
  local latest = redis.call('get', tombstone)
  if latest and tonumber(latest) > tonumber(ARGV[#ARGV]) then
    return redis.error_reply('RLOCKSETTLED this reconciliation was given up by its sender')
  end
  redis.call('set', tombstone, ARGV[#ARGV], 'PX', life)
end
