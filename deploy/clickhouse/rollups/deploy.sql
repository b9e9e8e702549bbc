-- What changed with the deploy? Exactly, of all requests: the builds of a service by their build id, the first seen first.
SELECT build_id, request, toUnixTimestamp(min(minute)) AS first_minute, uniqExact(host) AS hosts, sum(requests) AS n,
    sum(latency_ns) / n AS mean_ns, sum(on_cpu_ns) / n AS on_cpu_ns_mean, sum(blocked_ns) / n AS blocked_ns_mean,
    sum(ifNull(slow, 0)) / n AS slow_share
FROM reqtrace.rollups FINAL
WHERE level = 'type' AND service = {service:String}
GROUP BY build_id, request
HAVING n > 0
ORDER BY first_minute, build_id, request;
