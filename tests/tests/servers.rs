//! PostgreSQL under pgbench and psql, Redis under redis-benchmark: requests against the number
//! that the load was told to make.
//!
//! Needs root, a kernel with BPF, postgresql-15, redis-server and redis-tools.

use std::path::Path;

use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::rows::{self, Row};
use reqtrace_tests::servers::Server;

/// Connections of pgbench, transactions of each, and statements of one (TPC-B).
const CLIENTS: u64 = 4;
const TRANSACTIONS: u64 = 25;
const STATEMENTS: u64 = 7;
/// Queries that pgbench makes for itself before the load: for the tables' partitions and scale.
const PREPARATION: u64 = 2;

/// Requests of a good trace.
fn count(outcome: &Outcome, request: &str) -> u64 {
    let summary = outcome.checked().unwrap();
    outcome.has_whole_stacks().unwrap();
    rows::check_other(&outcome.rows().unwrap()).unwrap();
    summary.request(request).unwrap().count
}

#[test]
fn postgresql_has_one_request_per_statement_in_every_mode() {
    let server = Server::postgresql().unwrap();
    server.run("pgbench", &["-i", "-q"]).unwrap();
    let load = CLIENTS * TRANSACTIONS * STATEMENTS + PREPARATION;
    let prepares = CLIENTS * STATEMENTS;
    for (mode, expected) in [
        ("simple", load),
        ("extended", load),
        ("prepared", load + prepares),
    ] {
        let profile = Path::new("postgresql.toml");
        let trace = Trace::start(profile, server.pid(), &["--preempted-stacks"]).unwrap();
        let (clients, transactions) = (CLIENTS.to_string(), TRANSACTIONS.to_string());
        let args = ["-n", "-M", mode, "-c", &clients, "-t", &transactions];
        server.run("pgbench", &args).unwrap();
        let outcome = trace.finish().unwrap();
        assert_eq!(count(&outcome, "query"), expected, "{mode}");
        // Backends are forked while they are traced, and preempted while they step over probes.
        let [whole_us, _] = outcome.blocked_us().unwrap();
        assert!(whole_us > 0, "{mode}: nothing blocked");
        let folded = outcome.folded().unwrap();
        let over_a_probe = "[truncated: no mapping];pq_getmessage";
        assert!(!folded.contains(over_a_probe), "{mode}: {folded}");
    }
}

#[test]
fn postgresqls_requests_have_their_text_in_every_mode() {
    let server = Server::postgresql().unwrap();
    server.run("pgbench", &["-i", "-q"]).unwrap();
    for mode in ["simple", "extended", "prepared"] {
        let trace =
            Trace::start(Path::new("postgresql.toml"), server.pid(), &["--labels"]).unwrap();
        let (clients, transactions) = (CLIENTS.to_string(), TRANSACTIONS.to_string());
        let args = ["-n", "-M", mode, "-c", &clients, "-t", &transactions];
        server.run("pgbench", &args).unwrap();
        let outcome = trace.finish().unwrap();
        outcome.checked().unwrap();
        let mut rows = outcome.rows().unwrap();
        rows.retain(|row| row.complete);
        // A prepare is a round trip of its own, and has the same text.
        let prepares = if mode == "prepared" { CLIENTS } else { 0 };
        let texts = [
            "UPDATE pgbench_accounts SET",
            "SELECT abalance FROM pgbench_accounts",
            "UPDATE pgbench_tellers SET",
            "UPDATE pgbench_branches SET",
            "INSERT INTO pgbench_history",
            "BEGIN",
            "END",
        ];
        for text in texts {
            let with_text = rows
                .iter()
                .filter(|row| row.attributes["sql"].starts_with(text));
            let expected = CLIENTS * TRANSACTIONS + prepares;
            assert_eq!(with_text.count() as u64, expected, "{mode}: {text}");
        }
        // What was prepared has no values in it.
        let with_place = |row: &&Row| row.attributes["sql"].contains("abalance + $1");
        let count = rows.iter().filter(with_place).count() as u64;
        let expected = CLIENTS * TRANSACTIONS + prepares;
        assert_eq!(count, if mode == "simple" { 0 } else { expected }, "{mode}");
        for row in &rows {
            let of = [&row.attributes["user"], &row.attributes["database"]];
            assert_eq!(of, ["postgres", "postgres"], "{row:?}");
        }
    }
}

#[test]
fn postgresqls_errors_end_their_request() {
    let server = Server::postgresql().unwrap();
    let trace = Trace::start(Path::new("postgresql.toml"), server.pid(), &[]).unwrap();
    let sql = ["-c", "select 1", "-c", "select 1/0", "-c", "begin"];
    let more = ["-c", "select nothing", "-c", "select 2", "-c", "rollback"];
    // psql goes on after errors, and fails in the end when the last statement did.
    server.run("psql", &[sql, more].concat()).unwrap();
    let outcome = trace.finish().unwrap();
    // A handful of statements is too little to judge stacks and classes by.
    let summary = outcome.checked().unwrap();
    assert_eq!(summary.request("query").unwrap().count, 6);
    // The connection began within the trace: that it was ready before its first query is no request
    // that had been running.
    let rows = outcome.rows().unwrap();
    assert!(
        rows.iter().all(|row| row.reason != "running at start"),
        "{rows:#?}"
    );
    assert!(
        !outcome.printed().contains("had no begin"),
        "{}",
        outcome.printed()
    );
}

#[test]
fn redis_has_one_request_per_command() {
    let server = Server::redis().unwrap();
    let trace = Trace::start(Path::new("redis.toml"), server.pid(), &[]).unwrap();
    server
        .redis_benchmark(&["-t", "set", "-n", "1000", "-c", "4", "-q"])
        .unwrap();
    let outcome = trace.finish().unwrap();
    // It asks for two settings first.
    assert_eq!(count(&outcome, "command"), 1000 + 2);
    let summary = outcome.summary().unwrap();
    assert!(summary.request("flush").unwrap().count > 0);
    // With `appendfsync always` what is written is synced in the event loop and in no command: it
    // is waited for there, and nowhere else.
    let mut rows = outcome.rows().unwrap();
    rows.retain(|row| row.classes["append-only_file"] > 0);
    assert!(rows.len() > 10, "{} waits for the file", rows.len());
    assert!(rows.iter().all(|row| row.request == "flush"));
}
