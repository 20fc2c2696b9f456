-- concurrency.lua: at most `max` in flight; a slot is a lease that expires unless it is renewed.
-- Twin: src/limit/concurrency.rs.
--
-- The state is a sorted set: each slot's number as a double, scored by the instant until which the slot is taken. A
-- gateway chooses the number, so that it can free the slot even without an answer. Else the number is the instant at
-- which the slot was taken. A number that is taken is followed by the next free one.
--
-- block     8, max, life of a lease, cost, the number of the first slot, 0 where it is the present instant
-- answers   wait (0 admits, math.huge is never), the number of the first slot that would be taken, slots taken, the
--           change if any, its life
local function concurrency(key)
  local _, max, ttl, cost, chosen, past = unpack(">Bdddd", blocks, at)
  at = past
  local held = call("ZCOUNT", key, string.format("(%.0f", now), "+inf")
  if type(held) == "table" then return 0, 0, 0, nil, nil, held.err end
  if cost == 0 then return 0, 0, held end
  if cost > max then return math.huge, 0, held end
  if held + cost > max then
    local ahead = call("ZCOUNT", key, string.format("(%.0f", now + ttl), "+inf")
    if ahead == 0 then return 1000000, 0, held end
    return 1000000, 0, held, { first = 0, count = 0 }, ttl
  end
  local first, found = chosen > 0 and chosen or now, 0
  while found < cost do
    local taken = call("ZSCORE", key, pack(">d", first + found))
    -- A user without the right would find each number taken, without end.
    if type(taken) == "table" then return 0, 0, 0, nil, nil, taken.err end
    if taken then
      first, found = first + found + 1, 0
    else
      found = found + 1
    end
  end
  return 0, first, held + cost, { first = first, count = cost }, ttl
end

-- Slots are taken before any is removed: a server that is out of memory refuses a script's first write, or none.
local put = write
local function write(key, state, life)
  if type(state) == "string" or not state.first then return put(key, state, life) end
  local last, taken, wrong = string.format("%.0f", now + life), 0, nil
  while taken < state.count and not wrong do
    local reply = call("ZADD", key, last, pack(">d", state.first + taken))
    if type(reply) == "table" then wrong = reply.err else taken = taken + 1 end
  end
  if not wrong then
    -- Some leases end later than a new lease would: the clock has stepped back, or leases have become shorter.
    local ahead = call("ZRANGEBYSCORE", key, "(" .. last, "+inf")
    wrong = ahead.err
    for i = 1, wrong and 0 or #ahead do
      local reply = call("ZADD", key, last, ahead[i])
      if type(reply) == "table" then wrong = reply.err end
    end
  end
  if state.count > 0 and not wrong then
    local reply = call("ZREMRANGEBYSCORE", key, "-inf", string.format("%.0f", now))
    if type(reply) == "table" then wrong = reply.err end
  end
  if not wrong then
    local reply = call("PEXPIRE", key, math.ceil(life / 1000) + slack)
    if type(reply) == "table" then wrong = reply.err end
  end
  -- If a later command is refused, no slot stays taken for a request that is not admitted.
  for i = 0, wrong and taken - 1 or -1 do call("ZREM", key, pack(">d", state.first + i)) end
  return wrong
end

-- == refund ==
-- Block: 6, life of a lease, the first slot, how many: the slots are freed. With 7 in front they are renewed.
--
-- The block names slots whose request has ended, or lives. A living request's lapsed slot is taken anew, even without
-- room, since the request is in flight.
local function end_or_renew(key)
  local kind, ttl, first, count, past = unpack(">Bddd", blocks, at)
  at = past
  local done = 0
  for i = 0, count - 1 do
    local slot = pack(">d", first + i)
    local reply = 0
    if kind == 6 then
      reply = call("ZREM", key, slot)
    else
      reply = call("ZADD", key, string.format("%.0f", now + ttl), slot)
      if type(reply) ~= "table" then reply = 1 end
    end
    if type(reply) == "table" then return "\3" end
    done = done + reply
  end
  if done == 0 then return "\0" end
  local last = call("ZRANGE", key, -1, -1, "WITHSCORES")
  if last.err then return "\3" end
  if not last[2] then return "\2" end
  local life = tonumber(last[2]) - now
  if life <= 0 then return drop(key) end
  local reply = call("PEXPIRE", key, math.ceil(life / 1000) + slack)
  return type(reply) == "table" and "\3" or "\1"
end
