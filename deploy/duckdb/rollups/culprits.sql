-- Which root cause across services? Exactly, of all requests: the time that they were held up, by service and cause; of rules with
-- blame.
SELECT service, regexp_replace(cause, '^cause_(.*)_ns$', '\1') AS cause, sum(ns) AS held_up_ns,
    sum(ns) / (SELECT sum(latency_ns) FROM rollups WHERE level = 'type') AS share_of_all
FROM rollup_causes
WHERE level = 'type' AND ns > 0
GROUP BY service, cause
ORDER BY held_up_ns DESC, service, cause;
