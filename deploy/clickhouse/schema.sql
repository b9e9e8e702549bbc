-- Rows of requests, as `reqtrace ship` sends them. Try it on ClickHouse 25 or later:
--   clickhouse-client --queries-file schema.sql

CREATE DATABASE IF NOT EXISTS reqtrace;

-- A file is inserted once however often it is sent: its name is the token of the insert, and the server knows the last
-- tokens. What comes twice in spite of that has the same key, and FINAL takes it for one: all queries use it.
CREATE TABLE IF NOT EXISTS reqtrace.requests
(
    file             LowCardinality(String),
    host             LowCardinality(String),
    service          LowCardinality(String),
    build_id         LowCardinality(String),
    request          LowCardinality(String),
    id               Int64 CODEC(Delta, ZSTD),
    start            DateTime64(9, 'UTC') CODEC(Delta, ZSTD),
    since_start_ns   Int64 CODEC(Delta, ZSTD),
    pid              Int64 CODEC(ZSTD),
    tid              Int64 CODEC(ZSTD),
    comm             LowCardinality(String),
    label            String CODEC(ZSTD),
    fingerprint      String CODEC(ZSTD),
    -- What the profile of the service names, without keys that say nothing.
    attributes       Map(LowCardinality(String), String) CODEC(ZSTD),
    latency_ns       Int64 CODEC(ZSTD),
    on_cpu_ns        Int64 CODEC(ZSTD),
    run_queue_ns     Int64 CODEC(ZSTD),
    preempted_ns     Int64 CODEC(ZSTD),
    blocked_ns       Int64 CODEC(ZSTD),
    unattributed_ns  Int64 CODEC(ZSTD),
    parked_ns        Int64 CODEC(ZSTD),
    queued_ns        Int64 CODEC(ZSTD),
    -- Wait classes and places, and root causes, ns.
    parts            Map(LowCardinality(String), Int64) CODEC(ZSTD),
    causes           Map(LowCardinality(String), Int64) CODEC(ZSTD),
    blocks           Int64 CODEC(ZSTD),
    preemptions      Int64 CODEC(ZSTD),
    complete         Bool,
    reason           LowCardinality(String),
    weight           Int64 CODEC(ZSTD),
    waited_before_ns Nullable(Int64) CODEC(ZSTD),
    slow             Nullable(Bool),
    trace_id         String CODEC(ZSTD),
    span_id          String CODEC(ZSTD),
    -- slow, incomplete, blamed or drawn.
    kept             LowCardinality(String)
)
ENGINE = ReplacingMergeTree
PARTITION BY toDate(start)
ORDER BY (service, request, start, host, file, id)
TTL toDateTime(start) + INTERVAL 30 DAY
-- Of a replicated table: replicated_deduplication_window.
SETTINGS non_replicated_deduplication_window = 10000;

-- A minute of a type and fingerprint: what is asked over weeks. It counts a duplicate that the tokens did not see.
CREATE TABLE IF NOT EXISTS reqtrace.minutes
(
    minute           DateTime('UTC'),
    service          LowCardinality(String),
    request          LowCardinality(String),
    fingerprint      String CODEC(ZSTD),
    requests         SimpleAggregateFunction(sum, Int64),
    slow             SimpleAggregateFunction(sum, Int64),
    latency_ns       SimpleAggregateFunction(sum, Int64),
    on_cpu_ns        SimpleAggregateFunction(sum, Int64),
    run_queue_ns     SimpleAggregateFunction(sum, Int64),
    preempted_ns     SimpleAggregateFunction(sum, Int64),
    blocked_ns       SimpleAggregateFunction(sum, Int64),
    unattributed_ns  SimpleAggregateFunction(sum, Int64),
    parked_ns        SimpleAggregateFunction(sum, Int64),
    queued_ns        SimpleAggregateFunction(sum, Int64),
    parts            SimpleAggregateFunction(sumMap, Map(String, Int64)),
    causes           SimpleAggregateFunction(sumMap, Map(String, Int64))
)
ENGINE = AggregatingMergeTree
PARTITION BY toYYYYMM(minute)
ORDER BY (service, request, minute, fingerprint)
TTL minute + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000;

CREATE MATERIALIZED VIEW IF NOT EXISTS reqtrace.minutes_of_requests TO reqtrace.minutes AS
SELECT
    toStartOfMinute(toDateTime(start, 'UTC')) AS minute,
    service,
    request,
    fingerprint,
    sum(r.weight) AS requests,
    sum(if(r.slow, r.weight, 0)) AS slow,
    sum(r.weight * r.latency_ns) AS latency_ns,
    sum(r.weight * r.on_cpu_ns) AS on_cpu_ns,
    sum(r.weight * r.run_queue_ns) AS run_queue_ns,
    sum(r.weight * r.preempted_ns) AS preempted_ns,
    sum(r.weight * r.blocked_ns) AS blocked_ns,
    sum(r.weight * r.unattributed_ns) AS unattributed_ns,
    sum(r.weight * r.parked_ns) AS parked_ns,
    sum(r.weight * r.queued_ns) AS queued_ns,
    sumMap(mapApply((k, v) -> (toString(k), v * r.weight), r.parts)) AS parts,
    sumMap(mapApply((k, v) -> (toString(k), v * r.weight), r.causes)) AS causes
FROM reqtrace.requests AS r
WHERE complete
GROUP BY minute, service, request, fingerprint;
