-- Looks at a token, holds it for a call, or uses it up at once. Sent twice it answers the same.
--
-- KEYS[1] the token
-- ARGV[1] what it is to belong to (16 bytes)
-- ARGV[2] owner (16 bytes)
-- ARGV[3] 'look', 'use', or how long it is held, in milliseconds
--
-- 0: it is good; 1: unknown; 2: it belongs to something else; 3: used; 4: expired; 5: held.
local row = redis.call('HMGET', KEYS[1], 'for', 'until', 'used', 'owner', 'held')
local belongs, good_until, used, owner, held = unpack(row)
if not belongs then
  return 1
elseif belongs ~= ARGV[1] then
  return 2
elseif used then
  return used == ARGV[2] and 0 or 3
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if tonumber(good_until) <= now then
  return 4
elseif owner and owner ~= ARGV[2] and tonumber(held) > now then
  return 5
elseif ARGV[3] == 'use' then
  redis.call('HSET', KEYS[1], 'used', ARGV[2])
elseif ARGV[3] ~= 'look' then
  redis.call('HSET', KEYS[1], 'owner', ARGV[2], 'held', now + ARGV[3])
end
return 0
