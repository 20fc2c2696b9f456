-- leaky_bucket.lua: a queue that lets go at N per P. A request without room, or with too long a wait, is refused.
-- Twin: src/limit/leaky_bucket.rs.
--
-- block     2, charge, its part, capacity, its part, den, numbers, latest, its part; zeros in place of the numbers
--           where requests wait, whose states keep their instants under any numbers
--           15, the same with 20 bytes of numbers: either bucket, where it holds more than 2^32 - 1 units
-- answers   as bucket.lua; the delay of an admitted request follows from its level
local function leaky_bucket(state)
  local _, charge, charge_part, capacity, capacity_part, den, numbers, latest, latest_part, past =
    unpack(blocks:byte(at) == 15 and ">Bdddddc20dd" or ">Bdddddc16dd", blocks, at)
  at = past
  return take(state, charge, charge_part, capacity, capacity_part, den, numbers, latest, latest_part)
end

-- == refund ==
-- Block: 1, the ticket's instant and its part, the charge and its part, den.
--
-- A later request's wait counts on all places in front of it. So only the last place goes back: otherwise a newcomer
-- would be let go before that request or together with it.
local function place(key, state)
  local _, was, was_part, back, back_part, den, past = unpack(">Bddddd", blocks, at)
  at = past
  local held, part = instant(state, den)
  if not held or held ~= was or part ~= was_part then return "\0" end
  -- A part of the charge that has drained already is not refunded.
  local left = was - now
  if left < back or (left == back and was_part < back_part) then back, back_part = left, was_part end
  if back < 0 or (back == 0 and back_part == 0) then return "\0" end

  held, part = minus(held, part, back, back_part, den)
  if held < 0 then return "\0" end
  if held < now or (held == now and part == 0) then return drop(key) end
  if part == 0 then return put(key, pack(">d", held), held - now) end
  return put(key, pack(">dI4I4", held, part, den), held - now + 1)
end
