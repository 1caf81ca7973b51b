-- KEYS the records; ARGV: a channel, or ""; then of each record the beginning of the frame that a settle must find, up to the
-- lease's end, or "" for a claim, which must find nothing; the frame that it gets; in how many milliseconds its key ends, or
-- "" if never; and, if there is a channel, what is told on it.
-- Replies for each record: "1" if it was settled, else "0"; what a claim has found, or a null. For one record that is all.
local call, replies, size = redis.call, {}, (#ARGV - 1) / #KEYS
for i = 1, #KEYS do
  local key, at = KEYS[i], (i - 1) * size + 2
  local head, frame, px = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  if head == '' then
    if px == '' then
      replies[i] = call('SET', key, frame, 'NX', 'GET')
    else
      replies[i] = call('SET', key, frame, 'NX', 'GET', 'PX', px)
    end
  elseif call('GETRANGE', key, 0, 54) == head then
    call('SET', key, frame, 'PX', px)
    if size == 4 then
      redis.pcall('PUBLISH', ARGV[1], ARGV[at + 3])
    end
    replies[i] = '1'
  else
    replies[i] = '0'
  end
end
if #KEYS == 1 then
  return replies[1]
end
return replies
