-- KEYS[1] the record; ARGV: the token. Replies "1" if it was seized now, else "0"; the time; and the record as it was before.
--PRELUDE
local v = call('GET', KEYS[1]) or ''
local t = call('TIME')
local now = t[1] * 1000000 + t[2]
local seizable, flags = false, byte(v, 5)
if readable(v) then
  local state = byte(v, 4)
  if state == 1 then
    seizable = flags % 2 == 0 or now < num(v, 48)
    flags = lost(v, flags)
  elseif state == 3 then
    seizable = flags % 4 > 1
  elseif state == 4 then
    seizable = flags % 8 < 4 or sub(v, 16, 31) ~= ARGV[1]
  end
end
if seizable then
  local steps = stepsof(v)
  call('PERSIST', KEYS[1]) -- makes Redis let the next command pass when its memory is full
  call('SET', KEYS[1], sub(v, 1, 3) .. '\4' .. string.char(flags + (flags % 8 < 4 and 4 or 0)) .. '\0' .. sub(v, 7, 7) .. nextfence(v) .. ARGV[1]
    .. sub(v, 32, 55) .. enc(now) .. sub(v, 64))
  if steps then
    keep(steps)
  end
elseif byte(v, 128) == 1 then
  local apart = call('GET', KEYS[1] .. '~')
  if apart and sub(apart, 1, 8) == sub(v, 8, 15) then
    v = v .. sub(apart, 9)
  end
end
return (seizable and '1' or '0') .. t[1] .. ' ' .. t[2] .. ' ' .. v
