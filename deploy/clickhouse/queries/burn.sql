-- How fast is the error budget spent? Share of slow requests over the share that is allowed, of windows that end with the last
-- row. 14.4 over an hour and five minutes is 2 % of a month's budget in an hour.
WITH
    rows AS
    (
        SELECT service, weight, slow, toUnixTimestamp64Nano(start) + latency_ns AS ended
        FROM reqtrace.requests FINAL
        -- Without a threshold nobody knows which are slow.
        WHERE complete AND slow IS NOT NULL
    ),
    last AS (SELECT max(ended) AS now FROM rows)
SELECT service, minutes, sum(weight) AS n, sum(if(slow, weight, 0)) AS slow_n,
    slow_n / n / (1 - {target:Float64}) AS burn_rate
FROM rows, last
ARRAY JOIN [5, 60, 360, 4320] AS minutes
WHERE ended > now - minutes * 60000000000
GROUP BY service, minutes
ORDER BY service, minutes;
