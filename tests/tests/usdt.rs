//! USDT probes with semaphores, in PostgreSQL: statements against the number that pgbench makes.
//!
//! Needs root, a kernel with BPF, postgresql-15.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;

use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::servers::Server;
use reqtrace_tests::{ledger, rows};

const PROFILE: &str = "postgresql-usdt.toml";
/// Connections of pgbench, transactions of each, and statements of one (TPC-B).
const CLIENTS: u64 = 4;
const TRANSACTIONS: u64 = 25;
const STATEMENTS: u64 = 7;
/// Queries that pgbench makes for itself before the load: for the tables' partitions and scale.
const PREPARATION: u64 = 2;

fn checked(outcome: &Outcome) -> u64 {
    assert_eq!(outcome.code, Some(0), "{}", outcome.said());
    let summary = outcome.summary().unwrap();
    assert_eq!(summary.lost(), 0, "{:?}", summary.losses);
    ledger::check(&outcome.csv().unwrap()).unwrap();
    summary.request("statement").unwrap().count
}

#[test]
fn a_guarded_probe_fires_while_it_is_traced() {
    let server = Server::postgresql().unwrap();
    server.run("pgbench", &["-i", "-q"]).unwrap();
    let (clients, transactions) = (CLIENTS.to_string(), TRANSACTIONS.to_string());
    // In the extended protocol it never fires: only what pgbench asks before the load counts.
    for (mode, expected) in [
        ("simple", CLIENTS * TRANSACTIONS * STATEMENTS + PREPARATION),
        ("extended", PREPARATION),
    ] {
        let trace = Trace::start(Path::new(PROFILE), server.pid(), &[]).unwrap();
        let args = ["-n", "-M", mode, "-c", &clients, "-t", &transactions];
        server.run("pgbench", &args).unwrap();
        assert_eq!(checked(&trace.finish().unwrap()), expected, "{mode}");
    }
}

#[test]
fn an_error_jumps_over_the_end_and_the_next_statement_closes_it() {
    let server = Server::postgresql().unwrap();
    let trace = Trace::start(Path::new(PROFILE), server.pid(), &[]).unwrap();
    let sql = ["-c", "select 1", "-c", "select 1/0", "-c", "select 2"];
    server.run("psql", &sql).unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(checked(&outcome), 2);
    let incomplete: Vec<String> = rows::read(&outcome.csv().unwrap())
        .unwrap()
        .iter()
        .filter(|row| !row.complete)
        .map(|row| row.reason.clone())
        .collect();
    assert_eq!(incomplete, ["no end"]);
}
