-- settlement.lua: a bucket whose charges are settled later: how far it has been drained by itself must be known then.
-- Twin: src/limit/trail.rs.
--
-- block     13, cost, the limit's own block
-- answers   as the limit's own block does; where all of the cost is charged wait is -1.125 less it, and behind the part
--           comes what had been given back until then, as a double

local function metered(key, check)
  local _, cost, past = unpack(">Bd", blocks, at)
  at = past
  local held, found, back = trail(ask("GET", key))
  local wait, whole, part, new, life, wrong = check(key)
  if not new or wrong then return wait, whole, part, new, life, wrong end
  -- Brought to the brim it is another history.
  if not held or held <= now or unpack(">d", new) < held then found, back = now, 0 end
  new = new .. pack(">dd", found, back)
  if wait ~= 0 then return wait, whole, part, new, life end
  return -1.125 - cost, whole, part, new, life, nil, pack(">d", back)
end
