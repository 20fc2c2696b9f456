-- shadow.lua: decide.lua for batches in which some limits do not decide, and only count beside the deciding limits.
-- Twin: Charges in src/store/shadow.rs.
--
-- block     12, the number of its group, then the limit's own block. Rates of one limit are a group, all of them
--           charged or none, and only with their request; numbers begin at 1.
-- reply     as decide.lua; where the counter of a limit that does not decide is unreadable, the outcome is 3, and
--           nothing is charged.
local unreadable = pack(">BdI4", 3, 0, 0)

local function all(first, count)
  local groups, answers, states, lives = {}, {}, {}, {}
  local refused, bad, reason = {}, nil, nil
  for i = 1, count do
    local group = 0
    if blocks:byte(at) == 12 then group, at = blocks:byte(at + 1), at + 2 end
    local wait, whole, part, new, life, wrong, granted, back, id = check(KEYS[first + i])
    answers[i] = answer(wait, whole, part, granted, back, id)
    if wrong and group > 0 then
      wait, new, answers[i] = math.huge, nil, unreadable
    elseif wrong and not bad then
      bad, reason = i, wrong
    end
    if wait > 0 then refused[group] = true end
    groups[i], states[i], lives[i] = group, new and { wait == 0, new }, life
  end
  if bad then return failed(bad, reason) end
  local reply = {}
  for i = 1, count do
    local group, state = groups[i], states[i]
    -- Of a refused request, and of a refused group, only the mended states of the refusing limits are kept.
    if state and not (state[1] and (refused[0] or refused[group])) then
      local wrong = write(KEYS[first + i], state[2], lives[i])
      if wrong and group == 0 then return failed(i, wrong) end
      if wrong then answers[i] = unreadable end
    end
    reply[i] = answers[i]
  end
  return table.concat(reply)
end

local replies, first, numbers = { pack(">d", now) }, 0, ARGV[4]
for request = 1, #shape do
  local count, start = shape:byte(request), at
  -- Here equal requests are decided one after another.
  for _ = 1, numbers and numbers:byte(request) or 1 do
    at = start
    replies[#replies + 1] = all(first, count)
  end
  first = first + count
end
return finish(replies)
