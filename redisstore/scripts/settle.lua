-- KEYS[1] the record; ARGV: fence and token of the owner; "1" if any fence above that one will do, "2" if the end is owed,
-- else "0"; the outcome as a byte; the parts error and answer; the channel that is told, and what; a retention as
-- eight bytes, which a record that is done gets in place of its claim's, or "".
-- Replies "1" if the caller owns and the run ended now, else "0"; the time; and the record as it was before.
local v = redis.call('GET', KEYS[1]) or ''
local t = redis.call('TIME')

-- What most runs end with goes first, without functions: an answer to a record without flags, error, sealed request and tombstone.
if string.byte(v, 4) == 1 and ARGV[2] == '0' and ARGV[3] == '\2' and ARGV[4] == '' and ARGV[5] ~= '' and ARGV[6] == '' and ARGV[8] == '' then
  local sub, unpack = string.sub, struct.unpack
  local frame, _, readable, _, flags = string.byte(v, 1, 5)
  if #v >= 152 and frame == 1 and readable > 0 and readable <= LAYOUT and flags == 0 and sub(v, 8, 31) == ARGV[1] then
    local fh, fl = unpack('>I4I4', v, 8)
    local rh, rl, th, tl = unpack('>I4I4I4I4', v, 64)
    local a, b, c, x, s, d = unpack('>I4I4I4I4I4I4', v, 129)
    local fence = fh * 4294967296 + fl + FENCELIFE
    -- With a retention that ends within 13 years, and a fence that the clock passes by then.
    if #v == 152 + a + b + x and c + s + d == 0 and th + tl == 0 and rh < 100000000 and fence < 4e12 then
      local now = t[1] * 1000000 + t[2]
      local lo, ms = now % 4294967296, now / 1000 + (rh * 4294967296 + rl) / 1000000
      redis.call('SET', KEYS[1], sub(v, 1, 3) .. '\2\0\2' .. sub(v, 7, 55) .. struct.pack('>I4I4', (now - lo) / 4294967296, lo)
        .. sub(v, 64, 148) .. struct.pack('>I4', #ARGV[5]) .. sub(v, 153) .. ARGV[5],
        'PXAT', string.format('%.0f', (ms > fence and ms or fence) + 2))
      return '1' .. t[1] .. ' ' .. t[2] .. ' ' .. v
    end
  end
end

--PRELUDE
local function reply(wrote)
  if not wrote and byte(v, 128) == 1 then
    local apart = call('GET', KEYS[1] .. '~')
    if apart and sub(apart, 1, 8) == sub(v, 8, 15) then
      v = v .. sub(apart, 9)
    end
  end
  return (wrote and '1' or '0') .. t[1] .. ' ' .. t[2] .. ' ' .. v
end

if not readable(v) then
  return reply(false)
end
local by, above, outcome = ARGV[1], ARGV[2] == '1', byte(ARGV[3])
local owned = sub(v, 8, 31) == by
if above then
  local hi, lo = unpack('>I4I4', v, 8)
  local byhi, bylo = unpack('>I4I4', by, 1)
  owned = sub(v, 16, 31) == sub(by, 9, 24) and (hi > byhi or hi == byhi and lo > bylo)
end
local state, flags = byte(v, 4), byte(v, 5)
local begun, maybe, seized = flags % 2 == 1, flags % 4 > 1, flags % 8 > 3
if not owned or not (state == 1 or state == 4 and seized and not above) then
  return reply(false)
end

local now = t[1] * 1000000 + t[2]
local steps, owed = stepsof(v), flags > 15
local err, answer = ARGV[4], ''
local attempt = unpack('>I4', v, 80)
if outcome == 2 or begun then
  state, maybe, owed = 2, false, false
  if outcome == 2 then
    answer = ARGV[5]
    if ARGV[8] ~= '' then
      v = sub(v, 1, 63) .. ARGV[8] .. sub(v, 72)
    end
  end
elseif outcome == 4 then
  state, owed = 4, owed or ARGV[2] == '2'
else
  state, owed = 3, owed or ARGV[2] == '2'
  if seized then
    maybe = false
  elseif above then
    attempt = attempt - 1
  elseif byte(v, 7) == 1 then
    maybe = true
  end
end
local a, b, c, x, s = unpack('>I4I4I4I4I4', v, 129)
local sealed = state == 2 and '' or sub(v, 153 + a + b + c + x, 152 + a + b + c + x + s) -- nobody needs it any more
local kept = now + us(v, 64)
local apart = state == 2 and us(v, 72) > 0 and kept < math.huge and answer ~= ''
flags = (begun and 1 or 0) + (maybe and 2 or 0) + (steps and 8 or 0) + (owed and 16 or 0)
local f = sub(v, 1, 3) .. string.char(state, flags, outcome) .. sub(v, 7, 55)
  .. enc(now) .. sub(v, 64, 79) .. pack('>I4', attempt % 4294967296) .. sub(v, 84, 127) .. (apart and '\1' or '\0')
  .. sub(v, 129, 136) .. pack('>I4', #err) .. sub(v, 141, 144) .. pack('>I4I4', #sealed, #answer)
  .. sub(v, 153, 152 + a + b) .. err .. sub(v, 153 + a + b + c, 152 + a + b + c + x) .. sealed
if answer == '' then
  call('PERSIST', KEYS[1]) -- makes Redis let the next command pass when its memory is full
end
if apart then
  put(KEYS[1] .. '~', sub(f, 8, 15) .. answer, after(kept))
else
  f = f .. answer
end
local ms = ending(f, expires(f, state, now, flags))
put(KEYS[1], f, ms)
if steps then
  keep(steps, state == 2 and us(v, 72) > 0 and after(kept) or ms) -- a tombstone has none
end
if ARGV[6] ~= '' then
  redis.pcall('PUBLISH', ARGV[6], ARGV[7])
end
return reply(true)
