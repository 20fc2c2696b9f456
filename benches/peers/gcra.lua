-- A token bucket kept as one instant, when it will be full again, by the clock of Redis; all times in microseconds.
-- KEYS[1] the instant   ARGV[1] interval: one token's time   ARGV[2] tolerance: the whole bucket's time
-- reply: 0 when admitted, else the wait until it would be

local interval = tonumber(ARGV[1])
local tolerance = tonumber(ARGV[2])

local clock = redis.call("TIME")
local now = clock[1] * 1000000 + clock[2]

local full_at = tonumber(redis.call("GET", KEYS[1])) or now
if full_at < now then
    full_at = now
end
full_at = full_at + interval

local time_to_full = full_at - now
if time_to_full > tolerance then
    return time_to_full - tolerance
end

redis.call("SET", KEYS[1], string.format("%.0f", full_at), "PX", math.ceil(time_to_full / 1000))
return 0
