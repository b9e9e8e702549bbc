//! The named waits of PostgreSQL, each one provoked.
//!
//! Needs root, a kernel with BPF, postgresql-15.

use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::rows::{self, Row};
use reqtrace_tests::servers::Server;

/// How long a client keeps the server waiting.
const PAUSE: Duration = Duration::from_millis(300);

fn psql(server: &Server, statements: &[&str]) {
    let args: Vec<&str> = statements.iter().flat_map(|sql| ["-c", sql]).collect();
    server.run("psql", &args).unwrap();
}

/// Traces what `load` does; gives all rows that are complete.
fn traced(server: &Server, load: impl FnOnce()) -> (Outcome, Vec<Row>) {
    let trace = Trace::start(Path::new("postgresql.toml"), server.pid(), &[]).unwrap();
    load();
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let mut rows = outcome.rows().unwrap();
    rows.retain(|row| row.complete);
    (outcome, rows)
}

/// The request that waited longest, and how long.
fn longest(rows: &[Row], class: &str) -> u64 {
    rows.iter().map(|row| row.classes[class]).max().unwrap_or(0)
}

#[test]
fn a_row_lock_is_waited_for_as_long_as_it_is_held() {
    let server = Server::postgresql().unwrap();
    psql(
        &server,
        &["create table t (a int)", "insert into t values (1)"],
    );
    let hold = [
        "-c",
        "begin",
        "-c",
        "update t set a = 2",
        "-c",
        "select pg_sleep(0.5)",
    ];
    let hold: Vec<&str> = hold.into_iter().chain(["-c", "commit"]).collect();
    let (_, rows) = traced(&server, || {
        let mut holder = server.client("psql", &hold).unwrap();
        let mut holder = holder.stdout(Stdio::null()).spawn().unwrap();
        sleep(PAUSE / 2);
        psql(&server, &["update t set a = 3"]);
        assert!(holder.wait().unwrap().success());
    });
    let waited: Vec<&Row> = rows
        .iter()
        .filter(|row| row.classes["row_or_table_lock"] > 0)
        .collect();
    let [update] = waited.as_slice() else {
        panic!("{waited:?}");
    };
    // It waited for nothing else that counts.
    assert!(
        update.classes["row_or_table_lock"] * 10 > update.latency_ns * 9,
        "{update:?}"
    );
    // The sleep of the holder is no named wait.
    assert!(longest(&rows, "poll") > longest(&rows, "row_or_table_lock"));
}

#[test]
fn a_client_that_is_slow_to_send_or_to_read_is_waited_for() {
    let server = Server::postgresql().unwrap();
    psql(&server, &["create table t (a int)"]);
    let pause = PAUSE.as_nanos() as u64;
    let (_, rows) = traced(&server, || {
        let mut copy = server.client("psql", &["-c", "copy t from stdin"]).unwrap();
        let mut copy = copy
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let mut rows = copy.stdin.take().unwrap();
        rows.write_all(b"1\n").unwrap();
        sleep(PAUSE);
        rows.write_all(b"2\n").unwrap();
        drop(rows);
        assert!(copy.wait().unwrap().success());
    });
    // All of COPY is one request, and the wait for its data is in it.
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(longest(&rows, "client") > pause / 2, "{rows:?}");

    let out = "copy (select repeat('x', 1000) from generate_series(1, 20000)) to stdout";
    let (_, rows) = traced(&server, || {
        let mut copy = server.client("psql", &["-c", out]).unwrap();
        let mut copy = copy.stdout(Stdio::piped()).spawn().unwrap();
        sleep(PAUSE);
        let mut text = Vec::new();
        copy.stdout.take().unwrap().read_to_end(&mut text).unwrap();
        assert_eq!(text.len(), 20_000 * 1001);
        assert!(copy.wait().unwrap().success());
    });
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(longest(&rows, "client") > pause / 2, "{rows:?}");
}

#[test]
fn commits_wait_for_the_wal_and_a_copied_database_for_its_files() {
    let server = Server::postgresql().unwrap();
    psql(&server, &["create table t (a int)"]);
    let (_, rows) = traced(&server, || {
        psql(&server, &["insert into t values (1)", "select 1"]);
    });
    let [insert, select] = rows.as_slice() else {
        panic!("{rows:?}");
    };
    assert!(insert.classes["WAL"] > 0, "{insert:?}");
    assert_eq!(select.classes["WAL"], 0, "{select:?}");

    let (_, rows) = traced(&server, || {
        psql(&server, &["create database copied strategy file_copy"]);
    });
    assert!(rows::sum(&rows, "data_file") > 0, "{rows:?}");
}

#[test]
fn many_writers_of_few_pages_wait_for_lightweight_locks() {
    let server = Server::postgresql().unwrap();
    server.run("pgbench", &["-i", "-q"]).unwrap();
    // Without waiting for the log, and all on the one row of a table: what is left are locks.
    let script = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        script.path(),
        "insert into pgbench_history (tid, bid, aid, delta, mtime) \
         select 1, 1, 1, g, now() from generate_series(1, 200) g;\n",
    )
    .unwrap();
    let script = script.path().to_str().unwrap();
    psql(
        &server,
        &[
            "alter system set synchronous_commit = off",
            "select pg_reload_conf()",
        ],
    );
    let (_, rows) = traced(&server, || {
        let args = ["-n", "-c", "16", "-j", "2", "-t", "150", "-f", script];
        server.run("pgbench", &args).unwrap();
    });
    let waited = rows
        .iter()
        .filter(|row| row.classes["lightweight_lock"] > 0);
    assert!(
        waited.count() > 0,
        "no wait for a lightweight lock in {} requests",
        rows.len()
    );
}
