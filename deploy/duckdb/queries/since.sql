-- Since when? Minutes of a service: requests, slow ones, their mean, and blocked time a request.
SELECT epoch_ns(start) // 60000000000 * 60 AS minute, sum(weight) AS n, coalesce(sum(weight) FILTER (slow), 0) AS slow_n,
    sum(weight * latency_ns) / sum(weight) AS mean_ns, sum(weight * r.blocked_ns) / sum(weight) AS blocked_ns
FROM requests r
WHERE complete AND service = getvariable('service')
GROUP BY minute
ORDER BY minute;
