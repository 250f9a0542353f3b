-- SPDX-License-Identifier: Apache-2.0
-- Returns everything that the server knows about one name, at one moment.
-- KEYS: [1] name  [2] fair queue list  [3] fencing counter  [4] permits zset  [5] labels hash
-- ARGV: [1] how many entries of each kind at most
-- Returns: array {type of the name, its PTTL, content, waiters, fencing counter or '', permits with scores, now in ms,
--          labels}; content: hash = field, value, ...; string = {value}; else {}
-- When it runs twice: harmless, it changes nothing.
-- Cost: O(m) of the m entries that are shown at most
-- Source: design of this library
local most = tonumber(ARGV[1])
local function typed(key, kind)
  return redis.call('type', key).ok == kind
end
local kind = redis.call('type', KEYS[1]).ok
local content = {}
if kind == 'hash' and redis.call('hlen', KEYS[1]) <= most then
  content = redis.call('hgetall', KEYS[1])
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
  labels = redis.call('hgetall', KEYS[5])
end
local time = redis.call('time')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
return {kind, redis.call('pttl', KEYS[1]), content, waiters, token, permits, now, labels}
