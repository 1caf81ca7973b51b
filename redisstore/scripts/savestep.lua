-- KEYS[1] the record; ARGV: fence and token of the owner; the step's name; its result.
-- Replies "1" if the caller owns and there is such a step now, else "0"; the time; and the head of the record as it was
-- before. Where the record has steps, and their key is not here, nothing is saved.
--PRELUDE
local v = call('GETRANGE', KEYS[1], 0, 151)
local t = call('TIME')
local owned = #v == 152 and byte(v, 1) == 1 and byte(v, 3) > 0 and byte(v, 3) <= LAYOUT and byte(v, 5) <= 31
  and byte(v, 4) == 1 and sub(v, 8, 31) == ARGV[1]
if owned then
  local steps, flags = stepskey(v), byte(v, 5)
  local first = flags % 16 < 8
  owned = call('EXISTS', steps) == 1 or first
  if owned and call('HEXISTS', steps, ARGV[2]) == 0 then
    call('HSET', steps, ARGV[2], ARGV[3]) -- goes first: Redis refuses it, and with it all, when its memory is full
    flags = flags + (first and 8 or 0)
    local ms = ending(v, expires(v, 1, num(v, 48), flags))
    keep(steps, ms)
    if first then
      keep(KEYS[1], ms)
      call('SETRANGE', KEYS[1], 4, string.char(flags))
    end
  end
end
return (owned and '1' or '0') .. t[1] .. ' ' .. t[2] .. ' ' .. v
