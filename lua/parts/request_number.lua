-- SPDX-License-Identifier: Apache-2.0
-- The marker, which is the last key, holds `number:answer` of the latest request that was executed. ARGV[1] is the
-- number of this one, with '!' behind it if it was lost before and is executed only where change_again has left a
-- marker: without one it may have been executed already, and forgotten.
-- `answer` is what was answered to it before, if it runs for the second time.
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
