-- How fast is the error budget spent? Share of slow requests over the share that is allowed, of windows that end with the last
-- row. 14.4 over an hour and five minutes is 2 % of a month's budget in an hour.
WITH
    ended AS (SELECT service, weight, slow, epoch_ns(start) + latency_ns AS ended FROM requests
        -- Without a threshold nobody knows which are slow.
        WHERE complete AND slow IS NOT NULL),
    last AS (SELECT max(ended) AS now FROM ended)
SELECT service, minutes, sum(weight) AS n, coalesce(sum(weight) FILTER (slow), 0) AS slow_n,
    slow_n / n / (1 - getvariable('target')) AS burn_rate
FROM ended, last, unnest([5, 60, 360, 4320]) AS windows(minutes)
WHERE ended > now - minutes::BIGINT * 60000000000
GROUP BY service, minutes
ORDER BY service, minutes;
