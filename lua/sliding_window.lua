-- sliding_window.lua: at most N in the last P, seen in k parts; the oldest counts in proportion, or whole when strict.
-- Twin: src/limit/sliding_window.rs.
--
-- The state is the double `start`, in microseconds, and the counts of the newest k + 1 parts as four bytes each, newest
-- first. Inside, time is in whole milliseconds.
--
-- block     6, a byte: strict, part in milliseconds, k, limit, cost
-- answers   wait (0 admits, math.huge is never), microseconds until the stored units have left, counted units, rounded
--           up, the state to store if any, its life
local function sliding_window(state)
  local _, strict, part, k, limit, cost, past = unpack(">BBdddd", blocks, at)
  at = past
  local ms = math.floor(now / 1000)
  local start = ms - ms % part
  local counts, total, mended = {}, 0, false
  for i = 0, k do counts[i] = 0 end

  -- Each stored part counts in the part that its last millisecond lies in, or in the present part where that is
  -- earlier. Parts of another length are fitted in against the client. Parts that lie ahead of the clock count as if
  -- they came now.
  local held = state and (#state - 12) / 4
  if held and held >= 1 and held <= 100 and held % 1 == 0 then
    local stored, length = unpack(">d", state), part * k / held
    if stored >= 0 and stored < 9007199254740992 and length % 1 == 0 and stored % (length * 1000) == 0 then
      local from = stored / 1000
      mended = length ~= part
      for i = 0, held do
        local count = unpack(">I4", state, 9 + 4 * i)
        if count > 0 then
          if from > ms then mended = true end
          local last = math.min(from + length - 1, ms)
          local index = (start - last + last % part) / part
          if index <= k then
            counts[index] = math.min(counts[index] + count, 4294967295)
            total = total + count
          end
        end
        from = from - length
      end
      if total * part > 4503599627370496 then
        -- This value was never a state of this limit.
        for i = 0, k do counts[i] = 0 end
        mended = false
      end
    end
  end

  local full, newest = 0, nil
  for i = 0, k do
    if i < k then full = full + counts[i] end
    if not newest and counts[i] > 0 then newest = i end
  end
  local rest = strict == 1 and part or part - (ms - start)
  local oldest = counts[k] * rest
  local units = math.min(full + math.ceil(oldest / part), 4294967295)
  local left = newest and (start + (k + 1 - newest) * part) * 1000 - now or 0
  if cost == 0 then return 0, left, units end
  if cost > limit then return math.huge, left, units end

  local wait = 0
  local need = full * part + oldest + cost * part - limit * part
  if need > 0 then
    local instant = start
    for i = k, 0, -1 do
      local leaving = i == k and oldest or counts[i] * part
      if need <= leaving then
        if strict == 1 then
          instant = instant + part
        else
          instant = (i == k and ms or instant) + math.ceil(need / counts[i])
        end
        break
      end
      need, instant = need - leaving, instant + part
    end
    wait = instant * 1000 - now
    if not mended then return wait, left, units end
  else
    counts[0], newest = counts[0] + cost, 0
    units = math.min(units + cost, 4294967295)
  end

  -- Empty parts in front are left out, so that the state ends when it is useless.
  local first, bytes = math.max(start - newest * part, 0) * 1000, {}
  for i = 0, k do
    bytes[i + 1] = pack(">I4", counts[i + newest] or 0)
  end
  local life = (start + (k + 1 - newest) * part) * 1000 - now
  return wait, left, units, pack(">d", first) .. table.concat(bytes), life
end

-- == refund ==
-- Block: 4, part in milliseconds, k, the start of the ticket's part, cost.
--
-- Takes the cost out of the part in which it was counted, if that part still counts. Empty parts in front are left out.
local function refund_parts(key, state)
  local _, part, k, ticket, cost, past = unpack(">Bdddd", blocks, at)
  at = past
  if not state or #state ~= 12 + 4 * k then return "\0" end
  local start = unpack(">d", state)
  if not (start >= 0 and start < 9007199254740992 and start % (part * 1000) == 0) then return "\0" end
  local back = (start - ticket) / (part * 1000)
  if back < 0 or back > k or back % 1 ~= 0 or ticket + (k + 1) * part * 1000 <= now then return "\0" end
  local counts, newest = {}, nil
  for i = 0, k do
    counts[i] = unpack(">I4", state, 9 + 4 * i)
    if i == back then
      if counts[i] < cost then return "\0" end
      counts[i] = counts[i] - cost
    end
    if not newest and counts[i] > 0 then newest = i end
  end
  local life = newest and start + (k + 1 - newest) * part * 1000 - now or 0
  if life <= 0 then return drop(key) end
  local bytes = {}
  for i = 0, k do bytes[i + 1] = pack(">I4", counts[i + newest] or 0) end
  return put(key, pack(">d", math.max(start - newest * part * 1000, 0)) .. table.concat(bytes), life)
end
