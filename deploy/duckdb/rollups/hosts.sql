-- Which host is the outlier? Exactly, of all requests: each one's mean duration over that of the service, its slow share, the edge
-- below which 99 % are, what a request's time is, and the share of the service's time in which it was traced.
WITH
    own AS (SELECT * FROM rollups WHERE service = getvariable('service') AND level IN ('service', 'type')),
    buckets AS (
        -- The last one has no edge.
        SELECT host, unnest(list_append(edges_ns, NULL)) AS edge_ns, unnest(histogram) AS requests FROM own WHERE level = 'type'
    ),
    of_edge AS (SELECT host, edge_ns, sum(requests) AS requests FROM buckets GROUP BY host, edge_ns),
    reached AS (
        SELECT host, edge_ns, sum(requests) OVER (PARTITION BY host ORDER BY edge_ns NULLS LAST) AS below,
            sum(requests) OVER (PARTITION BY host) AS n
        FROM of_edge
    ),
    p99 AS (SELECT host, min(edge_ns) FILTER (below >= n * 0.99::DOUBLE) AS p99_below_ns FROM reached GROUP BY host),
    fleet AS (
        SELECT sum(latency_ns) / sum(requests) AS fleet_mean_ns, epoch_ns(max(minute)) - epoch_ns(min(minute)) + 60000000000 AS span_ns
        FROM own
    ),
    hosts AS (
        -- What a level does not say is null.
        SELECT host, sum(requests) AS n, coalesce(sum(slow), 0) AS slow_n, sum(latency_ns) AS of_latency, sum(on_cpu_ns) AS of_cpu,
            sum(run_queue_ns + preempted_ns) AS of_no_cpu, sum(blocked_ns) AS of_blocked, coalesce(sum(traced_ns), 0) AS of_traced
        FROM own GROUP BY host HAVING n > 0
    )
SELECT hosts.host, n, of_latency / n AS mean_ns, mean_ns / fleet_mean_ns AS of_fleet, slow_n / n AS slow_share,
    p99_below_ns, of_cpu / n AS on_cpu_ns_mean, of_no_cpu / n AS no_cpu_ns_mean, of_blocked / n AS blocked_ns_mean,
    of_traced / span_ns AS traced_share
FROM hosts JOIN p99 ON p99.host = hosts.host, fleet
ORDER BY of_fleet DESC, hosts.host;
