-- KEYS[1] the trail; ARGV: the fields of the entry, names and values in turn. The first field is the time.
local t = redis.call('TIME')
redis.call('XADD', KEYS[1], '*', 'at', string.format('%.0f', t[1] * 1000000 + t[2]), unpack(ARGV))
return '1'
