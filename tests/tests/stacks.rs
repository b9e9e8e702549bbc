//! User stacks against truth: programs without frame pointers that say where they block.
//!
//! Needs root, a kernel with BPF, and C, C++ and Rust compilers.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use reqtrace_tests::corpus::{self, Built, PROGRAMS};
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::programs::profile;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::workspace;

const LIMIT: Duration = Duration::from_secs(20);
const REQUESTS: u64 = 5;

/// Traces a program from its first to its last request.
fn trace(program: &Built, folder: &Path, profile: &Path, more: &[&str]) -> Outcome {
    let mut command = Command::new(&program.path);
    command.arg(REQUESTS.to_string());
    let mut child = Child::start(command, folder, program.program.name).unwrap();
    child.wait_for_line(Stream::Out, "chain: ", LIMIT).unwrap();
    let options = [&["-d", "--blocked-only"], more].concat();
    let trace = Trace::start(profile, child.pid(), &options).unwrap();
    child.tell("go").unwrap();
    let status = child.wait(LIMIT).unwrap();
    assert!(status.success(), "{}: {status}", program.program.name);
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    outcome
}

/// User frames of every folded line, innermost first, with its microseconds.
fn user_stacks(outcome: &Outcome) -> Vec<(Vec<String>, u64)> {
    let folded = outcome.folded().unwrap();
    folded
        .lines()
        .map(|line| {
            let (stack, micros) = line.rsplit_once(' ').unwrap();
            let (user, _kernel) = stack.rsplit_once(";-;").unwrap();
            let mut frames: Vec<String> = user.split(';').skip(1).map(str::to_owned).collect();
            frames.reverse();
            (frames, micros.parse().unwrap())
        })
        .collect()
}

/// The programs block for 20 ms a request; what takes less is a lock of the C library or a page.
fn long_stacks(outcome: &Outcome) -> Vec<Vec<String>> {
    let stacks = user_stacks(outcome);
    let long: Vec<_> = stacks
        .into_iter()
        .filter(|(_, micros)| *micros >= 10_000)
        .map(|(frames, _)| frames)
        .collect();
    assert!(!long.is_empty(), "nothing blocked");
    long
}

fn check(program: &Built, outcome: &Outcome) {
    let summary = outcome.summary().unwrap();
    let request = summary.request("request").unwrap();
    assert_eq!(request.begins, REQUESTS, "{}", program.program.name);
    for frames in long_stacks(outcome) {
        program.check(&frames).unwrap();
        let last = frames.last().map(String::as_str).unwrap_or_default();
        assert!(
            ["_start", "clone3", "clone", "__clone3", "__clone"].contains(&last),
            "{}: {} is not where a thread begins",
            program.program.name,
            frames.join(";")
        );
    }
    // A thread that is preempted while the kernel steps over a probe is in no mapping: microseconds.
    outcome.has_whole_stacks().unwrap();
}

#[test]
fn recorded_chains_are_the_true_ones() {
    let folder = workspace::scratch().unwrap();
    let profile = profile(folder.path(), "request", "");
    let programs = corpus::build_all(folder.path()).unwrap();
    assert_eq!(programs.len(), PROGRAMS.len());
    for program in &programs {
        check(program, &trace(program, folder.path(), &profile, &[]));
    }
}

/// The return address that a uretprobe replaces is put back: callers of `request` are seen.
#[test]
fn chains_are_whole_behind_a_uretprobe() {
    let folder = workspace::scratch().unwrap();
    let profile = profile(folder.path(), "request", "return-probe = \"uretprobe\"\n");
    let wanted = ["plt", "recursion", "thread", "virtual"];
    for program in PROGRAMS
        .iter()
        .filter(|program| wanted.contains(&program.name))
    {
        let program = program.build(folder.path()).unwrap();
        check(&program, &trace(&program, folder.path(), &profile, &[]));
    }
}

/// Without frame pointers a walk by frame pointers does not come far, and is not called whole.
#[test]
fn frame_pointers_are_not_called_whole() {
    let folder = workspace::scratch().unwrap();
    let profile = profile(folder.path(), "request", "");
    let program = PROGRAMS
        .iter()
        .find(|program| program.name == "virtual")
        .unwrap();
    let program = program.build(folder.path()).unwrap();
    let outcome = trace(&program, folder.path(), &profile, &["--unwind", "fp"]);
    let unwinding = outcome.summary().unwrap().unwinding;
    assert_eq!(unwinding.whole_ns, 0);
    assert!(unwinding.frame_pointers_ns > 0);
    assert!(unwinding.whole_share() < 0.01);
}
