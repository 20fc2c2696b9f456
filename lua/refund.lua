-- refund.lua: gives back what requests were granted and did not use. Twins: `refund` in src/limit.
--
-- KEYS      one counter for each refund
-- ARGV[2]   a block for each: 1, the ticket's instant and part, the charge and its part, den      (both buckets)
--                             2, the same                                                          (a queue)
--                             3, window, the ticket's start, cost                                  (fixed window)
-- reply     a byte for each: 0 nothing may go back, 1 something did, 2 and nothing is left, 3 could not be done
local function put(key, state, life)
  return write(key, state, life) and "\3" or "\1"
end

local function drop(key)
  local reply = call("DEL", key)
  return type(reply) == "table" and "\3" or "\2"
end

-- A bucket gives back only what nobody was granted after the ticket. In a queue a later request was told a wait that
-- counts on all in front: only the last place goes back, or a newcomer would be let go before it or beside it.
local function bucket(key, state)
  local kind, was, was_part, charge, charge_part, den, past = unpack(">Bddddd", blocks, at)
  at = past
  if not state then return "\0" end
  local held, part, under = -1, 0, den
  if #state == 8 then
    held = unpack(">d", state)
  elseif #state == 16 then
    held, part, under = unpack(">dI4I4", state)
    if part == 0 or part >= under then return "\0" end
  end
  -- No state, or another rate's fraction, which cannot be compared.
  if under ~= den or not (held >= 0 and held < 9007199254740992 and held % 1 == 0) then return "\0" end

  local later, later_part = held - was, part - was_part
  if later_part < 0 then later, later_part = later - 1, later_part + den end
  local back, back_part = charge - later, charge_part - later_part
  if back_part < 0 then back, back_part = back - 1, back_part + den end
  if kind == 2 and (later > 0 or later_part > 0) then return "\0" end
  if later < 0 or back < 0 or (back == 0 and back_part == 0) then return "\0" end

  held, part = held - back, part - back_part
  if part < 0 then held, part = held - 1, part + den end
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

local replies = {}
for i = 1, #KEYS do
  local state, wrong = call("GET", KEYS[i]), nil
  if state and state.err then state, wrong = false, true end
  local given = (blocks:byte(at) == 3 and window or bucket)(KEYS[i], state)
  replies[i] = wrong and "\3" or given
end
return table.concat(replies)
