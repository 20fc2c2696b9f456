-- batch.lua: where the requests of a batch share a counter, each is asked for once and stored twice at most.
--
-- `ask` is another one then: a request for a state, or to store it, is answered from what this call knows of it already.
-- The first time that one is stored it goes to the server, which refuses then what it will refuse, before anything is
-- charged; the last of the later ones goes there at the end. What has no such state, lists and sets, passes this by.

-- Keeping account has its price: it is for neighbours with the same key, which is cheaply seen.
local shape, keys, finish = ARGV[3], KEYS, table.concat
local stride, shared = shape:byte(), false
for i = 1, #keys - stride do
  if keys[i] == keys[i + stride] then
    shared = true
    break
  end
end

if shared then
  -- Each counter's state, false where it has none; of those stored how long the newest is to live, false once it is there.
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

  -- Should a server refuse a counter that it took before, no request was admitted.
  finish = function(replies)
    for key, life in pairs(late) do
      local wrong = life and call("SET", key, known[key], "PX", life).err
      if wrong then return { err = "BATCH a counter could not be stored again: " .. wrong } end
    end
    return table.concat(replies)
  end
end
