-- KEYS[1] the record. Replies what load.lua does, of the record's head, and then names and values of its steps in turn.
--PRELUDE
local v = call('GETRANGE', KEYS[1], 0, 151)
local t = call('TIME')
local steps = #v == 152 and byte(v, 1) == 1 and stepsof(v)
return {'0' .. t[1] .. ' ' .. t[2] .. ' ' .. v, steps and call('HGETALL', steps) or {}}
