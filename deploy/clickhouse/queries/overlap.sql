-- Which requests of the same host overlapped the slowest one? When they began and ended, ns from its begin and its end.
WITH slowest AS
(
    SELECT host AS on_host, toUnixTimestamp64Nano(start) AS begins, begins + latency_ns AS ends
    FROM reqtrace.requests FINAL
    WHERE complete AND service = {service:String}
    ORDER BY latency_ns DESC, file, id
    LIMIT 1
)
SELECT service, request, tid, toUnixTimestamp64Nano(start) - begins AS begins_ns, latency_ns,
    toUnixTimestamp64Nano(start) + latency_ns - ends AS ends_ns, blocked_ns
FROM reqtrace.requests AS r FINAL, slowest
WHERE r.host = on_host AND toUnixTimestamp64Nano(start) < ends AND toUnixTimestamp64Nano(start) + latency_ns > begins
ORDER BY latency_ns DESC, r.file, r.id
LIMIT 10;
