-- single.lua: the answer to a request with one limit, and to a call with only one such request. Most requests and calls
-- are of this kind. The reply is decide.lua's.

-- Most requests have one limit: no tables.
local function one(key)
  local wait, whole, part, new, life, wrong, granted, back, id = check(key)
  if new and not wrong then wrong = write(key, new, life) end
  if wrong then return failed(1, wrong) end
  return answer(wait, whole, part, granted, back, id)
end

-- Most calls have one request.
if ARGV[3] == "\1" and not ARGV[4] then return pack(">d", now) .. one(KEYS[1]) end
