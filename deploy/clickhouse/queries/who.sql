-- Is it one thread, or one host? The threads that the time of slow requests is of.
SELECT host, pid, tid, sum(weight) AS n, sum(if(slow, weight, 0)) AS slow_n, max(latency_ns) AS max_ns,
    sum(if(slow, weight * latency_ns, 0)) AS slow_ns
FROM reqtrace.requests FINAL
WHERE complete AND service = {service:String}
GROUP BY host, pid, tid
ORDER BY slow_ns DESC, host, pid, tid
LIMIT 10;
