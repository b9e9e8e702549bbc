-- How fast is the error budget spent? Exactly, of all requests: share of slow requests over the share that is allowed, of the last
-- minutes; and the share of that time in which the service's machines were traced: what is missing there is not known.
WITH
    last AS (SELECT max(epoch_ns(minute)) AS now FROM rollups),
    figures AS (
        SELECT service, host, requests, slow, traced_ns, epoch_ns(minute) AS begin_ns FROM rollups
        -- Without an objective nobody knows which are slow.
        WHERE level = 'service' OR (level = 'type' AND slow IS NOT NULL)
    )
SELECT service, minutes, sum(requests) AS n, coalesce(sum(slow), 0) AS slow_n, slow_n / n / (1 - getvariable('target')) AS burn_rate,
    sum(traced_ns) / (count(DISTINCT host) * minutes::BIGINT * 60000000000) AS traced_share
FROM figures, last, unnest([5, 60, 360, 4320]) AS windows(minutes)
WHERE begin_ns > now - minutes::BIGINT * 60000000000
GROUP BY service, minutes
HAVING n > 0
ORDER BY service, minutes;
