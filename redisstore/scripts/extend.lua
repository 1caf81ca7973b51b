-- KEYS[1] the record; ARGV: fence and token of the owner; the lease in microseconds; "1" to mark it begun, else "0".
-- Replies "1" if the caller owns, else "0"; the time; and the head of the record as it was before.
--PRELUDE
local v = call('GETRANGE', KEYS[1], 0, 151)
local t = call('TIME')
local owned = #v == 152 and byte(v, 1) == 1 and byte(v, 3) > 0 and byte(v, 3) <= LAYOUT and byte(v, 5) <= 31
  and byte(v, 4) == 1 and sub(v, 8, 31) == ARGV[1]
if owned then
  local lease = t[1] * 1000000 + t[2] + ARGV[2]
  local flags = byte(v, 5)
  if ARGV[3] == '1' and flags % 2 == 0 then
    flags = flags + 1
  end
  local ms, steps = ending(v, expires(v, 1, lease, flags)), stepsof(v)
  keep(KEYS[1], ms) -- makes Redis let the next ones pass when its memory is full
  call('SETRANGE', KEYS[1], 47, enc(lease))
  if flags ~= byte(v, 5) then
    call('SETRANGE', KEYS[1], 4, string.char(flags))
  end
  if steps then
    keep(steps, ms)
  end
end
return (owned and '1' or '0') .. t[1] .. ' ' .. t[2] .. ' ' .. v
