-- KEYS[1] the record; ARGV: the beginning of the frame that it must have, up to the lease's end; the frame of the record
-- that is done; in how many milliseconds its key ends; and, if somebody is to be told, the channel and what.
-- Replies "1" if the record is done now, else "0".
if redis.call('GETRANGE', KEYS[1], 0, 54) ~= ARGV[1] then
  return '0'
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
if ARGV[4] then
  redis.pcall('PUBLISH', ARGV[4], ARGV[5])
end
return '1'
