-- fixed_window.lua: at most N in each window of P; the window starts with its first admitted request.
-- Twin: src/limit/fixed_window.rs.
--
-- The state is the double `start` and the count as four bytes. The start is the window's own: expiry only frees memory.
--
-- block     3, window, limit, cost
-- answers   wait (0 admits, math.huge is never), microseconds left of the window, count, the state to store if any, its
--           life
local function fixed_window(state)
  local _, window, limit, cost, past = unpack(">Bddd", blocks, at)
  at = past
  local start, count, mended = now, 0, false
  if state and #state == 12 then
    local stored, held = unpack(">dI4", state)
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
  return wait, left, count, pack(">dI4", start, count), left
end

-- == refund ==
-- Block: 3, window, the ticket's start, cost. Charges of windows of a clock or a calendar come back in the same way.
--
-- A window without charges is no window: it never started.
local function refund_window(key, state)
  local _, length, start, cost, past = unpack(">Bddd", blocks, at)
  at = past
  if not state or #state ~= 12 then return "\0" end
  local stored, count = unpack(">dI4", state)
  if stored ~= start or count < cost or now >= start + length then return "\0" end
  if count == cost then return drop(key) end
  return put(key, pack(">dI4", start, count - cost), start + length - now)
end
