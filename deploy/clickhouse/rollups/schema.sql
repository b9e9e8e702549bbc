-- Roll-ups of minutes, as `reqtrace ship` sends them: figures of all requests, without weights. After ../schema.sql:
--   clickhouse-client --queries-file rollups/schema.sql

CREATE DATABASE IF NOT EXISTS reqtrace;

-- Rows of one level add up. What comes twice has the same key, and FINAL takes it for one.
CREATE TABLE IF NOT EXISTS reqtrace.rollups
(
    file             LowCardinality(String),
    host             LowCardinality(String),
    service          LowCardinality(String),
    -- service: how long it was looked at; type: requests of a type; group: those of a type by group.
    level            LowCardinality(String),
    request          LowCardinality(String),
    request_group    String CODEC(ZSTD),
    build_id         LowCardinality(String),
    minute           DateTime('UTC') CODEC(Delta, ZSTD),
    -- Of level service.
    covered_ns       Int64 CODEC(ZSTD),
    traced_ns        Int64 CODEC(ZSTD),
    lost             Int64 CODEC(ZSTD),
    -- Of the others: records, the requests for which they stand, and Σ of their times.
    recorded         Int64 CODEC(ZSTD),
    requests         Int64 CODEC(ZSTD),
    incomplete       Int64 CODEC(ZSTD),
    slow             Nullable(Int64) CODEC(ZSTD),
    slow_above_ns    Nullable(Int64) CODEC(ZSTD),
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
    -- Requests up to each edge and above the one before; the last number is of those above all.
    edges_ns         Array(Int64) CODEC(ZSTD),
    histogram        Array(Int64) CODEC(ZSTD)
)
ENGINE = ReplacingMergeTree
PARTITION BY toYYYYMM(minute)
ORDER BY (service, level, request, request_group, build_id, minute, host, file)
TTL minute + INTERVAL 400 DAY
SETTINGS non_replicated_deduplication_window = 10000;
