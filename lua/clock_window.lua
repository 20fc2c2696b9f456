-- clock_window.lua: at most N in each window of the clock or the calendar. Twin: src/limit/clock_window.rs.
--
-- The state is fixed_window.lua's. A stored window that reaches into the present one counts in it: it was anchored
-- elsewhere. A window further ahead than the next counts in it, too: the clock has stepped back. Where the clock has
-- stepped back into the window before the stored one, the stored window goes on counting. Otherwise its quota would be
-- admitted anew when the clock comes to it again.
--
-- block     4, limit, cost, window, offset              windows start at `offset` after whole multiples
--           5, limit, cost, and six instants            the starts of windows of the calendar, from the caller
-- answers   as fixed_window.lua; a calendar that does not reach to this server's time is an error
local function clock_window(state)
  local kind, limit, cost, past = unpack(">Bdd", blocks, at)
  -- The previous window's start, this one's start and end, the next one's end.
  local before, start, last, beyond
  if kind == 4 then
    local window, offset
    window, offset, at = unpack(">dd", blocks, past)
    last = now - (now - offset) % window + window
    before, start, beyond = last - 2 * window, math.max(last - window, 0), last + window
  else
    local b0, b1, b2, b3, b4, b5
    b0, b1, b2, b3, b4, b5, at = unpack(">dddddd", blocks, past)
    if now < b1 or now >= b4 then
      return 0, 0, 0, nil, nil, "CLOCK this server's time is not within a window of the asker's"
    end
    if now < b2 then
      before, start, last, beyond = b0, b1, b2, b3
    elseif now < b3 then
      before, start, last, beyond = b1, b2, b3, b4
    else
      before, start, last, beyond = b2, b3, b4, b5
    end
  end

  local count, mended = 0, false
  local size = state and #state
  if size == 12 or size == 16 then
    local stored, held = unpack(size == 12 and ">dI4" or ">dd", state)
    if size == 16 then
      if not (held >= 0 and held < 9007199254740992 and held % 1 == 0) then stored = -1 end
      if limit <= 4294967295 then held = math.min(held, 4294967295) end
    end
    -- A window that began before the epoch is stored with the epoch as its start.
    local counts = stored == start or stored > math.max(before, 0)
    if counts and stored < 9007199254740992 and stored % 1 == 0 then
      if stored == last then start, last = last, beyond end
      count, mended = held, stored ~= start
    end
  end
  local left, wait = last - now, 0
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
