-- fixed_window.lua: at most N in each window of P; the window starts with its first admitted request.
-- Twin: src/limit/fixed_window.rs.
--
-- The state is the double `start` and the count as four bytes, or as a double above 2^32 - 1. The start is the window's
-- own: expiry only frees memory. A limit of at most 2^32 - 1 counts no further than that.
--
-- block     3, window, limit, cost
-- answers   wait (0 admits, math.huge is never), microseconds left of the window, count, the state to store if any, its
--           life
local function fixed_window(state)
  local _, window, limit, cost, past = unpack(">Bddd", blocks, at)
  at = past
  local start, count, mended = now, 0, false
  local size = state and #state
  if size == 12 or size == 16 then
    local stored, held = unpack(size == 12 and ">dI4" or ">dd", state)
    if size == 16 then
      if not (held >= 0 and held < 9007199254740992 and held % 1 == 0) then stored = -1 end
      if limit <= 4294967295 then held = math.min(held, 4294967295) end
    end
    if stored >= 0 and stored < 9007199254740992 and stored % 1 == 0 then
      if stored > now then
        -- The clock has stepped back: the nearest possible window is the one that starts now.
        count, mended = held, true
      elseif now - stored < window then
        start, count = stored + 0, held
      end
    end
  end
  local left, wait = start + window - now, 0
  if cost == 0 then return 0, left, count end
  if count + cost <= limit then
    count = count + cost
  elseif cost > limit then
    return math.huge, left, count
  elseif mended then
    wait = left
  else
    return left, left, count
  end
  return wait, left, count, pack(count > 4294967295 and ">dd" or ">dI4", start, count), left
end

-- == refund ==
-- Block: 3, window, the ticket's start, cost. Charges of windows of a clock or a calendar come back in the same way.
--
-- A window without charges is no window: it never started.
local function refund_window(key, state)
  local _, length, start, cost, past = unpack(">Bddd", blocks, at)
  at = past
  local size = state and #state
  if size ~= 12 and size ~= 16 then return "\0" end
  local stored, count = unpack(size == 12 and ">dI4" or ">dd", state)
  -- What is no number fails each comparison.
  if not (count < 9007199254740992 and count % 1 == 0) then return "\0" end
  if stored ~= start or count < cost or now >= start + length then return "\0" end
  if count == cost then return drop(key) end
  count = count - cost
  return put(key, pack(count > 4294967295 and ">dd" or ">dI4", start, count), start + length - now)
end
