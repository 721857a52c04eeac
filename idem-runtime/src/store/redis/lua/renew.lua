#!lua flags=allow-oom
-- Extends the lease, if the reservation still holds. 1: it is extended; 0: it is not held.
--
-- KEYS[1] the record
-- ARGV[1] fence (8 bytes)
-- ARGV[2] owner (16 bytes)
-- ARGV[3] lease in milliseconds, from now
-- ARGV[4] how long the key stays, in milliseconds; empty: until somebody decides, from now on. That
--         does not begin after the lease: nobody waits for the answer any more
local value = redis.call('GET', KEYS[1])
if not value or value:sub(1, 10) ~= '\1R' .. ARGV[1] or value:sub(27, 42) ~= ARGV[2] then
  return 0
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local held = redis.call('PTTL', KEYS[1]) == -1
if ARGV[4] == '' and not held and struct.unpack('>I8', value, 19) <= now then
  return 0
end
value = value:sub(1, 18) .. struct.pack('>I8', now + ARGV[3]) .. value:sub(27)
if held or ARGV[4] == '' then
  redis.call('SET', KEYS[1], value)
else
  redis.call('SET', KEYS[1], value, 'PX', ARGV[4])
end
return 1
