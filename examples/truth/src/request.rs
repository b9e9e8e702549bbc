//! Requests of one kind: this is the code to trace.
//!
//! In: a kind. Out: its lines of the log.

use std::io;

use example_clock as clock;

use crate::Result;
use crate::company::Crowd;
use crate::kinds::{Kind, Place};
use crate::log::Line;
use crate::measure::{Meter, Reading};
use crate::waits::{Span, Wait};

/// Does so many requests of a kind on this thread.
pub(crate) fn run(kind: &Kind, place: &Place, requests: u64) -> Result<String> {
    let (_crowd, mut waits) = Crowd::gather(kind.company, || (kind.waits)(place))?;
    let meter = Meter::of_this_thread()?;
    let tid = clock::thread_id();
    let mut log = String::new();
    let mut spans = Vec::with_capacity(waits.len());
    for seq in 1..=requests {
        for (number, wait) in (1..).zip(&mut waits) {
            wait.prepare(place.wait * number)?;
        }
        spans.clear();
        let outer_begin = meter.read_then_clock()?;
        let inner = handle_request(&meter, &mut waits, &mut spans);
        let outer_end = meter.clock_then_read()?;
        let (inner_begin, inner_end) = inner?;
        let mut known = Vec::new();
        for (wait, span) in waits.iter_mut().zip(&spans) {
            if let Some(class) = wait.class() {
                known.push((class, *span, wait.woken(*span)?));
            }
        }
        let line = Line {
            tid,
            seq,
            kind: kind.name,
            outer: (outer_begin, outer_end),
            inner: (inner_begin, inner_end),
            waits: &known,
        };
        line.write(&mut log);
    }
    // A descriptor that means one file to the end leaves no doubt about whose block it was.
    std::mem::forget((waits, meter));
    Ok(log)
}

/// One request: from the first instruction of this function to its return.
///
/// Not inlined, so that there is a function to probe. The clock is read first and last, and around
/// each wait.
#[inline(never)]
fn handle_request(
    meter: &Meter,
    waits: &mut [Box<dyn Wait>],
    spans: &mut Vec<Span>,
) -> io::Result<(Reading, Reading)> {
    let begin = meter.clock_then_read()?;
    for wait in waits {
        let begin_ns = clock::now_ns();
        wait.wait()?;
        let end_ns = clock::now_ns();
        spans.push(Span { begin_ns, end_ns });
    }
    Ok((begin, meter.read_then_clock()?))
}
