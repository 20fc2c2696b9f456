-- settlement.lua: a bucket whose charges are settled later: its state tells how far it has drained by itself since.
-- Twins: src/limit/history.rs, src/limit/settlement.rs.
--
-- block     13, the limit's own block
-- answers   as the limit's own block does; where all of the cost is charged, with the amount given back until then

local function with_history(key, check)
  at = at + 1
  local held, found, back, rate = history(ask("GET", key))
  local wait, whole, part, new, life, wrong, granted = check(key)
  if not new or wrong then return wait, whole, part, new, life, wrong, granted end
  -- A bucket that was brought to the debt ceiling begins another history. Under another rate, too: how it drained until
  -- now says nothing of charges to come.
  local numbers = new:sub(#new % 8 == 4 and -20 or -16)
  if not held or held <= now or unpack(">d", new) < held or rate ~= numbers:sub(1, 12) then found, back = now, 0 end
  new = new:sub(1, -1 - #numbers) .. pack(">dd", found, back) .. numbers
  if wait > 0 or granted then back = nil end
  return wait, whole, part, new, life, nil, granted, back
end

-- == refund ==
-- Block: 2, the ticket's instant and its part, the instant of the charge, the instant from which the history must be
-- known, the amount given back until then, the whole charge and its part, the surplus and its part, den, numbers.
--
-- A charge's surplus comes back, whichever requests came after it, but for the time in which the bucket would have been
-- empty without it. Two lower bounds of the level since the charge are known. The level was never lower than the rest
-- of the charge itself. Where the bucket was not found empty since, the level was never lower than the rest of the
-- level after the charge, less the amounts given back to others.
local function settle(key, state)
  local _, was, was_part, taken, charged, before, full, full_part, less, less_part, den, numbers, past =
    unpack(">Bddddddddddc16", blocks, at)
  at = past
  local held, part, under = instant(state, den)
  if not held or held < now or (held == now and part == 0) then return "\0" end
  local back, back_part = taken + full - now, full_part
  -- The charge was made at another rate.
  if under ~= "" and under:sub(1, 12) ~= numbers:sub(1, 12) then return "\0" end
  local _, found, gone = history(state)
  -- What has drained before the history began, perhaps at another rate, is not known.
  if found and charged < found then return "\0" end
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
    -- The sum is more than a double counts exactly: another history begins.
    if gone >= 9007199254740992 then found, gone = now, 0 end
    bytes = bytes .. pack(">dd", found, gone)
  end
  bytes = bytes .. under
  return put(key, bytes, held - now + (part > 0 and 1 or 0))
end
