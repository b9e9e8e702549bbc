//! Targets that make work for the tracer: it ends in time, says what it left out, and leaves no probe.
//!
//! Needs root, a kernel with BPF and g++.

use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use reqtrace_tests::probed::code_of;
use reqtrace_tests::process::{Child, Stream};
use reqtrace_tests::reqtrace::{self, Outcome, Trace};
use reqtrace_tests::unkind::Unkind;

/// Traces it for so long while it is unkind; gives how much longer the tracer took as well.
fn trace(target: &mut Unkind, seconds: u64) -> (Outcome, Duration) {
    let length = seconds.to_string();
    let trace = Trace::start(target.profile(), target.pid(), &[&length]).unwrap();
    let begun = Instant::now();
    target.go().unwrap();
    let outcome = trace.wait().unwrap();
    let late = begun.elapsed().saturating_sub(Duration::from_secs(seconds));
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    (outcome, late)
}

/// Each unknown address made the whole map be parsed again: two seconds of tracing took a minute.
#[test]
fn a_perf_map_that_grows_keeps_nobody() {
    let mut target = Unkind::start("map").unwrap();
    let (outcome, late) = trace(&mut target, 2);
    assert!(late < Duration::from_secs(12), "{late:?} late");
    assert!(outcome.summary().unwrap().request("work").unwrap().count > 100);
    target.end().unwrap();
}

/// The tracer had the library mapped and was ended by SIGBUS; its outputs were empty.
#[test]
fn a_library_that_is_cut_short_ends_nobody() {
    let mut target = Unkind::start("library").unwrap();
    let (outcome, _) = trace(&mut target, 2);
    // On a busy machine the file is cut before its names were read.
    let named = outcome.stack_with(&["in_library", "[library.so+"]).unwrap();
    assert!(named.is_some(), "{}", outcome.folded().unwrap());
    let late = outcome.stack_with(&["cut()"]).unwrap();
    assert!(late.is_some(), "{}", outcome.folded().unwrap());
    target.end().unwrap();
}

/// What a process has open: how many descriptors, and how many bytes of deleted files.
fn open_files(pid: u32) -> (usize, u64) {
    let (mut count, mut deleted) = (0, 0);
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap() {
        let path = entry.unwrap().path();
        let Ok(target) = std::fs::read_link(&path) else {
            continue;
        };
        count += 1;
        let target = target.to_string_lossy();
        if target.contains("copy") && target.ends_with(" (deleted)") {
            deleted += std::fs::metadata(&path).map_or(0, |metadata| metadata.blocks() * 512);
        }
    }
    (count, deleted)
}

/// Two descriptors a library, never given back: the trace ended at the usual limit.
#[test]
fn fifteen_hundred_libraries_end_no_trace() {
    let mut target = Unkind::start("files").unwrap();
    let trace = Trace::start(target.profile(), target.pid(), &["2"]).unwrap();
    target.go().unwrap();
    let (count, _) = open_files(trace.pid());
    assert!(count < 2 * 1024 + 200, "{count}");
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let text = outcome.summary_text().unwrap();
    assert!(text.contains("\"ended_by\": \"duration\""), "{text}");
    let summary = outcome.summary().unwrap();
    assert!(summary.request("work").unwrap().count > 100);
    assert!(text.contains("files_left_out"), "{text}");
    target.end().unwrap();
}

/// 1.8 GB of disk were pinned in six seconds.
#[test]
fn deleted_libraries_take_no_disk() {
    let mut target = Unkind::start("churn").unwrap();
    let trace = Trace::start(target.profile(), target.pid(), &["6"]).unwrap();
    target.go().unwrap();
    let mut most = 0;
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(100));
        let (count, deleted) = open_files(trace.pid());
        assert!(count < 2 * 1024 + 200, "{count}");
        most = most.max(deleted);
    }
    assert!(most <= (64 + 17) << 20, "{} MiB", most >> 20);
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    target.end().unwrap();
}

/// Nothing that a terminal or a spreadsheet would run.
#[track_caller]
fn is_harmless(text: &str) {
    let harms = |character: char| character.is_control() && !matches!(character, '\n' | '\t');
    assert!(!text.contains(harms), "{text:?}");
}

/// Names of threads and files went as they are to the terminal and into the CSV.
#[test]
fn names_that_a_target_chooses_do_no_harm() {
    let mut target = Unkind::start("name").unwrap();
    let (outcome, _) = trace(&mut target, 1);
    is_harmless(&outcome.printed());
    let rows = outcome.rows().unwrap();
    assert!(rows.len() > 100);
    let csv = outcome.csv().unwrap();
    is_harmless(&csv);
    assert_eq!(csv.lines().count(), rows.len() + 1);
    assert!(csv.contains(",'=1\\u{1b}[2J\\nend,"), "{csv}");
    is_harmless(&outcome.folded().unwrap());

    let program = target.folder().join("\u{1b}[31m\nred");
    std::fs::copy(target.folder().join("unkind"), &program).unwrap();
    let path = program.as_os_str();
    for words in [
        &["functions".as_ref(), path, "nothing-of-that-name".as_ref()][..],
        &["functions".as_ref(), path, "handle".as_ref()],
        &[
            "check".as_ref(),
            "--profile".as_ref(),
            target.profile().as_os_str(),
            path,
        ],
    ] {
        let outcome = reqtrace::run(reqtrace::command(words).unwrap()).unwrap();
        is_harmless(&outcome.printed());
    }
    let profile = target.folder().join("keys.toml");
    let text = std::fs::read_to_string(target.profile()).unwrap();
    std::fs::write(&profile, format!("{text}\"a\\u001b[2Jb\" = 1\n")).unwrap();
    let mut command = reqtrace::command(["check", "--profile"]).unwrap();
    command.arg(&profile).arg(target.folder().join("unkind"));
    let outcome = reqtrace::run(command).unwrap();
    assert_eq!(outcome.code, Some(2), "{}", outcome.printed());
    is_harmless(&outcome.printed());
    target.end().unwrap();
}

/// Whatever it is doing just then: reading the profile, loading, attaching, tracing, reporting.
#[test]
fn signals_at_every_stage_leave_the_target_as_it_was() {
    let mut target = Unkind::start("nap").unwrap();
    target.go().unwrap();
    let before = code_of(target.pid()).unwrap();
    let pid = target.pid().to_string();
    for (turn, delay) in [0, 10, 30, 60, 100, 150, 200, 300, 400, 600, 900, 1300]
        .into_iter()
        .enumerate()
    {
        let signal = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP][turn % 3];
        let mut command = reqtrace::command(["--profile"]).unwrap();
        command.arg(target.profile()).args(["-p", &pid, "-y", "1"]);
        let folder = tempfile::tempdir().unwrap();
        let mut tracer = Child::start(command, folder.path(), "reqtrace").unwrap();
        std::thread::sleep(Duration::from_millis(delay));
        tracer.signal(signal).unwrap();
        let status = tracer.wait(Duration::from_secs(20)).unwrap();
        let printed = tracer.output(Stream::Err);
        // By a signal only before it has a handler.
        let by_signal = std::os::unix::process::ExitStatusExt::signal(&status) == Some(signal);
        assert!(
            by_signal || matches!(status.code(), Some(0 | 1 | 129)),
            "{delay} ms: {status} {printed}"
        );
        assert!(!printed.contains("panicked"), "{delay} ms: {printed}");
        assert_eq!(
            code_of(target.pid()).unwrap(),
            before,
            "{delay} ms: {printed}"
        );
    }
    // While it traces, and once more while it reports.
    for again in [false, true] {
        let trace = Trace::start(target.profile(), target.pid(), &["-y"]).unwrap();
        if again {
            // SAFETY: plain system call on a process that was not waited for.
            let sent = unsafe { libc::kill(trace.pid().cast_signed(), libc::SIGTERM) };
            assert_eq!(sent, 0);
        }
        let outcome = trace.signal(libc::SIGTERM).unwrap();
        let wanted = if again { [0, 1] } else { [0, 0] };
        assert!(
            wanted.map(Some).contains(&outcome.code),
            "{}",
            outcome.printed()
        );
        assert_eq!(
            code_of(target.pid()).unwrap(),
            before,
            "{}",
            outcome.printed()
        );
    }
    target.end().unwrap();
}

#[test]
fn two_tracers_do_not_mind_each_other() {
    let mut target = Unkind::start("nap").unwrap();
    let before = code_of(target.pid()).unwrap();
    let first = Trace::start(target.profile(), target.pid(), &["-y", "3"]).unwrap();
    target.go().unwrap();
    let second = Trace::start(target.profile(), target.pid(), &["-y", "1"]).unwrap();
    for trace in [second, first] {
        let outcome = trace.wait().unwrap();
        assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
        assert!(outcome.summary().unwrap().request("work").unwrap().count > 100);
    }
    assert_eq!(code_of(target.pid()).unwrap(), before);
    target.end().unwrap();
}
