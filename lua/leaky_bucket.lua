-- leaky_bucket.lua: a queue that lets go at N per P; what finds no room, or would wait too long, is refused.
-- Twin: src/limit/leaky_bucket.rs.
--
-- block     2, charge, its part, capacity, its part, den, latest, its part
-- answers   as bucket.lua; the delay of an admitted request follows from its level
local function leaky_bucket(state)
  local _, charge, charge_part, capacity, capacity_part, den, latest, latest_part, past =
    unpack(">Bddddddd", blocks, at)
  at = past
  return take(state, charge, charge_part, capacity, capacity_part, den, latest, latest_part)
end
