-- The value and the moment at which it goes (-1: never), as they are together.
--
-- KEYS[1] the record
local value = redis.call('GET', KEYS[1])
if not value then
  return false
end
return { value, redis.call('PEXPIRETIME', KEYS[1]) }
