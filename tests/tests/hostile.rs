//! Programs that leave a probed function in ways that a tracer does not like. They must not notice
//! that they are traced, and what is reported about them must be true.
//!
//! Needs root and a kernel with BPF.

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::ledger;
use reqtrace_tests::reqtrace::{Outcome, Trace};

const THREADS: u64 = 4;
const CALLS: u64 = 50;

/// Where the throwing program idles, outside of any request.
const IDLE: [&str; 2] = ["nanosleep", "std::thread::join"];

/// Traces a fixture from start to end; gives its results too.
fn trace(fixture: &mut Fixture, function: &str, reentry: &str) -> (Outcome, String) {
    let profile = fixture.profile(function, reentry).unwrap();
    let trace = Trace::start(&profile, fixture.pid(), &[]).unwrap();
    let results = fixture.work().unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    (outcome, results)
}

/// Half of the calls throw; `catcher` says how far from the probed function that is caught.
fn thrower(catcher: &str, reentry: &str) {
    let mut fixture = Fixture::start("thrower", &["4", "50", catcher]).unwrap();
    let (outcome, results) = trace(&mut fixture, "handle", reentry);
    fixture.end().unwrap();

    // The program did all its work, with and without exceptions.
    let half = THREADS * CALLS / 2;
    let sum: u64 = (0..THREADS)
        .flat_map(|thread| (0..CALLS).map(move |call| thread * 1000 + call))
        .sum();
    assert_eq!(results, format!("done {half} {half} {sum}"));

    // Complete requests are the calls that returned, the others are reported without an end.
    let summary = outcome.summary().unwrap();
    let work = summary.request("work").unwrap();
    assert_eq!(work.begins, 2 * half);
    assert_eq!(work.count, half);
    let rows = outcome.rows().unwrap();
    let complete = rows.iter().filter(|row| row.complete).count();
    assert_eq!(complete as u64, half);
    let no_end = rows.iter().filter(|row| row.reason == "no end").count();
    let died = rows
        .iter()
        .filter(|row| row.reason == "thread died")
        .count();
    // The last call of each thread throws; nothing of the thread begins after that.
    assert_eq!((no_end + died) as u64, half);
    assert!(died as u64 <= THREADS, "{died}");
    ledger::check(&outcome.csv().unwrap()).unwrap();

    // And the time after the exception is nobody's.
    assert_eq!(outcome.stack_with(&IDLE).unwrap(), None, "idle time");
    let slept: Vec<_> = rows.iter().filter(|row| row.classes["sleep"] > 0).collect();
    assert!(
        slept.is_empty(),
        "{} rows, first {:?}",
        slept.len(),
        slept[0]
    );
}

#[test]
fn an_exception_caught_by_the_caller_restart() {
    thrower("near", "restart");
}

#[test]
fn an_exception_caught_by_the_caller_nest() {
    thrower("near", "nest");
}

#[test]
fn an_exception_caught_further_up_restart() {
    thrower("far", "restart");
}

#[test]
fn an_exception_caught_further_up_nest() {
    thrower("far", "nest");
}

/// Requests of fibers interleave on one thread, which the words of reqtrace do not cover; the
/// manual says so. But the program must come to the same results, and each event be counted.
fn fibers(reentry: &str) {
    let args = ["8", "500"];
    let mut alone = Fixture::start("fibers", &args).unwrap();
    let expected = alone.work().unwrap();
    alone.end().unwrap();
    assert!(expected.starts_with("done 4000 "), "{expected}");

    let mut fixture = Fixture::start("fibers", &args).unwrap();
    let (outcome, results) = trace(&mut fixture, "step", reentry);
    fixture.end().unwrap();
    assert_eq!(results, expected);

    let summary = outcome.summary().unwrap();
    let work = summary.request("work").unwrap();
    assert_eq!((work.begins, work.ends), (4000, 4000));
    assert!(work.count <= 4000);
    ledger::check(&outcome.csv().unwrap()).unwrap();
}

#[test]
fn fibers_keep_their_results_restart() {
    fibers("restart");
}

#[test]
fn fibers_keep_their_results_nest() {
    fibers("nest");
}
