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

-- Whether a part of a record, behind those of the given size, is a text with its checksum.
local function holds(key, before, size, text)
  return size == #text + 4 and call('GETRANGE', key, 152 + before, 151 + before + #text) == text
end

-- Whether a record that reads so is to be given.
local function wanted(key, v, as)
  if give == 'waiting' then
    return as == 4 or as == 3 and sub(v, 145, 148) ~= '\0\0\0\0'
  elseif give == 'none' or reading ~= 0 and reading ~= as or sealed and sub(v, 145, 148) == '\0\0\0\0' then
    return false
  end
  local a, b = unpack('>I4I4', v, 129)
  return (operation == '' or holds(key, 0, a, operation)) and (correlation == '' or holds(key, a, b, correlation))
end

local records, running, unknown, oldest, given = 0, 0, 0, 0, {}
for _, key in ipairs(page[2]) do
  local v = redis.pcall('GETRANGE', key, 0, 151) -- fails on a key of somebody else's
  local frame, layout, state, flags
  if type(v) == 'string' then
    frame, _, layout, state, flags = byte(v, 1, 5)
  end
  if frame ~= 1 or #v ~= 152 or layout > LAYOUT or layout == 0 or flags > 31 or state == 0 or state > 4 then
    if give ~= 'none' and v ~= '' and not (frame == 1 and #v == 15 and state == 0) then
      given[#given + 1] = key
    end
  else
    local as = state -- what it reads as, to its own policy; 2 also if it has expired
    records = records + 1
    if state == 1 then
      local started = num(v, 40)
      running = running + 1
      oldest = oldest > 0 and math.min(oldest, started) or started
      if now >= num(v, 48) then
        as = flags % 2 == 1 and 2 or byte(v, 7) == 1 and 3 or 4
      end
    end
    if as == 4 then
      unknown = unknown + 1
    end
    if wanted(key, v, as) then
      given[#given + 1] = key
    end
  end
end
return { page[1], records, running, unknown, oldest, now, given }
