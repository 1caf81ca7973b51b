-- ARGV: a cursor, what the keys of records look like, and how many keys to look at. Replies the next cursor, and of the
-- records among those keys: how many there are, how many run, how many read unknown, and the start of the run that began
-- first, 0 if none runs.
--PRELUDE
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local page = call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
local records, running, unknown, oldest = 0, 0, 0, 0
for _, key in ipairs(page[2]) do
  local v = redis.pcall('GETRANGE', key, 0, 54) -- fails on a key of somebody else's
  if type(v) == 'string' and #v == 55 and byte(v, 1) == 1 then
    local state = byte(v, 4)
    records = records + 1
    if state == 1 then
      local started = num(v, 40)
      running = running + 1
      oldest = oldest > 0 and math.min(oldest, started) or started
      if byte(v, 5) % 2 == 0 and byte(v, 7) ~= 1 and now >= num(v, 48) then
        unknown = unknown + 1
      end
    elseif state == 4 then
      unknown = unknown + 1
    end
  end
end
return { page[1], records, running, unknown, oldest, now }
