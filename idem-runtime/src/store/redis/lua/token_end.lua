#!lua flags=allow-oom
-- Ends or extends the hold of a token. Sent twice it answers the same.
--
-- A full server lets this through: the effect may be done, and its token must not be good again.
--
-- KEYS[1] the token
-- ARGV[1] owner (16 bytes)
-- ARGV[2] 'use', 'free', or how much longer it is held, in milliseconds
--
-- 0: done; 3: another call has used it; 5: another call holds it, or this one holds it no longer.
local row = redis.call('HMGET', KEYS[1], 'for', 'used', 'owner', 'held')
local belongs, used, owner, held = unpack(row)
local ours = owner == ARGV[1]
if ARGV[2] == 'free' then
  if ours and not used then
    redis.call('HDEL', KEYS[1], 'owner', 'held')
  end
  return 0
elseif not belongs then
  -- Nobody can use it: expired long ago, or withdrawn.
  return 0
elseif used then
  return used == ARGV[1] and 0 or 3
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if ARGV[2] == 'use' then
  if owner and not ours and tonumber(held) > now then
    return 5
  end
  redis.call('HSET', KEYS[1], 'used', ARGV[1])
  return 0
elseif not ours then
  return 5
end
redis.call('HSET', KEYS[1], 'held', now + ARGV[2])
return 0
