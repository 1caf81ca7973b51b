-- KEYS[1] the record; ARGV: fence and token of the owner. Replies "1" if it is forgotten, else "0"; the time; and the head
-- of the record as it was before. Its fence is kept for as long as a claim may be under way that has not a higher one.
--PRELUDE
local v = call('GETRANGE', KEYS[1], 0, 151)
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local forgets = false
if #v == 152 and byte(v, 1) == 1 and byte(v, 3) > 0 and byte(v, 3) <= LAYOUT and byte(v, 5) <= 31 and sub(v, 8, 31) == ARGV[1] then
  local state, flags = byte(v, 4), byte(v, 5)
  if state == 1 then
    forgets = flags % 2 == 1 and now >= num(v, 48)
  elseif state == 4 then
    forgets = flags % 8 > 3
  else
    forgets = state == 2 or state == 3
  end
end
if forgets then
  local steps = stepsof(v)
  call('DEL', KEYS[1])
  if byte(v, 128) == 1 then
    call('DEL', KEYS[1] .. '~')
  end
  if steps then
    call('DEL', steps)
  end
  if num(v, 8) + FENCELIFE >= math.floor(now / 1000) then
    put(KEYS[1], sub(v, 1, 3) .. '\0\0\0\0' .. sub(v, 8, 15), ending(v, 0))
  end
end
return (forgets and '1' or '0') .. t[1] .. ' ' .. t[2] .. ' ' .. v
