-- ARGV: a cursor, what the keys of records look like, and how many keys to look at; then which keys of records to give:
-- "none", "all", "waiting", or "matching" with a reading (0 for any), 1 for those with a sealed request, an operation and a
-- correlation id ("" for any). Waiting are those that read unknown, or read free and have a sealed request. What can't be
-- read is given with both, and so may be what has expired. Replies the next cursor; of the records among those keys how
-- many there are, how many run, how many read unknown, and the start of the run that began first, 0 if none runs; the time;
-- and the keys.
--PRELUDE
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local give, reading, sealed, operation, correlation = ARGV[4], tonumber(ARGV[5] or '0'), ARGV[6] == '1', ARGV[7], ARGV[8]
local page
if give == 'waiting' then
  page = call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3], 'TYPE', 'string')
else
  page = call('SCAN', ARGV[1], 'MATCH', ARGV[2], 'COUNT', ARGV[3])
end
if give == 'all' then
  return { page[1], 0, 0, 0, 0, now, page[2] }
end

-- What a record reads as, to its own policy; 2 also if it has expired.
local function reads(v)
  local state = byte(v, 4)
  if state ~= 1 then
    return state
  elseif now < num(v, 48) then
    return 1
  elseif byte(v, 5) % 2 == 1 then
    return 2
  end
  return byte(v, 7) == 1 and 3 or 4
end

-- Whether a part of a record, behind those of the given size, is a text with its checksum.
local function holds(key, before, size, text)
  return size == #text + 4 and call('GETRANGE', key, 152 + before, 151 + before + #text) == text
end

local records, running, unknown, oldest, given = 0, 0, 0, 0, {}
for _, key in ipairs(page[2]) do
  local v = redis.pcall('GETRANGE', key, 0, 151) -- fails on a key of somebody else's
  if type(v) ~= 'string' or #v ~= 152 or byte(v, 1) ~= 1 or byte(v, 3) > LAYOUT or byte(v, 3) == 0 or byte(v, 5) > 31
    or byte(v, 4) == 0 or byte(v, 4) > 4 then
    local absent = v == '' or type(v) == 'string' and #v == 15 and byte(v, 1) == 1 and byte(v, 4) == 0
    if give ~= 'none' and not absent then
      given[#given + 1] = key
    end
  else
    local as = reads(v)
    records = records + 1
    if byte(v, 4) == 1 then
      local started = num(v, 40)
      running = running + 1
      oldest = oldest > 0 and math.min(oldest, started) or started
    end
    if as == 4 then
      unknown = unknown + 1
    end
    local a, b, _, _, s = unpack('>I4I4I4I4I4', v, 129)
    if give == 'waiting' and (as == 4 or as == 3 and s > 0) or give == 'matching' and (reading == 0 or reading == as)
      and (not sealed or s > 0) and (operation == '' or holds(key, 0, a, operation))
      and (correlation == '' or holds(key, a, b, correlation)) then
      given[#given + 1] = key
    end
  end
end
return { page[1], records, running, unknown, oldest, now, given }
