//! Targets that make work for the tracer: it ends in time, says what it left out, and leaves no probe.
//!
//! Needs root, a kernel with BPF and g++.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use reqtrace_tests::reqtrace::{Outcome, Trace};
use reqtrace_tests::unkind::Unkind;

/// Traces it for so long while it is unkind; gives how much longer the tracer took as well.
fn trace(target: &mut Unkind, seconds: u64) -> (Outcome, Duration) {
    let length = seconds.to_string();
    let trace = Trace::start(target.profile(), target.pid(), &[&length]).unwrap();
    let begun = Instant::now();
    target.go().unwrap();
    let outcome = trace.wait().unwrap();
    let late = begun.elapsed().saturating_sub(Duration::from_secs(seconds));
    assert_eq!(outcome.code, Some(0), "{}", outcome.said());
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
