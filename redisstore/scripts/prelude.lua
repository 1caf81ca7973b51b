-- A record's frame, with positions from 1 as in Lua. Numbers are big-endian.
--   1 frame version   2 layout version   3 lowest layout version that reads it
--   4 state           5 flags: 1 begun, 2 maybe, 4 seized, 8 steps, 16 owed    6 outcome written
--   7 lost policy (1 is Rerun)
--   8 fence  16 token  32 created  40 started  48 lease end  56 settled  64 retention  72 tombstone  80 attempt  84 CRC
--  88 raw fingerprint  104 canonical  120 settings
-- 128 1 if the answer is apart, in the key with "~" behind it, after the fence
-- 129 lengths of the parts, 4 bytes each: operation, correlation, error, more, sealed request, answer
-- 153 the parts
-- A frame of 15 bytes with state 0 is a mark: it keeps the fence of a record that was forgotten.
-- Steps are a hash of its own, whose key names the operation by when it was created.
local call, byte, sub, pack, unpack = redis.call, string.byte, string.sub, struct.pack, struct.unpack

-- Eight bytes as a number. It is exact up to 2^53, which all times are that come.
local function num(v, at)
  local hi, lo = unpack('>I4I4', v, at)
  return hi * 4294967296 + lo
end

-- A number as eight bytes; one too large is the largest time.
local function enc(n)
  if n >= 9223372036854775807 then
    return '\127\255\255\255\255\255\255\255'
  end
  return pack('>I4I4', math.floor(n / 4294967296), n % 4294967296)
end

-- Nanoseconds at a position, n times if it is given, as microseconds, rounded down; Forever never ends.
local function us(v, at, n)
  local hi, lo = unpack('>I4I4', v, at)
  if hi == 2147483647 and lo == 4294967295 then
    return math.huge
  end
  if n then
    hi, lo = hi * n, lo * n
  end
  local r = hi % 1000
  return (hi - r) / 1000 * 4294967296 + math.floor((r * 4294967296 + lo) / 1000)
end

-- The fence after that of a frame.
local function nextfence(v)
  local hi, lo = unpack('>I4I4', v, 8)
  if lo == 4294967295 then
    return pack('>I4I4', (hi + 1) % 4294967296, 0)
  end
  return pack('>I4I4', hi, lo + 1)
end

-- Whether this version may change the record: it knows its frame, and all of that is there.
local function readable(v)
  if #v < 152 or byte(v, 1) ~= 1 or byte(v, 3) > LAYOUT or byte(v, 3) == 0 or byte(v, 5) > 31 then
    return false
  end
  local a, b, c, x, s, d = unpack('>I4I4I4I4I4I4', v, 129)
  return #v == 152 + a + b + c + x + s + (byte(v, 128) == 0 and d or 0)
end

-- A key's end in milliseconds, or nil, not before a time in microseconds.
local function after(at)
  local ms = math.floor(at / 1000) + 2
  return ms < 9e15 and string.format('%.0f', ms) or nil
end

-- The end of a record's key: not before the time in microseconds, and not before the clock is FENCELIFE milliseconds past
-- the frame's fence. So a native claim with a fence that is not above this one finds the key taken (clock.go).
local function ending(v, at)
  return after(math.max(at, (num(v, 8) + FENCELIFE) * 1000))
end

local function put(key, v, ms)
  if ms then
    call('SET', key, v, 'PXAT', ms)
  else
    call('SET', key, v)
  end
end

-- Moves the end of a key.
local function keep(key, ms)
  if ms then
    call('PEXPIREAT', key, ms)
  else
    call('PERSIST', key)
  end
end

local function stepskey(v)
  return KEYS[1] .. ':' .. string.format('%.0f', num(v, 32))
end

-- The key of the steps of a record that has some. Every verb asks before it writes: if a Cluster has moved that key to another
-- node already, and not the record, EXISTS ends the script with an error.
local function stepsof(v)
  if byte(v, 5) % 16 > 7 then
    local key = stepskey(v)
    call('EXISTS', key)
    return key
  end
end

-- The flags of a record whose run is over without its owner's settle: its end is owed if its request is stored.
local function lost(v, flags)
  if flags < 16 and sub(v, 145, 148) ~= '\0\0\0\0' then
    return flags + 16
  end
  return flags
end

-- When the record may go, in microseconds: semel.Record.Expires, with the tombstone. It is as the verb leaves it: in the given
-- state, which its lease ends or it was settled at the given time, with the given flags.
local function expires(v, state, at, flags)
  local steps = flags % 16 > 7
  if state == 2 or state == 1 and flags % 2 == 1 then
    return at + us(v, 64) + us(v, 72)
  elseif state == 3 and flags > 15 then
    return at + us(v, 64, 7)
  elseif state == 3 then
    return at + (steps and math.max(3600000000, us(v, 64)) or 3600000000)
  elseif state == 1 and byte(v, 7) == 1 then
    local finishes = steps or sub(v, 145, 148) ~= '\0\0\0\0' -- a completer may still do that
    return at + us(v, 64, finishes and 7 or 1)
  end
  return math.huge
end
