-- all.lua: the answers to a request with several limits: all are checked, and charged only when all of them admit.
--
-- The keys of one request must differ from each other, since the second check would not see the first one's charge.

local replies, pieces, waits, states, lives = { pack(">d", now) }, 1, {}, {}, {}

-- Adds the answers of several limits, or the error in their place.
local function all(first, count)
  local before, refused, bad, reason = pieces, false, nil, nil
  for i = 1, count do
    local wait, whole, part, new, life, wrong, granted, back, id = check(keys[first + i])
    if wrong and not bad then bad, reason = i, wrong end
    if wait > 0 then refused = true end
    waits[i], states[i], lives[i] = wait, new, life
    pieces = pieces + 1
    replies[pieces] = answer(wait, whole, part, granted, back, id)
  end
  for nth = 1, bad and 0 or 2 * count do
    -- Lists and sets come first. They take more commands than a single value does, and undo what they have changed where
    -- one of the commands is refused.
    local i = nth > count and nth - count or nth
    local is_next = states[i] and (nth > count) == (type(states[i]) == "string")
    -- Of a refused request, only the mended states of the refusing limits are kept.
    if is_next and (waits[i] ~= 0 or not refused) then
      reason = write(keys[first + i], states[i], lives[i])
      -- Servers refuse a script's first write or none. If one refuses a later write all the same, the earlier writes
      -- stay: charged too much, never admitted too much.
      if reason then
        bad = i
        break
      end
    end
  end
  if bad then
    for i = pieces, before + 2, -1 do replies[i] = nil end
    pieces = before + 1
    replies[pieces] = failed(bad, reason)
  end
end

-- Adds the answers of a request.
local function each(first, count)
  if count > 1 then return all(first, count) end
  pieces = pieces + 1
  replies[pieces] = one(keys[first + 1])
end
