//! Tasks of tokio as requests: every job once and within its own clocks, what they waited for, and for whom.
//!
//! Needs root and a kernel with BPF.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use reqtrace_tests::blamed;
use reqtrace_tests::reqtrace::{self, Outcome};
use reqtrace_tests::rows::Row;
use reqtrace_tests::tasks::{self, KINDS, Line};
use reqtrace_tests::workspace;

/// Jobs of each kind, of which one in twenty panics.
const JOBS: u64 = 100;

/// Who has what others wait for, and who waits for it.
const HELD: [(&str, &str); 3] = [
    ("holder", "locker"),
    ("owner", "acquirer"),
    ("sender", "receiver"),
];

/// How long a job computes, and at least keeps one that is starved from the only thread, ns.
const BUSY_NS: u64 = 2_000_000;

/// Checks counts and brackets of all jobs, and returns their rows.
pub(crate) fn checked(outcome: &Outcome, lines: &[Line], of_each: u64) -> Vec<Row> {
    let summary = outcome.checked().unwrap();
    assert_eq!(lines.len() as u64, of_each * KINDS as u64);
    let mut count = 0;
    for request in &summary.requests {
        let counts = [request.count, request.rows, request.begins, request.ends];
        assert_eq!(counts, [request.count; 4], "{request:?}");
        // Tasks that are no jobs are not counted.
        let misfits = [request.unknown_keys, request.running_elsewhere];
        assert_eq!(misfits, [Some(0); 2], "{request:?}");
        count += request.count;
    }
    assert_eq!(count, lines.len() as u64, "{}", outcome.said());
    let rows = outcome.rows().unwrap();
    tasks::check(lines, &rows, summary.trace.monotonic_to_unix_ns).unwrap();
    assert!(
        rows.iter()
            .all(|row| row.places["waited_for_the_runtime"] == row.queued_ns)
    );
    rows
}

/// What the jobs of a kind sum up to.
fn sum(rows: &[Row], kind: &str, of: impl Fn(&Row) -> u64) -> u64 {
    let of_kind = rows.iter().filter(|row| row.attributes["kind"] == kind);
    of_kind.map(of).sum()
}

fn every_job_is_a_request(runtime: &str) {
    let (outcome, lines) = tasks::trace(runtime, JOBS, &[]).unwrap();
    let rows = checked(&outcome, &lines, JOBS);
    let mut parked_at_most: BTreeMap<&str, i128> = BTreeMap::new();
    for line in &lines {
        *parked_at_most.entry(&line.kind).or_default() += line.parked.most;
    }
    for kind in [
        "sleeps",
        "locks",
        "receives",
        "acquires",
        "asks",
        "syncs",
        "queues",
        "has_a_child",
    ] {
        let parked = i128::from(sum(&rows, kind, |row| row.parked_ns));
        // The rest lies between clocks and markers.
        assert!(
            parked * 10 > parked_at_most[kind] * 8,
            "{kind}: {parked} of {parked_at_most:?}"
        );
        let on_thread = sum(&rows, kind, |row| {
            row.latency_ns - row.parked_ns - row.queued_ns
        });
        let latency = sum(&rows, kind, |row| row.latency_ns);
        assert!(on_thread * 2 < latency, "{kind}: {on_thread} of {latency}");
    }
    for row in rows
        .iter()
        .filter(|row| row.attributes["kind"] == "computes")
    {
        let on_thread = row.latency_ns - row.parked_ns - row.queued_ns;
        assert!(on_thread >= BUSY_NS && row.parked_ns == 0, "{row:?}");
    }
    if runtime == "current" {
        // The only thread was busy behind the spawn.
        let starved = rows
            .iter()
            .filter(|row| row.attributes["kind"] == "starves");
        for row in starved {
            assert!(row.queued_ns >= BUSY_NS && row.parked_ns == 0, "{row:?}");
        }
    }
    let said = outcome.said();
    assert!(said.contains("     waited for the runtime "), "{said}");
    waits_have_reasons_and_stacks(&outcome, &rows);
    the_wait_for_the_pool_is_apart(&outcome, &rows);
}

/// What the kinds of jobs wait for, as the columns of the places are called, or nothing, the function that waits, and what of a job it is
/// called by.
const REASONS: [(&str, &str, &str, &str); 11] = [
    // They look for what is free before: two places, of which none is known.
    (
        "holds",
        "",
        "tokio::time::sleep::Sleep",
        "tasks::jobs::holders::holds",
    ),
    (
        "owns",
        "",
        "tokio::time::sleep::Sleep",
        "tasks::jobs::holders::owns",
    ),
    (
        "sends",
        "timer",
        "tokio::time::sleep::Sleep",
        "tasks::jobs::holders::sends",
    ),
    (
        "sleeps",
        "timer",
        "tokio::time::sleep::Sleep",
        "tasks::jobs::alone::sleeps",
    ),
    (
        "locks",
        "lock",
        "tokio::sync::mutex::Mutex",
        "tasks::jobs::waiters::locks",
    ),
    (
        "acquires",
        "semaphore",
        "tokio::sync::semaphore::Semaphore",
        "tasks::jobs::waiters::acquires",
    ),
    (
        "receives",
        "channel",
        "tokio::sync::mpsc::chan::Rx",
        "tasks::jobs::waiters::receives",
    ),
    (
        "asks",
        "socket",
        "tokio::runtime::io::",
        "tasks::jobs::alone::asks",
    ),
    // Names of this mangling do not tell a job of the pool from a task; who runs it does.
    (
        "syncs",
        "spawn_blocking",
        "tokio::runtime::task::join::JoinHandle",
        "tasks::jobs::alone::syncs",
    ),
    (
        "queues",
        "spawn_blocking",
        "tokio::runtime::task::join::JoinHandle",
        "tasks::jobs::alone::queues",
    ),
    (
        "has_a_child",
        "join",
        "tokio::runtime::task::join::JoinHandle",
        "tasks::jobs::alone::has_a_child",
    ),
];

/// Where jobs are that wait for a thread of the blocking pool: the column.
const POOL: &str = "waited_for_the_blocking_pool";

/// How long a blocking job of `queues` sleeps, and the one before it, ns.
const SLEEPS_NS: u64 = 3_000_000;

/// Checks that a job which waits for a blocking one has the time until a thread took that apart.
fn the_wait_for_the_pool_is_apart(outcome: &Outcome, rows: &[Row]) {
    let queues = rows.iter().filter(|row| row.attributes["kind"] == "queues");
    for row in queues {
        // Its thread has slept at least so long for it.
        assert!(row.places["tokio_spawn_blocking"] >= SLEEPS_NS, "{row:?}");
    }
    // The one before slept from a moment before it was parked on.
    let waited = sum(rows, "queues", |row| row.places[POOL]);
    assert!(waited >= JOBS * SLEEPS_NS * 8 / 10, "{waited}");
    assert_eq!(sum(rows, "has_a_child", |row| row.places[POOL]), 0);
    let folded = outcome.folded().unwrap();
    let stacks = folded
        .lines()
        .filter(|line| line.contains("[parked: waited for the blocking pool]"));
    let with_stack = stacks.filter(|line| line.contains("tasks::jobs::alone::queues"));
    let us = with_stack.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap());
    assert!(
        us.sum::<u64>() * 1000 >= waited * 95 / 100,
        "{waited} {folded}"
    );
}

/// Checks that parked time has the reason that its kind has, for 95 % of it, no other one, and its stack.
fn waits_have_reasons_and_stacks(outcome: &Outcome, rows: &[Row]) {
    let folded = outcome.folded().unwrap();
    for (kind, reason, function, job) in REASONS {
        let parked = sum(rows, kind, |row| row.parked_ns);
        let nameless = sum(rows, kind, |row| row.parked_ns - parked_with_a_name(row));
        let (right, last) = match reason {
            "" => (nameless, "[parked]".to_owned()),
            reason => {
                let place = format!("tokio_{reason}");
                let pool = |row: &Row| match reason {
                    "spawn_blocking" => row.places[POOL],
                    _ => 0,
                };
                let right = sum(rows, kind, |row| row.places[&place] + pool(row));
                (right, format!("[parked: tokio {reason}]"))
            }
        };
        let (mut all, mut with_stack) = (0, 0);
        for line in folded.lines().filter(|line| line.contains(&last)) {
            let us: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
            let (at, by) = (line.find(function), line.find(job));
            if by.is_some() {
                all += us;
                with_stack += if by < at { us } else { 0 };
            }
        }
        let wrong = match reason {
            "" => parked - nameless,
            _ => parked - right - nameless,
        };
        println!(
            "{kind}: {parked} ns parked, {:.2} % {reason}, {wrong} ns another one, {nameless} ns none; {with_stack} of \
             {all} us in {job} with their stacks",
            100.0 * right as f64 / parked as f64
        );
        assert!(
            right as f64 >= 0.95 * parked as f64,
            "{kind}: {right} of {parked}"
        );
        assert_eq!(wrong, 0, "{kind}");
        assert!(
            all > 0 && with_stack as f64 >= 0.95 * all as f64,
            "{kind}: {with_stack} of {all} in {folded}"
        );
    }
}

fn parked_with_a_name(row: &Row) -> u64 {
    let names = row
        .places
        .iter()
        .filter(|(name, _)| name.starts_with("tokio_") || *name == POOL);
    names.map(|(_, ns)| ns).sum()
}

#[test]
fn every_job_is_a_request_on_many_threads() {
    every_job_is_a_request("multi");
}

#[test]
fn every_job_is_a_request_on_one_thread() {
    every_job_is_a_request("current");
}

/// What `check` says of a profile with this `[[request]]` and a program.
fn refused(requests: &str, program: &Path) -> String {
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("p.toml");
    let head = "[profile]\nname = \"p\"\n[runtime]\nkind = \"tokio\"\n";
    fs::write(&profile, format!("{head}{requests}")).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    let output = command.arg(&profile).arg(program).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{requests}");
    String::from_utf8(output.stderr).unwrap()
}

fn unit(name: &str, pattern: &str) -> String {
    format!("[[request]]\nname = \"{name}\"\nunit = \"{pattern}\"\n")
}

#[test]
fn what_cannot_be_found_in_a_program_is_said() {
    let program = workspace::tasks().unwrap();
    let said = refused(&unit("a", "*no_such_job*"), &program);
    assert!(
        said.contains("no type of task of ") && said.contains("tasks::http::connection"),
        "{said}"
    );
    let both = unit("a", "*jobs::holders*") + &unit("b", "*Measured<*");
    let said = refused(&both, &program);
    assert!(
        said.contains("would be requests of `a` and of `b`"),
        "{said}"
    );
    let said = refused(&(unit("a", "*") + &unit("b", "*sleeps*")), &program);
    assert!(
        said.contains("would be requests of `a` and of `b`"),
        "{said}"
    );
    let said = refused(&unit("a", "*"), &workspace::bakery().unwrap());
    assert!(said.contains("no function of tokio is in it"), "{said}");
    let folder = workspace::scratch().unwrap();
    let stripped = folder.path().join("stripped");
    let mut strip = Command::new(workspace::program("strip").unwrap());
    assert!(
        strip
            .arg("-o")
            .arg(&stripped)
            .arg(&program)
            .status()
            .unwrap()
            .success()
    );
    let said = refused(&unit("a", "*sleeps*"), &stripped);
    assert!(
        said.contains("no name tells the types of its tasks"),
        "{said}"
    );
}

#[test]
fn who_has_what_a_job_waits_for_held_it_up() {
    for runtime in ["multi", "current"] {
        let (outcome, lines) = tasks::trace(runtime, JOBS, &["--blame"]).unwrap();
        checked(&outcome, &lines, JOBS);
        let (_, blamed) = blamed::of(&outcome).unwrap();
        for (holder, waiter) in HELD {
            let of_waiter = || {
                blamed.iter().filter(|row| {
                    row.victim_request == waiter && row.wait_class.starts_with("parked")
                })
            };
            let all: u64 = of_waiter().map(|row| row.ns).sum();
            let by = |request: &str| -> u64 {
                let rows = of_waiter().filter(|row| row.culprit_request == request);
                rows.map(|row| row.ns).sum()
            };
            assert!(
                by(holder) as f64 > 0.95 * all as f64,
                "{runtime}: {waiter} {all}: {blamed:#?}"
            );
            let innocent: u64 = [
                "holder", "owner", "sender", "locker", "acquirer", "receiver", "job",
            ]
            .into_iter()
            .filter(|request| *request != holder)
            .map(by)
            .sum();
            assert!(
                innocent as f64 <= 0.005 * all as f64,
                "{runtime}: {waiter} {all}: {blamed:#?}"
            );
        }
        let share = |victim: &str, class: &str, causes: &[&str]| {
            let rows = || {
                let of_victim = blamed.iter().filter(|row| row.victim_request == victim);
                of_victim.filter(|row| row.wait_class.starts_with(class))
            };
            let right = rows().filter(|row| causes.contains(&&*row.root_cause));
            let sum = |ns: u64| ns as f64 / rows().map(|row| row.ns).sum::<u64>() as f64;
            sum(right.map(|row| row.ns).sum())
        };
        // Who has something has it until a time has passed, as the driver's stack tells that woke it.
        for (holder, _) in HELD {
            let timer = share(holder, "parked", &["timer"]);
            assert!(timer > 0.95, "{runtime}: {holder} {timer}: {blamed:#?}");
        }
        // The thread of the pool slept or wrote to a disk, for others before, and then for the job.
        let did = ["timer", "disk", "on_cpu", "run_queue", "preempted"];
        for class in [
            "parked: waited for the blocking pool",
            "parked: tokio spawn_blocking",
        ] {
            let known = share("job", class, &did);
            assert!(known > 0.95, "{runtime}: {class} {known}: {blamed:#?}");
        }
    }
}
