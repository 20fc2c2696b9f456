-- bucket.lua: the common part of token bucket and leaky bucket: one stored instant, at which the bucket is empty again.
-- Twin: src/limit/bucket.rs.
--
-- The state is the double `at`, or `at`, `part` and `den`: empty at `at + part/den` microseconds. A level is the time
-- it takes to drain: whole microseconds, and a part of one over the limit's own denominator. Where charges are settled
-- two doubles stand behind it (settlement.lua). The last 16 bytes are the numbers that the state was written with
-- (changed.lua), 20 for a bucket that holds more than 2^32 - 1 units; a bucket in which requests wait has none, and
-- neither has a state of an older version.
--
-- take      raises the level by the charge unless that exceeds the capacity, or the level exceeds the latest at which
--           anything may still be admitted
-- answers   wait (0 admits, math.huge is never), level after the charge or before a refusal, its part,
--           the state to store if any, its life
-- drains    the time until the bucket is empty, where its state keeps other numbers than the limit's
local changed, drains
local function take(state, charge, charge_part, capacity, capacity_part, den, numbers, latest, latest_part)
  local whole, part, mended = 0, 0, false
  if numbers:byte() == 0 then numbers = "" end
  if state then
    local stored, fraction, under, size = -1, 0, 1, #state
    if size == 8 or size == 24 or size == 40 or size == 28 or size == 44 then
      stored = unpack(">d", state)
    elseif size == 16 or size == 32 or size == 48 or size == 36 or size == 52 then
      stored, fraction, under = unpack(">dI4I4", state)
      if fraction == 0 or fraction >= under then stored = -1 end
    end
    -- A past instant, a number that a double does not count exactly, or a value that is no number (no comparison holds)
    -- is no state.
    if stored >= now and stored < 9007199254740992 and stored % 1 == 0 then
      whole, part = stored - now, fraction
      if size > 16 and numbers ~= "" and (state:sub(-#numbers) ~= numbers or (size - #numbers) % 8 > 0) then
        -- == changed ==
        local wait, level, level_part, kept = changed(state, whole, part, charge, charge_part, capacity, capacity_part,
          den, numbers, latest, latest_part)
        if kept == true then
          local bytes = level_part == 0 and pack(">d", now + level) or pack(">dI4I4", now + level, level_part, den)
          return wait, level, level_part, bytes .. numbers, level + (level_part > 0 and 1 or 0)
        elseif kept then
          drains = kept.drains
          return wait, level, level_part, kept.state, kept.life
        end
      end
      -- The fraction belongs to another rate: it is rounded up, against the client.
      if part > 0 and under ~= den then whole, part = whole + 1, 0 end
      -- The bucket is fuller than full: the numbers have changed or the clock has stepped back.
      if whole > capacity or (whole == capacity and part > capacity_part) then
        whole, part, mended = capacity, capacity_part, true
      end
    end
  end
  local peek = charge == 0 and charge_part == 0
  local sum, sum_part = whole + charge, part + charge_part
  if sum_part >= den then sum, sum_part = sum + 1, sum_part - den end

  -- The excess over either bound, rounded up.
  local wait, late = sum - capacity, whole - latest
  if sum_part > capacity_part then wait = wait + 1 end
  if part > latest_part then late = late + 1 end
  if late > wait then wait = late end
  if peek or wait <= 0 then
    whole, part, wait = sum, sum_part, 0
  elseif charge > capacity or (charge == capacity and charge_part > capacity_part) then
    return math.huge, whole, part
  end
  if peek or (wait > 0 and not mended) then return wait, whole, part end
  if part == 0 then return wait, whole, part, pack(">dc0", now + whole, numbers), whole end
  return wait, whole, part, pack(">dI4I4c0", now + whole, part, den, numbers), whole + 1
end

-- == refund ==
-- The instant at which a bucket is empty, if it can be compared: no state, and another rate's fraction, cannot. Then
-- the numbers behind it, "" if there are none.
local function instant(state, den)
  local held, part, under, size, numbers = -1, 0, den, state and #state or 0, ""
  if size == 8 or size == 24 or size == 40 or size == 28 or size == 44 then
    held = unpack(">d", state)
  elseif size == 16 or size == 32 or size == 48 or size == 36 or size == 52 then
    held, part, under = unpack(">dI4I4", state)
    if part == 0 or part >= under then return nil end
  end
  if under ~= den or not (held >= 0 and held < 9007199254740992 and held % 1 == 0) then return nil end
  if size > 16 then
    local large = size % 8 == 4
    local p, n, most = unpack(large and ">dI4d" or ">dI4I4", state, size - (large and 19 or 15))
    local good = p <= -1 and p > -9007199254740992 and p % 1 == 0 and n > 0 and most > 0
    if large then
      good = good and most > 4294967295 and most < 9007199254740992 and most % 1 == 0 and p > -4398046511104
    end
    if good and (part == 0 or n == den) then numbers = state:sub(large and -20 or -16) end
  end
  return held, part, numbers
end

-- The difference of two times, each whole and a part over den; negative where its whole is.
local function minus(whole, part, less, less_part, den)
  whole, part = whole - less, part - less_part
  if part < 0 then return whole - 1, part + den end
  return whole, part
end
