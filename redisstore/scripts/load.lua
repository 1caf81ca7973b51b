-- KEYS[1] the record. Replies "0", the time, and the record, if there is one.
local v = redis.call('GET', KEYS[1]) or ''
local t = redis.call('TIME')
if string.byte(v, 128) == 1 then
  local apart = redis.call('GET', KEYS[1] .. '~')
  if apart and string.sub(apart, 1, 8) == string.sub(v, 8, 15) then
    v = v .. string.sub(apart, 9)
  end
end
return '0' .. t[1] .. ' ' .. t[2] .. ' ' .. v
