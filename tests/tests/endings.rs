//! Every reason for which a request is incomplete: flagged, counted, and in no percentile.
//!
//! Needs root, a kernel with BPF and g++.

use std::collections::BTreeMap;
use std::time::Duration;

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::ledger;
use reqtrace_tests::process::until;
use reqtrace_tests::reqtrace::{Outcome, Trace};
use serde_json::Value;

/// For an exec.
const LIMIT: Duration = Duration::from_secs(60);
/// Requests that come back.
const CALLS: u64 = 50;

fn trace(more: &[&str]) -> Outcome {
    let mut arguments = vec!["50"];
    arguments.extend(more);
    let mut fixture = Fixture::start("endings", &arguments).unwrap();
    let profile = fixture.profile("handle", "nest").unwrap();
    let trace = Trace::start(&profile, fixture.pid(), &[]).unwrap();
    fixture.work().unwrap();
    if more == ["exec"] {
        // It has its name before the exec is over: it reads its input then.
        let of = |what| std::fs::read_to_string(format!("/proc/{}/{what}", fixture.pid())).unwrap();
        let reads = || of("comm") == "cat\n" && of("syscall").starts_with("0 0x0 ");
        until(LIMIT, "the exec", || Ok(reads().then_some(()))).unwrap();
    }
    let outcome = trace.finish().unwrap();
    fixture.end().unwrap();
    outcome
}

/// Every row is what its reason says, and the report has the same numbers.
fn check(outcome: &Outcome, wanted: &[(&str, u64)]) {
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    ledger::check(&outcome.csv().unwrap()).unwrap();
    let rows = outcome.rows().unwrap();
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    for row in &rows {
        assert_eq!(row.complete, row.reason.is_empty(), "{row:?}");
        *reasons.entry(&row.reason).or_default() += 1;
    }
    let mut expected: BTreeMap<&str, u64> = wanted.iter().copied().collect();
    expected.insert("", CALLS);
    assert_eq!(reasons, expected, "{}", outcome.printed());

    let summary: Value = serde_json::from_str(&outcome.summary_text().unwrap()).unwrap();
    let request = &summary["requests"][0];
    assert_eq!(request["count"], CALLS);
    let incomplete = request["incomplete"].as_object().unwrap();
    assert_eq!(incomplete.len(), wanted.len(), "{incomplete:?}");
    // Without the report's line breaks.
    let printed = outcome.printed();
    let printed = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    for (reason, count) in wanted {
        assert_eq!(incomplete[*reason], *count, "{reason}");
        assert!(printed.contains(&format!("{count} {reason}")), "{printed}");
    }
    // Percentiles, the ledger and the bands of slow requests are of complete ones.
    let complete = rows.iter().filter(|row| row.complete);
    let sum: u64 = complete.clone().map(|row| row.latency_ns).sum();
    assert_eq!(request["ledger"]["latency_ns"], sum);
    let longest = complete.map(|row| row.latency_ns).max().unwrap();
    assert_eq!(request["latency"]["max_ns"], longest);
    let slow = request["slow"]["slowest"]["to_ns"].as_u64();
    assert!(slow.is_none_or(|slow| slow == longest), "{slow:?}");
}

#[test]
fn requests_that_do_not_end_have_their_reason() {
    let outcome = trace(&[]);
    check(
        &outcome,
        &[
            ("running at start", 1),
            ("no end", 1),
            ("thread died", 1),
            ("running at stop", 1),
            ("blocked at stop", 1),
        ],
    );
    let rows = outcome.rows().unwrap();
    let of = |reason: &str| rows.iter().find(|row| row.reason == reason).unwrap();
    // What is known of them is true: one computed, one slept.
    let (running, blocked) = (of("running at stop"), of("blocked at stop"));
    assert!(running.blocked_ns * 10 <= running.latency_ns, "{running:?}");
    assert!(
        blocked.blocked_ns * 10 >= blocked.latency_ns * 9,
        "{blocked:?}"
    );
    assert!(of("thread died").classes["sleep"] > 0);
    let printed = outcome.printed();
    assert!(
        printed.contains("Still open when tracing stopped"),
        "{printed}"
    );
    assert!(printed.contains("in sleep"), "{printed}");
}

#[test]
fn an_exec_ends_the_requests_of_all_threads() {
    let outcome = trace(&["exec"]);
    check(
        &outcome,
        &[
            ("running at start", 1),
            ("no end", 1),
            ("thread died", 3),
            ("exec", 1),
        ],
    );
}
