-- SPDX-License-Identifier: Apache-2.0
-- Tells the clients of some holders that their holds were ended by force.
-- Expects: fields = array of owner fields, name = the lock's name, publish = PUBLISH or SPUBLISH
for _, field in ipairs(fields) do
  redis.pcall(publish, 'rlock_client:' .. string.match(field, '^[^:]*'), name)
end
