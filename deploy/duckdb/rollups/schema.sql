-- Roll-ups of minutes, as the agent's folders or a bucket have them, as tables for the queries:
--   duckdb -cmd "SET VARIABLE rollups = '/var/lib/reqtrace/rollups/**/*.parquet'" -cmd ".read rollups/schema.sql"

-- A file that is there twice counts once: no name is given twice, and a file has one row of each minute, level, type, group and build.
CREATE OR REPLACE VIEW rollups AS
SELECT * EXCLUDE (filename), parse_filename(filename) AS file
FROM read_parquet(getvariable('rollups'), union_by_name = true, hive_partitioning = false, filename = true)
QUALIFY row_number() OVER (PARTITION BY parse_filename(filename), level, request, request_group, build_id, minute) = 1;

-- Root causes: a row for each that is known.
CREATE OR REPLACE VIEW rollup_causes AS
UNPIVOT (
    FROM rollups
    SELECT file, host, service, level, request, request_group, build_id, minute, latency_ns, COLUMNS('^cause_.*_ns$')
)
ON COLUMNS('^cause_.*_ns$')
INTO NAME cause VALUE ns;
