//! Because of whom requests waited: a service whose culprits are known, and databases whose are.
//!
//! Needs root, a kernel with BPF, g++ and mariadb-server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::time::Duration;

use reqtrace_tests::chains::Kind;
use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::{Blamed, Outcome, Trace};
use reqtrace_tests::rows::Row;
use reqtrace_tests::{chains, ledger, workspace};

const CALLS: usize = 40;

fn traced(outcome: &Outcome) -> (Vec<Row>, Vec<Blamed>) {
    assert_eq!(outcome.code, Some(0), "{}", outcome.said());
    ledger::check(&outcome.csv().unwrap()).unwrap();
    let rows = outcome.rows().unwrap();
    for row in &rows {
        let caused: u64 = row.causes.values().sum();
        assert_eq!(caused, row.blocked_ns + row.unattributed_ns, "{row:?}");
    }
    let blamed = outcome.blame().unwrap();
    let complete = rows.iter().filter(|row| row.complete);
    let in_rows: u64 = complete.flat_map(|row| row.causes.values()).sum();
    assert_eq!(blamed.iter().map(|row| row.ns).sum::<u64>(), in_rows);
    (rows, blamed)
}

/// Traces a service of known culprits.
fn known(name: &str, kinds: &[Kind], further: &[&str]) {
    let folder = workspace::scratch().unwrap();
    let path = folder.path().display().to_string();
    let mut fixture = Fixture::start(name, &[&CALLS.to_string(), &path]).unwrap();
    let profile = chains::profile(folder.path(), kinds, further).unwrap();
    let mut options = vec!["--blame"];
    options.extend(fixture.more().iter().flat_map(|pid| ["-p", pid]));
    let trace = Trace::start(&profile, fixture.pid(), &options).unwrap();
    fixture.work().unwrap();
    fixture.end().unwrap();
    let outcome = trace.wait().unwrap();
    let (rows, blamed) = traced(&outcome);
    chains::check(kinds, CALLS, 0.95, &rows, &blamed).unwrap();
}

#[test]
fn known_culprits_are_named_and_nobody_else_is() {
    known("chains", &chains::CHAINS, &["syncs", "takes", "gives"]);
}

#[test]
fn who_has_a_lock_is_named_whatever_the_lock_is() {
    known("locks", &chains::LOCKS, &["crowded", "posts", "passes_on"]);
}

#[test]
fn a_request_of_another_process_is_named_whatever_connects_them() {
    let served = [
        "serves_by_socketpair",
        "serves_by_pipe",
        "serves_by_unix_socket",
        "serves_by_tcp",
    ];
    let further = [&served[..], &["locks", "unlocks"]].concat();
    known("pair", &chains::PAIR, &further);
}

#[test]
fn a_row_lock_is_the_fault_of_the_connection_that_idles_in_its_transaction() {
    // Of the 800 ms that the holder idles, some are over when the other comes.
    const IDLES: Duration = Duration::from_millis(300);
    let server = MariaDb::open().unwrap();
    server
        .sql("create database d; create table d.t (id int primary key, n int) engine=innodb; insert into d.t values (1, 0)")
        .unwrap();
    let trace = Trace::start(
        Path::new("mysql.toml"),
        server.pid(),
        &["--blame", "--labels"],
    )
    .unwrap();
    let holder = "begin; update d.t set n = n + 1 where id = 1;\n\\! sleep 0.8\ncommit;";
    let mut holder = server.start_sql("holder", holder).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    server.sql("update d.t set n = n + 2 where id = 1").unwrap();
    holder.wait(Duration::from_secs(10)).unwrap();
    let outcome = trace.finish().unwrap();
    let (rows, _) = traced(&outcome);
    let victim = rows.iter().max_by_key(|row| row.blocked_ns).unwrap();
    let idle = victim.causes["between_requests"];
    let least = u64::try_from(IDLES.as_nanos()).unwrap();
    assert!(idle >= least, "{victim:#?}");
    assert!(idle as f64 >= 0.9 * victim.blocked_ns as f64, "{victim:#?}");
}
