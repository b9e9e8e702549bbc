//! Against truth: a service that measures its own waits of every kind, request by request.
//!
//! Needs root, a kernel with BPF, and the build folder on a disk.

use reqtrace_tests::truth::{self, bounds, moving};

/// Of each kind.
const REQUESTS: u64 = 40;
/// How many kinds the service has.
const KINDS: usize = 25;
/// Of each kind that changes threads.
const MOVING: u64 = 600;

#[test]
fn every_request_is_what_the_service_measured() {
    let (outcome, comparison) = truth::trace(REQUESTS).unwrap();
    let summary = outcome.summary().unwrap();
    assert_eq!(summary.lost(), 0, "{:?}", summary.losses);

    let request = summary.request("request").unwrap();
    let requests: usize = comparison.kinds.iter().map(|(_, kind)| kind.requests).sum();
    assert_eq!(comparison.kinds.len(), KINDS);
    assert_eq!(requests as u64, REQUESTS * KINDS as u64);
    assert_eq!(request.count, requests as u64);

    bounds::check(&comparison, summary.unseen()).unwrap();
    bounds::check_scheduler_clocks(&comparison).unwrap();
    bounds::check_company(&comparison).unwrap();
}

#[test]
fn requests_on_the_move_are_what_the_service_measured() {
    for more in [&[][..], &["--blame"]] {
        let (outcome, lines) = moving::trace(MOVING, more).unwrap();
        let summary = outcome.checked().unwrap();
        moving::check_counts(&summary, MOVING).unwrap();
        let offset = summary.trace.monotonic_to_unix_ns;
        moving::check(&lines, &outcome.rows().unwrap(), offset).unwrap();
        // No thread waits for the next event inside a request. A request that is parked has the stack of its marker.
        let idle = ["loop_idle", "Queue::pop", "Executor::take"];
        let folded = outcome.folded().unwrap();
        let mut of_threads = folded.lines().filter(|line| !line.contains(";[parked"));
        let waits = of_threads.find(|line| idle.iter().any(|word| line.contains(word)));
        assert_eq!(waits, None);
    }
}
