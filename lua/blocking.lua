-- blocking.lua: after a refusal the key is blocked for a time, whatever its counter says. It stands where check.lua marks
-- it, since only a call about such a limit pays for it. Twin: src/limit/check/blocking.rs.
--
-- The state of a block: the instant at which it ends, and its length, as doubles. Its key stands among the records of
-- ids (dedupe.lua), in front of the record of its own limit.
--
-- block     14, the shortest and the longest length of a block, then the limit's own block
-- answers   as the limit's own block does. Of a blocked key the wait is the longer of the limit's own and what is left
--           of the block; the two numbers are what is left, and 1 where the block begins, else 0; and 6 for the outcome
blocking = function(key, check)
  local _, shortest, longest, first = unpack(">Bdd", blocks, at)
  at, record_at = first, record_at - 1
  local record = KEYS[record_at]
  local held, wrong = ask("GET", record), nil
  if held and held.err then held, wrong = false, held.err end
  local wait, whole, part, new, life, late, granted, back, id = check(key)
  wrong = wrong or late
  if wait == math.huge or wrong then return wait, whole, part, new, life, wrong, granted, back, id end

  local ends, length, begins = 0, 0, 0
  if held and #held == 16 then
    ends, length = unpack(">dd", held)
    local good = ends >= 0 and ends < 9007199254740992 and ends % 1 == 0
    -- A number that a double does not count exactly, or a value that is no number (no comparison holds), is no block.
    if not (good and length > 0 and length < 9007199254740992 and length % 1 == 0) then ends, length = 0, 0 end
  end
  local left, stands = ends - now, false
  if left > 0 then
    -- Nothing is charged; a mended state of a count that would refuse is kept.
    if wait == 0 then new = nil end
    -- No block ends later than its length from now: the clock has stepped back.
    if left <= length then stands = true else left = length end
  elseif wait == 0 then
    return wait, whole, part, new, life, nil, granted, back, id
  else
    if length > 0 and -left < length then
      left = math.max(math.min(length * 2, longest), shortest)
    else
      left = shortest
    end
    length, begins = left, 1
  end
  if not stands then
    local lasts = longest > shortest and left + length or left
    new = { record = record, bytes = pack(">dd", now + left, length), lasts = lasts, own = new }
  end
  drains = nil
  return math.max(wait, left), left, begins, new, life, nil, nil, nil, 6
end
