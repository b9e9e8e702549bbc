-- What share of the slow requests is mostly one part? For each part: the slow requests of which it is more than half, and its
-- share of their time.
WITH total AS (
    SELECT sum(weight) AS n, sum(weight * latency_ns) AS ns
    FROM requests WHERE complete AND slow AND service = getvariable('service')
)
SELECT regexp_replace(part, '_ns$', '') AS part, coalesce(sum(weight) FILTER (p.ns * 2 > latency_ns), 0) AS mostly,
    any_value(total.n) AS slow_n, sum(weight * p.ns) / any_value(total.ns) AS share_of_time
FROM parts p, total
WHERE complete AND slow AND service = getvariable('service') AND p.ns > 0
GROUP BY part
ORDER BY share_of_time DESC, part;
