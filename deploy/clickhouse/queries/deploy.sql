-- What changed with the deploy? The builds of a service by their build id, the first seen first.
SELECT build_id, request, toUnixTimestamp64Nano(min(start)) AS first_ns, uniqExact(host) AS hosts, sum(weight) AS n,
    quantileExactWeighted(0.5)(latency_ns, toUInt64(weight)) AS p50_ns,
    quantileExactWeighted(0.99)(latency_ns, toUInt64(weight)) AS p99_ns,
    sum(weight * latency_ns) / n AS mean_ns, sum(weight * on_cpu_ns) / n AS on_cpu_ns_mean,
    sum(weight * blocked_ns) / n AS blocked_ns_mean, sum(if(slow, weight, 0)) / n AS slow_share
FROM reqtrace.requests FINAL
WHERE complete AND service = {service:String}
GROUP BY build_id, request
ORDER BY first_ns, build_id, request;
