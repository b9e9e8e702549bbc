-- Which part grew in the slow tail? The slowest 1 % of a service's requests beside those around the median, ns a request.
WITH
    rows AS
    (
        SELECT weight, latency_ns,
            mapConcat(parts, map('on_cpu', on_cpu_ns, 'run_queue', run_queue_ns, 'preempted', preempted_ns,
                'unattributed', unattributed_ns)) AS all
        FROM reqtrace.requests FINAL
        WHERE complete AND service = {service:String}
    ),
    edges AS
    (
        SELECT quantilesExactWeighted(0.4, 0.6, 0.99)(latency_ns, toUInt64(weight)) AS q FROM rows
    ),
    chosen AS
    (
        SELECT if(latency_ns >= q[3], 'slowest 1 %', 'typical') AS requests, weight, all
        FROM rows, edges
        WHERE latency_ns >= q[3] OR latency_ns BETWEEN q[1] AND q[2]
    ),
    counts AS (SELECT requests, sum(weight) AS of_all FROM chosen GROUP BY requests)
SELECT requests, part, any(of_all) AS n, sum(weight * ns) / any(of_all) AS ns_a_request
FROM chosen ARRAY JOIN mapKeys(all) AS part, mapValues(all) AS ns
JOIN counts USING (requests)
WHERE ns > 0
GROUP BY requests, part
ORDER BY requests, ns_a_request DESC, part;
