-- SPDX-License-Identifier: Apache-2.0
-- Returns everything that the server knows about one name, at one moment.
-- KEYS: [1] name  [2] fair queue list  [3] fencing counter  [4] permits zset  [5] labels hash
-- ARGV: [1] how many entries of each kind at most
-- Returns: array {type of the name, its PTTL, content, waiters, fencing counter or '', permits with scores, now in ms,
--          labels}; content: hash = field, value, ..., of many those that part() chooses; string = {value}; else {}
-- When it runs twice: harmless, it changes nothing.
-- Cost: O(m) of the m entries that are shown at most
-- Source: design of this library
local most = tonumber(ARGV[1])
local function typed(key, kind)
  return redis.call('type', key).ok == kind
end
-- Of a hash with more fields: its mode, and `most` of the others. A field that names no owner makes it another
-- program's, of which nothing is wanted. HSCAN takes COUNT for a hint and may repeat itself, so what comes is counted
-- here; and a hash that was much larger once has many empty places, so the walk ends after a number of steps, too.
local function part(key)
  local chosen, count, seen, cursor = {}, 0, {}, '0'
  local mode = redis.call('hget', key, 'mode')
  if mode then
    chosen = {'mode', mode}
  end
  for _ = 1, 100 do
    local page = redis.call('hscan', key, cursor, 'count', 100)
    local fields = page[2]
    for i = 1, #fields, 2 do
      local field = fields[i]
      if field ~= 'mode' and not seen[field] then
        if string.sub(field, 37, 37) ~= ':' then
          return {}
        end
        seen[field] = true
        count = count + 1
        chosen[#chosen + 1] = field
        chosen[#chosen + 1] = fields[i + 1]
        if count == most then
          return chosen
        end
      end
    end
    cursor = page[1]
    if cursor == '0' then
      break
    end
  end
  return chosen
end
local kind = redis.call('type', KEYS[1]).ok
local content = {}
if kind == 'hash' then
  if redis.call('hlen', KEYS[1]) <= most then
    content = redis.call('hgetall', KEYS[1])
  else
    content = part(KEYS[1])
  end
elseif kind == 'string' and redis.call('strlen', KEYS[1]) <= 128 then
  content = {redis.call('get', KEYS[1])}
end
local waiters = {}
if typed(KEYS[2], 'list') then
  waiters = redis.call('lrange', KEYS[2], 0, most - 1)
end
local token = ''
if typed(KEYS[3], 'string') then
  token = redis.call('get', KEYS[3])
end
local permits = {}
if typed(KEYS[4], 'zset') then
  permits = redis.call('zrange', KEYS[4], 0, most - 1, 'withscores')
end
local labels = {}
if typed(KEYS[5], 'hash') then
  if redis.call('hlen', KEYS[5]) <= most then
    labels = redis.call('hgetall', KEYS[5])
  else
    -- Only the labels of the holders that are shown.
    for i = 1, #content, 2 do
      local owner = string.gsub(content[i], ':write$', '')
      local label = redis.call('hget', KEYS[5], owner)
      if label then
        labels[#labels + 1] = owner
        labels[#labels + 1] = label
      end
    end
  end
end
local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
return {kind, redis.call('pttl', KEYS[1]), content, waiters, token, permits, now, labels}
