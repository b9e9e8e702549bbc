-- Which root cause across services? Exactly, of all requests: the time that they were held up, by service and cause; of rules with
-- blame.
SELECT service, cause, sum(ns) AS held_up_ns,
    sum(ns) / (SELECT sum(latency_ns) FROM reqtrace.rollups FINAL WHERE level = 'type') AS share_of_all
FROM reqtrace.rollups FINAL
ARRAY JOIN mapKeys(causes) AS cause, mapValues(causes) AS ns
WHERE level = 'type'
GROUP BY service, cause
ORDER BY held_up_ns DESC, service, cause;
