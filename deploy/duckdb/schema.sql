-- Rows of requests, as the agent's folders or a bucket have them, as tables for the queries:
--   duckdb -cmd "SET VARIABLE rows = '/var/lib/reqtrace/rows/**/*.parquet'" -cmd ".read schema.sql"

-- A file that is there twice counts once: no name is given twice, and a row has an id in its file. Where files were made one of
-- this view, their rows have the names of those that they came in.
CREATE OR REPLACE VIEW requests AS
WITH every AS (
    FROM read_parquet(getvariable('rows'), union_by_name = true, hive_partitioning = false, filename = true)
    UNION ALL BY NAME
    SELECT NULL::VARCHAR AS file WHERE false
)
SELECT * EXCLUDE (filename, file), coalesce(file, parse_filename(filename)) AS file
FROM every
QUALIFY row_number() OVER (PARTITION BY coalesce(file, parse_filename(filename)), id) = 1;

-- Where the time of each request went: a row for each part above 0, wait classes and places by the names of their columns.
CREATE OR REPLACE VIEW parts AS
UNPIVOT (
    FROM requests
    SELECT file, id, service, request, host, build_id, start, latency_ns, weight, slow, complete,
           COLUMNS('^(on_cpu|run_queue|preempted|unattributed)_ns$'),
           COLUMNS(lambda c: c LIKE '%\_ns' ESCAPE '\' AND NOT c LIKE 'cause\_%' ESCAPE '\' AND c NOT IN (
               'since_start_ns', 'latency_ns', 'on_cpu_ns', 'run_queue_ns', 'preempted_ns', 'blocked_ns',
               'unattributed_ns', 'parked_ns', 'queued_ns', 'waited_before_ns'))
)
ON COLUMNS(lambda c: c LIKE '%\_ns' ESCAPE '\' AND c <> 'latency_ns')
INTO NAME part VALUE ns;

-- The same of root causes.
CREATE OR REPLACE VIEW causes AS
UNPIVOT (
    FROM requests
    SELECT file, id, service, request, host, start, latency_ns, weight, slow, complete, COLUMNS('^cause_.*_ns$')
)
ON COLUMNS('^cause_.*_ns$')
INTO NAME cause VALUE ns;
