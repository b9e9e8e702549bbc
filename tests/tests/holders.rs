//! Who holds a lock, as `intervals.csv` has it: a service whose locks say so, some that do not, and one that only
//! looks as if it did; in its own PID namespace too.
//!
//! Needs root, a kernel with BPF, g++ and util-linux.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;

use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace::Trace;
use reqtrace_tests::{fixtures, workspace};

const LIMIT: Duration = Duration::from_secs(60);
const CALLS: usize = 20;
const TOLD: [&str; 10] = [
    "normal",
    "recursive",
    "errorcheck",
    "adaptive",
    "robust",
    "pi",
    "robust_pi",
    "timed",
    "read_behind_writer",
    "write_behind_writer",
];
const NOT_TOLD: [&str; 4] = ["write_behind_reader", "semaphore", "condition", "lookalike"];

/// The only child of a process.
fn child_of(pid: u32) -> u32 {
    let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.trim().parse().unwrap()
}

/// The thread of a process that has this number in its own namespace.
fn thread(pid: u32, own: &str) -> String {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let mut tids = tasks.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    tids.find(|tid| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).unwrap();
        let mut lines = status.lines();
        let numbers = lines.find_map(|line| line.strip_prefix("NSpid:")).unwrap();
        numbers.split_whitespace().last() == Some(own)
    })
    .unwrap()
}

/// Traces the service; `before` stands before its command.
fn check(before: &[&str]) {
    let folder = workspace::scratch().unwrap();
    let at = folder.path();
    let program = fixtures::compile("holders", at).unwrap();
    let mut command = match before {
        [] => Command::new(&program),
        [first, more @ ..] => {
            let mut command = Command::new(workspace::program(first).unwrap());
            command.args(more).arg(&program);
            command
        }
    };
    command.args([&CALLS.to_string(), &at.display().to_string()]);
    let mut service = Child::start(command, at, "holders").unwrap();
    let ready = service.wait_for_line(Stream::Out, "ready", LIMIT).unwrap();
    let pid = match before {
        [] => service.pid(),
        _ => child_of(service.pid()),
    };
    let holder = thread(pid, ready.split(' ').nth(1).unwrap());
    let profile = at.join("holders.toml");
    fixtures::write_profile(&profile, "work", "behind", "label = { arg = 0 }\n").unwrap();
    let intervals = at.join("intervals.csv");
    let file = intervals.display().to_string();
    let trace = Trace::start(&profile, pid, &["--labels", "--intervals", &file]).unwrap();
    service.tell("go").unwrap();
    service.wait_for_line(Stream::Out, "done", LIMIT).unwrap();
    let outcome = trace.finish().unwrap();
    drop(service.stdin());
    service.wait(LIMIT).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());

    // Futexes that are variables of the program have their names.
    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let locks = summary["blame"][0]["locks"].as_array().unwrap();
    let objects: Vec<&str> = locks
        .iter()
        .map(|lock| lock["object"].as_str().unwrap())
        .collect();
    for (variable, how) in [
        ("lookalike()::words", "holders lookalike()::words"),
        ("condition()::changed", "+0x"),
    ] {
        let is_it = |object: &&&str| object.starts_with("holders ") && object.contains(variable);
        let found = objects.iter().find(is_it);
        assert!(
            found.is_some_and(|object| object.contains(how)),
            "{objects:?}"
        );
    }
    assert!(objects.contains(&"[heap]"), "{objects:?}");

    let rows = outcome.rows().unwrap();
    let labels: BTreeMap<u64, &str> = rows.iter().map(|row| (row.id, &*row.label)).collect();
    // Blocks on futexes by lock: with the right holder, with none, with another.
    let mut found: BTreeMap<&str, [usize; 3]> = BTreeMap::new();
    let mut reader = csv::Reader::from_path(&intervals).unwrap();
    let columns = reader.headers().unwrap().clone();
    for record in reader.records() {
        let record = record.unwrap();
        let field = |name: &str| {
            let at = columns.iter().position(|column| column == name).unwrap();
            &record[at]
        };
        if field("futex").is_empty() {
            continue;
        }
        let of_lock = found
            .entry(labels[&field("request_id").parse().unwrap()])
            .or_default();
        match field("holder_tid") {
            "" => of_lock[1] += 1,
            tid if tid == holder => of_lock[0] += 1,
            _ => of_lock[2] += 1,
        }
    }
    for lock in TOLD {
        let [right, none, wrong] = found[lock];
        // A lock may be given back just as its word is read.
        assert!(
            right >= CALLS / 2 && none <= CALLS / 5 && wrong == 0,
            "{lock}: {found:?}"
        );
    }
    for lock in NOT_TOLD {
        let [right, none, wrong] = found[lock];
        // Who is woken waits for the mutex of the condition variable, once a call at most.
        let most = if lock == "condition" { CALLS } else { 0 };
        assert!(
            none >= CALLS / 2 && right <= most && wrong == 0,
            "{lock}: {found:?}"
        );
    }
}

#[test]
fn a_lock_of_glibc_says_who_holds_it_and_no_other_does() {
    check(&[]);
}

#[test]
fn a_holder_in_its_own_pid_namespace_has_its_number_here() {
    check(&["unshare", "--pid", "--fork", "--kill-child"]);
}
