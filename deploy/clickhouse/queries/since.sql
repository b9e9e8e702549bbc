-- Since when? Minutes of a service: requests, slow ones, their mean, and blocked time a request.
SELECT toUnixTimestamp(toStartOfMinute(toDateTime(start, 'UTC'))) AS minute, sum(weight) AS n,
    sum(if(slow, weight, 0)) AS slow_n, sum(weight * latency_ns) / sum(weight) AS mean_ns,
    sum(weight * blocked_ns) / sum(weight) AS blocked_ns
FROM reqtrace.requests FINAL
WHERE complete AND service = {service:String}
GROUP BY minute
ORDER BY minute;
