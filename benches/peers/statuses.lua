-- Counts the answers of a wrk run by status. It looks at every answer, so it serves the warm-up, not the measurement.

local threads = {}

function setup(thread)
    table.insert(threads, thread)
end

function init()
    counts = {}   -- global: done() reads it out of each thread
end

function response(status)
    counts[status] = (counts[status] or 0) + 1
end

function done()
    local total = {}
    for _, thread in ipairs(threads) do
        for status, count in pairs(thread:get("counts")) do
            total[status] = (total[status] or 0) + count
        end
    end
    local fields = {}
    for status, count in pairs(total) do
        table.insert(fields, string.format('"%d": %d', status, count))
    end
    io.write("\nRESULT {", table.concat(fields, ", "), "}\n")
end
