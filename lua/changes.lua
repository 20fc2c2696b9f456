-- changes.lua: what operators have changed: resets, numbers, blocks, drains, denials. Twin: src/store/changes/book.rs.
--
-- KEYS[1]   the version: two doubles, the number of the last change, and the instant until which rows are looked at
-- KEYS[2]   the changes: the byte 1, then one entry behind another
-- KEYS[3]   which gateway has which version: for each its name, eight bytes, the version and the instant, as doubles
-- KEYS[4]   of a look: the gateways (heartbeat.lua). Of a change: counters to be emptied, for each three keys: the
--           counter, the block of its key, and its mark (refund.lua)
-- ARGV[1]   the time as a packed double, in microseconds; "" means this server's own clock
-- ARGV[2]   p, c or l: poll, change, look
-- entry     two bytes for the length of what follows, an id (16), the kind (1), the target (16), born and end as doubles,
--           the format of the payload (1), the payload
--
-- A value of another form, or of another type, is left as it is: the reply is an error that names its key.
local pack, unpack = struct.pack, struct.unpack
local now
if ARGV[1] == "" then
  local time = redis.call("TIME")
  now = time[1] * 1000000 + time[2]
else
  now = unpack(">d", ARGV[1])
end

local wrong
local function get(index)
  local value = redis.pcall("GET", KEYS[index])
  if type(value) ~= "table" then return value or "" end
  wrong = wrong or { err = value.err .. " (" .. KEYS[index] .. ")" }
  return ""
end

local function foreign(index)
  wrong = wrong or { err = "FOREIGN another value stands there (" .. KEYS[index] .. ")" }
end

-- The number of the last change, and until when rows are looked at.
local function version_of(value)
  if value == "" then return 0, 0 end
  if #value ~= 16 then return foreign(1) or 0, 0 end
  local version, looked = unpack(">dd", value)
  if not (version >= 0 and version < 9007199254740992 and version % 1 == 0) then foreign(1) end
  return version, looked
end

-- The entries of a list.
local function entries(value)
  local list, at = {}, 2
  if value == "" then return list end
  if value:byte(1) ~= 1 then return foreign(2) or list end
  while at <= #value do
    local size = at < #value and unpack(">I2", value, at) or 0
    if size < 50 or at + 1 + size > #value then return foreign(2) or list end
    list[#list + 1] = value:sub(at, at + 1 + size)
    at = at + 2 + size
  end
  return list
end

-- ARGV[3]   the name of the gateway
-- ARGV[4]   its version, a double
-- ARGV[5]   "1" if it has taken that version over just now
-- reply     the version's value, where the gateway has it; else the version and the present time as doubles, then the
--           changes
local function poll()
  local value = get(1)
  local version = version_of(value)
  if wrong then return wrong end
  local me, mine = ARGV[3], unpack(">d", ARGV[4])
  if version ~= mine then
    local list = get(2)
    entries(list)
    return wrong or pack(">dd", version, now) .. list .. "."
  end
  if ARGV[5] == "1" then
    local had, there = get(3), {}
    if wrong then return wrong end
    for at = 1, #had - 23, 24 do
      local at_version, heard = unpack(">dd", had, at + 8)
      if had:sub(at, at + 7) ~= me and heard > now - 10000000 and heard <= now then
        there[#there + 1] = had:sub(at, at + 23)
      end
    end
    there[#there + 1] = me .. pack(">dd", version, now)
    local reply = redis.pcall("SET", KEYS[3], table.concat(there), "PX", 600000)
    if reply.err then return { err = reply.err .. " (" .. KEYS[3] .. ")" } end
  end
  return value == "" and pack(">dd", 0, 0) or value
end

-- ARGV[3]   the id
-- ARGV[4]   the kind, and the target
-- ARGV[5]   for how long the entry is kept, in microseconds, a double; 0 takes its target's entry away
-- ARGV[6]   the format of the payload, and the payload
-- ARGV[7]   the version that the caller has seen, a double, or "": then any version may stand there
-- ARGV[8]   for each counter the life of its mark in milliseconds, a double
-- reply     a byte: 0 done, 1 the id is there already, 2 too many or too much, 3 another version stands there, 4 the entry
--           is too long; then the version and the entry's birth as doubles; then the entry that was replaced, or is there
local function change()
  local version, looked = version_of(get(1))
  local list = entries(get(2))
  get(3)
  if wrong then return wrong end
  local id, place, life, kind = ARGV[3], ARGV[4], unpack(">d", ARGV[5]), ARGV[4]:byte(1)
  local kept, bytes, last, replaced = {}, 1, now, ""
  for _, entry in ipairs(list) do
    local born, ends = unpack(">dd", entry, 36)
    if ends > now and ends < 9007199254740992 then
      if entry:sub(3, 18) == id then return pack(">Bdd", 1, version, born) .. entry end
      -- Resets stand beside each other.
      if kind ~= 1 and entry:sub(19, 35) == place then
        replaced = entry
      else
        kept[#kept + 1] = entry
        bytes, last = bytes + #entry, math.max(last, ends)
      end
    end
  end
  if ARGV[7] ~= "" and unpack(">d", ARGV[7]) ~= version then return pack(">Bdd", 3, version, 0) end
  if life > 0 then
    local entry = id .. place .. pack(">dd", now, now + life) .. ARGV[6]
    if #entry > 1022 then return pack(">Bdd", 4, version, 0) end
    kept[#kept + 1] = pack(">I2", #entry) .. entry
    bytes, last = bytes + 2 + #entry, math.max(last, now + life)
  end
  if #kept > 255 or bytes > 65536 then return pack(">Bdd", 2, version, 0) end
  for at = 4, #KEYS, 3 do
    -- The mark goes first: a charge of before then gives nothing back, whatever fails after it.
    local lasts = unpack(">d", ARGV[8], (at - 4) / 3 * 8 + 1)
    local reply = redis.pcall("SET", KEYS[at + 2], pack(">d", now), "PX", lasts)
    if not reply.err then reply = redis.pcall("DEL", KEYS[at], KEYS[at + 1]) end
    if type(reply) == "table" and reply.err then return { err = reply.err .. " (" .. KEYS[at] .. ")" } end
  end
  version = math.max(now, version + 1)
  -- Ten minutes after the last end nothing is left.
  local lasts = math.ceil((last - now) / 1000) + 600000
  for index, value in ipairs({ pack(">dd", version, looked), "\1" .. table.concat(kept) }) do
    local reply = redis.pcall("SET", KEYS[index], value, "PX", lasts)
    if reply.err then return { err = reply.err .. " (" .. KEYS[index] .. ")" } end
  end
  return pack(">Bdd", 0, version, now) .. replaced
end

-- ARGV[3]   the least version that counts, a double
-- ARGV[4]   the instant from which it counts, a double: after a failover versions may run back
-- ARGV[5]   the time for which a gateway's report holds, in microseconds, a double
-- reply     how many of the gateways have the version, and how many gateways there are, four bytes each
local function look()
  local heard, gateways, there = get(3), get(4), {}
  if wrong then return wrong end
  local least, since, life = unpack(">d", ARGV[3]), unpack(">d", ARGV[4]), unpack(">d", ARGV[5])
  local all, taken = 0, 0
  for at = 1, #gateways - 15, 16 do
    local report = unpack(">d", gateways, at + 8)
    if report > now - life and report < now + life then
      all, there[gateways:sub(at, at + 7)] = all + 1, true
    end
  end
  for at = 1, #heard - 23, 24 do
    local version, instant = unpack(">dd", heard, at + 8)
    if version >= least and instant >= since and there[heard:sub(at, at + 7)] then taken = taken + 1 end
  end
  return pack(">I4I4", taken, all)
end

return ({ p = poll, c = change, l = look })[ARGV[2]]()
