//! A trace that sees far more different stacks than the kernel's tables hold: they are emptied while
//! tracing, nothing is lost, and the tracer's memory stays as it is.
//!
//! Needs root, a kernel with BPF and g++.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::rows::Row;
use reqtrace_tests::summary::Summary;

/// What the kernel's table of stacks holds (`MAX_STACKS`).
const TABLE: u64 = 32_768;
const STACKS: u64 = 10 * TABLE;
/// Resident memory of the tracer, MiB.
const MOST_MIB: u64 = 224;

/// Traces the fixture; gives the resident memory in KiB that the tracer had, twice a second.
fn trace(mode: &str, more: &[&str]) -> (Outcome, Vec<u64>) {
    let mut fixture = Fixture::start("manystacks", &[&STACKS.to_string(), mode]).unwrap();
    let profile = fixture.profile("handle*", "nest").unwrap();
    // Whether tracing is dear is not asked here.
    let more = [&["--max-overhead", "100", "--yes"], more].concat();
    let trace = Trace::start(&profile, fixture.pid(), &more).unwrap();
    let (pid, done) = (trace.pid(), AtomicBool::new(false));
    let memory = thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut memory = Vec::new();
            while !done.load(Ordering::Relaxed) {
                memory.extend(resident_kib(pid));
                thread::sleep(Duration::from_millis(500));
            }
            memory
        });
        fixture.work().unwrap();
        done.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    });
    fixture.end().unwrap();
    (trace.wait().unwrap(), memory)
}

fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// Times in folded stacks are those of the requests, and all stacks were seen.
fn is_whole(outcome: &Outcome, summary: &Summary) {
    let work = summary.request("work").unwrap();
    assert_eq!(work.count, STACKS / 16);
    assert_eq!(work.rows, work.count);
    let rows = outcome.rows().unwrap();
    let off = |row: &Row| row.blocked_ns + row.run_queue_ns + row.preempted_ns;
    let requests: u64 = rows.iter().map(off).sum();
    let (folded_us, lines) = outcome.folded_sum().unwrap();
    // Each line is rounded to a microsecond.
    assert!(
        folded_us.abs_diff(requests / 1000) <= lines,
        "folded {folded_us} µs in {lines} lines, requests {requests} ns"
    );
    assert!(rows.iter().all(|row| row.unattributed_ns == 0));
    let folded = outcome.folded().unwrap();
    assert!(!folded.contains("[stack lost]"), "stacks were lost");
}

fn is_flat(memory: &[u64]) {
    let most = memory.iter().max().unwrap();
    assert!(*most < MOST_MIB << 10, "KiB: {memory:?}");
    // The last third has as much as the one before, but for what is being worked on.
    let third = memory.len() / 3;
    let most_of = |part: &[u64]| part.iter().max().copied().unwrap_or(0);
    let (before, last) = (
        most_of(&memory[third..2 * third]),
        most_of(&memory[2 * third..]),
    );
    assert!(last < before + before / 4, "KiB: {memory:?}");
}

/// Stacks whose functions are the same are one line.
#[test]
fn ten_times_more_stacks_than_the_kernel_holds() {
    let (outcome, memory) = trace("sites", &[]);
    let summary = outcome.checked().unwrap();
    is_whole(&outcome, &summary);
    assert!(outcome.folded().unwrap().lines().count() < 100);
    is_flat(&memory);
}

/// Stacks that all read differently: those of the least time are put together, and the report tells so. A report
/// of the recording says the same.
#[test]
fn more_names_than_anyone_reads() {
    let folder = tempfile::tempdir().unwrap();
    let recording = folder.path().join("trace.rec");
    let (outcome, memory) = trace("names", &["--record", recording.to_str().unwrap()]);
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let summary = outcome.summary().unwrap();
    is_whole(&outcome, &summary);
    let merged = summary
        .losses
        .iter()
        .find(|loss| loss.name == "stacks_merged");
    assert!(merged.unwrap().count > STACKS / 2, "{:?}", summary.losses);
    assert_eq!(summary.lost(), merged.unwrap().count);
    let folded = outcome.folded().unwrap();
    assert!(folded.contains(";[other stacks]"));
    assert!(folded.lines().count() < TABLE as usize * 2);
    is_flat(&memory);
    assert_eq!(replayed(&recording, folder.path()), folded);
}

/// `stacks.folded` as `reqtrace report` makes it.
fn replayed(recording: &Path, folder: &Path) -> String {
    let out = folder.join("out");
    let mut command = reqtrace_tests::reqtrace::command(["report"]).unwrap();
    command.arg(recording).arg("--out").arg(&out).arg("-q");
    let status = command.status().unwrap();
    assert!(status.success());
    std::fs::read_to_string(out.join("stacks.folded")).unwrap()
}
