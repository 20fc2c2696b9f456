-- refund.lua: gives back what requests were granted and did not use. Twins: `refund` in src/limit.
--
-- KEYS      one counter for each refund; behind them the records of charges that had an id, the last one first; and at the
--           end the mark of the call, if it has one
-- ARGV[2]   a block for each: 2, the ticket's instant and part, the charge and its part, den      (a queue)
--                             3, window, the ticket's start, cost                                  (windows)
--                             4, part in milliseconds, k, the ticket's part's start, cost          (sliding window)
--                             5, window, the ticket's instant, cost                                (sliding log)
--                             6                                                                    (anything: forgotten)
--                             7, life of a lease, the first slot, how many                         (slots: freed)
--                             8, the same                                                          (slots: renewed)
--                             10, the ticket's instant and part, when it was charged, what had been given back until then,
--                             the whole charge and its part, what was too much and its part, den
--                                                                                                  (both buckets: settled)
--                             9, the end of its record, the length of the block behind it, which follows
--                                                                                                  (a charge with an id)
-- ARGV[3]   the call's number as a double, or "": who has heard no answer calls again with the same number. The mark has the
--           number of the last call that was made under its name.
-- reply     a byte for each: 0 nothing may go back, 1 something did, 2 and nothing is left, 3 could not be done, 4 the call
--           has been made before
local function put(key, state, life)
  return write(key, state, life) and "\3" or "\1"
end

local function drop(key)
  local reply = call("DEL", key)
  return type(reply) == "table" and "\3" or "\2"
end

-- When a bucket is empty, if that can be compared: no state, and another rate's fraction, cannot.
local function instant(state, den)
  local held, part, under = -1, 0, den
  if state and (#state == 8 or #state == 24) then
    held = unpack(">d", state)
  elseif state and (#state == 16 or #state == 32) then
    held, part, under = unpack(">dI4I4", state)
    if part == 0 or part >= under then return nil end
  end
  if under ~= den or not (held >= 0 and held < 9007199254740992 and held % 1 == 0) then return nil end
  return held, part
end

-- One time less another, each whole and a part over den; negative where the whole is.
local function minus(whole, part, less, less_part, den)
  whole, part = whole - less, part - less_part
  if part < 0 then return whole - 1, part + den end
  return whole, part
end

-- What a charge was too much comes back, whoever came after it; but not the time for which the bucket would have been
-- empty without it. Its level was never lower since than what is left of the charge itself; nor, where the bucket was not
-- found empty since, than what is left of the level after the charge, less what was given back to others.
local function settle(key, state)
  local _, was, was_part, taken, before, full, full_part, less, less_part, den, past = unpack(">Bddddddddd", blocks, at)
  at = past
  local held, part = instant(state, den)
  if not held or held < now or (held == now and part == 0) then return "\0" end
  local back, back_part = taken + full - now, full_part
  local _, found, gone = trail(state)
  if found and taken >= found and gone >= before then
    local left, left_part = was - now - (gone - before), was_part
    if left > back or (left == back and left_part > back_part) then back, back_part = left, left_part end
  end
  if back > less or (back == less and back_part > less_part) then back, back_part = less, less_part end
  if back < 0 or (back == 0 and back_part == 0) then return "\0" end
  held, part = minus(held, part, back, back_part, den)
  if held < now or (held == now and part == 0) then return drop(key) end
  local bytes = part == 0 and pack(">d", held) or pack(">dI4I4", held, part, den)
  if found then
    gone = gone + back + (back_part > 0 and 1 or 0)
    -- More than is counted exactly: another history.
    if gone >= 9007199254740992 then found, gone = now, 0 end
    bytes = bytes .. pack(">dd", found, gone)
  end
  return put(key, bytes, held - now + (part > 0 and 1 or 0))
end

-- In a queue a later request was told a wait that counts on all in front: only the last place goes back, or a newcomer
-- would be let go before it or beside it.
local function place(key, state)
  local _, was, was_part, back, back_part, den, past = unpack(">Bddddd", blocks, at)
  at = past
  local held, part = instant(state, den)
  if not held or held ~= was or part ~= was_part then return "\0" end
  -- What has come in again by itself is nobody's to give.
  local left = was - now
  if left < back or (left == back and was_part < back_part) then back, back_part = left, was_part end
  if back < 0 or (back == 0 and back_part == 0) then return "\0" end

  held, part = minus(held, part, back, back_part, den)
  if held < 0 then return "\0" end
  if held < now or (held == now and part == 0) then return drop(key) end
  if part == 0 then return put(key, pack(">d", held), held - now) end
  return put(key, pack(">dI4I4", held, part, den), held - now + 1)
end

-- A window with nothing left in it is no window: it never started.
local function window(key, state)
  local _, length, start, cost, past = unpack(">Bddd", blocks, at)
  at = past
  if not state or #state ~= 12 then return "\0" end
  local stored, count = unpack(">dI4", state)
  if stored ~= start or count < cost or now >= start + length then return "\0" end
  if count == cost then return drop(key) end
  return put(key, pack(">dI4", start, count - cost), start + length - now)
end

-- Out of the part it was counted in, if that one still counts. What is then empty in front is left out.
local function parts(key, state)
  local _, part, k, ticket, cost, past = unpack(">Bdddd", blocks, at)
  at = past
  if not state or #state ~= 12 + 4 * k then return "\0" end
  local start = unpack(">d", state)
  if not (start >= 0 and start < 9007199254740992 and start % (part * 1000) == 0) then return "\0" end
  local back = (start - ticket) / (part * 1000)
  if back < 0 or back > k or back % 1 ~= 0 or ticket + (k + 1) * part * 1000 <= now then return "\0" end
  local counts, newest = {}, nil
  for i = 0, k do
    counts[i] = unpack(">I4", state, 9 + 4 * i)
    if i == back then
      if counts[i] < cost then return "\0" end
      counts[i] = counts[i] - cost
    end
    if not newest and counts[i] > 0 then newest = i end
  end
  local life = newest and start + (k + 1 - newest) * part * 1000 - now or 0
  if life <= 0 then return drop(key) end
  local bytes = {}
  for i = 0, k do bytes[i + 1] = pack(">I4", counts[i + newest] or 0) end
  return put(key, pack(">d", math.max(start - newest * part * 1000, 0)) .. table.concat(bytes), life)
end

-- The newest of those entered at that instant: they are alike.
local function log(key)
  local _, window, instant, cost, past = unpack(">Bddd", blocks, at)
  at = past
  if instant + window <= now then return "\0" end
  local gone = call("LREM", key, -math.floor(cost), pack(">d", instant))
  if type(gone) == "table" then return "\3" end
  if gone == 0 then return "\0" end
  local newest = call("LINDEX", key, -1)
  if not newest then return "\2" end
  if #newest ~= 8 then return "\3" end
  local life = unpack(">d", newest) + window - now
  if life <= 0 then return drop(key) end
  local reply = call("PEXPIRE", key, math.ceil(life / 1000) + slack)
  return type(reply) == "table" and "\3" or "\1"
end

-- Slots whose request has ended, or lives: then one that has lapsed meanwhile is taken anew, whether there is room or not,
-- since the request is in flight.
local function slots(key)
  local kind, ttl, first, count, past = unpack(">Bddd", blocks, at)
  at = past
  local done = 0
  for i = 0, count - 1 do
    local slot = pack(">d", first + i)
    local reply = 0
    if kind == 7 then
      reply = call("ZREM", key, slot)
    else
      reply = call("ZADD", key, string.format("%.0f", now + ttl), slot)
      if type(reply) ~= "table" then reply = 1 end
    end
    if type(reply) == "table" then return "\3" end
    done = done + reply
  end
  if done == 0 then return "\0" end
  local last = call("ZRANGE", key, -1, -1, "WITHSCORES")[2]
  if not last then return "\2" end
  local life = tonumber(last) - now
  if life <= 0 then return drop(key) end
  local reply = call("PEXPIRE", key, math.ceil(life / 1000) + slack)
  return type(reply) == "table" and "\3" or "\1"
end

local function forget(key)
  at = at + 1
  local reply = call("DEL", key)
  if type(reply) == "table" then return "\3" end
  return reply == 0 and "\0" or "\2"
end

local readers = { [2] = place, [3] = window, [4] = parts }

local function give(key)
  local kind = blocks:byte(at)
  if kind == 5 then return log(key) end
  if kind == 6 then return forget(key) end
  if kind == 7 or kind == 8 then return slots(key) end
  local state, wrong = call("GET", key), nil
  if state and state.err then state, wrong = false, true end
  local given = (readers[kind] or settle)(key, state)
  return wrong and "\3" or given
end

-- A charge goes back with its record: the next of that id pays. On which a repeat has gone free, or nobody knows any more
-- whether one has, it stays.
local function give_with(key, record)
  local _, ends, length, first = unpack(">BdB", blocks, at)
  at = first
  local held = call("GET", record)
  if held and held.err then
    at = first + length
    return "\3"
  end
  if not held or #held ~= 16 or unpack(">d", held) ~= ends or held:sub(13) ~= "\0\0\0\0" then
    at = first + length
    return "\0"
  end
  local given = give(key)
  if given == "\1" or given == "\2" then
    if drop(record) == "\3" then return "\3" end
  end
  return given
end

local replies, count, record_at = {}, 0, #KEYS + 1
if ARGV[3] ~= "" then
  record_at = #KEYS
  local held = call("GET", KEYS[record_at])
  if type(held) == "string" and #held == 8 and unpack(">d", held) >= unpack(">d", ARGV[3]) then
    return string.rep("\4", record_at)
  end
  -- First: what is not done afterwards is not done twice.
  local reply = call("SET", KEYS[record_at], ARGV[3], "PX", 150000)
  if reply.err then return reply end
end
while at <= #blocks do
  count = count + 1
  if blocks:byte(at) == 9 then
    record_at = record_at - 1
    replies[count] = give_with(KEYS[count], KEYS[record_at])
  else
    replies[count] = give(KEYS[count])
  end
end
return table.concat(replies)
