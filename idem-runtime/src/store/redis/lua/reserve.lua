-- Reserves a record, or tells why not.
--
-- KEYS[1] the record
-- ARGV[1] lease in milliseconds
-- ARGV[2] how long the key stays, in milliseconds: the lease and what it is remembered for
-- ARGV[3] owner (16 bytes), fingerprint (17 bytes), record (16 bytes), the texts
--
-- Answers with the fence when the record is reserved for this owner; with the value when it is none
-- that is reserved, or another record's; with {fingerprint, milliseconds until it is free} while
-- somebody holds it, where -1 stands for no end, and zero for a lease that has ended without a right to
-- take it over.
--
-- A key without an end is a reservation that is held until somebody decides.
--
-- The fence is this server's clock in microseconds, and at least one more than the last one.
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

local call, pack = redis.call, struct.pack
local time = call('TIME')
local micros = time[1] * 1000000 + time[2]
local now = math.floor(micros / 1000)

local reserved = '\1R' .. pack('>I8I8I8', micros, now, now + ARGV[1]) .. ARGV[3]
local value = call('SET', KEYS[1], reserved, 'NX', 'GET', 'PX', ARGV[2])
if not value then
  return micros
end

local kind = value:sub(1, 2)
if kind ~= '\1F' and value:sub(60, 75) ~= ARGV[3]:sub(34, 49) then
  return value
end
if kind == '\1R' then
  local lease_until = struct.unpack('>I8', value, 19)
  local lapsed = lease_until ~= 0 and lease_until <= now
  local ours = value:sub(27, 42) == ARGV[3]:sub(1, 16)
  if not lapsed and ours then
    -- Sent twice. It is written again so that replicas and the append-only file have it.
    call('SET', KEYS[1], value, 'KEEPTTL')
    return (struct.unpack('>I8', value, 3))
  end
  -- As `Fingerprint::matches`: digests of other versions, and of none, are not told apart.
  local same = value:byte(43) ~= 1 or ARGV[3]:byte(17) ~= 1
    or value:sub(43, 59) == ARGV[3]:sub(17, 33)
  if not lapsed or not ours and (not same or call('PTTL', KEYS[1]) == -1) then
    local free_in = math.max(lease_until - now, 0)
    if lease_until == 0 then
      -- Zero is the last millisecond and not yet the end.
      local left = call('PTTL', KEYS[1])
      free_in = left == 0 and 1 or left
    end
    return { value:sub(43, 59), free_in }
  end
elseif kind ~= '\1F' then
  if kind == '\1K' and struct.unpack('>I8', value, 76) <= now then
    value = without_outcome(value)
    call('SET', KEYS[1], value, 'KEEPTTL')
  end
  return value
end

local fence = math.max(struct.unpack('>I8', value, 3) + 1, micros)
reserved = '\1R' .. pack('>I8I8I8', fence, now, now + ARGV[1]) .. ARGV[3]
call('SET', KEYS[1], reserved, 'PX', ARGV[2])
return fence
