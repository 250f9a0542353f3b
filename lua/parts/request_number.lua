-- SPDX-License-Identifier: Apache-2.0
-- The last key is the idempotency key: it holds `number:answer` of the latest request that was executed. ARGV[1] is the
-- number of this request. A '!' behind it says that the request was lost before. Such a request is executed only if
-- change_again has left the idempotency key: without that key it may have been executed already and forgotten.
-- Defines: `answer`, the earlier answer if the request runs for the second time; remember(text) records an answer, and
--          forget() takes it back where nothing was done after all, so that the request may run again.
local answer
local mine, again = string.match(ARGV[1], '^(%d+)(!?)$')
local seen = redis.call('get', KEYS[#KEYS])
if seen then
  local number, text = string.match(seen, '^(%d+):(.*)$')
  if number == mine then
    answer = text
  elseif tonumber(number) > tonumber(mine) then
    return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
  end
elseif again ~= '' then
  return redis.error_reply('RLOCKLAPSED nothing is known of this request any more')
end
local function remember(text)
  redis.call('set', KEYS[#KEYS], mine .. ':' .. text, 'PX', ARGV[2])
end
local function forget()
  redis.call('set', KEYS[#KEYS], string.format('%.0f:', tonumber(mine) - 1), 'PX', ARGV[2])
end
