-- sliding_log.lua: the instant of every unit granted; at most N in any stretch of P. Twin: src/limit/sliding_log.rs.
--
-- The state is a list of instants as doubles, oldest first. Instants that have left are taken off by grants only.
--
-- block     7, window, limit, cost
-- answers   wait (0 admits, math.huge is never), microseconds until the newest leaves, units held, the change if any,
--           its life

-- The instant at an index of the list; or nil and the error, if the value is not an instant.
local function instant(key, index)
  local bytes = call("LINDEX", key, index)
  if type(bytes) ~= "string" then return nil, type(bytes) == "table" and bytes.err or "LOG a list without its end" end
  local value = #bytes == 8 and unpack(">d", bytes) or -1
  if value >= 0 and value < 9007199254740992 and value % 1 == 0 then return value end
  return nil, "LOG a list of something else than instants"
end

-- The number of instants among the first `count` that are at `edge` or before it. The scan begins at the oldest, since
-- few are.
local function at_most(key, count, edge)
  local low, high, step = 0, 0, 1
  while high < count do
    local value, wrong = instant(key, high)
    if wrong then return nil, wrong end
    if value > edge then break end
    low, high, step = high + 1, high + step, step * 2
  end
  if high > count then high = count end
  while low < high do
    local middle = math.floor((low + high) / 2)
    local value, wrong = instant(key, middle)
    if wrong then return nil, wrong end
    if value <= edge then low = middle + 1 else high = middle end
  end
  return low
end

local function sliding_log(key)
  local _, window, limit, cost, past = unpack(">Bddd", blocks, at)
  at = past
  local length, dropped, ahead, newest = call("LLEN", key), 0, 0, 0
  if type(length) == "table" then return 0, 0, 0, nil, nil, length.err end
  if length > 0 then
    local wrong
    dropped, wrong = at_most(key, length, now - window)
    if wrong then return 0, 0, 0, nil, nil, wrong end
    newest, wrong = instant(key, length - 1)
    if wrong then return 0, 0, 0, nil, nil, wrong end
    ahead = length
    if newest > now then
      -- The clock has stepped back: future instants are changed to the present.
      ahead, wrong = at_most(key, length, now)
      if wrong then return 0, 0, 0, nil, nil, wrong end
      newest = now
    end
  end
  local held = length - dropped
  local left = held > 0 and newest + window - now or 0
  if cost == 0 then return 0, left, held end
  if cost > limit then return math.huge, left, held end

  local excess = held + cost - limit
  if excess > 0 then
    local leaves, wrong = instant(key, math.floor(dropped + excess - 1))
    if wrong then return 0, 0, 0, nil, nil, wrong end
    local wait = math.min(leaves, now) + window - now
    if ahead == length then return wait, left, held end
    return wait, left, held, { ahead, length, 0, 0 }, window
  end
  return 0, left, held + cost, { ahead, length, cost, dropped }, window
end

-- Stores the changes of either kind of check. Instants are entered before any is dropped: a server that is out of
-- memory refuses a script's first write, or none.
local set = write
local function write(key, state, life)
  if type(state) == "string" then return set(key, state, life) end
  local ahead, length, enter, dropped = state[1], state[2], state[3], state[4]
  local present, entered, wrong = pack(">d", now), 0, nil
  for index = ahead, length - 1 do
    wrong = call("LSET", key, math.floor(index), present).err
    if wrong then return wrong end
  end
  while entered < enter and not wrong do
    -- One command takes no more values than the interpreter's stack holds.
    local many, row = math.min(enter - entered, 4000), {}
    for i = 1, many do row[i] = present end
    local reply = call("RPUSH", key, (table.unpack or _G.unpack)(row))
    if type(reply) == "table" then wrong = reply.err else entered = entered + many end
  end
  -- The life comes before anything is dropped: if one of the two is refused, what was entered can be taken out again.
  if not wrong then
    local reply = call("PEXPIRE", key, math.ceil(life / 1000) + slack)
    if type(reply) == "table" then wrong = reply.err end
  end
  if dropped > 0 and not wrong then wrong = call("LTRIM", key, math.floor(dropped), -1).err end
  if wrong and entered > 0 then call("LREM", key, -math.floor(entered), present) end
  return wrong
end

-- == refund ==
-- Block: 5, window, the ticket's instant, cost.
--
-- Removes the newest entries of that instant: they are alike.
local function refund_log(key)
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
