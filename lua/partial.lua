-- partial.lua: the remainder of a limit that cannot grant the whole cost. Twin: src/limit/check.rs.
--
-- block     9, cost, most, the position of the cost in the limit's own block, and for buckets the time of one unit:
--           whole, part, denominator (0 for all others), and the bucket's capacity: whole, part; then the limit's own
--           block at that cost
-- answers   as the limit's algorithm does; where it grants less than the cost, with the granted units
local function left_of(whole, part, cost, step, step_part, den, capacity, capacity_part)
  -- The cost is doubled until it no longer fits, then built from the largest step down: exact in whole parts.
  local steps, units, first = { { step, step_part } }, 1, 1
  while units * 2 <= cost and steps[first][1] <= capacity do
    local w, p = steps[first][1] * 2, steps[first][2] * 2
    if p >= den then w, p = w + 1, p - den end
    first, units = first + 1, units * 2
    steps[first] = { w, p }
  end
  local less, taken, taken_part = 0, 0, 0
  for i = first, 1, -1 do
    local w, p = taken + steps[i][1], taken_part + steps[i][2]
    if p >= den then w, p = w + 1, p - den end
    local level, level_part = whole + w, part + p
    if level_part >= den then level, level_part = level + 1, level_part - den end
    if less + units <= cost
      and (level < capacity or (level == capacity and level_part <= capacity_part)) then
      less, taken, taken_part = less + units, w, p
    end
    units = units / 2
  end
  return less, taken, taken_part
end

local function partial(key, check)
  local _, cost, most, where, step, step_part, den, capacity, capacity_part, first = unpack(">Bdddddddd", blocks, at)
  at = first
  local wait, whole, part, new, life, wrong = check(key)
  if wait == 0 or wrong or cost <= 1 then return wait, whole, part, new, life, wrong end
  local less, charge, charge_part
  if den > 0 then
    less, charge, charge_part = left_of(whole, part, cost, step, step_part, den, capacity, capacity_part)
    -- With nothing left, the wait is that for a single unit.
    if less < 1 then less, charge, charge_part = 1, step, step_part end
  else
    less = math.max(1, math.min(most - part, cost))
  end
  local bytes = den > 0 and pack(">dd", charge, charge_part) or pack(">d", less)
  local asked = blocks
  blocks = asked:sub(1, first + where - 1) .. bytes .. asked:sub(first + where + #bytes)
  at = first
  wait, whole, part, new, life, wrong = check(key)
  blocks = asked
  return wait, whole, part, new, life, wrong, wait == 0 and less or nil
end
