-- SPDX-License-Identifier: Apache-2.0
-- Defines announce(), which tells waiters that the lock is free. It returns the error text if the server refused, else
-- nil and the number of clients that were told.
-- Expects: publish = PUBLISH or SPUBLISH, channel, message
local function announce()
  local sent = redis.pcall(publish, channel, message)
  if type(sent) == 'table' and sent.err then
    return sent.err
  end
  return nil, sent
end
