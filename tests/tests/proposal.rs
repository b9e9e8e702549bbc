//! `reqtrace functions --count --as-profile`: the key that it proposes is the one that the program has, and a
//! trace with that profile, as it was printed, counts every request.
//!
//! Needs root and a kernel with BPF.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace::{self, Trace};
use reqtrace_tests::workspace;

const JOBS: u64 = 400;
const LIMIT: Duration = Duration::from_secs(60);

/// The proposal, whatever the numbers in its comments are.
const PROPOSAL: &str = "\
[[request]]
name   = \"job_start\"
key    = { arg = 0 }
begin  = { function = \"jobs::job_start\" }
resume = { function = \"jobs::job_step\" }
park   = [
    { function = \"jobs::job_start\", at = \"return\" },
    { function = \"jobs::job_step\", at = \"return\" },
]
end    = { function = \"jobs::job_done\" }
";

fn jobs(mode: &str) -> Fixture {
    Fixture::start("jobs", &[mode, &JOBS.to_string()]).unwrap()
}

/// What is printed for functions that fit while the fixture does its jobs.
fn profile(fixture: &mut Fixture, pattern: &str) -> String {
    let folder = workspace::scratch().unwrap();
    let pid = fixture.pid().to_string();
    let words = ["functions", "-p", &pid, pattern, "--as-profile"];
    let more = ["--count", "60", "--max-probe-rate", "100"];
    let command = reqtrace::command([&words[..], &more[..]].concat()).unwrap();
    let mut counting = Child::start(command, folder.path(), "reqtrace").unwrap();
    let line = counting.wait_for_line(Stream::Err, "counting ", LIMIT);
    line.unwrap();
    fixture.work().unwrap();
    counting.signal(libc::SIGINT).unwrap();
    let status = counting.wait(LIMIT).unwrap();
    assert!(status.success(), "{}", counting.output(Stream::Err));
    counting.output(Stream::Out)
}

/// Writes the profile, and asks `reqtrace check` about it.
#[track_caller]
fn checked(folder: &Path, fixture: &Fixture, profile: &str) -> PathBuf {
    let path = folder.join("jobs.toml");
    std::fs::write(&path, profile).unwrap();
    let shown = path.to_str().unwrap().to_owned();
    let pid = fixture.pid().to_string();
    let command = reqtrace::command(["check", "--profile", &shown, "-p", &pid]).unwrap();
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(0), "{profile}\n{}", outcome.said());
    path
}

/// Lines of comments that begin so, without `# `.
fn comment<'a>(profile: &'a str, start: &str) -> Option<&'a str> {
    let mut comments = profile.lines().filter_map(|line| line.strip_prefix("# "));
    comments.find(|line| line.starts_with(start))
}

#[track_caller]
fn every_job_is_counted(mode: &str) {
    let mut first = jobs(mode);
    let text = profile(&mut first, "jobs::*");
    assert!(text.contains(PROPOSAL), "{text}");
    assert_eq!(text.matches("key    =").count(), 1, "{text}");
    // One row for each of its functions, and none for the decoys.
    let row = |name: &str| {
        let lines = text.lines();
        let row = lines.filter_map(|line| line.strip_prefix("# "));
        row.filter(|line| line.contains(&format!("  jobs::{name}(")))
            .map(|line| {
                let number = line.split_whitespace().next().unwrap();
                number.replace(',', "").parse::<u64>().unwrap()
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(row("job_start"), [JOBS], "{text}");
    assert_eq!(row("job_step"), [3 * JOBS], "{text}");
    assert_eq!(row("job_log"), [3 * JOBS], "{text}");
    assert_eq!(row("job_done"), [JOBS], "{text}");
    assert!(comment(&text, "These functions may ").is_some(), "{text}");
    let log = text.lines().find(|line| line.contains("jobs::job_log("));
    let log = log.unwrap();
    assert!(log.ends_with("(called by others of these)"), "{text}");
    let others = [
        "count_job",
        "use_scratch",
        "weigh",
        "buffer_fill",
        "buffer_drain",
    ];
    for other in others {
        // It is a request type as without a count, and no more.
        assert!(text.contains(&format!("name  = \"{other}\"")), "{text}");
        assert_eq!(row(other), [] as [u64; 0], "{text}");
    }
    first.end().unwrap();

    let folder = workspace::scratch().unwrap();
    let mut second = jobs(mode);
    let path = checked(folder.path(), &second, &text);
    let trace = Trace::start(&path, second.pid(), &[]).unwrap();
    second.work().unwrap();
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    let job = summary.request("job_start").unwrap();
    assert_eq!((job.count, job.rows), (JOBS, JOBS), "{}", outcome.said());
    assert_eq!((job.begins, job.ends), (JOBS, JOBS));
    let misfits = (job.unknown_keys, job.running_elsewhere);
    assert_eq!(misfits, (Some(0), Some(0)), "{}", outcome.said());
    let rows = outcome.rows().unwrap();
    let jobs: Vec<_> = rows
        .iter()
        .filter(|row| row.request == "job_start")
        .collect();
    assert_eq!(jobs.len() as u64, JOBS);
    assert!(jobs.iter().all(|job| job.complete && job.parked_ns > 0));
    second.end().unwrap();
}

#[test]
fn jobs_that_take_turns_on_one_thread() {
    every_job_is_counted("loop");
}

#[test]
fn jobs_that_change_threads() {
    every_job_is_counted("pool");
}

#[test]
fn what_is_no_key_is_not_proposed() {
    for (pattern, name) in [
        ("jobs::count_job", "count_job"),
        ("jobs::use_scratch", "use_scratch"),
        ("jobs::weigh", "weigh"),
        ("jobs::buffer_*", "buffer_fill"),
    ] {
        let mut fixture = jobs("pool");
        let text = profile(&mut fixture, pattern);
        assert!(comment(&text, "No key was found").is_some(), "{text}");
        assert!(!text.contains("key ="), "{text}");
        assert!(!text.contains("key    ="), "{text}");
        assert!(text.contains(&format!("name  = \"{name}\"")), "{text}");
        fixture.end().unwrap();
    }
}

#[test]
fn what_is_not_clear_is_a_comment() {
    let folder = workspace::scratch().unwrap();
    let mut fixture = jobs("loop");
    let text = profile(&mut fixture, "jobs::job_st*");
    let said = comment(&text, "It is not clear which function ends a request");
    assert!(said.is_some(), "{text}");
    let known = comment(&text, "    begin  = { function = \"jobs::job_start\" }");
    assert!(known.is_some(), "{text}");
    assert!(
        text.contains("#     end    = { function = \"?\" }"),
        "{text}"
    );
    // Without the comment it is the profile that it would be without a count.
    assert!(text.contains("\nname  = \"job_step\"\n"), "{text}");
    checked(folder.path(), &fixture, &text);
    fixture.end().unwrap();
}

#[test]
fn too_many_functions_to_watch_are_refused_with_the_count() {
    let fixture = jobs("loop");
    let pid = fixture.pid().to_string();
    let words = [
        "functions",
        "-p",
        &pid,
        "pthread_*",
        "--as-profile",
        "--count",
        "1",
    ];
    let outcome = reqtrace::run(reqtrace::command(words).unwrap()).unwrap();
    assert_eq!(outcome.code, Some(2), "{}", outcome.said());
    assert!(outcome.stderr.contains("at most 64"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("next: "), "{}", outcome.stderr);
    assert_eq!(outcome.stdout, "");
    fixture.end().unwrap();
}

#[test]
fn without_a_count_the_profile_says_how_to_look_for_a_key() {
    let fixture = jobs("loop");
    let pid = fixture.pid().to_string();
    let words = ["functions", "-p", &pid, "jobs::job_*", "--as-profile"];
    let outcome = reqtrace::run(reqtrace::command(words).unwrap()).unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.said());
    assert!(comment(&outcome.stdout, "`--count 5` together").is_some());
    fixture.end().unwrap();
}
