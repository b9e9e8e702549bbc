-- What changed with the deploy? Exactly, of all requests: the builds of a service by their build id, the first seen first.
SELECT coalesce(build_id, '') AS build_id, request, epoch_ns(min(minute)) // 1000000000 AS first_minute,
    count(DISTINCT host) AS hosts, sum(requests) AS n, sum(latency_ns) / sum(requests) AS mean_ns,
    sum(on_cpu_ns) / sum(requests) AS on_cpu_ns_mean, sum(blocked_ns) / sum(requests) AS blocked_ns_mean,
    coalesce(sum(slow), 0) / sum(requests) AS slow_share
FROM rollups r
WHERE level = 'type' AND service = getvariable('service')
GROUP BY r.build_id, request
HAVING n > 0
ORDER BY first_minute, r.build_id, request;
