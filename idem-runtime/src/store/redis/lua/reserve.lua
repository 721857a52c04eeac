-- Reserves a record, or tells why not.
--
-- KEYS[1] the record
-- ARGV[1] lease in milliseconds
-- ARGV[2] how long the key stays, in milliseconds: the lease and what it is remembered for
-- ARGV[3] owner (16 bytes), fingerprint (17 bytes), the texts
--
-- Answers with the fence when the record is reserved for this owner; with the value when only its
-- reader can tell; with {milliseconds until it is free, or -1} while somebody holds it; with the
-- status MISMATCH when it is held for another payload.
--
-- The fence is this server's clock in microseconds, and at least one more than the last one.
local time = redis.call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

local function reserved(fence)
  return '\1R' .. struct.pack('>I8I8I8', fence, now, now + ARGV[1]) .. ARGV[3]
end

local value = redis.call('SET', KEYS[1], reserved(micros), 'NX', 'GET', 'PX', ARGV[2])
if not value then
  return micros
end

local kind = value:sub(1, 2)
if kind == '\1R' then
  local lease_until = struct.unpack('>I8', value, 19)
  if lease_until == 0 or lease_until > now then
    if value:sub(43, 59) ~= ARGV[3]:sub(17, 33) then
      return redis.status_reply('MISMATCH')
    end
    if value:sub(27, 42) == ARGV[3]:sub(1, 16) then
      -- Sent twice. It is written again so that replicas and the append-only file have it.
      redis.call('SET', KEYS[1], value, 'KEEPTTL')
      return (struct.unpack('>I8', value, 3))
    end
    if lease_until == 0 then
      return { redis.call('PTTL', KEYS[1]) }
    end
    return { lease_until - now }
  end
elseif kind ~= '\1F' then
  return value
end

local fence = math.max(struct.unpack('>I8', value, 3) + 1, micros)
redis.call('SET', KEYS[1], reserved(fence), 'PX', ARGV[2])
return fence
