//! Typical and slow requests side by side, on a MariaDB: the bands of `summary.json` are exactly the
//! rows of the CSV between their bounds, and what is slow on purpose is found.
//!
//! Needs root, a kernel with BPF, mariadb-server and sysbench.

use std::path::Path;
use std::time::Duration;

use reqtrace_tests::ledger;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::rows::Row;
use reqtrace_tests::sysbench::Sysbench;
use serde_json::Value;

/// For a client to end.
const LIMIT: Duration = Duration::from_secs(60);
const THREADS: u32 = 8;
const EVENTS: u64 = 400;

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value}"))
}

/// Complete rows between the bounds of a band.
fn inside<'a>(rows: &'a [Row], band: &Value) -> Vec<&'a Row> {
    let bounds = number(&band["from_ns"])..=number(&band["to_ns"]);
    rows.iter()
        .filter(|row| row.complete && bounds.contains(&row.latency_ns))
        .collect()
}

fn same_as_the_rows(rows: &[Row], band: &Value) {
    let inside = inside(rows, band);
    assert_eq!(inside.len() as u64, number(&band["count"]), "{band:#}");
    let ledger = &band["ledger"];
    let sum = |of: fn(&Row) -> u64| inside.iter().map(|row| of(row)).sum::<u64>();
    assert_eq!(sum(|row| row.latency_ns), number(&ledger["latency_ns"]));
    assert_eq!(sum(|row| row.on_cpu_ns), number(&ledger["on_cpu_ns"]));
    assert_eq!(sum(|row| row.run_queue_ns), number(&ledger["run_queue_ns"]));
    assert_eq!(sum(|row| row.preempted_ns), number(&ledger["preempted_ns"]));
    assert_eq!(
        sum(|row| row.unattributed_ns),
        number(&ledger["unattributed_ns"])
    );
    for (class, ns) in ledger["classes_ns"].as_object().unwrap() {
        let column = class.replace(' ', "_");
        let summed: u64 = inside.iter().map(|row| row.classes[&column]).sum();
        assert_eq!(summed, number(ns), "{class}");
    }
}

#[test]
fn the_slowest_requests_stand_beside_typical_ones() {
    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 4, 10_000).unwrap();
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &[]).unwrap();
    sysbench.run(THREADS, EVENTS).unwrap();
    server.wait_until_alone().unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    ledger::check(&outcome.csv().unwrap()).unwrap();
    let rows = outcome.rows().unwrap();
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let request = &summary["requests"][0];
    let slow = &request["slow"];
    let (typical, slowest) = (&slow["typical"], &slow["slowest"]);
    same_as_the_rows(&rows, typical);
    same_as_the_rows(&rows, slowest);

    // The slowest are the slowest: nothing is above, and the percentiles are where they should be.
    let latency = &request["latency"];
    assert_eq!(slowest["to_ns"], latency["max_ns"]);
    let count = number(&request["count"]);
    assert!(number(&slowest["count"]) >= count / 100);
    assert!(number(&typical["count"]) >= count / 5);
    let median = number(&latency["p50_ns"]);
    // The histogram's percentiles are within a tenth of a percent of a value.
    assert!(number(&typical["from_ns"]) <= median + median / 500);
    assert!(number(&typical["to_ns"]) + median / 500 >= median);

    // Each long block is no longer than its request, and the longest are the longest.
    let blocks = slow["longest_blocks"].as_array().unwrap();
    assert!(!blocks.is_empty());
    let mut before = u64::MAX;
    for block in blocks {
        let length = number(&block["blocked_ns"]) + number(&block["run_queue_ns"]);
        assert!(length <= number(&block["latency_ns"]), "{block:#}");
        assert!(length <= before);
        before = length;
        let tid = number(&block["tid"]);
        let mut of = rows.iter().filter(|row| u64::from(row.tid) == tid);
        assert!(
            of.any(|row| row.latency_ns == number(&block["latency_ns"])),
            "{block:#}"
        );
        assert!(!block["kernel"].as_array().unwrap().is_empty());
    }
    // A group commit is woken by another connection's thread.
    let woken = |block: &&Value| block["waker"]["pid"] == u64::from(server.pid());
    assert!(blocks.iter().any(|block| woken(&block)), "{blocks:#?}");
    let printed = outcome.printed();
    assert!(printed.contains("slowest 1."), "{printed}");
    assert!(
        printed.contains("Longest blocks of the slow ones"),
        "{printed}"
    );
    assert!(printed.contains(", woken by "), "{printed}");
    server.close().unwrap();
}

/// One statement in a hundred waits for a row lock: that is what the slow ones differ by, and the
/// thread that held it is who woke them.
#[test]
fn a_row_lock_is_what_slow_requests_wait_for() {
    let server = MariaDb::open().unwrap();
    server
        .sql(
            "create table sbtest.t (id int primary key, n int); insert into sbtest.t values (1, 0)",
        )
        .unwrap();
    let hold = "use sbtest; begin; update t set n = n + 1; select sleep(600)";
    let mut holder = server.start_sql("holder", hold).unwrap();
    server.wait_for_statement("select sleep", "sleep").unwrap();
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &[]).unwrap();
    let mut statements = "select 1; ".repeat(60);
    statements.push_str("update sbtest.t set n = n + 2");
    let mut waiter = server.start_sql("waiter", &statements).unwrap();
    server.wait_for_statement("update", "Updating").unwrap();
    std::thread::sleep(Duration::from_secs(1));
    let id = "select id from information_schema.processlist where info like 'select sleep%'";
    let id = server.sql(id).unwrap();
    server.sql(&format!("kill {}", id.trim())).unwrap();
    waiter.wait(LIMIT).unwrap();
    holder.wait(LIMIT).unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let slow = &summary["requests"][0]["slow"];
    assert_eq!(slow["slowest"]["count"], 1);
    let ledger = &slow["slowest"]["ledger"];
    let row_lock = number(&ledger["classes_ns"]["row lock"]);
    assert!(row_lock * 2 > number(&ledger["latency_ns"]), "{slow:#}");
    assert_eq!(slow["typical"]["ledger"]["classes_ns"]["row lock"], 0);
    let block = &slow["longest_blocks"][0];
    assert_eq!(block["class"], "row lock");
    assert_eq!(block["waker"]["pid"], u64::from(server.pid()));
    assert_ne!(block["waker"]["tid"], block["tid"]);
    server.close().unwrap();
}
