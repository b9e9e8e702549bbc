//! `reqtrace functions --count --as-profile`: the key that it proposes is the one that the program has, and a
//! trace with that profile, as it was printed, counts every request.
//!
//! Needs root and a kernel with BPF.

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

/// A service whose requests have a key of this kind.
fn keys(kind: &str) -> Fixture {
    Fixture::start("keys", &[kind, &JOBS.to_string()]).unwrap()
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
    assert_eq!(outcome.code, Some(0), "{profile}\n{}", outcome.printed());
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
        let (_, evidence) = text.split_once("# The other functions:").unwrap();
        let line = format!("  jobs::{other}(");
        assert_eq!(text.matches(&line).count(), 1, "{text}");
        assert!(evidence.contains(&line), "{text}");
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
    assert_eq!((job.count, job.rows), (JOBS, JOBS), "{}", outcome.printed());
    assert_eq!((job.begins, job.ends), (JOBS, JOBS));
    let misfits = (job.unknown_keys, job.running_elsewhere);
    assert_eq!(misfits, (Some(0), Some(0)), "{}", outcome.printed());
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

/// The proposal is this one, and a trace with it counts every job.
#[track_caller]
fn key_is_found(kind: &str, pattern: &str, proposal: &str) {
    let mut first = keys(kind);
    let text = profile(&mut first, pattern);
    assert!(text.contains(proposal), "{text}");
    first.end().unwrap();
    let folder = workspace::scratch().unwrap();
    let mut second = keys(kind);
    let path = checked(folder.path(), &second, &text);
    let trace = Trace::start(&path, second.pid(), &[]).unwrap();
    second.work().unwrap();
    let outcome = trace.finish().unwrap();
    let summary = outcome.checked().unwrap();
    let name = proposal.split('"').nth(1).unwrap();
    let job = summary.request(name).unwrap();
    assert_eq!((job.count, job.begins, job.ends), (JOBS, JOBS, JOBS));
    let misfits = (job.unknown_keys, job.running_elsewhere);
    assert_eq!(misfits, (Some(0), Some(0)), "{}", outcome.printed());
    second.end().unwrap();
}

#[test]
fn a_key_that_is_a_result_and_later_an_argument() {
    let proposal = "\
[[request]]
name   = \"task_create\"
key    = { arg = 1 }
begin  = { function = \"keys::task_create\", at = \"return\", key = { arg = \"result\" } }
resume = { function = \"keys::task_step\", key = { arg = 2 } }
park   = { function = \"keys::task_step\", at = \"return\" }
end    = { function = \"keys::task_finish\" }
";
    key_is_found("result", "keys::task_*", proposal);
}

#[test]
fn a_key_of_which_a_function_has_a_part() {
    let proposal = "\
[[request]]
name   = \"request_begin\"
key    = { arg = 0 }
begin  = { function = \"keys::request_begin\" }
resume = { function = \"keys::part_step\", key = { arg = 0, add = -32 } }
park   = [
    { function = \"keys::request_begin\", at = \"return\" },
    { function = \"keys::part_step\", at = \"return\" },
]
end    = { function = \"keys::request_end\" }
";
    key_is_found("inner", "keys::*", proposal);
}

#[test]
fn a_key_of_one_function_that_says_when_a_job_is_done() {
    let proposal = "\
[[request]]
name   = \"dispatch\"
key    = { arg = 1 }
begin  = { function = \"keys::dispatch\" }
resume = { function = \"keys::dispatch\" }
park   = { function = \"keys::dispatch\", at = \"return\", when = { arg = \"result\", not-equals = 0 } }
end    = { function = \"keys::dispatch\", at = \"return\", when = { arg = \"result\", equals = 0 } }
";
    key_is_found("one", "keys::dispatch", proposal);
}

#[test]
fn a_key_that_comes_back_in_one_of_a_hundred_calls() {
    let proposal = "\
[[request]]
name   = \"long_begin\"
key    = { arg = 0 }
begin  = { function = \"keys::long_begin\" }
resume = { function = \"keys::long_step\" }
";
    key_is_found("many", "keys::long_*", proposal);
}

#[test]
fn what_was_counted_is_printed_when_counting_takes_too_much() {
    for more in [&[][..], &["--as-profile"]] {
        let mut fixture = keys("many");
        let pid = fixture.pid().to_string();
        let words = ["functions", "-p", &pid, "keys::long_*", "--count", "60"];
        let gate = ["--max-probe-rate", "0.001"];
        let command = reqtrace::command([&words[..], &gate, more].concat()).unwrap();
        let folder = workspace::scratch().unwrap();
        let mut counting = Child::start(command, folder.path(), "reqtrace").unwrap();
        counting
            .wait_for_line(Stream::Err, "counting ", LIMIT)
            .unwrap();
        fixture.work().unwrap();
        let status = counting.wait(LIMIT).unwrap();
        assert_eq!(status.code(), Some(2), "{}", counting.output(Stream::Err));
        let text = counting.output(Stream::Out);
        assert!(text.contains("was") && text.contains("stopped"), "{text}");
        let steps = text.lines().find(|line| line.contains("keys::long_step("));
        let mut words = steps.unwrap().split_whitespace();
        let calls = words.find(|word| *word != "#").unwrap().replace(',', "");
        assert!(calls.parse::<u64>().unwrap() > 0, "{text}");
        let printed = counting.output(Stream::Err);
        assert!(printed.contains("counting is stopped"), "{printed}");
        fixture.end().unwrap();
    }
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
        // What was counted is there all the same.
        let calls = (4 * JOBS).to_string().replace("1600", "1,600");
        let evidence = text
            .lines()
            .find(|line| line.contains(&format!("jobs::{name}(")));
        assert!(evidence.unwrap().contains(&calls), "{text}");
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
    let printed = comment(&text, "It is not clear which function ends a request");
    assert!(printed.is_some(), "{text}");
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
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
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
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert!(comment(&outcome.stdout, "`--count 5` together").is_some());
    fixture.end().unwrap();
}
