-- Which root cause across services? Time that complete requests were held up, by service and cause; of rules with blame.
SELECT service, regexp_replace(cause, '^cause_(.*)_ns$', '\1') AS cause, sum(weight * ns) AS held_up_ns,
    sum(weight * ns) / (SELECT sum(weight * latency_ns) FROM requests WHERE complete) AS share_of_all,
    coalesce(sum(weight * ns) FILTER (slow), 0) AS of_slow_ns
FROM causes
WHERE complete AND ns > 0
GROUP BY service, cause
ORDER BY held_up_ns DESC, service, cause;
