-- batch.lua: where requests of a batch share a counter, each counter is read once and stored twice at most.
--
-- `ask` is replaced here: a request for a state, or to store it, is answered from this call's own knowledge of the
-- state. The first store of a counter goes to the server, which refuses it, if at all, before any charge. The last of
-- the later stores goes to the server at the end. Counters that are lists and sets have no such state and bypass this.

-- Tracking has a cost, so it is done only if adjacent requests have the same key, which is cheap to check.
local shape, keys, finish = ARGV[3], KEYS, table.concat
local stride, shared = shape:byte(), ARGV[4] ~= nil
for i = 1, shared and 0 or #keys - stride do
  if keys[i] == keys[i + stride] then
    shared = true
    break
  end
end

if shared then
  -- Each counter's state, or false without one. The life of the newest stored state, or false once the server has it.
  local known, late, taken = {}, {}, {}
  ask = function(command, key, state, unit, life)
    if not state then
      state = known[key]
      if state == nil then
        state = call(command, key)
        if not (state and state.err) then known[key] = state end
      end
      return state
    end
    if late[key] == nil then
      local reply = call(command, key, state, unit, life)
      if not reply.err then known[key], late[key] = state, false end
      return reply
    end
    known[key], late[key] = state, life
    return taken
  end

  -- If a server refuses a counter that it took before, no request was admitted.
  finish = function(replies)
    for key, life in pairs(late) do
      local wrong = life and call("SET", key, known[key], "PX", life).err
      if wrong then return { err = "BATCH a counter could not be stored again: " .. wrong } end
    end
    return table.concat(replies)
  end
end
