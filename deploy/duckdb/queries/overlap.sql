-- Which requests of the same host overlapped the slowest one? When they began and ended, ns from its begin and its end.
WITH slowest AS (
    SELECT host AS on_host, epoch_ns(start) AS begins, epoch_ns(start) + latency_ns AS ends
    FROM requests WHERE complete AND service = getvariable('service')
    ORDER BY latency_ns DESC, file, id LIMIT 1
)
SELECT service, request, tid, epoch_ns(start) - begins AS begins_ns, latency_ns,
    epoch_ns(start) + latency_ns - ends AS ends_ns, blocked_ns
FROM requests, slowest
WHERE host = on_host AND epoch_ns(start) < ends AND epoch_ns(start) + latency_ns > begins
ORDER BY latency_ns DESC, file, id
LIMIT 10;
