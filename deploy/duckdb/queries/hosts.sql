-- Which host is the outlier? Each beside all: its p99 over that of the service, its slow share, and what a request's time is.
WITH
    ranked AS (
        SELECT *, sum(weight) OVER (ORDER BY latency_ns, file, id) AS rank, sum(weight) OVER () AS all_n,
            sum(weight) OVER (PARTITION BY host ORDER BY latency_ns, file, id) AS of_host,
            sum(weight) OVER (PARTITION BY host) AS host_n
        FROM requests WHERE complete AND service = getvariable('service')
    ),
    fleet AS (SELECT min(latency_ns) FILTER (rank >= ceil(all_n * 0.99::DOUBLE)) AS p99 FROM ranked)
SELECT host, sum(weight) AS n, min(latency_ns) FILTER (of_host >= ceil(host_n * 0.99::DOUBLE)) AS p99_ns,
    p99_ns / any_value(p99) AS of_fleet, coalesce(sum(weight) FILTER (slow), 0) / sum(weight) AS slow_share,
    sum(weight * on_cpu_ns) / sum(weight) AS on_cpu_ns_mean,
    sum(weight * (run_queue_ns + preempted_ns)) / sum(weight) AS no_cpu_ns_mean,
    sum(weight * blocked_ns) / sum(weight) AS blocked_ns_mean
FROM ranked, fleet
GROUP BY host
ORDER BY of_fleet DESC, host;
