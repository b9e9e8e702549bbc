-- How fast is the error budget spent? Exactly, of all requests: share of slow requests over the share that is allowed, of the last
-- minutes; and the share of that time in which the service's machines were traced: what is missing there is not known.
WITH
    last AS (SELECT toUnixTimestamp(max(minute)) AS now FROM reqtrace.rollups),
    rollups AS
    (
        SELECT service, host, level, requests, ifNull(r.slow, 0) AS slow, traced_ns, toUnixTimestamp(minute) AS at
        FROM reqtrace.rollups AS r FINAL
        -- Without an objective nobody knows which are slow.
        WHERE level = 'service' OR (level = 'type' AND r.slow IS NOT NULL)
    )
SELECT service, minutes, sum(requests) AS n, sum(slow) AS slow_n, slow_n / n / (1 - {target:Float64}) AS burn_rate,
    sum(traced_ns) / (uniqExact(host) * minutes * 60000000000) AS traced_share
FROM rollups, last
ARRAY JOIN [5, 60, 360, 4320] AS minutes
WHERE at > now - minutes * 60
GROUP BY service, minutes
HAVING n > 0
ORDER BY service, minutes;
