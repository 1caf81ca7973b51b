-- KEYS[1] the entry; ARGV: the ticket; how long from then the entry may be kept, in milliseconds; the entry. It is kept if
-- the ticket is still out: it is not if the entry was forgotten since, or lost.
if redis.call('GET', KEYS[1]) ~= 'T' .. ARGV[1] then
  return '0'
end
local t = redis.call('TIME')
local left = math.floor(ARGV[1] / 1000 + ARGV[2] - (t[1] * 1000 + t[2] / 1000)) - 1
if left < 1 then
  return '0'
end
redis.call('SET', KEYS[1], ARGV[3], 'PX', string.format('%.0f', left))
return '1'
