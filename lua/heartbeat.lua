-- heartbeat.lua: the count of gateways. Each gateway reports every few seconds, and reads the number of gateways.
--
-- KEYS[1]   all gateways: for each its name, eight bytes, and the instant of its last report, a double, microseconds
-- ARGV[1]   the name of the gateway that reports
-- ARGV[2]   the time for which a report holds, in microseconds
-- ARGV[3]   "1", or "0" when it goes
-- reply     the number of gateways, four bytes
--
-- The value is a string and not a sorted set, so that a user with the rights that limits need has rights enough.
local me, life = ARGV[1], tonumber(ARGV[2])
local time = redis.call("TIME")
local now = time[1] * 1000000 + time[2]
local had = redis.call("GET", KEYS[1]) or ""

local there = {}
for at = 1, #had - 15, 16 do
  local seen = struct.unpack(">d", had, at + 8)
  -- A report from beyond now + life does not count: after a clock was set back it would keep a dead gateway alive.
  if had:sub(at, at + 7) ~= me and seen > now - life and seen < now + life then
    there[#there + 1] = had:sub(at, at + 15)
  end
end
if ARGV[3] == "1" then there[#there + 1] = me .. struct.pack(">d", now) end
redis.call("SET", KEYS[1], table.concat(there), "PX", math.ceil(life / 1000))
return struct.pack(">I4", #there)
