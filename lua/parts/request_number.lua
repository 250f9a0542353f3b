-- SPDX-License-Identifier: Apache-2.0
-- The marker, which is the last key, holds `number:answer` of the latest request that was executed; ARGV[1] is the number of this one.
-- `answer` is what was answered to it before, if it runs for the second time.
local answer
local seen = redis.call('get', KEYS[#KEYS])
if seen then
  local number, text = string.match(seen, '^(%d+):(.*)$')
  if number == ARGV[1] then
    answer = text
  elseif tonumber(number) > tonumber(ARGV[1]) then
    return redis.error_reply('RLOCKSETTLED this request was given up by its sender')
  end
end
local function remember(text)
  redis.call('set', KEYS[#KEYS], ARGV[1] .. ':' .. text, 'PX', ARGV[2])
end
