-- Which host is the outlier? Exactly, of all requests: each one's mean duration over that of the service, its slow share, the edge
-- below which 99 % are, what a request's time is, and the share of the service's time in which it was traced.
WITH
    rollups AS (SELECT * FROM reqtrace.rollups FINAL WHERE service = {service:String}),
    of_type AS (SELECT * FROM rollups WHERE level = 'type'),
    fleet AS (SELECT sum(latency_ns) / sum(requests) AS mean_ns FROM of_type),
    span AS (SELECT (toUnixTimestamp(max(minute)) - toUnixTimestamp(min(minute)) + 60) * 1000000000 AS ns FROM rollups),
    traced AS (SELECT host, sum(traced_ns) AS ns FROM rollups WHERE level = 'service' GROUP BY host),
    hosts AS
    (
        SELECT host, sum(requests) AS n, sum(ifNull(slow, 0)) AS slow_n, sum(latency_ns) AS of_latency, sum(on_cpu_ns) AS of_cpu,
            sum(run_queue_ns + preempted_ns) AS of_no_cpu, sum(blocked_ns) AS of_blocked,
            any(edges_ns) AS edges, arrayCumSum(sumForEach(histogram)) AS below
        FROM of_type
        GROUP BY host
    )
SELECT host, n, of_latency / n AS mean_ns, of_latency / n / fleet.mean_ns AS of_fleet, slow_n / n AS slow_share,
    nullIf(arrayFirst((edge, count) -> count >= n * 0.99, edges, arraySlice(below, 1, length(edges))), 0) AS p99_below_ns,
    of_cpu / n AS on_cpu_ns_mean, of_no_cpu / n AS no_cpu_ns_mean, of_blocked / n AS blocked_ns_mean,
    traced.ns / span.ns AS traced_share
FROM hosts
CROSS JOIN fleet
CROSS JOIN span
LEFT JOIN traced ON traced.host = hosts.host
ORDER BY of_fleet DESC, host;
