//! Because of whom requests waited: a service whose culprits are known, and databases whose are.
//!
//! Needs root, a kernel with BPF, g++ and mariadb-server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::mariadb::MariaDb;
use reqtrace_tests::reqtrace::{Blamed, Outcome, Trace};
use reqtrace_tests::rows::Row;
use reqtrace_tests::{ledger, workspace};

const CALLS: usize = 40;
/// A thread of no request is watched from when it first woke somebody, and who wakes it from then on.
const NOT_YET_WATCHED: usize = 3;

/// Who made the requests of a kind wait, and what that came down to. An empty name fits all.
struct Kind {
    victim: &'static str,
    causes: &'static [&'static str],
    culprit_kind: &'static str,
    culprit_request: &'static str,
    culprit_comm: &'static str,
}

const fn kind(
    victim: &'static str,
    causes: &'static [&'static str],
    (culprit_kind, culprit_request, culprit_comm): (&'static str, &'static str, &'static str),
) -> Kind {
    Kind {
        victim,
        causes,
        culprit_kind,
        culprit_request,
        culprit_comm,
    }
}

/// A thread that passes on what its client waits for, and may wait for a CPU meanwhile.
const ACCOMPLICE: (&str, &str) = ("behind_two", "c-first");

/// What a thread does that computes, on a machine with others.
const COMPUTES: &[&str] = &["on_cpu", "preempted", "run_queue"];
/// What a thread does that sleeps, and what one that writes to a disk.
const SLEEPS: &[&str] = &["timer", "on_cpu", "preempted", "run_queue"];
const SYNCS: &[&str] = &["disk", "on_cpu", "preempted", "run_queue"];

const KINDS: [Kind; 7] = [
    kind("alone", &["timer"], ("interrupt", "", "")),
    kind("behind_sleeper", SLEEPS, ("thread", "", "c-sleeper")),
    kind("behind_disk", SYNCS, ("request", "syncs", "")),
    kind("behind_two", COMPUTES, ("thread", "", "c-second")),
    kind(
        "behind_idler",
        &["between_requests"],
        ("thread", "", "c-idler"),
    ),
    kind("behind_server", COMPUTES, ("thread", "", "c-server")),
    kind("in_turn", COMPUTES, ("request", "in_turn", "")),
];

fn profile(folder: &Path) -> std::path::PathBuf {
    let mut text = "[profile]\nname = \"chains\"\n".to_owned();
    for function in KINDS
        .iter()
        .map(|kind| kind.victim)
        .chain(["syncs", "takes", "gives"])
    {
        write!(
            text,
            "\n[[request]]\nname = \"{function}\"\nbegin = {{ function = \"{function}\" }}\n"
        )
        .unwrap();
    }
    let path = folder.join("chains.toml");
    std::fs::write(&path, text).unwrap();
    path
}

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

#[test]
fn known_culprits_are_named_and_nobody_else_is() {
    let folder = workspace::scratch().unwrap();
    let path = folder.path().display().to_string();
    let mut fixture = Fixture::start("chains", &[&CALLS.to_string(), &path]).unwrap();
    let profile = profile(folder.path());
    let trace = Trace::start(&profile, fixture.pid(), &["--blame"]).unwrap();
    fixture.work().unwrap();
    fixture.end().unwrap();
    let outcome = trace.wait().unwrap();
    let (rows, blamed) = traced(&outcome);

    for kind in &KINDS {
        let of_kind: Vec<_> = rows
            .iter()
            .filter(|row| row.request == kind.victim)
            .collect();
        let times = if kind.victim == "in_turn" { 4 } else { 1 };
        assert_eq!(of_kind.len(), times * CALLS, "{}", kind.victim);
        let later = &of_kind[NOT_YET_WATCHED * times..];
        let blocked: u64 = later.iter().flat_map(|row| row.causes.values()).sum();
        let right: u64 = later
            .iter()
            .flat_map(|row| kind.causes.iter().map(|cause| row.causes[*cause]))
            .sum();
        let first: u64 = later.iter().map(|row| row.causes[kind.causes[0]]).sum();
        let rows: Vec<_> = blamed
            .iter()
            .filter(|row| row.victim_request == kind.victim)
            .collect();
        // Beside other tests all of them wait for a CPU, too.
        assert!(
            first as f64 >= 0.02 * blocked as f64,
            "{}: {first} of {blocked} ns\n{rows:#?}",
            kind.victim
        );
        assert!(
            right as f64 >= 0.95 * blocked as f64,
            "{}: {right} of {blocked} ns\n{rows:#?}",
            kind.victim
        );

        // Whoever is named has done it.
        let known: Vec<_> = rows
            .iter()
            .filter(|row| row.culprit_kind != "unknown")
            .collect();
        let fits = |wanted: &str, is: &str| wanted.is_empty() || wanted == is;
        let innocent: u64 = known
            .iter()
            .filter(|row| {
                !(row.culprit_kind == kind.culprit_kind
                    && fits(kind.culprit_request, &row.culprit_request)
                    && (fits(kind.culprit_comm, &row.culprit_comm)
                        || ACCOMPLICE == (kind.victim, row.culprit_comm.as_str())))
            })
            .map(|row| row.ns)
            .sum();
        let all: u64 = known.iter().map(|row| row.ns).sum();
        assert!(
            innocent as f64 <= 0.05 * all as f64,
            "{}: {innocent} of {all} ns\n{rows:#?}",
            kind.victim
        );
        assert!(
            rows.iter().all(|row| row.culprit_comm != "c-innocent"),
            "{rows:#?}"
        );
    }
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
