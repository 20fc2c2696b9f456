-- check.lua: one limit's answer to one request, by the algorithm that its block begins with. Writes nothing.
--
-- answers   wait (0 admits, math.huge is never), two numbers of the algorithm's own, the state to store if any, its
--           life, the error if any; then the granted units where they are not the cost (partial.lua, dedupe.lua), the
--           amount given back so far (settlement.lua), and the meaning of an id: 16 charged for the first time, 32 goes
--           free; beside a wait 6, if the key is blocked (blocking.lua)
local blocking
local function check(key)
  -- The answer of another check may not have been read.
  drains = nil
  local algorithm = blocks:byte(at)
  if algorithm > 6 and algorithm < 15 then
    if algorithm == 7 then return sliding_log(key) end
    if algorithm == 8 then return concurrency(key) end
    if algorithm == 9 then return partial(key, check) end
    if algorithm == 10 then return deduped(key, check) end
    if algorithm == 13 then return with_history(key, check) end
    if algorithm == 14 then
      -- == blocking ==
      return blocking(key, check)
    end
    -- Another limit of the request, counted elsewhere, refuses it: nothing is counted.
    at = at + 1
    return math.huge, 0, 0
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
  elseif algorithm == 15 then
    wait, whole, part, new, life = leaky_bucket(state)
  else
    local late
    wait, whole, part, new, life, late = clock_window(state)
    wrong = wrong or late
  end
  -- The twin has read past its block; its result for a foreign value at the key does not count.
  return wait, whole, part, new, life, wrong
end

-- The reply for one limit: a byte for the outcome, the algorithm's two numbers as a double and four bytes, and the
-- fields that the byte announces.
--
--   0, 1, 2   admitted; refused for a wait, which follows as a double; refused for ever
--   6         refused since the key is blocked (blocking.lua): the wait follows as a double
--   3         the counter cannot be read, and decides nothing (shadow.lua)
--   5         not charged, by a bucket that keeps other numbers than the limit's (changed.lua): the wait follows as a
--             double, 0 where nothing was asked, and the time until the bucket is empty
--   4         the request could not be decided, and nothing was written: instead of the numbers of its limits a byte
--             for the limit's position, and the reason behind a byte for its length
--   16, 32    beside 0: the first charge of an id, a repeat that goes free
--   64, 128   beside 0: the granted units follow as four bytes, then the amount given back so far as a double
--   8         beside 0, 1 and 2: what has four bytes is a double, since some of it is above 2^32 - 1
local function answer(wait, whole, part, granted, back, id)
  if part > 4294967295 or (granted and granted > 4294967295) then
    local outcome, more = 8, ""
    if wait == math.huge then
      outcome = 10
    elseif wait > 0 then
      outcome, more = 9, pack(">d", wait)
    else
      if granted then outcome, more = 72 + (id or 0), pack(">d", granted) end
      if back then outcome, more = outcome + 128, more .. pack(">d", back) end
    end
    return pack(">Bdd", outcome, whole, part) .. more
  end
  -- A repeat that goes free is not charged either, and says what it was granted.
  if drains and not granted then return pack(">BdI4dd", 5, whole, part, wait, drains) end
  if wait == math.huge then return pack(">BdI4", 2, whole, part) end
  if wait > 0 then return pack(">BdI4d", id or 1, whole, part, wait) end
  if not (granted or back) then return pack(">BdI4", 0, whole, part) end
  local outcome, more = 0, ""
  if granted then outcome, more = 64 + (id or 0), pack(">I4", granted) end
  if back then outcome, more = outcome + 128, more .. pack(">d", back) end
  return pack(">BdI4", outcome, whole, part) .. more
end

local function failed(limit, reason)
  return pack(">BBBc0", 4, limit, math.min(#reason, 255), reason:sub(1, 255))
end
