-- KEYS[1] the entry. Replies "1", the time and the entry; or "0", the time and a ticket, which is 0 if none could be kept.
-- An entry begins with "R"; in its place a ticket that is out is "T" and its number.
local v = redis.call('GET', KEYS[1])
local t = redis.call('TIME')
if v and string.byte(v) == 82 then
  return '1' .. t[1] .. ' ' .. t[2] .. ' ' .. v
end
local ticket = v and string.sub(v, 2) or string.format('%.0f', t[1] * 1000000 + t[2])
if not v then
  local kept = redis.pcall('SET', KEYS[1], 'T' .. ticket, 'PX', ARGV[1])
  if kept.err then
    ticket = '0'
  end
end
return '0' .. t[1] .. ' ' .. t[2] .. ' ' .. ticket
