//! Replay: a recording in, a report out, with no kernel.

use std::collections::HashMap;

use super::{Aggregator, Options};
use crate::decode::Event;
use crate::decode::recording::{RecordedEvent, RecordedSymbols, Recording};
use crate::decode::records::{Malformed, decode};
use crate::error::Result;
use crate::profile::Profile;
use crate::report::{Exporter, Report};

/// Runs a recording through decode, aggregate and classify. `profile` is the parsed
/// [`Recording::profile`]. The exporters get the rows; their `finish` is the caller's.
///
/// # Errors
///
/// When the profile's waits or the recording are malformed, or an output cannot be written.
pub fn replay(
    recording: &Recording,
    profile: &Profile,
    slower_than_ns: Option<u64>,
    exporters: &mut [Box<dyn Exporter>],
) -> Result<Report> {
    let options = Options {
        monotonic_to_unix_ns: recording.trace.monotonic_to_unix_ns,
        start_ns: recording
            .trace
            .start_unix_ns
            .saturating_add_signed(recording.trace.monotonic_to_unix_ns.saturating_neg()),
        slower_than_ns,
        group_by: None,
    };
    let symbols: RecordedSymbols = recording.symbolizer();
    let stacks: HashMap<_, _> = recording.stack_source();
    let mut aggregator = Aggregator::new(profile, options, symbols, stacks)?;
    for event in &recording.events {
        if let RecordedEvent::File { space, fd, path } = event {
            aggregator.file(*space, *fd, path);
            continue;
        }
        let decoded = match event.bytes() {
            Some(bytes) => decode(&bytes),
            None => Err(Malformed::Kind(0)),
        };
        match decoded {
            Ok(Event::Request(request)) => aggregator.request(&request, exporters)?,
            // Names are in the recording already.
            Ok(Event::Process(_) | Event::File(_)) => {}
            Err(malformed) => aggregator.malformed(malformed),
        }
    }
    aggregator.finish(recording.snapshot()?, recording.trace.clone(), exporters)
}
