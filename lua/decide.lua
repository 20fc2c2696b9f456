-- decide.lua: decides a batch of requests: each one's limits are all checked, and charged only when all of them admit.
--
-- ARGV[3]   one byte for each request: how many limits it has. Requests are decided in order and each is committed
--           before the next is checked, so that a batch equals the same calls one after another.
-- reply     the time as a double; then for each request a byte:
--             0   and for each limit `wait` and `whole` as doubles and `part` as four bytes (the twins' answers), and
--                 what metered.lua says more
--             1   it could not be decided, and nothing was written: a byte saying which limit, and the reason behind a
--                 byte for its length
--
-- The keys of one request are different from each other: the second check would not see the first one's charge.

-- Most requests have one limit: no tables.
local function one(key)
  local wait, whole, part, new, life, wrong, more = check(key)
  if new and not wrong then wrong = write(key, new, life) end
  if wrong then return failed(1, wrong) end
  if more then return pack(">BddI4", 0, wait, whole, part) .. more end
  return pack(">BddI4", 0, wait, whole, part)
end

-- And most calls one request.
local shape = ARGV[3]
if shape == "\1" then return pack(">d", now) .. one(KEYS[1]) end

local waits, states, lives = {}, {}, {}

local function all(first, count)
  local reply, refused, bad, reason = "\0", false, nil, nil
  for i = 1, count do
    local wait, whole, part, new, life, wrong, more = check(KEYS[first + i])
    if wrong and not bad then bad, reason = i, wrong end
    -- Below -1 less was granted than asked for, or the request has an id.
    local admitted = wait == 0 or wait < -1
    if not admitted then refused = true end
    waits[i], states[i], lives[i] = admitted and 0 or wait, new, life
    reply = reply .. pack(">ddI4", wait, whole, part) .. (more or "")
  end
  if bad then return failed(bad, reason) end
  for i = 1, count do
    -- In a refused request only the refusing limits' own mended states are kept.
    if states[i] and (waits[i] ~= 0 or not refused) then
      local wrong = write(KEYS[first + i], states[i], lives[i])
      -- Servers refuse a script's first write or none. Should one refuse a later one all the same, what was written
      -- stays: charged too much, never admitted too much.
      if wrong then return failed(i, wrong) end
    end
  end
  return reply
end

local replies, first = { pack(">d", now) }, 0
for request = 1, #shape do
  local count = shape:byte(request)
  replies[request + 1] = count == 1 and one(KEYS[first + 1]) or all(first, count)
  first = first + count
end
return table.concat(replies)
