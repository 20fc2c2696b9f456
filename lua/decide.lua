-- decide.lua: decides a batch of requests. All limits of a request are checked, and charged only when all of them
-- admit.
--
-- ARGV[3]   one byte for each request: the number of its limits. Requests are decided in order and each is committed
--           before the next is checked, so that a batch equals the same calls one after another.
-- ARGV[4]   one byte for each request: how many equal requests it stands for (equal.lua); absent where each is one
-- reply     the time as a double; then for each request the bytes of `answer` (check.lua) for each of its limits, or
--           the bytes of `failed` for one of them; for equal requests as often as there are requests

local first = 0
for request = 1, #shape do
  local count, times = shape:byte(request), numbers and numbers:byte(request) or 1
  if times > 1 then
    equal(first, count, times)
  else
    each(first, count)
  end
  first = first + count
end
return finish(replies)
