-- Which host is the outlier? Exactly, of all requests: each one's mean duration over that of the service, its slow share, the edge
-- below which 99 % are, what a request's time is, and the share of the service's time in which it was traced.
WITH
    (
        SELECT sum(latency_ns) / sum(requests)
        FROM reqtrace.rollups FINAL
        WHERE service = {service:String} AND level = 'type'
    ) AS fleet_mean_ns,
    (
        SELECT (toUnixTimestamp(max(minute)) - toUnixTimestamp(min(minute)) + 60) * 1000000000
        FROM reqtrace.rollups FINAL
        WHERE service = {service:String} AND level IN ('service', 'type')
    ) AS span_ns,
    hosts AS
    (
        -- What a level does not say is 0, or an empty list.
        SELECT host, sum(requests) AS n, sum(ifNull(slow, 0)) AS slow_n, sum(latency_ns) AS of_latency, sum(on_cpu_ns) AS of_cpu,
            sum(run_queue_ns + preempted_ns) AS of_no_cpu, sum(blocked_ns) AS of_blocked, sum(traced_ns) AS of_traced,
            anyIf(edges_ns, level = 'type') AS edges, arrayCumSum(sumForEach(histogram)) AS below
        FROM reqtrace.rollups FINAL
        WHERE service = {service:String} AND level IN ('service', 'type')
        GROUP BY host
        HAVING n > 0
    )
SELECT host, n, of_latency / n AS mean_ns, mean_ns / fleet_mean_ns AS of_fleet, slow_n / n AS slow_share,
    nullIf(arrayFirst((edge, count) -> count >= n * 0.99, edges, arraySlice(below, 1, length(edges))), 0) AS p99_below_ns,
    of_cpu / n AS on_cpu_ns_mean, of_no_cpu / n AS no_cpu_ns_mean, of_blocked / n AS blocked_ns_mean,
    of_traced / span_ns AS traced_share
FROM hosts
ORDER BY of_fleet DESC, host;
