//! Something happens to the target in the middle of its requests: it goes on, or dies, as it would
//! untraced; its code is that of its file afterwards; nothing of the tracer stays in the kernel; and each
//! request is counted, or is among the losses.
//!
//! Needs root, a kernel with BPF, gcc and g++.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use reqtrace_tests::faults::{Faulty, Round};
use reqtrace_tests::held::Held;
use reqtrace_tests::ledger;
use reqtrace_tests::probed::is_as_in_its_files;
use reqtrace_tests::process::until;
use reqtrace_tests::reqtrace::{Outcome, Trace};

const LIMIT: Duration = Duration::from_secs(60);

/// A trace, and what it has in the kernel.
fn start(target: &Faulty, more: &[&str]) -> (Trace, Held) {
    let trace = Trace::start(target.profile(), target.pid(), more).unwrap();
    let held = Held::by(trace.pid()).unwrap();
    (trace, held)
}

/// Every request is there: as a row, or as a loss. Gives those that did not end, by reason.
#[track_caller]
fn counts(outcome: &Outcome, round: Round) -> BTreeMap<String, u64> {
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let summary = outcome.summary().unwrap();
    let lost = summary.lost();
    let work = summary.request("work").unwrap();
    assert!(work.begins <= round.begun, "{work:?} {round:?}");
    assert!(work.begins + lost >= round.begun, "{work:?} {round:?}");
    assert!(work.count <= round.ended, "{work:?} {round:?}");
    assert!(work.count + lost >= round.ended, "{work:?} {round:?}");
    let rows = outcome.rows().unwrap();
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for row in &rows {
        assert_eq!(row.complete, row.reason.is_empty(), "{row:?}");
        *reasons.entry(row.reason.clone()).or_default() += 1;
    }
    let complete = reasons.remove("").unwrap_or_default();
    assert_eq!(complete, work.rows);
    assert!(complete + lost >= work.count, "{work:?}");
    assert!(rows.len() as u64 + lost >= round.begun, "{work:?}");
    ledger::check(&outcome.csv().unwrap()).unwrap();
    reasons
}

/// Traces one round; afterwards another one, untraced, has the same result.
fn traced(how: &str) -> (Outcome, Round, BTreeMap<String, u64>) {
    let mut target = Faulty::start(how).unwrap();
    let (trace, held) = start(&target, &[]);
    let round = target.round().unwrap();
    let outcome = trace.finish().unwrap();
    let reasons = counts(&outcome, round);
    is_as_in_its_files(target.pid()).unwrap();
    held.are_gone().unwrap();
    assert_eq!(target.round().unwrap(), round);
    target.end().unwrap();
    (outcome, round, reasons)
}

/// The same where each request comes back: then there is nothing to count but complete ones.
fn traced_whole(how: &str) -> Outcome {
    let (outcome, round, reasons) = traced(how);
    assert_eq!(round.begun, round.ended);
    assert!(reasons.is_empty(), "{reasons:?}");
    assert_eq!(
        outcome.summary().unwrap().lost(),
        0,
        "{}",
        outcome.printed()
    );
    outcome
}

/// A child shares the memory and the stack of the thread that waits for it in a request; some have a
/// request of their own there.
#[test]
fn vfork_in_a_request() {
    let outcome = traced_whole("vfork");
    let rows = outcome.rows().unwrap();
    let mut by_process: BTreeMap<u32, u64> = BTreeMap::new();
    for row in &rows {
        *by_process.entry(row.pid).or_default() += 1;
    }
    // The parent's, and one of each third child.
    let mut counts: Vec<u64> = by_process.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts.pop(), Some(60));
    assert_eq!(counts, [1; 20]);
}

#[test]
fn threads_that_leave_within_a_request() {
    let (outcome, round, mut reasons) = traced("leave");
    assert_eq!(
        round,
        Round {
            begun: 60,
            ended: 30
        }
    );
    // One that blocks on its way out is seen to have left the request before it dies.
    let left = ["thread died", "no end"].map(|reason| reasons.remove(reason).unwrap_or_default());
    assert_eq!(left[0] + left[1], 30);
    assert!(
        left[0] >= left[1] && reasons.is_empty(),
        "{left:?} {reasons:?}"
    );
    assert_eq!(
        outcome.summary().unwrap().lost(),
        0,
        "{}",
        outcome.printed()
    );
}

/// More threads in turn than any table has room for.
#[test]
fn a_storm_of_threads() {
    let (outcome, round, reasons) = traced("storm");
    assert_eq!((round.begun, round.ended), (20_000, 20_000));
    assert!(reasons.is_empty(), "{reasons:?}");
    let rows = outcome.rows().unwrap();
    assert!(rows.len() as u64 + outcome.summary().unwrap().lost() >= 20_000);
}

#[test]
fn libraries_that_come_and_go_in_requests() {
    traced_whole("reload");
}

/// The kernel sets the probes again each time the library is mapped.
#[test]
fn a_probed_library_that_comes_and_goes() {
    traced_whole("library");
}

/// Whoever ran the library after that would die, traced or not; nobody does.
#[test]
fn a_probed_library_that_is_cut_short() {
    let mut target = Faulty::start("truncate").unwrap();
    let (trace, held) = start(&target, &[]);
    let round = target.round().unwrap();
    let outcome = trace.finish().unwrap();
    assert!(counts(&outcome, round).is_empty());
    assert_eq!(
        outcome.summary().unwrap().lost(),
        0,
        "{}",
        outcome.printed()
    );
    held.are_gone().unwrap();
    target.end().unwrap();
}

#[test]
fn a_program_whose_file_is_replaced() {
    traced_whole("replace");
}

/// Breakpoints are how probes work, too: each finds its owner.
#[test]
fn a_program_with_breakpoints_of_its_own() {
    traced_whole("traps");
}

/// By the signal that it would have died of, not by that of a breakpoint.
#[test]
fn a_crash_is_the_same_crash() {
    let mut target = Faulty::start("crash").unwrap();
    let (trace, held) = start(&target, &["-d"]);
    target.go().unwrap();
    let status = target.died().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGSEGV), "{status}");
    // A traced process that has left ends the trace.
    let outcome = trace.finish().unwrap();
    let reasons = counts(
        &outcome,
        Round {
            begun: 61,
            ended: 60,
        },
    );
    assert_eq!(reasons, BTreeMap::from([("thread died".to_owned(), 1)]));
    held.are_gone().unwrap();
}

#[test]
fn a_kill_in_a_request() {
    let mut target = Faulty::start("storm").unwrap();
    let (trace, held) = start(&target, &[]);
    target.go().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    target.signal(libc::SIGKILL).unwrap();
    let status = target.died().unwrap();
    assert_eq!(status.signal(), Some(libc::SIGKILL), "{status}");
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let summary = outcome.summary().unwrap();
    let work = summary.request("work").unwrap();
    assert!(work.count > 0 && work.begins >= work.count, "{work:?}");
    assert!(work.begins - work.count <= 8 + summary.lost(), "{work:?}");
    ledger::check(&outcome.csv().unwrap()).unwrap();
    held.are_gone().unwrap();
}

/// The state of a process's first thread: `T` is stopped.
fn state(pid: u32) -> char {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_the_name = stat.rsplit_once(") ").unwrap().1;
    after_the_name.chars().next().unwrap()
}

#[test]
fn a_target_that_is_stopped_and_goes_on() {
    let mut target = Faulty::start("plain").unwrap();
    let (trace, held) = start(&target, &[]);
    target.go().unwrap();
    for _ in 0..4 {
        target.signal(libc::SIGSTOP).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        target.signal(libc::SIGCONT).unwrap();
        std::thread::sleep(Duration::from_millis(3));
    }
    let round = target.done().unwrap();
    let outcome = trace.finish().unwrap();
    assert!(counts(&outcome, round).is_empty());
    assert_eq!(
        outcome.summary().unwrap().lost(),
        0,
        "{}",
        outcome.printed()
    );
    // It was stopped in a request, which took as long.
    let rows = outcome.rows().unwrap();
    let longest = rows.iter().map(|row| row.latency_ns).max().unwrap();
    assert!(longest > 90_000_000, "{longest}");
    is_as_in_its_files(target.pid()).unwrap();
    held.are_gone().unwrap();
    assert_eq!(target.round().unwrap(), round);
    target.end().unwrap();
}

/// Probes are set in it, and taken out of it, while it stands still.
#[test]
fn a_target_that_stands_still_all_the_time() {
    let mut target = Faulty::start("plain").unwrap();
    target.go().unwrap();
    target.signal(libc::SIGSTOP).unwrap();
    let pid = target.pid();
    until(LIMIT, "the stop", || Ok((state(pid) == 'T').then_some(()))).unwrap();
    let (trace, held) = start(&target, &["1"]);
    let outcome = trace.wait().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    assert_eq!(
        outcome.summary().unwrap().request("work").unwrap().begins,
        0
    );
    assert_eq!(state(pid), 'T');
    is_as_in_its_files(pid).unwrap();
    held.are_gone().unwrap();
    target.signal(libc::SIGCONT).unwrap();
    let round = target.done().unwrap();
    assert_eq!(
        round,
        Round {
            begun: 60,
            ended: 60
        }
    );
    assert_eq!(target.round().unwrap(), round);
    target.end().unwrap();
}
