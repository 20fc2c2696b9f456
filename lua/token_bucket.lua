-- token_bucket.lua: a bucket of B tokens, full at first, refilled continuously. Twin: src/limit/token_bucket.rs.
--
-- block     1, charge, its part, capacity, its part, den, numbers
-- answers   as bucket.lua; no level is above the capacity, so the capacity in place of the latest level bounds nothing
local function token_bucket(state)
  local _, charge, charge_part, capacity, capacity_part, den, numbers, past = unpack(">Bdddddc16", blocks, at)
  at = past
  return take(state, charge, charge_part, capacity, capacity_part, den, numbers, capacity, capacity_part)
end
