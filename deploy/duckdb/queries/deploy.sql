-- What changed with the deploy? The builds of a service by their build id, the first seen first.
WITH ranked AS (
    SELECT *, coalesce(build_id, '') AS build,
        sum(weight) OVER (PARTITION BY build_id, request ORDER BY latency_ns, file, id) AS rank,
        sum(weight) OVER (PARTITION BY build_id, request) AS all_n
    FROM requests WHERE complete AND service = getvariable('service')
)
SELECT build AS build_id, request, epoch_ns(min(start)) AS first_ns, count(DISTINCT host) AS hosts, sum(weight) AS n,
    min(latency_ns) FILTER (rank >= ceil(all_n * 0.5::DOUBLE)) AS p50_ns,
    min(latency_ns) FILTER (rank >= ceil(all_n * 0.99::DOUBLE)) AS p99_ns,
    sum(weight * latency_ns) / sum(weight) AS mean_ns, sum(weight * on_cpu_ns) / sum(weight) AS on_cpu_ns_mean,
    sum(weight * blocked_ns) / sum(weight) AS blocked_ns_mean,
    coalesce(sum(weight) FILTER (slow), 0) / sum(weight) AS slow_share
FROM ranked
GROUP BY build, request
ORDER BY first_ns, build, request;
