//! A tracer that gets no CPU: records find no room, and the report says how many, with counts and
//! sums that hold all the same.
//!
//! Needs root and a kernel with BPF.

use std::time::Duration;

use reqtrace_tests::fixtures::Fixture;
use reqtrace_tests::ledger;
use reqtrace_tests::reqtrace::Trace;

/// Long enough for far more requests than the ring has room for.
const PAUSE: Duration = Duration::from_secs(6);

#[test]
fn requests_without_a_record_are_counted_and_in_all_totals() {
    let mut fixture = Fixture::start("spinner", &["plain"]).unwrap();
    let profile = fixture.profile("work", "nest").unwrap();
    // It does nothing yet: nothing that would be refused.
    let mut trace = Trace::start(&profile, fixture.pid(), &[]).unwrap();
    fixture.work().unwrap();
    trace.pause(PAUSE).unwrap();
    let outcome = trace.finish().unwrap();
    assert_eq!(outcome.code, Some(0), "{}", outcome.printed());
    let summary = outcome.summary().unwrap();
    let losses = &mut summary.losses.iter();
    let full = losses.find(|loss| loss.name == "ring_full").unwrap().count;
    let work = summary.request("work").unwrap();
    assert!(full > 0);
    assert_eq!(work.rows + full, work.count);
    let rows = outcome.rows().unwrap();
    let complete = rows.iter().filter(|row| row.complete).count() as u64;
    assert_eq!(complete, work.rows);
    ledger::check(&outcome.csv().unwrap()).unwrap();
    let printed = outcome.printed();
    assert!(printed.contains("requests arrived"), "{printed}");
    assert!(printed.contains("ring_full"), "{printed}");
    fixture.end().unwrap();
}
