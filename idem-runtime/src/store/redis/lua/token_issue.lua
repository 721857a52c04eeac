-- Keeps a new token. Sent twice it answers the same.
--
-- KEYS[1] the token
-- ARGV[1] what it belongs to (16 bytes)
-- ARGV[2] how long it is good, in milliseconds
-- ARGV[3] how long it is told from one that never was after that, in milliseconds
if redis.call('EXISTS', KEYS[1]) == 0 then
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  redis.call('HSET', KEYS[1], 'for', ARGV[1], 'until', now + ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[2] + ARGV[3])
end
return 0
