-- SPDX-License-Identifier: Apache-2.0
-- Tells the clients of some holders that their holds were ended by force. In a cluster a client's channel is in another
-- slot than the lock, where only PUBLISH reaches it.
-- Expects: fields = array of owner fields, name = the lock's name
for _, field in ipairs(fields) do
  redis.pcall('publish', 'rlock_client:' .. string.match(field, '^[^:]*'), name)
end
