-- decide.lua: decides a batch of requests. All limits of a request are checked, and charged only when all of them
-- admit.
--
-- ARGV[3]   one byte for each request: the number of its limits. Requests are decided in order and each is committed
--           before the next is checked, so that a batch equals the same calls one after another.
-- reply     the time as a double; then for each request the bytes of `answer` (check.lua) for each of its limits, or
--           the bytes of `failed` for one of them
--
-- The keys of one request are different from each other: the second check would not see the first one's charge.

local replies, pieces, waits, states, lives = { pack(">d", now) }, 1, {}, {}, {}

-- Adds the answers, or the error in their place.
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
  for i = 1, bad and 0 or count do
    -- Of a refused request, only the mended states of the refusing limits are kept.
    if states[i] and (waits[i] ~= 0 or not refused) then
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

local first = 0
for request = 1, #shape do
  local count = shape:byte(request)
  if count == 1 then
    pieces = pieces + 1
    replies[pieces] = one(keys[first + 1])
  else
    all(first, count)
  end
  first = first + count
end
return finish(replies)
