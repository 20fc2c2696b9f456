-- dedupe.lua: the same id within its time is charged once, and a few repeats of it go free.
-- Twin: src/limit/dedupe.rs.
--
-- The record of an id: the instant at which it ends as a double, the granted units and the number of repeats that went
-- free as four bytes each; the units as a double above 2^32 - 1. The records' keys stand behind those of all counters, the last one first.
--
-- block     10, ttl, repeats, cost, the lengths of the limit's own block and of its block at no cost, then both blocks
-- answers   as the limit's own block does, with the granted units and the meaning of the id (check.lua). Where the
--           request goes free, all other answers are those at no cost.
local record_at = #KEYS + 1

local function deduped(key, check)
  local _, ttl, repeats, cost, own, none, first = unpack(">BdddBB", blocks, at)
  record_at = record_at - 1
  local record = KEYS[record_at]
  local held, wrong = ask("GET", record), nil
  if held and held.err then held, wrong = false, held.err end
  local ends, granted, free = 0, 0, 0
  local size = held and #held
  if size == 16 or size == 20 then
    ends, granted, free = unpack(size == 16 and ">dI4I4" or ">ddI4", held)
    if not (granted < 9007199254740992 and granted % 1 == 0) then granted = 0 end
    -- A past end, a number that a double does not count exactly, or a value that is no number (no comparison holds) is
    -- no record.
    if not (ends > now and ends < 9007199254740992 and ends % 1 == 0 and granted > 0) then ends = 0 end
    -- The end is later than any record's: the clock has stepped back, or the time is shorter than it was.
    if ends > now + ttl then ends = now + ttl end
  end
  local going_free = ends > 0 and free < repeats
  at = going_free and first + own or first
  local wait, whole, part, new, life, late, less, back = check(key)
  at = first + own + none
  local id
  if going_free then
    less, id = granted, 32
    new = { record = record, bytes = pack(granted > 4294967295 and ">ddI4" or ">dI4I4", ends, granted, free + 1), lasts = ends - now }
  elseif ends == 0 and wait == 0 then
    less, id = less or cost, 16
    new = { record = record, bytes = pack(less > 4294967295 and ">ddI4" or ">dI4I4", now + ttl, less, 0), lasts = ttl, own = new }
  end
  return wait, whole, part, new, life, wrong or late, less, back, id
end

-- The charge goes before its record, and the mended counter before the block of its key (blocking.lua). If the record is refused, a repeat is charged again, and never goes free for
-- nothing.
local keep = write
local function write(key, state, life)
  if type(state) ~= "table" or not state.record then return keep(key, state, life) end
  local wrong = state.own and keep(key, state.own, life)
  return wrong or keep(state.record, state.bytes, state.lasts)
end

-- == refund ==
-- Block: 9, the end of the record, the length of the block behind it, which follows.
--
-- A charge goes back with its record: the next request of that id pays. The charge stays where a repeat has gone free
-- on it, or where the record is gone and cannot show that.
local function refund_with_record(key, record, refund)
  local _, ends, length, first = unpack(">BdB", blocks, at)
  at = first
  local held = call("GET", record)
  if held and held.err then
    at = first + length
    return "\3"
  end
  local size = held and #held
  if (size ~= 16 and size ~= 20) or unpack(">d", held) ~= ends or held:sub(-4) ~= "\0\0\0\0" then
    at = first + length
    return "\0"
  end
  local outcome = refund(key)
  if outcome == "\1" or outcome == "\2" then
    if drop(record) == "\3" then return "\3" end
  end
  return outcome
end

-- Block: 10, the latest end of the record.
--
-- A repeat has not gone free after all: the record is as it was before. A record with a later end belongs to a later
-- charge.
local function take_back_repeat(record)
  local _, latest, past = unpack(">Bd", blocks, at)
  at = past
  local held = call("GET", record)
  if held and held.err then return "\3" end
  local size = held and #held
  if size ~= 16 and size ~= 20 then return "\0" end
  local ends, granted, free = unpack(size == 16 and ">dI4I4" or ">ddI4", held)
  if not (granted >= 0 and granted < 9007199254740992 and granted % 1 == 0) then return "\0" end
  if not (ends > now and ends <= latest and ends % 1 == 0 and free > 0) then return "\0" end
  return put(record, pack(granted > 4294967295 and ">ddI4" or ">dI4I4", ends, granted, free - 1), ends - now)
end
