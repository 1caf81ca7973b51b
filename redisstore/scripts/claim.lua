-- KEYS[1] the record; ARGV: the frame of a first run, with fence and times zero; its lease in microseconds, or 1e300 for one
-- without end; "hold" or "rerun".
-- Replies "1" if the caller owns, else "0"; the time; and the record as it was before.
local v = redis.call('GET', KEYS[1])
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]

-- What most claims find goes first, without functions: nothing, which needs no end under Hold; or a record that is done,
-- and within its retention, also if rounding is off by a microsecond or two.
if not v then
  if ARGV[3] == 'hold' and ARGV[2] ~= '1e300' then
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
local new, lease = ARGV[1], now + ARGV[2]

-- A new operation.
local function fresh(fence)
  local f = sub(new, 1, 7) .. fence .. sub(new, 16, 31) .. enc(now) .. enc(now) .. enc(lease) .. sub(new, 56)
  local steps = #v >= 152 and stepsof(v)
  put(KEYS[1], f, ending(f, expires(f, 1, lease, 0)))
  if steps then
    call('DEL', steps)
  end
  return reply(true)
end

-- The fence of one of which there is no record: from the clock, and above that of what is left.
local function newfence()
  local ms = math.floor(now / 1000)
  return v ~= '' and num(v, 8) >= ms and nextfence(v) or enc(ms)
end

if v == '' or state == 0 and #v == 15 and byte(v, 1) == 1 then
  return fresh(newfence())
end
if not readable(v) then
  return reply(false)
end

local flags = byte(v, 5)
local begun, maybe = flags % 2 == 1, flags % 4 > 1
if state == 2 or state == 1 and begun then
  local kept = num(v, state == 2 and 56 or 48) + us(v, 64)
  if now >= kept + us(v, 72) then
    return fresh(nextfence(v))
  end
  if state == 2 or now >= kept then
    return reply(false)
  end
elseif now >= expires(v, state, num(v, state == 1 and 48 or 56), flags) then
  return fresh(newfence()) -- its key has not gone yet
end
local spent = sub(v, 16, 31) == sub(new, 16, 31) -- the claim's token, if its run is settled
if sub(v, 88, 103) ~= sub(new, 88, 103) and sub(v, 104, 127) ~= sub(new, 104, 127) then
  if state == 3 and not maybe and flags < 8 and not spent then
    return fresh(nextfence(v)) -- released, and remembers nothing: its key has not been used
  end
  return reply(false)
end
if spent then
  if state ~= 1 then
    return reply(false)
  end
  -- Its own claim, whose reply was lost.
  local ms, steps = ending(v, expires(v, 1, lease, flags)), stepsof(v)
  keep(KEYS[1], ms) -- makes Redis let the next command pass when its memory is full
  call('SETRANGE', KEYS[1], 47, enc(lease))
  if steps then
    keep(steps, ms)
  end
  return reply(true)
end
local hold = ARGV[3] == 'hold'
if state == 1 then
  if now < num(v, 48) or begun or hold or byte(v, 7) ~= 1 then
    return reply(false)
  end
  maybe, flags = true, lost(v, flags)
elseif state ~= 3 or maybe and hold then
  return reply(false)
end

-- The next run of the operation. It keeps what is not the run's own.
local a, b = unpack('>I4I4', v, 129)
local na, nb = unpack('>I4I4', new, 129)
local attempt = unpack('>I4', v, 80)
local f = sub(v, 1, 3) .. '\1' .. string.char((begun and 1 or 0) + (maybe and 2 or 0) + flags - flags % 8) .. '\0' .. sub(new, 7, 7)
  .. nextfence(v) .. sub(new, 16, 31) .. sub(v, 32, 39) .. enc(now) .. enc(lease) .. '\0\0\0\0\0\0\0\0'
  .. sub(new, 64, 79) .. pack('>I4', attempt + 1) .. sub(v, 84, 132) .. sub(new, 133, 136) .. sub(v, 137, 152 + a)
  .. sub(new, 153 + na, 152 + na + nb) .. sub(v, 153 + a + b)
local ms, steps = ending(f, expires(f, 1, lease, byte(f, 5))), stepsof(f)
put(KEYS[1], f, ms)
if steps then
  keep(steps, ms)
end
return reply(true)
