-- short.lua: decides a batch of requests by the three algorithms that most limits have. It answers as decide.lua does,
-- and is asked far more often. Twins: src/limit/token_bucket.rs, leaky_bucket.rs, fixed_window.rs; and decide.lua itself.
--
-- KEYS      the counters, one for each limit of each request, in order
-- ARGV[1]   the time as a packed double, in microseconds since the epoch; "" means this server's own clock
-- ARGV[2]   the limits' parameter blocks, one behind the other (src/limit/wire.rs)
-- ARGV[3]   one byte for each request: the number of its limits. Requests are decided in order and each is committed
--           before the next is checked, so that a batch equals the same calls one after another.
-- ARGV[4]   one byte for each request: how many equal requests it stands for (equal.lua); "" or absent where each is one
-- ARGV[5]   one byte for each request: the number of its form. The blocks of a form stand in ARGV[2] once, in the order
--           of the numbers, which begin at 1; absent where each request has blocks of its own.
--
-- Every function costs a script, since a script is built anew for each call, and so does every call of one. So nearly
-- all of this is one loop, and a number becomes bytes once, at the end.
local call, pack, unpack, byte, keys = redis.pcall, struct.pack, struct.unpack, string.byte, KEYS
local blocks, counts, numbers, forms = ARGV[2], { byte(ARGV[3], 1, -1) }, ARGV[4] or "", ARGV[5]

-- A clock in ARGV is a test's: the server's own clock must then not end a state, so every life is an hour longer.
local now, slack
if ARGV[1] == "" then
  local time = call("TIME")
  now, slack = time[1] * 1000000 + time[2], 0
else
  now, slack = unpack(">d", ARGV[1]), 3600000
end

-- The reply: its form, and its numbers.
local shape, told, pieces, size = { ">d" }, { now }, 1, 1

-- Where requests share a counter, it is read once and stored twice at most. The first store goes to the server, which
-- refuses it, if at all, before any charge. The last of the later stores goes to the server at the end. The account has
-- its price, so it is kept only where neighbours have the same key, which is cheap to see. `known` has each counter's
-- state, false where it has none; `late` the life of the newest state, false once the server has it.
local known, late

-- Most calls are about one token bucket for each request, all with the same numbers, and most of these buckets are empty
-- or have room. Their requests are decided here, up to the first that is of another kind.
local begun = 0
if #blocks == 57 and byte(blocks) == 1 and #keys == #counts and numbers == "" then
  local _, charge, charge_part, capacity, _, den, present = unpack(">Bdddddc16", blocks)
  local more = charge_part > 0 and 1 or 0
  local first_state, first_life, before, latest
  for request = 1, charge + charge_part > 0 and charge < capacity and #keys or 0 do
    local key = keys[request]
    if key == before then
      known, late = { [key] = latest }, { [key] = false }
      break
    end
    local held, whole, state, life = call("GET", key), charge, first_state, first_life
    if held then
      -- An error is a table without a length.
      if #held ~= 24 then break end
      local stored, under = unpack(">dc16", held)
      if stored >= now and stored < 9007199254740992 and stored % 1 == 0 then
        if under ~= present then break end
        whole, state = stored - now + charge, nil
        if whole >= capacity then break end
      end
    end
    if not state then
      if more == 0 then
        state = pack(">dc0", now + whole, present)
      else
        state = pack(">dI4I4c0", now + whole, charge_part, den, present)
      end
      life = string.format("%d", math.ceil((whole + more) / 1000) + slack)
      if whole == charge then first_state, first_life = state, life end
    end
    if call("SET", key, state, "PX", life).err then break end
    begun, before, latest = request, key, state
    pieces, size = pieces + 1, size + 3
    shape[pieces], told[size - 2], told[size - 1], told[size] = "BdI4", 0, whole, charge_part
  end
  if begun == #keys then return pack(table.concat(shape), (table.unpack or _G.unpack)(told)) end
end

-- The blocks as rows: wait (0 admits, math.huge is never), two numbers of the algorithm's own, and whether there is a
-- state to store, or what changed.lua tells of it; these are of the present request. Then the block's own numbers:
--   1 token bucket   charge, its part, capacity, its part, den, the numbers in its states
--   2 leaky bucket   the same, then the latest level at which anything may still be admitted, its part
--   3 fixed window   window, limit, cost
local rows, at, many = {}, 1, 0
while at <= #blocks do
  local kind = byte(blocks, at)
  local form = kind == 1 and ">Bdddddc16" or kind == 2 and ">Bdddddc16dd" or ">Bddd"
  local row = { 0, 0, 0, false, unpack(form, blocks, at) }
  many, at = many + 1, row[#row]
  -- Where requests wait, states have no numbers.
  if kind == 2 and byte(row[11]) == 0 then row[11] = "" end
  rows[many] = row
end

-- The place in front of the first row of each form.
local places
if forms then
  forms, places = { byte(forms, 1, -1) }, {}
  local place = 0
  for request = 1, #counts do
    local form = forms[request]
    if not places[form] then places[form], place = place, place + counts[request] end
  end
end

if numbers ~= "" then
  numbers, known, late = { byte(numbers, 1, -1) }, {}, {}
elseif known then
  numbers = nil
else
  numbers = nil
  local stride = counts[1]
  for i = 1, #keys - stride do
    if keys[i] == keys[i + stride] then
      known, late = {}, {}
      break
    end
  end
end

-- The number of further charges, `most` at most, for which a level has room below a bound; negative where it has none
-- even without a charge.
local room = numbers and function(row, bound, bound_part, most)
  local whole, part, charge, charge_part, den = row[2], row[3], row[6], row[7], row[10]
  -- The quotient is inexact: it starts too high, and is corrected by the exact sums.
  local fit = (bound - whole + (bound_part - part) / den) / (charge + charge_part / den)
  fit = math.min(most, math.floor(fit) + 1)
  while fit >= 0 do
    local sum = part + fit * charge_part
    local over = whole + fit * charge + math.floor(sum / den) - bound
    if over < 0 or (over == 0 and sum % den <= bound_part) then break end
    fit = fit - 1
  end
  return fit
end

local first, place, lasts, lasts_text, changed = begun, 0, nil, nil, nil
for request = begun + 1, #counts do
  local count, times = counts[request], numbers and numbers[request] or 1
  if forms then place = places[forms[request]] end
  -- The first of equal requests are admitted, as many as every limit has room for; then the others are refused.
  repeat
    local refused, bad, reason, fit = false, nil, nil, times
    for i = 1, count do
      local key, row = keys[first + i], rows[place + i]
      local state = known and known[key]
      if state == nil or not known then
        state = call("GET", key)
        -- An error is a table; a string has no such field.
        if state and state.err then
          if not bad then bad, reason = i, state.err end
          state = false
        elseif known then
          known[key] = state
        end
      end

      local wait, whole, part, store = 0, 0, 0, true
      if row[5] == 3 then
        -- fixed_window.lua
        local window, limit, cost, start, mended = row[6], row[7], row[8], now, false
        if state and (#state == 12 or #state == 16) then
          local stored, held
          if #state == 12 then
            stored, held = unpack(">dI4", state)
          else
            -- Of a greater limit: more than this one ever holds.
            stored, held = unpack(">dd", state)
            if not (held >= 0 and held < 9007199254740992 and held % 1 == 0) then stored = -1 end
            held = math.min(held, 4294967295)
          end
          if stored >= 0 and stored < 9007199254740992 and stored % 1 == 0 then
            if stored > now then
              part, mended = held, true
            elseif now - stored < window then
              start, part = stored + 0, held
            end
          end
        end
        whole = start + window - now
        if cost == 0 then
          store = false
        elseif part + cost <= limit then
          part = part + cost
        else
          wait, store = cost > limit and math.huge or whole, mended and cost <= limit
        end
      else
        -- bucket.lua
        local charge, charge_part, capacity, capacity_part, den = row[6], row[7], row[8], row[9], row[10]
        local mended, kept = false, nil
        if state then
          local stored, fraction, under, long, own = -1, 0, 1, #state, nil
          if long == 24 then
            stored, own = unpack(">dc16", state)
          elseif long == 8 or long == 40 then
            stored = unpack(">d", state)
          elseif long == 16 or long == 32 or long == 48 then
            stored, fraction, under = unpack(">dI4I4", state)
            if fraction == 0 or fraction >= under then stored = -1 end
          elseif long == 28 or long == 44 then
            stored = unpack(">d", state)
          elseif long == 36 or long == 52 then
            stored, fraction, under = unpack(">dI4I4", state)
            if fraction == 0 or fraction >= under then stored = -1 end
          end
          if long > 24 then own = string.sub(state, long % 8 == 4 and -20 or -16) end
          if stored >= now and stored < 9007199254740992 and stored % 1 == 0 then
            whole, part = stored - now, fraction
            local present = row[11]
            if own and own ~= present and present ~= "" then
              -- == changed ==
              local is_queue = row[5] == 2
              local told_wait, level, level_part, how = changed(state, whole, part, charge, charge_part, capacity,
                capacity_part, den, present, is_queue and row[12] or capacity, is_queue and row[13] or capacity_part)
              if how then wait, whole, part, kept = told_wait, level, level_part, how end
            end
            if not kept and part > 0 and under ~= den then whole, part = whole + 1, 0 end
            if not kept and (whole > capacity or (whole == capacity and part > capacity_part)) then
              whole, part, mended = capacity, capacity_part, true
            end
          end
        end
        if kept then
          store = kept
        else
          local sum, sum_part = whole + charge, part + charge_part
          if sum_part >= den then sum, sum_part = sum + 1, sum_part - den end
          wait = sum - capacity
          if sum_part > capacity_part then wait = wait + 1 end
          if row[5] == 2 then
            local later = whole - row[12]
            if part > row[13] then later = later + 1 end
            if later > wait then wait = later end
          end
          if charge == 0 and charge_part == 0 then
            wait, store, whole, part = 0, false, sum, sum_part
          elseif wait <= 0 then
            wait, whole, part = 0, sum, sum_part
          elseif charge > capacity or (charge == capacity and charge_part > capacity_part) then
            wait, store = math.huge, false
          else
            store = mended
          end
        end
      end
      if wait > 0 then refused = true end
      row[1], row[2], row[3], row[4] = wait, whole, part, store
    end

    -- How many of equal requests have room in every limit?
    for i = 1, (times > 1 and not refused and not bad) and count or 0 do
      local row = rows[place + i]
      local most = fit - 1
      if row[4] ~= true then
        -- Asked without a cost: it changes nothing.
      elseif row[5] == 3 then
        most = math.min(most, math.floor((row[7] - row[3]) / row[8]))
      else
        most = room(row, row[8], row[9], most)
        -- The bound is one of the level in front of the last charge.
        if row[5] == 2 then most = math.min(most, math.max(room(row, row[12], row[13], most) + 1, 0)) end
      end
      fit = most + 1
    end

    for i = 1, bad and 0 or count do
      local row = rows[place + i]
      local wait, whole, part = row[1], row[2], row[3]
      -- Of a refused request, only the mended states of the refusing limits are kept.
      local kept = row[4]
      if kept and (kept == true or kept.state) and (wait ~= 0 or not refused) then
        local key, more, state, life = keys[first + i], refused and 0 or fit - 1, nil, whole
        if row[5] == 3 then
          state = pack(">dI4", whole + now - row[6], part + more * row[8])
        elseif kept ~= true then
          state, life = kept.state, kept.life
        else
          if more > 0 then
            local sum = part + more * row[7]
            whole, part = whole + more * row[6] + math.floor(sum / row[10]), sum % row[10]
          end
          if part == 0 then
            state, life = pack(">dc0", now + whole, row[11]), whole
          else
            state, life = pack(">dI4I4c0", now + whole, part, row[10], row[11]), whole + 1
          end
        end
        -- In milliseconds, rounded up; after that the state equals no state. As a text, since the server would write a
        -- number out in 17 digits; the states of one call often live equally long.
        life = life + 999
        life = (life - life % 1000) / 1000 + slack
        if life ~= lasts then lasts, lasts_text = life, string.format("%d", life) end
        if not late or late[key] == nil then
          reason = call("SET", key, state, "PX", lasts_text).err
          -- Servers refuse a script's first write or none. If one refuses a later write all the same, the earlier
          -- writes stay: charged too much, never admitted too much.
          if reason then
            bad = i
            break
          end
          if late then known[key], late[key] = state, false end
        else
          known[key], late[key] = state, lasts_text
        end
      end
    end

    if bad or refused then fit = times end
    for nth = 1, fit do
      if bad then
        shape[pieces + 1] = "BBBc0"
        told[size + 1], told[size + 2], told[size + 3] = 4, bad, math.min(#reason, 255)
        told[size + 4] = string.sub(reason, 1, 255)
        pieces, size = pieces + 1, size + 4
      end
      for i = 1, bad and 0 or count do
        local row = rows[place + i]
        local wait, whole, part = row[1], row[2], row[3]
        local kept = row[4]
        pieces = pieces + 1
        if kept and kept ~= true and kept.drains then
          shape[pieces] = "BdI4dd"
          told[size + 1], told[size + 2], told[size + 3], told[size + 4] = 5, whole, part, wait
          size = size + 5
          told[size] = kept.drains
        elseif wait == 0 then
          shape[pieces] = "BdI4"
          told[size + 1], told[size + 2], told[size + 3] = 0, whole, part
          size = size + 3
          if nth < fit and not refused then
            if row[5] == 3 then
              row[3] = part + row[8]
            else
              whole, part = whole + row[6], part + row[7]
              if part >= row[10] then whole, part = whole + 1, part - row[10] end
              row[2], row[3] = whole, part
            end
          end
        elseif wait == math.huge then
          shape[pieces] = "BdI4"
          told[size + 1], told[size + 2], told[size + 3] = 2, whole, part
          size = size + 3
        else
          shape[pieces] = "BdI4d"
          told[size + 1], told[size + 2], told[size + 3], told[size + 4] = 1, whole, part, wait
          size = size + 4
        end
      end
    end
    times = times - fit
  until times == 0
  first = first + count
  if not forms then place = place + count end
end

-- If a server refuses a counter that it took before, no request was admitted.
if late then
  for key, life in pairs(late) do
    local wrong = life and call("SET", key, known[key], "PX", life).err
    if wrong then return { err = "BATCH a counter could not be stored again: " .. wrong } end
  end
end
return pack(table.concat(shape), (table.unpack or _G.unpack)(told))
