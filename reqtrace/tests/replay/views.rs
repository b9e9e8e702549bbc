//! The model can be asked for at any time: no view changes what comes after it.

use std::io::Cursor;

use reqtrace_analysis::aggregate::{Aggregator, Options};
use reqtrace_analysis::report::Report;
use reqtrace_profile::Profiles;
use reqtrace_recording::{Ending, Event, Reader};

use super::scenes;

/// Takes a recording event by event. With `looking`, views are taken after each request.
fn report(recording: &[u8], slower_than_ns: Option<u64>, looking: bool) -> Report {
    let mut reader = Reader::open(Cursor::new(recording)).unwrap();
    let header = reader.header().clone();
    let profiles = Profiles::parse(header.profile_texts(), "recorded").unwrap();
    let options = Options {
        slower_than_ns,
        ..Options::default()
    };
    let mut aggregator = Aggregator::new(&profiles, &header, options).unwrap();
    let so_far = Ending::default();
    let mut seen = 0;
    let ending = reader.read(|event| {
        aggregator.event(&event, &mut []).unwrap();
        if looking && matches!(event, Event::Request(_) | Event::Window(_)) {
            let rows = aggregator.view(&so_far).requests[0].rows;
            assert!(rows >= seen, "{rows} after {seen}");
            seen = rows;
            let twice = [(); 2].map(|()| format!("{:?}", aggregator.view(&so_far)));
            assert_eq!(twice[0], twice[1]);
        }
        Ok::<_, ()>(())
    });
    let ending = ending.unwrap().unwrap();
    aggregator.finish(&ending, &mut []).unwrap()
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
