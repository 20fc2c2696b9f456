-- prelude.lua: the beginning of every script: the clock, the parameters, and the one way to store a state.
--
-- KEYS      the counters, one for each limit of each request, in order; behind them the records of ids (dedupe.lua)
-- ARGV[1]   the time as a packed double, in microseconds since the epoch; "" means this server's own clock
-- ARGV[2]   the limits' parameter blocks, one behind the other (src/limit/wire.rs); refund.lua has its own
-- ARGV[3]   the shape of the batch (decide.lua), the number of the call (refund.lua)
-- ARGV[4]   how many equal requests each request of the shape stands for (equal.lua), where any stands for several
--
-- States, parameters and replies are packed big-endian. A number never becomes decimal text on its way into a value or
-- a reply: such text is expensive in a script, and servers differ in it. Every function, and every local that a
-- function captures, is expensive, too, since a script is built anew for each call: there are few on purpose.
local call, pack, unpack = redis.pcall, struct.pack, struct.unpack
-- GET and SET of a state, which batch.lua may answer itself.
local ask = call
local blocks = ARGV[2]

-- The position of the next block; each reader of a block moves it on.
local at = 1

-- The clock is read once for the whole call. A clock in ARGV is a test's: the server's own clock must then not end a
-- state, so every life is an hour longer.
local now, slack
if ARGV[1] == "" then
  local time = call("TIME")
  now, slack = time[1] * 1000000 + time[2], 0
else
  now, slack = unpack(">d", ARGV[1]), 3600000
end

-- Stores a state for `life` microseconds, in milliseconds rounded up; after that it equals no state. Returns the error,
-- if there is one.
local function write(key, state, life)
  return ask("SET", key, state, "PX", math.ceil(life / 1000) + slack).err
end

-- == refund ==
local function put(key, state, life)
  return write(key, state, life) and "\3" or "\1"
end

local function drop(key)
  local reply = call("DEL", key)
  return type(reply) == "table" and "\3" or "\2"
end
