-- refund.lua: gives back charges that requests did not use. Each algorithm's return is in its own file, behind the line
-- that marks it; script.rs puts both parts together. Twins: `refund` in src/limit.
--
-- KEYS      one counter for each refund; behind them the records of charges that had an id, blocks, and marks of resets,
--           the last first; and at the end the marker of the call, if it has one
-- ARGV[2]   a block for each, by its first byte:
--             1 leaky_bucket.lua (a queue)   2 settlement.lua (both buckets)   3 fixed_window.lua (windows of any anchor)
--             4 sliding_window.lua           5 sliding_log.lua                 6 and 7 concurrency.lua
--             8 the life of a mark follows: any counter is forgotten, with the block of its key (blocking.lua), and the
--               mark says when
--             9 and 10 dedupe.lua
--             11 the instant of the charge, and the length of the block behind it: nothing comes back to a counter that
--                was forgotten since
-- ARGV[3]   the call's number as a double, or "": a call without an answer is repeated with its number. The marker holds
--           the number of the last call that was made under its name.
-- reply     a byte for each refund: 0 nothing may go back, 1 something went back, 2 it did and no state is left, 3 the
--           refund could not be done, 4 the call has been made before, 5 the counter was forgotten since the charge
local function forget(key, block, mark)
  local _, life, past = unpack(">Bd", blocks, at)
  at = past
  -- The mark goes first: a charge of before then gives nothing back, whatever fails after it.
  if write(mark, pack(">d", now), life) then return "\3" end
  local reply = call("DEL", key, block)
  if type(reply) == "table" then return "\3" end
  return reply == 0 and "\0" or "\2"
end

local readers = { place, settle, refund_window, refund_parts }

local function refund(key)
  local kind = blocks:byte(at)
  if kind == 5 then return refund_log(key) end
  if kind == 6 or kind == 7 then return end_or_renew(key) end
  local state, wrong = call("GET", key), nil
  if state and state.err then state, wrong = false, true end
  local outcome = readers[kind](key, state)
  return wrong and "\3" or outcome
end

local replies, count, record_at = {}, 0, #KEYS + 1
if ARGV[3] ~= "" then
  record_at = #KEYS
  local held = call("GET", KEYS[record_at])
  if type(held) == "string" and #held == 8 and unpack(">d", held) >= unpack(">d", ARGV[3]) then
    return string.rep("\4", record_at)
  end
  -- The marker is written first: if the call fails after that, its repeat changes nothing twice.
  local reply = call("SET", KEYS[record_at], ARGV[3], "PX", 150000)
  if reply.err then return reply end
end
while at <= #blocks do
  count = count + 1
  local kind, stale = blocks:byte(at), nil
  if kind == 11 then
    local _, charged, length, first = unpack(">BdB", blocks, at)
    record_at = record_at - 1
    local mark = call("GET", KEYS[record_at])
    at, kind = first, blocks:byte(first)
    -- A value that is no number is no mark: no comparison holds.
    if type(mark) == "string" and #mark == 8 and charged <= unpack(">d", mark) then stale = first + length end
  end
  if kind > 7 then record_at = record_at - 1 end
  if stale then
    at, replies[count] = stale, "\5"
  elseif kind == 9 then
    replies[count] = refund_with_record(KEYS[count], KEYS[record_at], refund)
  elseif kind == 10 then
    replies[count] = take_back_repeat(KEYS[record_at])
  elseif kind == 8 then
    record_at = record_at - 1
    replies[count] = forget(KEYS[count], KEYS[record_at + 1], KEYS[record_at])
  else
    replies[count] = refund(KEYS[count])
  end
end
return table.concat(replies)
