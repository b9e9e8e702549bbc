//! A line of the log.
//!
//! `tid seq outer_begin_ns inner_begin_ns inner_end_ns outer_end_ns kind CPU RUN_DELAY BLOCKS
//! PREEMPTIONS WAIT…`, where the four in capitals are `least..most`: what the thread's own counter
//! grew by between the inner readings, and between the outer ones. A wait is
//! `class:begin_ns:earliest_wakeup_ns:latest_wakeup_ns:end_ns`.

use std::fmt::Write;

use crate::measure::Reading;
use crate::partner::Woken;
use crate::waits::Span;

/// What is known of one request.
pub(crate) struct Line<'a> {
    pub(crate) tid: i32,
    pub(crate) seq: u64,
    pub(crate) kind: &'static str,
    /// Readings just before and just after the call.
    pub(crate) outer: (Reading, Reading),
    /// Readings first and last inside it.
    pub(crate) inner: (Reading, Reading),
    /// Its waits: class, clock around it, and when it was ended.
    pub(crate) waits: &'a [(&'static str, Span, Woken)],
}

impl Line<'_> {
    /// Appends it.
    pub(crate) fn write(&self, log: &mut String) {
        let (outer, inner) = (&self.outer, &self.inner);
        let clocks = [&outer.0, &inner.0, &inner.1, &outer.1].map(|reading| reading.clock_ns);
        let counters: [fn(&Reading) -> u64; 4] = [
            |reading| reading.cpu_ns,
            |reading| reading.run_delay_ns,
            |reading| reading.blocks,
            |reading| reading.preemptions,
        ];
        let [ob, ib, ie, oe] = clocks;
        // Writing to a String does not fail.
        let _ = write!(
            log,
            "{} {} {ob} {ib} {ie} {oe} {}",
            self.tid, self.seq, self.kind
        );
        for counter in counters {
            let grew = |(begin, end): &(Reading, Reading)| counter(end) - counter(begin);
            let _ = write!(log, " {}..{}", grew(inner), grew(outer));
        }
        for (class, span, woken) in self.waits {
            let (begin, end) = (span.begin_ns, span.end_ns);
            let (earliest, latest) = (woken.earliest_ns, woken.latest_ns);
            let _ = write!(log, " {class}:{begin}:{earliest}:{latest}:{end}");
        }
        log.push('\n');
    }
}
