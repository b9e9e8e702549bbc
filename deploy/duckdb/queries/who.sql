-- Is it one thread, or one host? The threads that the time of slow requests is of.
SELECT host, pid, tid, sum(weight) AS n, coalesce(sum(weight) FILTER (slow), 0) AS slow_n, max(latency_ns) AS max_ns,
    coalesce(sum(weight * latency_ns) FILTER (slow), 0) AS slow_ns
FROM requests
WHERE complete AND service = getvariable('service')
GROUP BY host, pid, tid
ORDER BY slow_ns DESC, host, pid, tid
LIMIT 10;
