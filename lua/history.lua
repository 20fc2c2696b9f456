-- history.lua: the history behind a bucket's instant where charges are settled, in front of its numbers. Its twin is in
-- tests/support/stored_state.rs.
--
-- Two doubles: the last instant at which the bucket was found empty, and how many microseconds have been given back
-- since, rounded up.

-- The instant at which the bucket is empty, and the history after it; nil without a history. Then the rate, or what
-- stands in its place.
local function history(state)
  local size = type(state) == "string" and #state or 0
  -- The numbers of a large bucket are four bytes longer.
  local large = size == 44 or size == 52
  if size ~= 40 and size ~= 48 and not large then return nil end
  local held = unpack(">d", state)
  local found, back = unpack(">dd", state, size - (large and 35 or 31))
  local part, den = 1, 2
  if size == 48 or size == 52 then part, den = unpack(">I4I4", state, 9) end
  local good = part > 0 and part < den
  for _, value in ipairs({ held, found, back }) do
    good = good and value >= 0 and value < 9007199254740992 and value % 1 == 0
  end
  if good then return held, found, back, large and state:sub(-20, -9) or state:sub(-16, -5) end
end
