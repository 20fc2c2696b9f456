-- Prints what a wrk run measured as one line of JSON. It touches no request, so the load is as cheap as without it.

function done(summary, latency)
    local errors = summary.errors
    io.write(string.format(
        '\nRESULT {"requests": %d, "duration_us": %d, "p50_us": %d, "p99_us": %d, '
            .. '"not_2xx": %d, "socket_errors": %d, "timeouts": %d}\n',
        summary.requests, summary.duration, latency:percentile(50), latency:percentile(99),
        errors.status, errors.connect + errors.read + errors.write, errors.timeout))
end
