#!lua flags=allow-oom
-- Records the outcome, if the reservation still holds. 1: it is recorded; 0: the reservation is
-- not held. Asked again with the same outcome it answers the same.
--
-- A full server lets this through: the effect is done, and its record must not be lost to a limit
-- that only new reservations should meet.
--
-- KEYS[1] the record
-- ARGV[1] fence (8 bytes)
-- ARGV[2] owner (16 bytes)
-- ARGV[3] the outcome
-- ARGV[4] how long the key is known, in milliseconds; empty: for ever
-- ARGV[5] how long the outcome is kept, in milliseconds; empty: as long as the key
local value = redis.call('GET', KEYS[1])
if not value or value:sub(3, 10) ~= ARGV[1] or value:sub(27, 42) ~= ARGV[2] then
  return 0
end

local kind = value:sub(1, 2)
if (kind == '\1C' or kind == '\1K') and value:sub(#value - #ARGV[3] + 1) == ARGV[3] then
  -- Sent twice. It is written again so that replicas and the append-only file have it.
  redis.call('SET', KEYS[1], value, 'KEEPTTL')
  return 1
elseif kind ~= '\1R' then
  return 0
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head = value:sub(3, 18) .. struct.pack('>I8', now)
local completed
if ARGV[5] == '' then
  completed = '\1C' .. head .. value:sub(27) .. ARGV[3]
else
  local keep_until = struct.pack('>I8', now + ARGV[5])
  completed = '\1K' .. head .. value:sub(27, 75) .. keep_until .. value:sub(76) .. ARGV[3]
end
if ARGV[4] == '' then
  redis.call('SET', KEYS[1], completed)
else
  redis.call('SET', KEYS[1], completed, 'PX', ARGV[4])
end
return 1
