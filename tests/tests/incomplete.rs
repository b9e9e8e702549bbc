//! Requests without an end or a begin: flagged with their reason, left out of the percentiles, and
//! the hung ones shown with how long they hang and where.
//!
//! Needs root, a kernel with BPF and mariadb-server.

use std::path::Path;
use std::time::Duration;

use reqtrace_tests::ledger;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::{Outcome, Trace};

/// How long a statement hangs before the trace ends.
const HANGS: Duration = Duration::from_millis(700);

fn trace(server: &MariaDb) -> Trace {
    Trace::start(Path::new("mysql.toml"), server.pid(), &[]).unwrap()
}

/// The one request that hung: flagged, blocked as long as it hung, listed in the report with
/// `function` in its stack, and not the maximum of the latencies.
fn one_hangs(trace: Trace, function: &str) -> Outcome {
    std::thread::sleep(HANGS);
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    ledger::check(&outcome.csv().unwrap()).unwrap();
    let rows = outcome.rows().unwrap();
    let hung: Vec<_> = rows
        .iter()
        .filter(|row| row.reason == "blocked at stop")
        .collect();
    assert_eq!(hung.len(), 1, "{rows:#?}");
    let least = u64::try_from(HANGS.as_nanos()).unwrap();
    assert!(!hung[0].complete);
    assert!(hung[0].blocked_ns >= least, "{hung:#?}");

    let summary = outcome.summary().unwrap();
    let complete = rows.iter().filter(|row| row.complete).count() as u64;
    assert_eq!(summary.request("command").unwrap().count, complete);
    let json: serde_json::Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let open = json["open"].as_array().unwrap();
    assert_eq!(open.len(), 1, "{open:#?}");
    assert!(open[0]["blocked"]["for_ns"].as_u64().unwrap() >= least);
    let stack = open[0]["blocked"]["user"].to_string();
    assert!(stack.contains(function), "{stack}");
    assert_eq!(
        json["requests"][0]["incomplete"]["blocked at stop"].as_u64(),
        Some(1)
    );
    assert!(
        outcome
            .printed()
            .contains("Still open when tracing stopped")
    );
    outcome
}

#[test]
fn a_sleeping_query_is_still_open() {
    let server = MariaDb::open().unwrap();
    let trace = trace(&server);
    let _client = server.start_sql("sleeper", "select sleep(60)").unwrap();
    server.wait_for_statement("select sleep", "sleep").unwrap();
    one_hangs(trace, "Item_func_sleep");
}

#[test]
fn a_row_lock_that_is_never_released_is_still_open() {
    let server = MariaDb::open().unwrap();
    server
        .sql(
            "create table sbtest.t (id int primary key, n int); insert into sbtest.t values (1, 0)",
        )
        .unwrap();
    let hold = "begin; update sbtest.t set n = n + 1; select sleep(60)";
    let _holder = server.start_sql("holder", hold).unwrap();
    server.wait_for_statement("select sleep", "sleep").unwrap();
    // The holder's own query began before the trace: it is in no row until it ends.
    let trace = trace(&server);
    let _waiter = server
        .start_sql("waiter", "update sbtest.t set n = n + 2")
        .unwrap();
    server.wait_for_statement("update", "Updating").unwrap();
    let outcome = one_hangs(trace, "handler::ha_");
    let rows = outcome.rows().unwrap();
    assert!(rows.iter().any(|row| row.classes["row_lock"] > 0));
}

#[test]
fn what_ran_when_tracing_started_counts_from_there() {
    let server = MariaDb::open().unwrap();
    let mut early = server.start_sql("early", "select sleep(600)").unwrap();
    server.wait_for_statement("select sleep", "sleep").unwrap();
    let trace = trace(&server);
    let sleeper = "select id from information_schema.processlist where info like 'select sleep%'";
    let id = server.sql(sleeper).unwrap();
    server.sql(&format!("kill query {}", id.trim())).unwrap();
    early.wait(Duration::from_secs(60)).unwrap();
    let outcome = trace.finish().unwrap();
    let rows = outcome.rows().unwrap();
    let ran: Vec<_> = rows
        .iter()
        .filter(|row| row.reason == "running at start")
        .collect();
    assert_eq!(ran.len(), 1, "{rows:#?}");
    assert!(!ran[0].complete);
    // It had begun before: what is known of it begins with the trace.
    let summary = outcome.summary().unwrap();
    assert_eq!(ran[0].start_unix_ns, summary.trace.start_unix_ns);
    assert!(
        ran[0].latency_ns <= summary.trace.duration_ns,
        "{ran:#?} {summary:#?}"
    );
    assert_eq!(ran[0].unattributed_ns, ran[0].latency_ns);
    ledger::check(&outcome.csv().unwrap()).unwrap();
    server.close().unwrap();
}
