-- The value as it counts now, the moment at which it goes (-1: never), and now, as they are together.
--
-- KEYS[1] the record
-- The record without its outcome: the key stays known.
local function without_outcome(value)
  local length = struct.unpack('>I2', value, 84)
  local at = 86 + length
  local stop = at + 3
  length = struct.unpack('>I4', value, at)
  if length ~= 4294967295 then
    stop = stop + length
  end
  return '\1T' .. value:sub(3, 75) .. value:sub(84, stop)
end

local value = redis.call('GET', KEYS[1])
if not value then
  return false
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if value:sub(1, 2) == '\1K' and struct.unpack('>I8', value, 76) <= now then
  value = without_outcome(value)
end
return { value, redis.call('PEXPIRETIME', KEYS[1]), now }
