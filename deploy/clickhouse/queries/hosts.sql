-- Which host is the outlier? Each beside all: its p99 over that of the service, its slow share, and what a request's time is.
WITH
    rows AS
    (
        SELECT host, weight, latency_ns, slow, on_cpu_ns, run_queue_ns + preempted_ns AS no_cpu_ns, blocked_ns
        FROM reqtrace.requests FINAL
        WHERE complete AND service = {service:String}
    ),
    fleet AS (SELECT quantileExactWeighted(0.99)(latency_ns, toUInt64(weight)) AS p99 FROM rows)
SELECT host, sum(weight) AS n, quantileExactWeighted(0.99)(latency_ns, toUInt64(weight)) AS p99_ns,
    p99_ns / any(p99) AS of_fleet, sum(if(slow, weight, 0)) / n AS slow_share,
    sum(weight * on_cpu_ns) / n AS on_cpu_ns_mean, sum(weight * no_cpu_ns) / n AS no_cpu_ns_mean,
    sum(weight * blocked_ns) / n AS blocked_ns_mean
FROM rows, fleet
GROUP BY host
ORDER BY of_fleet DESC, host;
