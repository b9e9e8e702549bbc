-- What share of the slow requests is mostly one part? For each part: the slow requests of which it is more than half, and its
-- share of their time.
WITH slow_rows AS
(
    SELECT weight, latency_ns,
        mapConcat(parts, map('on_cpu', on_cpu_ns, 'run_queue', run_queue_ns, 'preempted', preempted_ns,
            'unattributed', unattributed_ns)) AS all
    FROM reqtrace.requests FINAL
    WHERE complete AND slow AND service = {service:String}
)
SELECT part, sum(if(ns * 2 > latency_ns, weight, 0)) AS mostly,
    (SELECT sum(weight) FROM slow_rows) AS slow_n,
    sum(weight * ns) / (SELECT sum(weight * latency_ns) FROM slow_rows) AS share_of_time
FROM slow_rows ARRAY JOIN mapKeys(all) AS part, mapValues(all) AS ns
WHERE ns > 0
GROUP BY part
ORDER BY share_of_time DESC, part;
