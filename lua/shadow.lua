-- shadow.lua: decide.lua for batches in which some limits do not decide: they are counted beside those that do.
-- Twin: Charges in src/store/beside.rs.
--
-- block     12, the number of its group, then the limit's own block. Rates of one limit are a group, all of them charged
--           or none, and only with their request; numbers begin at 1.
-- reply     as decide.lua; where a counter cannot be read that decides nothing, wait is -0.5, and nothing is charged there.
local function all(first, count)
  local groups, waits, wholes, parts, states, lives, mores = {}, {}, {}, {}, {}, {}, {}
  local refused, bad, reason = {}, nil, nil
  for i = 1, count do
    local group = 0
    if blocks:byte(at) == 12 then group, at = blocks:byte(at + 1), at + 2 end
    local wait, whole, part, new, life, wrong, more = check(KEYS[first + i])
    if wrong and group > 0 then
      wait, whole, part, new, more = -0.5, 0, 0, nil, nil
    elseif wrong and not bad then
      bad, reason = i, wrong
    end
    local admitted = wait == 0 or wait < -1
    if not admitted then refused[group] = true end
    groups[i], waits[i], wholes[i], parts[i] = group, wait, whole, part
    states[i], lives[i], mores[i] = (admitted or new) and { admitted, new }, life, more or ""
  end
  if bad then return failed(bad, reason) end
  local reply = { "\0" }
  for i = 1, count do
    local group, state = groups[i], states[i]
    -- In a refused request, and a refused group, only the refusing limits' own mended states are kept.
    if state and state[2] and not (state[1] and (refused[0] or refused[group])) then
      local wrong = write(KEYS[first + i], state[2], lives[i])
      if wrong and group == 0 then return failed(i, wrong) end
      if wrong then waits[i], wholes[i], parts[i], mores[i] = -0.5, 0, 0, "" end
    end
    reply[i + 1] = pack(">ddI4", waits[i], wholes[i], parts[i]) .. mores[i]
  end
  return table.concat(reply)
end

local replies, first = { pack(">d", now) }, 0
for request = 1, #shape do
  local count = shape:byte(request)
  replies[request + 1] = all(first, count)
  first = first + count
end
return finish(replies)
