#!lua flags=allow-oom
-- Gives the record back, if the reservation still holds. 1: it is free; 0: it is not held.
-- The fence is remembered for a while, so that the next one is higher whatever the clock does.
--
-- KEYS[1] the record
-- ARGV[1] fence (8 bytes)
-- ARGV[2] owner (16 bytes)
-- ARGV[3] how long the fence is remembered, in milliseconds
local value = redis.call('GET', KEYS[1])
if not value or value:sub(1, 10) ~= '\1R' .. ARGV[1] or value:sub(27, 42) ~= ARGV[2] then
  return 0
end
redis.call('SET', KEYS[1], '\1F' .. ARGV[1], 'PX', ARGV[3])
return 1
