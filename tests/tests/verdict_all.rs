//! All incidents, again and again: by themselves, beside noise, and sampled; and two at once. Of ten runs nine are right, and in
//! none of them anybody is named who is not the culprit.
//!
//! Needs what the incidents need.

use std::cell::Cell;
use std::panic::catch_unwind;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use reqtrace_tests::limited::Stalling;
use reqtrace_tests::noise;
use reqtrace_tests::reqtrace::Trace;

use crate::verdict::{How, Right, holder, load, server_with, verdicts};
use crate::{verdict, verdict_cpu, verdict_disk, verdict_many};

/// Each a number of times; the variable has another number tried by hand.
const RUNS: usize = 10;
const VARIABLE: &str = "INCIDENT_RUNS";
/// Which of them, by a part of the name, and how; all without.
const ONLY: &str = "INCIDENT_ONLY";

type Incident = fn(How) -> Right;

const INCIDENTS: [(&str, Incident); 12] = [
    ("idle in transaction", verdict::idle_in_transaction),
    ("global read lock", verdict::read_lock),
    ("DDL behind a transaction", verdict::change_of_a_table),
    ("slow upstream", verdict_many::slow_upstream),
    ("real-time process", verdict_cpu::taken_cpu),
    ("stalled disk", verdict_disk::stalled_disk),
    ("CPU limit", verdict_cpu::limited_cpu),
    ("dropped page cache", verdict_disk::dropped_page_cache),
    (
        "scan that fills the cache",
        verdict_disk::scan_that_fills_the_cache,
    ),
    ("hot row", verdict_many::hot_row),
    ("lock convoy", verdict_many::convoy),
    ("log on a slow disk", verdict_disk::slow_log_file),
];

#[test]
#[ignore = "two hours: cargo xtask test --all"]
fn of_ten_runs_of_each_incident_nine_are_right() {
    let runs = std::env::var(VARIABLE).map_or(RUNS, |runs| runs.parse().unwrap());
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut missed = Vec::new();
    let wrong = Cell::new(0);
    for (name, incident) in INCIDENTS {
        for how in How::ALL {
            let name = format!("{name}, {how:?}");
            if !name.contains(&only) {
                continue;
            }
            let begun = Instant::now();
            // Who is named and is innocent ends such a run at once; the others are run nevertheless.
            let one = |_| match catch_unwind(|| incident(how)) {
                Ok(Ok(())) => None,
                Ok(Err(missed)) => Some(missed),
                Err(_) => {
                    wrong.set(wrong.get() + 1);
                    Some("see above".into())
                }
            };
            let not_sure: Vec<String> = (0..runs).filter_map(one).collect();
            let right = runs - not_sure.len();
            let seconds = begun.elapsed().as_secs() / runs as u64;
            eprintln!("{name}: {right} of {runs} right, {seconds} s each");
            if right * 10 < runs * 9 {
                missed.push(format!(
                    "{name}: {right} of {runs}: {}",
                    not_sure.join("\n\n")
                ));
            }
        }
    }
    assert!(
        missed.is_empty() && wrong.get() == 0,
        "{} wrong; {}",
        wrong.get(),
        missed.join("\n\n\n")
    );
}

/// A connection that idles in its transaction, and a disk that stalls, each by its own clock.
fn both() -> Right {
    let server = server_with(&["--innodb-flush-log-at-trx-commit=1"]);
    let options = ["--blame", "--labels"];
    let trace = Trace::start(Path::new("mysql.toml"), server.pid(), &options).unwrap();
    let socket = server.socket();
    let disk = Stalling::writes_of(server.pid(), socket.parent().unwrap()).unwrap();
    let mut load = load(
        &server,
        How::Alone,
        "update d.t set n = n + 1 where id = ID",
    );
    let script =
        "begin; select sum(n) from d.t for update;\n\\! sleep 0.35\ncommit;\n\\! sleep 1.6\n";
    let (mut holder, tid) = holder(&server, script);
    while holder.status().unwrap().is_none() {
        sleep(Duration::from_millis(800));
        disk.stall(true).unwrap();
        sleep(Duration::from_millis(120));
        disk.stall(false).unwrap();
    }
    load.stop().unwrap();
    let outcome = trace.finish().unwrap();
    let verdicts = verdicts(&outcome);
    for verdict in &verdicts {
        let culprit = &verdict["culprit"];
        let is_holder = culprit["tid"] == tid;
        assert!(
            culprit.is_null() || is_holder,
            "{verdict:#} {}",
            outcome.printed()
        );
    }
    let classes = verdicts
        .iter()
        .map(|verdict| verdict["class"].as_str().unwrap());
    match classes.collect::<Vec<_>>().as_slice() {
        ["held_between_requests", "disk"]
        | ["disk", "held_between_requests"]
        | ["no_single_cause"] => Ok(()),
        _ => Err(format!("{verdicts:#?} {}", outcome.printed())),
    }
}

#[test]
fn of_two_incidents_at_once_both_are_named_or_none() {
    noise::once_in(3, "pair of verdicts", both);
}
