-- KEYS[1] the record; ARGV: fence and token of the owner; the lease in microseconds; "1" to mark it begun, else "0".
-- Replies "1" if the caller owns, else "0"; the time; and the head of the record as it was before.
--PRELUDE
local v = call('GETRANGE', KEYS[1], 0, 151)
local t = call('TIME')
local owned = #v == 152 and byte(v, 1) == 1 and byte(v, 3) > 0 and byte(v, 3) <= LAYOUT and byte(v, 5) <= 7
  and byte(v, 4) == 1 and sub(v, 8, 31) == ARGV[1]
if owned then
  local lease = t[1] * 1000000 + t[2] + ARGV[2]
  local flags = byte(v, 5)
  local mark = ARGV[3] == '1' and flags % 2 == 0
  local ms
  if mark or flags % 2 == 1 then
    ms = ending(v, lease + us(v, 64) + us(v, 72))
  elseif byte(v, 7) == 1 then
    ms = ending(v, lease + us(v, 64) * (sub(v, 145, 148) ~= '\0\0\0\0' and 7 or 1))
  end
  -- The first command makes Redis let the next ones pass when its memory is full.
  if ms then
    call('PEXPIREAT', KEYS[1], ms)
  else
    call('PERSIST', KEYS[1])
  end
  call('SETRANGE', KEYS[1], 47, enc(lease))
  if mark then
    call('SETRANGE', KEYS[1], 4, string.char(flags + 1))
  end
end
return (owned and '1' or '0') .. t[1] .. ' ' .. t[2] .. ' ' .. v
