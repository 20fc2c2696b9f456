-- changed.lua: a bucket whose state was written with other numbers: the units that are used stay used. It stands where
-- bucket.lua and short.lua mark it, since only a call that meets such a state pays for it. Twin: check_changed in
-- src/limit/bucket.rs.
--
-- whole, part   the level by the state's own rate
-- numbers       of the limit: -P as a double, N and the most units as four bytes each; the units as a double above
--               2^32 - 1, where P is below 2^42
-- answers       nothing for a state without numbers; else wait, level by the limit's rate after the charge or before a
--               refusal, its part, and true for an ordinary charge; otherwise what is stored (`state` and `life`, if
--               anything), and `drains`, the time until the bucket is empty, where its state keeps other numbers
changed = function(state, whole, part, charge, charge_part, capacity, capacity_part, den, numbers, latest, latest_part)
  local floor = math.floor
  local size = #state
  local large = size % 8 == 4
  local p, n, most = unpack(large and ">dI4d" or ">dI4I4", state, size - (large and 19 or 15))
  p = -p
  if not (p >= 1 and p < 9007199254740992 and p % 1 == 0 and n > 0 and most > 0) then return nil end
  if large then
    if not (most > 4294967295 and most < 9007199254740992 and most % 1 == 0 and p < 4398046511104) then return nil end
    size = size - 4
  end
  if size % 16 == 0 and unpack(">I4", state, 13) ~= n then return nil end
  local to_p, to_n, to_most = unpack(#numbers == 20 and ">dI4d" or ">dI4I4", numbers)
  to_p = -to_p

  -- a * b / c as a whole number and a rest, for numbers below 2^53. The product is larger than a double counts exactly,
  -- so it is built from the bits of a, and what passes c is taken off at once. A result of 2^53 or more is inexact, and
  -- only compared.
  local function product(a, b, c)
    local result, rest, step, step_rest, bit = 0, 0, floor(b / c), b % c, 1
    while bit * 2 <= a do bit = bit * 2 end
    while bit >= 1 do
      result = result * 2
      if rest >= c - rest then result, rest = result + 1, rest - (c - rest) else rest = rest + rest end
      if a >= bit then
        a, result = a - bit, result + step
        if rest >= c - step_rest then result, rest = result + 1, rest - (c - step_rest) else rest = rest + step_rest end
      end
      bit = bit / 2
    end
    return result, rest
  end

  -- The used units, and their rest over P.
  local units, rest = product(whole, n, p)
  local more = part % p
  units = units + floor(part / p)
  if rest >= p - more then units, rest = units + 1, rest - (p - more) else rest = rest + more end
  local mended = units > most or (units == most and rest > 0)
  if mended then
    units, rest = most, 0
    whole, part = product(most, p, n)
  end

  -- Rounded up by less than one part, so that whole units stay whole.
  local level, level_part = product(units, to_p, to_n)
  more, rest = product(rest, to_p, p)
  if rest > 0 then more = more + 1 end
  level, level_part = level + floor(more / den), level_part + more % den
  if level_part >= den then level, level_part = level + 1, level_part - den end

  local peek = charge == 0 and charge_part == 0
  local sum, sum_part = level + charge, level_part + charge_part
  if sum_part >= den then sum, sum_part = sum + 1, sum_part - den end
  local wait, late, drains = sum - capacity, level - latest, whole
  if sum_part > capacity_part then wait = wait + 1 end
  if level_part > latest_part then late = late + 1 end
  if late > wait then wait = late end
  if part > 0 then drains = drains + 1 end
  if wait <= 0 and not peek then return 0, sum, sum_part, true end

  local shown, shown_part = level, level_part
  if level > capacity or (level == capacity and level_part > capacity_part) then
    shown, shown_part = capacity, capacity_part
  end
  if peek then return 0, shown, shown_part, { drains = drains } end
  if charge > capacity or (charge == capacity and charge_part > capacity_part) then
    return math.huge, shown, shown_part, { drains = drains }
  end

  if product(to_p, n, to_n) < p then
    -- The limit's rate is higher: from now on the bucket drains at it.
    local holds = math.max(most, to_most)
    if to_p >= 4398046511104 then holds = math.min(holds, 4294967295) end
    local under = pack(holds > 4294967295 and ">dI4d" or ">dI4I4", -to_p, to_n, holds)
    local life = level + (level_part > 0 and 1 or 0)
    local bytes = level_part == 0 and pack(">d", now + level) or pack(">dI4I4", now + level, level_part, den)
    return wait, shown, shown_part, { state = bytes .. under, life = life, drains = under ~= numbers and life or nil }
  end

  -- The bucket drains as before until it has room: `free` units or fewer are used then.
  local free, free_part = capacity - charge, capacity_part - charge_part
  if free_part < 0 then free, free_part = free - 1, free_part + den end
  if latest < free or (latest == free and latest_part < free_part) then free, free_part = latest, latest_part end
  units, rest = product(free, to_n, to_p)
  units = units + floor(free_part / to_p)
  if free_part % to_p >= to_p - rest then units = units + 1 end
  free, free_part = product(units, p, n)
  wait = whole - free
  if part > free_part then wait = wait + 1 end
  local kept = { drains = drains }
  if mended then
    kept.state = (part == 0 and pack(">d", now + whole) or pack(">dI4I4", now + whole, part, n)) .. state:sub(large and -20 or -16)
    kept.life = drains
  end
  return wait, shown, shown_part, kept
end
