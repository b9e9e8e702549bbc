-- Which root cause across services? Time that complete requests were held up, by service and cause; of rules with blame.
SELECT service, cause, sum(weight * ns) AS held_up_ns,
    sum(weight * ns) / (SELECT sum(weight * latency_ns) FROM reqtrace.requests FINAL WHERE complete) AS share_of_all,
    sum(if(slow, weight * ns, 0)) AS of_slow_ns
FROM reqtrace.requests FINAL
ARRAY JOIN mapKeys(causes) AS cause, mapValues(causes) AS ns
WHERE complete
GROUP BY service, cause
ORDER BY held_up_ns DESC, service, cause;
