//! The model can be asked for at any time: no view changes what comes after it.

use reqtrace::aggregate::{Aggregator, Options};
use reqtrace::decode::Event;
use reqtrace::decode::recording::Recording;
use reqtrace::decode::records::decode;
use reqtrace::report::{Grouping, Report};

use super::build::START_NS;
use super::{profile, scenes};

fn options(recording: &Recording, slower_than_ns: Option<u64>) -> Options {
    Options {
        monotonic_to_unix_ns: recording.trace.monotonic_to_unix_ns,
        start_ns: START_NS,
        slower_than_ns,
        group_by: Some(Grouping::Label),
    }
}

/// Takes a recording event by event. With `looking`, a view is taken after each of them, and after
/// the kernel's tables of the end are known already.
fn report(recording: &Recording, slower_than_ns: Option<u64>, looking: bool) -> Report {
    let mut aggregator = Aggregator::new(
        &profile(),
        options(recording, slower_than_ns),
        recording.symbolizer(),
        recording.stack_source(),
    )
    .unwrap();
    let mut seen = 0;
    for event in &recording.events {
        let Some(bytes) = event.bytes() else {
            continue;
        };
        match decode(&bytes) {
            Ok(Event::Request(request)) => aggregator.request(&request, &mut []).unwrap(),
            Ok(Event::File(file)) => aggregator.file(&file),
            _ => {}
        }
        if looking {
            let rows = aggregator.view(&recording.trace).requests[0].rows;
            assert!(rows >= seen, "{rows} after {seen}");
            seen = rows;
            aggregator.snapshot(recording.snapshot().unwrap());
            let twice = [(); 2].map(|()| format!("{:?}", aggregator.view(&recording.trace)));
            assert_eq!(twice[0], twice[1]);
        }
    }
    let snapshot = recording.snapshot().unwrap();
    aggregator
        .finish(snapshot, &recording.trace, &mut [])
        .unwrap()
}

#[test]
fn a_view_changes_no_later_one() {
    for recording in [scenes::busy(), scenes::lost(), scenes::idle()] {
        for slower_than_ns in [None, Some(1_000_000)] {
            let looked = report(&recording, slower_than_ns, true);
            let plain = report(&recording, slower_than_ns, false);
            assert_eq!(format!("{looked:?}"), format!("{plain:?}"));
        }
    }
}
