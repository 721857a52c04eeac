#!lua flags=allow-oom
-- Removes a record that nobody holds. 1: it is gone; 0: there was none, or it is held.
--
-- KEYS[1] the record
-- ARGV[1] how long its fence is remembered, in milliseconds
local value = redis.call('GET', KEYS[1])
if not value then
  return 0
end
local kind = value:sub(1, 2)
if kind == '\1R' then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local lease_until = struct.unpack('>I8', value, 19)
  if lease_until == 0 or lease_until > now then
    return 0
  end
elseif kind ~= '\1C' and kind ~= '\1K' and kind ~= '\1T' then
  return 0
end
redis.call('SET', KEYS[1], '\1F' .. value:sub(3, 10), 'PX', ARGV[1])
return 1
