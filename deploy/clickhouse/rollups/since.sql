-- Since when? Exactly, of all requests: minutes of a service, by the end of requests: how many, slow ones, their mean, and blocked
-- time a request.
SELECT toUnixTimestamp(r.minute) AS minute, sum(requests) AS n, sum(ifNull(slow, 0)) AS slow_n,
    sum(latency_ns) / sum(requests) AS mean_ns, sum(r.blocked_ns) / sum(requests) AS blocked_ns
FROM reqtrace.rollups AS r FINAL
WHERE level = 'type' AND service = {service:String}
GROUP BY r.minute
HAVING n > 0
ORDER BY minute;
