-- equal.lua: equal requests of a batch are asked about once, with their number.
--
-- ARGV[4]   one byte for each request of the shape: how many equal requests it stands for
--
-- The clock of a call stands still: each admission moves a counter by the same step, and a refusal moves nothing. So
-- the first requests are admitted, as many as every limit has room for, and the others have one answer. Replies and
-- stored bytes are those of the same requests one after another. Buckets, windows and logs can be asked about so,
-- without ids, grants and histories (`is_countable` in src/limit/wire.rs).
local numbers, equal = ARGV[4], nil

if numbers then
  -- The number of charges, `most` at most, for which a level has room below a bound; negative where it has none even
  -- without a charge.
  local function room(whole, part, charge, charge_part, den, bound, bound_part, most)
    -- The quotient is inexact: it starts too high, and is corrected by the exact sums.
    local many = (bound - whole + (bound_part - part) / den) / (charge + charge_part / den)
    many = math.min(most, math.floor(many) + 1)
    while many >= 0 do
      local sum = part + many * charge_part
      local over = whole + many * charge + math.floor(sum / den) - bound
      if over < 0 or (over == 0 and sum % den <= bound_part) then break end
      many = many - 1
    end
    return many
  end

  -- The first answer of a limit as a row: its two numbers, the step to the next answer and its part, den, where the
  -- cost stands in the block, how long it is, and `drains` (bucket.lua). Then the number of further requests that there
  -- is room for.
  local function row_of(block, whole, part, life, most)
    local kind = blocks:byte(block)
    if kind > 2 then
      local place = block + (kind == 6 and 18 or (kind == 3 or kind == 7) and 9 or 1)
      local limit, cost = unpack(">dd", blocks, place)
      if cost > 0 then most = math.min(most, math.floor((limit - part) / cost)) end
      -- A log and a sliding window answer with their time before the charge; after it, that is the state's life.
      return { whole, part, (life or whole) - whole, cost, 1 / 0, place + 8, 8 }, most
    end
    local charge, charge_part, capacity, capacity_part, den, rest = unpack(">ddddd", blocks, block + 1)
    if charge > 0 or charge_part > 0 then
      most = room(whole, part, charge, charge_part, den, capacity, capacity_part, most)
      if kind == 2 then
        -- The bound is one of the level in front of the last charge.
        local latest, latest_part = unpack(">dd", blocks, rest + 16)
        most = math.min(most, math.max(room(whole, part, charge, charge_part, den, latest, latest_part, most) + 1, 0))
      end
    end
    return { whole, part, charge, charge_part, den, block + 1, 16 }, most
  end

  -- Charges a limit for `fit` requests at once. Returns the error, if there is one.
  local function charge(key, row, block, past, fit)
    local asked, sum, bytes = blocks, row[4] * fit, nil
    if row[7] == 16 then
      bytes = pack(">dd", row[3] * fit + math.floor(sum / row[5]), sum % row[5])
    else
      bytes = pack(">d", sum)
    end
    blocks, at = asked:sub(block, row[6] - 1) .. bytes .. asked:sub(row[6] + row[7], past - 1), 1
    local _, _, _, new, life, wrong = check(key)
    blocks, at = asked, past
    if new and not wrong then wrong = write(key, new, life) end
    return wrong
  end

  equal = function(first, count, times)
    local start, fit, rows, pasts = at, times, {}, {}
    for i = 1, count do
      local block, more = at, nil
      local wait, whole, part, _, life, wrong = check(keys[first + i])
      if wait > 0 or wrong then
        fit = 0
        break
      end
      rows[i], more = row_of(block, whole, part, life, times - 1)
      rows[i][8] = drains
      pasts[i], fit = at, math.min(fit, more + 1)
    end
    if fit > 1 then
      local bad, reason
      for i = 1, count do
        reason = charge(keys[first + i], rows[i], pasts[i - 1] or start, pasts[i], fit)
        if reason then
          bad = i
          break
        end
      end
      for nth = 1, bad and 0 or fit do
        for i = 1, count do
          local row = rows[i]
          local whole, part = row[1], row[2]
          pieces = pieces + 1
          replies[pieces] = row[8] and pack(">BdI4dd", 5, whole, part, 0, row[8]) or pack(">BdI4", 0, whole, part)
          whole, part = whole + row[3], part + row[4]
          if part >= row[5] then whole, part = whole + 1, part - row[5] end
          if nth == 1 and row[7] == 8 then row[3] = 0 end
          row[1], row[2] = whole, part
        end
      end
      if bad then
        pieces = pieces + 1
        replies[pieces] = failed(bad, reason):rep(fit)
      end
    end
    -- A lone request that fits, and a refusal, are decided as any other request is.
    if fit == 1 then
      at = start
      each(first, count)
    end
    if fit < times then
      local begun = pieces
      at = start
      each(first, count)
      replies[pieces] = replies[pieces] .. table.concat(replies, "", begun + 1, pieces):rep(times - fit - 1)
    end
    at = pasts[count] or at
  end
end
