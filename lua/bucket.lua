-- bucket.lua: the common part of token bucket and leaky bucket: one stored instant, at which the bucket is empty again.
-- Twin: src/limit/bucket.rs.
--
-- The state is the double `at`, or `at`, `part` and `den`: empty at `at + part/den` microseconds. A level is the time
-- it takes to drain: whole microseconds, and a part of one over the limit's own denominator. Where charges are settled
-- two doubles stand behind it (settlement.lua).
--
-- take      raises the level by the charge unless that exceeds the capacity, or the level exceeds the latest at which
--           anything may still be admitted
-- answers   wait (0 admits, math.huge is never), level after the charge or before a refusal, its part,
--           the state to store if any, its life
local function take(state, charge, charge_part, capacity, capacity_part, den, latest, latest_part)
  local whole, part, mended = 0, 0, false
  if state then
    local stored, fraction, under = -1, 0, 1
    if #state == 8 or #state == 24 then
      stored = unpack(">d", state)
    elseif #state == 16 or #state == 32 then
      stored, fraction, under = unpack(">dI4I4", state)
      if fraction == 0 or fraction >= under then stored = -1 end
    end
    -- A past instant, a number that a double does not count exactly, or a value that is no number (no comparison holds)
    -- is no state.
    if stored >= now and stored < 9007199254740992 and stored % 1 == 0 then
      whole, part = stored - now, fraction
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
  if part == 0 then return wait, whole, part, pack(">d", now + whole), whole end
  return wait, whole, part, pack(">dI4I4", now + whole, part, den), whole + 1
end

-- == refund ==
-- The instant at which a bucket is empty, if it can be compared: no state, and another rate's fraction, cannot.
local function instant(state, den)
  local held, part, under = -1, 0, den
  if state and (#state == 8 or #state == 24) then
    held = unpack(">d", state)
  elseif state and (#state == 16 or #state == 32) then
    held, part, under = unpack(">dI4I4", state)
    if part == 0 or part >= under then return nil end
  end
  if under ~= den or not (held >= 0 and held < 9007199254740992 and held % 1 == 0) then return nil end
  return held, part
end

-- The difference of two times, each whole and a part over den; negative where its whole is.
local function minus(whole, part, less, less_part, den)
  whole, part = whole - less, part - less_part
  if part < 0 then return whole - 1, part + den end
  return whole, part
end
