-- Since when? Exactly, of all requests: minutes of a service, by the end of requests: how many, slow ones, their mean, and blocked
-- time a request.
SELECT epoch_ns(minute) // 1000000000 AS minute, sum(requests) AS n, coalesce(sum(slow), 0) AS slow_n,
    sum(latency_ns) / sum(requests) AS mean_ns, sum(r.blocked_ns) / sum(requests) AS blocked_ns
FROM rollups r
WHERE level = 'type' AND service = getvariable('service')
GROUP BY r.minute
HAVING n > 0
ORDER BY minute;
