-- check.lua: what one limit says to one request, by whichever algorithm its block begins with. Writes nothing.
--
-- Algorithms from the fourth on are in the longer scripts only; the short one is never asked for them.
local function check(key)
  local algorithm = blocks:byte(at)
  if algorithm > 6 then
    if algorithm == 7 then return sliding_log(key) end
    if algorithm == 8 then return concurrency(key) end
    if algorithm == 9 then return partial(key, check) end
    if algorithm == 10 then return deduped(key, check) end
    if algorithm == 13 then return metered(key, check) end
    -- Nothing is counted: another limit of the request, counted elsewhere, refuses it.
    at = at + 1
    return -1, 0, 0
  end
  local state, wrong = ask("GET", key), nil
  -- An error is a table; a string has no such field.
  if state and state.err then state, wrong = false, state.err end
  local wait, whole, part, new, life
  if algorithm == 1 then
    wait, whole, part, new, life = token_bucket(state)
  elseif algorithm == 2 then
    wait, whole, part, new, life = leaky_bucket(state)
  elseif algorithm == 3 then
    wait, whole, part, new, life = fixed_window(state)
  elseif algorithm == 6 then
    wait, whole, part, new, life = sliding_window(state)
  else
    local late
    wait, whole, part, new, life, late = clock_window(state)
    wrong = wrong or late
  end
  -- The twin has read past its block; what it made of a key that is not ours does not count.
  return wait, whole, part, new, life, wrong
end

local function failed(limit, reason)
  return pack(">BBBc0", 1, limit, math.min(#reason, 255), reason:sub(1, 255))
end
