-- Which part grew in the slow tail? The slowest 1 % of a service's requests beside those around the median, ns a request.
WITH
    ranked AS (
        SELECT file, id, latency_ns, weight,
            sum(weight) OVER (ORDER BY latency_ns, file, id) AS rank, sum(weight) OVER () AS all_n
        FROM requests WHERE complete AND service = getvariable('service')
    ),
    edges AS (
        SELECT min(latency_ns) FILTER (rank >= ceil(all_n * 0.4::DOUBLE)) AS low,
            min(latency_ns) FILTER (rank >= ceil(all_n * 0.6::DOUBLE)) AS high,
            min(latency_ns) FILTER (rank >= ceil(all_n * 0.99::DOUBLE)) AS slowest
        FROM ranked
    ),
    chosen AS (
        SELECT file, id, weight, CASE WHEN latency_ns >= slowest THEN 'slowest 1 %' ELSE 'typical' END AS requests
        FROM ranked, edges WHERE latency_ns >= slowest OR latency_ns BETWEEN low AND high
    ),
    counts AS (SELECT requests, sum(weight) AS n FROM chosen GROUP BY requests)
SELECT requests, regexp_replace(part, '_ns$', '') AS part, any_value(n) AS n,
    sum(c.weight * ns) / any_value(n) AS ns_a_request
FROM parts JOIN chosen c USING (file, id) JOIN counts USING (requests)
WHERE ns > 0
GROUP BY requests, part
ORDER BY requests, ns_a_request DESC, part;
