-- Decides a request inside nginx: one EVALSHA to Redis on a pooled connection, 429 when the script says wait.

local redis = require "nginx.redis"

local limit = {}

local TIMEOUT_MS = 1000
local IDLE_MS = 60000
local POOL_SIZE = 128   -- per nginx worker; above the number of requests in flight, so that none connects anew

local function fail(connection, what, err)
    connection:close()
    ngx.log(ngx.CRIT, what, ": ", err)
    return ngx.exit(ngx.HTTP_INTERNAL_SERVER_ERROR)
end

-- port, sha: where Redis is and the SHA1 of gcra.lua, loaded there beforehand
-- key: whose limit it is
-- interval, tolerance: as gcra.lua takes them
function limit.decide(port, sha, key, interval, tolerance)
    local connection = redis:new()
    connection:set_timeout(TIMEOUT_MS)
    local connected, connect_err = connection:connect("127.0.0.1", port)
    if not connected then
        return fail(connection, "no redis", connect_err)
    end

    local wait, err = connection:evalsha(sha, 1, "limit:" .. (key or ""), interval, tolerance)
    if not wait then
        return fail(connection, "no decision", err)
    end
    connection:set_keepalive(IDLE_MS, POOL_SIZE)

    if wait > 0 then
        ngx.header["Retry-After"] = math.ceil(wait / 1000000)
        return ngx.exit(429)
    end
end

return limit
