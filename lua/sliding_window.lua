-- sliding_window.lua: at most N in the last P, seen in k parts; the oldest counts in proportion, or whole when strict.
-- Twin: src/limit/sliding_window.rs.
--
-- The state is the double `start`, in microseconds, and the counts of the newest k + 1 parts as four bytes each, newest
-- first. If one of them is above 2^32 - 1, all are doubles, and a byte follows, so that the length tells. A limit of at
-- most 2^32 - 1 counts no further than that. Inside, time is in whole milliseconds.
--
-- block     6, a byte: strict, part in milliseconds, k, limit, cost
-- answers   wait (0 admits, math.huge is never), microseconds until the stored units have left, counted units, rounded
--           up, the state to store if any, its life
local function sliding_window(state)
  local _, strict, part, k, limit, cost, past = unpack(">BBdddd", blocks, at)
  at = past
  local ms = math.floor(now / 1000)
  local start = ms - ms % part
  local counts, total, mended, most = {}, 0, false, limit > 4294967295 and 9007199254740991 or 4294967295
  for i = 0, k do counts[i] = 0 end

  -- Each stored part counts in the part that its last millisecond lies in, or in the present part where that is
  -- earlier. Parts of another length are fitted in against the client. Parts that lie ahead of the clock count as if
  -- they came now.
  local size = state and #state or 12
  local large = size % 2 == 1
  local held = large and (size - 17) / 8 or (size - 12) / 4
  if held >= 1 and held <= 100 and held % 1 == 0 then
    local stored, length = unpack(">d", state), part * k / held
    if stored >= 0 and stored < 9007199254740992 and length % 1 == 0 and stored % (length * 1000) == 0 then
      local from = stored / 1000
      mended = length ~= part
      for i = 0, large and held or -1 do
        local count = unpack(">d", state, 9 + 8 * i)
        -- What is no number is more than any limit.
        if not (count >= 0 and count < 9007199254740992 and count % 1 == 0) then total = math.huge end
      end
      for i = 0, held do
        local count = large and unpack(">d", state, 9 + 8 * i) or unpack(">I4", state, 9 + 4 * i)
        if count > 0 then
          if from > ms then mended = true end
          local last = math.min(from + length - 1, ms)
          local index = (start - last + last % part) / part
          if index <= k then
            counts[index] = math.min(counts[index] + count, most)
            total = total + count
          end
        end
        from = from - length
      end
      if total * part > 9007199254740992 then
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
  local units = math.min(full + math.ceil(oldest / part), most)
  local left = newest and (start + (k + 1 - newest) * part) * 1000 - now or 0
  if cost == 0 then return 0, left, units end
  if cost > limit then return math.huge, left, units end

  local wait = 0
  -- In this order no sum passes 2^53.
  local need = full * part - limit * part + cost * part + oldest
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
    units = math.min(units + cost, most)
  end

  -- Empty parts in front are left out, so that the state ends when it is useless.
  local first, bytes, form = math.max(start - newest * part, 0) * 1000, {}, ">I4"
  for i = 0, limit > 4294967295 and k or -1 do
    if counts[i] > 4294967295 then form, bytes[k + 2] = ">d", "\0" end
  end
  for i = 0, k do
    bytes[i + 1] = pack(form, counts[i + newest] or 0)
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
  local size = state and #state
  local large = size == 17 + 8 * k
  if size ~= 12 + 4 * k and not large then return "\0" end
  local start = unpack(">d", state)
  if not (start >= 0 and start < 9007199254740992 and start % (part * 1000) == 0) then return "\0" end
  local back = (start - ticket) / (part * 1000)
  if back < 0 or back > k or back % 1 ~= 0 or ticket + (k + 1) * part * 1000 <= now then return "\0" end
  local counts, newest, form, last = {}, nil, ">I4", ""
  for i = 0, k do
    counts[i] = large and unpack(">d", state, 9 + 8 * i) or unpack(">I4", state, 9 + 4 * i)
    if not (counts[i] >= 0 and counts[i] < 9007199254740992 and counts[i] % 1 == 0) then return "\0" end
    if i == back then
      if counts[i] < cost then return "\0" end
      counts[i] = counts[i] - cost
    end
    if counts[i] > 4294967295 then form, last = ">d", "\0" end
    if not newest and counts[i] > 0 then newest = i end
  end
  local life = newest and start + (k + 1 - newest) * part * 1000 - now or 0
  if life <= 0 then return drop(key) end
  local bytes = {}
  for i = 0, k do bytes[i + 1] = pack(form, counts[i + newest] or 0) end
  bytes[k + 2] = last
  return put(key, pack(">d", math.max(start - newest * part * 1000, 0)) .. table.concat(bytes), life)
end
