//! Goroutines that are requests, from the `go` statement to their end: each once, around what it measured itself, queued
//! first, and held up by who has what it waits for.
//!
//! Needs root, a kernel with BPF, and Go.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use reqtrace_tests::blamed;
use reqtrace_tests::goroutines::{self, KINDS, Line};
use reqtrace_tests::reqtrace::{self, Outcome};
use reqtrace_tests::workspace;

/// Jobs of each kind, of which one in twenty panics, which its goroutine recovers from.
const JOBS: u64 = 100;

/// Checks counts, and that each request is around what its job measured.
fn check(outcome: &Outcome, lines: &[Line]) {
    let summary = outcome.checked().unwrap();
    assert_eq!(lines.len() as u64, JOBS * KINDS as u64);
    // One kind asks an upstream, which replies in a goroutine of the same program.
    for (name, wanted) in [("job", JOBS * KINDS as u64), ("reply", JOBS)] {
        let request = summary.request(name).unwrap();
        assert_eq!(
            [request.count, request.rows, request.begins, request.ends],
            [wanted; 4],
            "{name}: {}",
            outcome.said()
        );
        assert_eq!(
            (request.unknown_keys, request.running_elsewhere),
            (Some(0), Some(0)),
            "{name}"
        );
    }
    let rows = outcome.rows().unwrap();
    let mut of_jobs = BTreeMap::new();
    for row in rows.iter().filter(|row| row.request == "job") {
        let job = (
            row.attributes["kind"].as_str(),
            row.attributes["number"].as_str(),
        );
        assert!(of_jobs.insert(job, row).is_none(), "{job:?} comes twice");
    }
    for line in lines {
        let number = line.number.to_string();
        let row = of_jobs[&(line.kind.as_str(), number.as_str())];
        let begin = i128::from(row.start_unix_ns) - i128::from(summary.trace.monotonic_to_unix_ns);
        let end = begin + i128::from(row.latency_ns);
        // Made before its first clock, and in a queue from there on; done behind the last one.
        assert!(begin < line.begin.least, "{line:?} {row:?}");
        assert!(line.panics || end > line.end.most, "{line:?} {row:?}");
        assert!(row.queued_ns > 0, "{row:?}");
        let ran_by = begin + i128::from(row.latency_ns - row.queued_ns - row.parked_ns);
        assert!(ran_by <= end, "{row:?}");
    }
    for row in &rows {
        assert_eq!(row.places["waited_for_the_runtime"], row.queued_ns);
    }
}

fn every_goroutine_is_a_request(program: &Path) {
    let (outcome, lines) = goroutines::trace("units.toml", program, JOBS, &[]).unwrap();
    check(&outcome, &lines);
}

#[test]
fn every_goroutine_of_a_function_is_a_request() {
    every_goroutine_is_a_request(&goroutines::program().unwrap());
}

#[test]
fn every_goroutine_of_a_function_is_a_request_in_a_stripped_program() {
    every_goroutine_is_a_request(&goroutines::stripped().unwrap());
}

#[test]
fn a_goroutine_waits_for_the_one_that_has_the_lock_or_sends() {
    let program = goroutines::program().unwrap();
    let (outcome, lines) = goroutines::trace("units.toml", &program, JOBS, &["--blame"]).unwrap();
    check(&outcome, &lines);
    let (_, blamed) = blamed::of(&outcome).unwrap();
    // From where they began to wait until what they waited for came at the earliest.
    let waits = lines
        .iter()
        .filter(|line| ["locks", "receives"].contains(&line.kind.as_str()));
    let least: i128 = waits
        .map(|line| (line.came.least - line.away.least).max(0))
        .sum();
    let parked = blamed
        .iter()
        .filter(|row| row.victim_request == "job" && row.wait_class.starts_with("parked"));
    let by = |culprit: &str| -> i128 {
        let rows = parked.clone().filter(|row| row.culprit_request == culprit);
        rows.map(|row| i128::from(row.ns)).sum()
    };
    assert!(
        by("job") * 100 > least * 95,
        "{} of {least}: {blamed:#?}",
        by("job")
    );
}

/// What `check` says of a profile with these units and the program.
fn said_of(units: &[&str], program: &Path) -> (Option<i32>, String) {
    let folder = workspace::scratch().unwrap();
    let profile = folder.path().join("p.toml");
    let mut text = "[profile]\nname = \"p\"\n[runtime]\nkind = \"go\"\n".to_owned();
    for (number, unit) in units.iter().enumerate() {
        text += &format!("[[request]]\nname = \"r{number}\"\nunit = \"{unit}\"\n");
    }
    fs::write(&profile, text).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    let output = command.arg(&profile).arg(program).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

#[test]
fn units_that_no_function_or_that_two_requests_fit_are_refused() {
    let program = goroutines::program().unwrap();
    let (code, said) = said_of(&["main.reply"], &program);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("is the function main.reply"), "{said}");
    for (units, wanted) in [
        (&["main.replies"][..], "no function `main.replies`"),
        (&["*"], ""),
        (
            &["*", "main.reply"],
            "and the profile has 2 types of requests",
        ),
        (&["main.re*", "*.reply"], "and a goroutine is one request"),
        (&["net.*"], "choose a narrower pattern"),
    ] {
        let (code, said) = said_of(units, &program);
        let is_right = code == Some(if wanted.is_empty() { 0 } else { 2 });
        assert!(is_right && said.contains(wanted), "{units:?}: {said}");
    }
}
