//! Goroutines that are requests, from the `go` statement to their end: each once, around what it measured itself, queued
//! first, and held up by who has what it waits for.
//!
//! Needs root, a kernel with BPF, and Go.

use std::fs;
use std::path::Path;

use reqtrace_tests::blamed;
use reqtrace_tests::goroutine_checks;
use reqtrace_tests::goroutines::{self, Line};
use reqtrace_tests::jobs::{self, Traced};
use reqtrace_tests::reqtrace::{self, Outcome};
use reqtrace_tests::workspace;

/// Jobs of each kind, of which one in twenty panics, which its goroutine recovers from.
const JOBS: u64 = 100;

fn checked(outcome: &Outcome, lines: &[Line]) -> Traced {
    let traced = Traced::of(outcome).unwrap();
    goroutine_checks::every_goroutine(&traced, lines, JOBS).unwrap();
    traced
}

fn every_goroutine_is_a_request(program: &Path) {
    let (outcome, lines) = goroutines::trace("units.toml", program, JOBS, &[]).unwrap();
    checked(&outcome, &lines);
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
    let traced = checked(&outcome, &lines);
    let blamed = outcome.blame().unwrap();
    goroutine_checks::held_up(&traced, &blamed).unwrap();
    goroutine_checks::upstream(&traced, &blamed, JOBS).unwrap();
    blamed::sockets_known(&blamed, "job", "parked: IO wait", jobs::SOCKETS).unwrap();
    // From where they began to wait until what they waited for came at the earliest.
    let waits = lines
        .iter()
        .filter(|line| ["locks", "receives"].contains(&line.kind.as_str()));
    let least: i128 = waits
        .map(|line| (line.came.least - line.away.least).max(0))
        .sum();
    let by_jobs = blamed::sum(&blamed, |row| {
        row.victim_request == "job"
            && row.wait_class.starts_with("parked")
            && row.culprit_request == "job"
    });
    assert!(
        i128::from(by_jobs) * 100 > least * 95,
        "{by_jobs} of {least}: {blamed:#?}"
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
    let printed = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(printed).unwrap())
}

#[test]
fn units_that_no_function_or_that_two_requests_fit_are_refused() {
    let program = goroutines::program().unwrap();
    let (code, printed) = said_of(&["main.reply"], &program);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("is the function main.reply"), "{printed}");
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
        let (code, printed) = said_of(units, &program);
        let is_right = code == Some(if wanted.is_empty() { 0 } else { 2 });
        assert!(is_right && printed.contains(wanted), "{units:?}: {printed}");
    }
}
