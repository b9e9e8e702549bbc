//! The named waits of the profile `mysql`, each provoked on Debian's stripped mariadbd.
//!
//! Row locks, metadata locks and the client's network are named by functions on the user stack, which is walked by the
//! program's `.eh_frame`.
//!
//! Needs root, a kernel with BPF, mariadb-server and sysbench.

use std::io::Read as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use reqtrace_tests::fixtures::{self, Fixture};
use reqtrace_tests::ledger;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::process::Child;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::rows::{self, Row};
use reqtrace_tests::sysbench::Sysbench;
use reqtrace_tests::workspace;

/// How long a statement is kept waiting.
const HELD: Duration = Duration::from_millis(500);
/// For a client to end.
const LIMIT: Duration = Duration::from_secs(60);

fn trace(server: &MariaDb) -> Trace {
    Trace::start(Path::new("mysql.toml"), server.pid(), &[]).unwrap()
}

/// Ends a trace with nothing wrong.
fn finish(trace: Trace) -> (Outcome, Vec<Row>) {
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    ledger::check(&outcome.csv().unwrap()).unwrap();
    let rows = outcome.rows().unwrap();
    (outcome, rows)
}

/// The one request that waited as long as it was held, and that this is its time in `wait`.
fn held(rows: &[Row], wait: &str) {
    let least = u64::try_from(HELD.as_nanos()).unwrap();
    let long: Vec<_> = rows.iter().filter(|row| row.blocked_ns >= least).collect();
    assert_eq!(long.len(), 1, "{long:#?}");
    assert!(long[0].classes[wait] >= least, "{:#?}", long[0]);
}

/// Starts a connection that takes a lock with `sql` and keeps it; returns when it has the lock. Its
/// own statement begins before any trace.
fn hold(server: &MariaDb, sql: &str) -> Child {
    server
        .sql(
            "create table sbtest.t (id int primary key, n int); insert into sbtest.t values (1, 0)",
        )
        .unwrap();
    let sql = format!("use sbtest; begin; {sql}; select sleep(600)");
    let holder = server.start_sql("holder", &sql).unwrap();
    server.wait_for_statement("select sleep", "sleep").unwrap();
    holder
}

/// Lets a statement wait for that lock, in a state that contains `state`, and ends the holder.
fn wait_for_lock(server: &MariaDb, sql: &str, statement: &str, state: &str) {
    let mut waiter = server.start_sql("waiter", sql).unwrap();
    server.wait_for_statement(statement, state).unwrap();
    std::thread::sleep(2 * HELD);
    let holder = server
        .sql("select id from information_schema.processlist where info like 'select sleep%'")
        .unwrap();
    server.sql(&format!("kill {}", holder.trim())).unwrap();
    waiter.wait(LIMIT).unwrap();
}

#[test]
fn a_row_lock_has_its_name() {
    let server = MariaDb::open().unwrap();
    let mut holder = hold(&server, "update t set n = n + 1");
    let trace = trace(&server);
    let sql = "update sbtest.t set n = n + 2";
    wait_for_lock(&server, sql, "update", "Updating");
    holder.wait(LIMIT).unwrap();
    let (_, rows) = finish(trace);
    held(&rows, "row_lock");
    server.close().unwrap();
}

#[test]
fn a_metadata_lock_has_its_name() {
    let server = MariaDb::open().unwrap();
    let mut holder = hold(&server, "select * from t");
    let trace = trace(&server);
    let sql = "alter table sbtest.t add column m int";
    wait_for_lock(&server, sql, "alter", "metadata lock");
    holder.wait(LIMIT).unwrap();
    let (_, rows) = finish(trace);
    held(&rows, "metadata_lock");
    server.close().unwrap();
}

#[test]
fn a_client_that_does_not_read_is_the_clients_network() {
    let server = MariaDb::open().unwrap();
    let trace = trace(&server);
    let mut client = server
        .client("use sbtest; select repeat('x', 1000000) from seq_1_to_40")
        .unwrap()
        .arg("--quick")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(2 * HELD);
    let mut answer = Vec::new();
    client
        .stdout
        .take()
        .unwrap()
        .read_to_end(&mut answer)
        .unwrap();
    client.wait().unwrap();
    assert_eq!(answer.len(), 40 * 1_000_001);
    let (_, rows) = finish(trace);
    held(&rows, "client_network");
    server.close().unwrap();
}

/// The redo log is synced at each commit with 1, only written with 2, and neither with 0. Whether a
/// write waits is the file system's doing, so 2 is only known to be less than 1.
#[test]
fn the_redo_log_grows_with_durability() {
    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 2, 10_000).unwrap();
    let redo_log = [0, 2, 1].map(|durability| {
        let set = format!("set global innodb_flush_log_at_trx_commit = {durability}");
        server.sql(&set).unwrap();
        let trace = trace(&server);
        sysbench.run_test("oltp_write_only", 8, 2000).unwrap();
        server.wait_until_alone().unwrap();
        let (outcome, rows) = finish(trace);
        assert_eq!(outcome.summary().unwrap().lost(), 0);
        rows::check_other(&rows).unwrap();
        assert_eq!(rows::sum(&rows, "binary_log"), 0);
        rows::sum(&rows, "redo_log")
    });
    assert!(redo_log[0] * 4 < redo_log[2], "{redo_log:?}");
    assert!(redo_log[1] < redo_log[2], "{redo_log:?}");
    server.close().unwrap();
}

#[test]
fn binary_log_and_data_files_have_their_names() {
    let server = MariaDb::open_with(&[
        "--log-bin",
        "--sync-binlog=1",
        "--innodb-buffer-pool-size=8M",
    ])
    .unwrap();
    let sysbench = Sysbench::prepare(&server, 4, 20_000).unwrap();
    let trace = trace(&server);
    sysbench.run(8, 1000).unwrap();
    server.wait_until_alone().unwrap();
    let (outcome, rows) = finish(trace);
    for wait in ["binary_log", "redo_log", "data_file_read"] {
        assert!(
            rows::sum(&rows, wait) > 0,
            "no {wait}\n{}",
            outcome.printed()
        );
    }
    // Files on disk that no wait names would be here.
    let blocked: u64 = rows.iter().map(|row| row.blocked_ns).sum();
    let disk = rows::sum(&rows, "disk") + rows::sum(&rows, "other");
    assert!(disk * 50 <= blocked, "{disk} of {blocked}");
    server.close().unwrap();
}

/// A table's file is synced by the connection that exports it.
#[test]
fn writing_data_files_has_its_name() {
    let server = MariaDb::open().unwrap();
    server
        .sql("create table sbtest.t (id int primary key)")
        .unwrap();
    let trace = trace(&server);
    for id in 0..10 {
        let sql = format!(
            "insert into sbtest.t values ({id}); flush tables sbtest.t for export; unlock tables"
        );
        server.sql(&sql).unwrap();
    }
    server.wait_until_alone().unwrap();
    let (outcome, rows) = finish(trace);
    assert!(
        rows::sum(&rows, "data_file_write") > 0,
        "{}",
        outcome.printed()
    );
    rows::check_other(&rows).unwrap();
    server.close().unwrap();
}

/// Many connections change the same few pages.
#[test]
fn an_innodb_latch_has_its_name() {
    let server = MariaDb::open().unwrap();
    let sysbench = Sysbench::prepare(&server, 1, 100).unwrap();
    let trace = trace(&server);
    sysbench
        .run_test("oltp_update_non_index", 16, 4000)
        .unwrap();
    server.wait_until_alone().unwrap();
    let (outcome, rows) = finish(trace);
    assert!(
        rows::sum(&rows, "InnoDB_latch") > 0,
        "{}",
        outcome.printed()
    );
    rows::check_other(&rows).unwrap();
    server.close().unwrap();
}

/// Debian's mariadbd has no symbol table: the report says which waits that concerns. A program that
/// has one is not reproached with functions that it does not have.
#[test]
fn what_symbols_would_name_is_reported() {
    let server = MariaDb::open().unwrap();
    let trace = trace(&server);
    server.sql("select 1").unwrap();
    let (outcome, _) = finish(trace);
    let printed = outcome.printed();
    assert!(
        printed.contains("Hint: the program has no symbol table"),
        "{printed}"
    );
    let summary: serde_json::Value =
        serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let unmatched = summary["trace"]["unmatched_waits"].as_array().unwrap();
    let of = |wait: &str| {
        let of_wait = unmatched.iter().filter(|entry| entry["wait"] == wait);
        of_wait
            .map(|entry| entry["functions"].to_string())
            .collect::<String>()
    };
    assert!(of("redo log").contains("log_write_up_to*"), "{unmatched:?}");
    // These are exported.
    assert!(
        !of("metadata lock").contains("MDL_context"),
        "{unmatched:?}"
    );
    assert!(!of("redo log").contains("ha_commit_trans"), "{unmatched:?}");

    // What a library names can match, whatever the program itself has.
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("library.toml");
    let wait = "\n[[wait]]\nname = \"condition\"\nfunctions = [\"*pthread_cond_*wait*\"]\n";
    fixtures::write_profile(&profile, "command", "dispatch_command", wait).unwrap();
    let library = Trace::start(&profile, server.pid(), &[]).unwrap();
    server.sql("select 1").unwrap();
    let (outcome, _) = finish(library);
    let printed = outcome.printed();
    assert!(!printed.contains("no symbol table"), "{printed}");
    server.close().unwrap();

    let mut fixture = Fixture::start("blocks", &["1"]).unwrap();
    let profile = fixture.profile("handle", "nest").unwrap();
    let text = std::fs::read_to_string(&profile).unwrap();
    let text =
        format!("{text}\n[[wait]]\nname = \"nothing\"\nfunctions = [\"no_such_function\"]\n");
    std::fs::write(&profile, text).unwrap();
    let trace = Trace::start(&profile, fixture.pid(), &[]).unwrap();
    fixture.work().unwrap();
    fixture.end().unwrap();
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(
        !outcome.printed().contains("no symbol table"),
        "{}",
        outcome.printed()
    );
}
