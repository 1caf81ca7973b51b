-- KEYS[1] the record; ARGV: the frame of a first run, with fence and times zero; its lease in microseconds; the retention
-- of a run lost under Rerun in microseconds, or 1e300 for none; "hold" or "rerun".
-- Replies "1" if the caller owns, else "0"; the time; and the record as it was before.
local v = redis.call('GET', KEYS[1])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]

-- What most claims find goes first, without functions: nothing, which needs no end under Hold; or a record that is done,
-- and within its retention, also if rounding is off by a microsecond or two.
if not v then
  if ARGV[3] == '1e300' and ARGV[2] ~= '1e300' then
    local sub, new = string.sub, ARGV[1]
    local lease, ms = now + ARGV[2], (now - now % 1000) / 1000
    local fl, nl, ll = ms % 4294967296, now % 4294967296, lease % 4294967296
    local nh = (now - nl) / 4294967296
    redis.call('SET', KEYS[1], sub(new, 1, 7) .. struct.pack('>I4I4c16I4I4I4I4I4I4', (ms - fl) / 4294967296, fl,
      sub(new, 16, 31), nh, nl, nh, nl, (lease - ll) / 4294967296, ll) .. sub(new, 56))
    return '1' .. t[1] .. ' ' .. t[2] .. ' '
  end
  v = ''
elseif string.byte(v, 4) == 2 and string.byte(v, 128) == 0 then
  local sh, sl, rh, rl = struct.unpack('>I4I4I4I4', v, 56)
  if now < sh * 4294967296 + sl + (rh * 4294967296 + rl) / 1000 - 4 then
    return '0' .. t[1] .. ' ' .. t[2] .. ' ' .. v
  end
end

local function reply(wrote)
  if not wrote and string.byte(v, 128) == 1 then
    local apart = redis.call('GET', KEYS[1] .. '~')
    if apart and string.sub(apart, 1, 8) == string.sub(v, 8, 15) then
      v = v .. string.sub(apart, 9)
    end
  end
  return (wrote and '1' or '0') .. t[1] .. ' ' .. t[2] .. ' ' .. v
end
--PRELUDE
local state = byte(v, 4)
local new, lease, after = ARGV[1], now + ARGV[2], tonumber(ARGV[3])

-- A new operation.
local function fresh(fence)
  local f = sub(new, 1, 7) .. fence .. sub(new, 16, 31) .. enc(now) .. enc(now) .. enc(lease) .. sub(new, 56)
  local times = sub(new, 145, 148) ~= '\0\0\0\0' and 7 or 1 -- a completer may still finish it
  put(KEYS[1], f, ending(f, lease + after * times))
  return reply(true)
end

if v == '' then
  return fresh(enc(math.floor(now / 1000)))
end
if state == 0 and #v == 15 and byte(v, 1) == 1 then
  local ms = math.floor(now / 1000)
  return fresh(num(v, 8) >= ms and nextfence(v) or enc(ms))
end
if not readable(v) then
  return reply(false)
end

local flags = byte(v, 5)
local begun, maybe = flags % 2 == 1, flags % 4 > 1
local lapsed = state == 1 and now >= num(v, 48)
if state == 2 or state == 1 and begun then
  local kept = num(v, state == 2 and 56 or 48) + us(v, 64)
  if now >= kept + us(v, 72) then
    return fresh(nextfence(v))
  end
  if state == 2 or now >= kept then
    return reply(false)
  end
end
if sub(v, 88, 103) ~= sub(new, 88, 103) and sub(v, 104, 127) ~= sub(new, 104, 127) then
  return reply(false)
end
if sub(v, 16, 31) == sub(new, 16, 31) then
  if state ~= 1 then
    return reply(false)
  end
  -- Its own claim, whose reply was lost. The first command makes Redis let the second pass when its memory is full.
  local _, _, _, _, s = unpack('>I4I4I4I4I4', v, 129)
  local ms
  if begun then
    ms = ending(v, lease + us(v, 64) + us(v, 72))
  elseif byte(v, 7) == 1 then
    ms = ending(v, lease + us(v, 64) * (s > 0 and 7 or 1))
  end
  if ms then
    call('PEXPIREAT', KEYS[1], ms)
  else
    call('PERSIST', KEYS[1])
  end
  call('SETRANGE', KEYS[1], 47, enc(lease))
  return reply(true)
end
local hold = ARGV[4] == 'hold'
if state == 1 then
  if not lapsed or begun or hold or byte(v, 7) ~= 1 then
    return reply(false)
  end
  maybe = true
elseif state ~= 3 or maybe and hold then
  return reply(false)
end

-- The next run of the operation. It keeps what is not the run's own.
local a, b, c, x, s = unpack('>I4I4I4I4I4', v, 129)
local na, nb = unpack('>I4I4', new, 129)
local attempt = unpack('>I4', v, 80)
local f = sub(v, 1, 3) .. '\1' .. string.char((begun and 1 or 0) + (maybe and 2 or 0)) .. '\0' .. sub(new, 7, 7)
  .. nextfence(v) .. sub(new, 16, 31) .. sub(v, 32, 39) .. enc(now) .. enc(lease) .. '\0\0\0\0\0\0\0\0'
  .. sub(new, 64, 79) .. pack('>I4', attempt + 1) .. sub(v, 84, 132) .. sub(new, 133, 136) .. sub(v, 137, 152 + a)
  .. sub(new, 153 + na, 152 + na + nb) .. sub(v, 153 + a + b)
put(KEYS[1], f, ending(f, lease + after * (s > 0 and 7 or 1)))
return reply(true)
