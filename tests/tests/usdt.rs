//! USDT probes with semaphores, in PostgreSQL: statements against the number that pgbench makes.
//!
//! Needs root, a kernel with BPF, postgresql-15.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqtrace_tests::process::{run, until};
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::servers::{Server, postgresql};
use reqtrace_tests::{rows, workspace};

const PROFILE: &str = "postgresql-usdt.toml";
/// Connections of pgbench, transactions of each, and statements of one (TPC-B).
const CLIENTS: u64 = 4;
const TRANSACTIONS: u64 = 25;
const STATEMENTS: u64 = 7;
/// Queries that pgbench makes for itself before the load: for the tables' partitions and scale.
const PREPARATION: u64 = 2;

/// A trace raises the semaphores of every process that runs the program: those of another test too.
static SEMAPHORES: Mutex<()> = Mutex::new(());

/// Statements of a good trace.
fn count(outcome: &Outcome) -> u64 {
    let summary = outcome.checked().unwrap();
    summary.request("statement").unwrap().count
}

#[test]
fn a_guarded_probe_fires_while_it_is_traced() {
    let _alone = SEMAPHORES.lock().unwrap_or_else(PoisonError::into_inner);
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
        assert_eq!(count(&trace.finish().unwrap()), expected, "{mode}");
    }
}

#[test]
fn an_error_jumps_over_the_end_and_the_next_statement_closes_it() {
    let _alone = SEMAPHORES.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::postgresql().unwrap();
    let trace = Trace::start(Path::new(PROFILE), server.pid(), &[]).unwrap();
    let sql = ["-c", "select 1", "-c", "select 1/0", "-c", "select 2"];
    server.run("psql", &sql).unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(count(&outcome), 2);
    let incomplete: Vec<String> = rows::read(&outcome.csv().unwrap())
        .unwrap()
        .iter()
        .filter(|row| !row.complete)
        .map(|row| row.reason.clone())
        .collect();
    assert_eq!(incomplete, ["no end"]);
}

#[test]
fn begin_and_end_can_be_of_different_kinds() {
    let _alone = SEMAPHORES.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::postgresql().unwrap();
    // What the profile's comment says about errors.
    let text = fs::read_to_string(workspace::root().join("profiles").join(PROFILE)).unwrap();
    let lines = text.lines().map(|line| match line.starts_with("end = ") {
        true => "end = { function = \"ReadyForQuery\", at = \"return\" }\n".to_owned(),
        false => format!("{line}\n"),
    });
    let folder = tempfile::tempdir().unwrap();
    let profile = folder.path().join("mixed.toml");
    fs::write(&profile, lines.collect::<String>()).unwrap();
    let trace = Trace::start(&profile, server.pid(), &["--labels"]).unwrap();
    let sql = ["-c", "select 1", "-c", "select 1/0", "-c", "select 2"];
    server.run("psql", &sql).unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(count(&outcome), 3);
    let rows = rows::read(&outcome.csv().unwrap()).unwrap();
    let labels = rows
        .iter()
        .filter(|row| row.complete)
        .map(|row| row.label.as_str());
    assert_eq!(
        labels.collect::<Vec<_>>(),
        ["select 1", "select 1/0", "select 2"]
    );
}

/// The address of a probe's semaphore as linked, from what `readelf` says of the file.
fn semaphore_of(program: &Path, probe: &str) -> u64 {
    let text = run(Command::new("readelf").arg("-nW").arg(program)).unwrap();
    let after = text.split(&format!("Name: {probe}\n")).nth(1).unwrap();
    let value = after.split("Semaphore: 0x").nth(1).unwrap();
    u64::from_str_radix(&value[..16], 16).unwrap()
}

/// What stands there in a process now.
fn raised(pid: u32, address: u64) -> u16 {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let first = maps
        .lines()
        .find(|line| line.contains("/postgres"))
        .unwrap();
    let base = u64::from_str_radix(first.split('-').next().unwrap(), 16).unwrap();
    let mut counter = [0; 2];
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    memory.read_exact_at(&mut counter, base + address).unwrap();
    u16::from_le_bytes(counter)
}

/// The backend of the only connection.
fn backend(postmaster: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{postmaster}/task/{postmaster}/children"));
    children.unwrap().split_whitespace().find_map(|pid| {
        let words = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
        words.contains("[local]").then(|| pid.parse().unwrap())
    })
}

#[test]
fn a_killed_trace_leaves_no_semaphore_raised() {
    let _alone = SEMAPHORES.lock().unwrap_or_else(PoisonError::into_inner);
    let server = Server::postgresql().unwrap();
    let address = semaphore_of(&postgresql("postgres").unwrap(), "query__start");
    assert_eq!(raised(server.pid(), address), 0);
    let trace = Trace::start(Path::new(PROFILE), server.pid(), &[]).unwrap();
    assert_eq!(raised(server.pid(), address), 1);
    // A backend that is forked while it is raised has it raised, too.
    let mut client = server.client("psql", &[]).unwrap();
    let mut client = client
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut statements = client.stdin.take().unwrap();
    let limit = Duration::from_secs(20);
    let child = until(limit, "a backend", || Ok(backend(server.pid()))).unwrap();
    assert_eq!(raised(child, address), 1);
    let outcome = trace.signal(libc::SIGKILL).unwrap();
    assert_eq!(outcome.code, None);
    until(limit, "the kernel to lower the semaphores", || {
        let low = [server.pid(), child]
            .iter()
            .all(|pid| raised(*pid, address) == 0);
        Ok(low.then_some(()))
    })
    .unwrap();
    // And it goes on.
    statements.write_all(b"select 1;\n").unwrap();
    drop(statements);
    assert!(client.wait().unwrap().success());
}
