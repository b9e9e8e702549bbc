//! When a recording goes on in another file: events and what was written in; the end of a file and the head of the next
//! one out.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::output::Progress;
use crate::dictionary::Dictionary;
use crate::event::{End, Event, Header, LateChildren, Part};
use crate::wire::Payload;

/// A file is not shorter than that because of its size, ns: each begins with what later events refer to.
const SHORTEST_NS: u64 = 1_000_000_000;
/// When one could not be written, the next one is tried after so long, ns.
const AGAIN_NS: u64 = 10_000_000_000;

/// When a recording goes on in another file: whatever comes first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Roll {
    /// After so long.
    pub every: Option<Duration>,
    /// When a file has so many bytes. One that begins with half as many or more gets as many again.
    pub bytes: Option<u64>,
}

/// A recording of many files.
pub(super) struct Rolling {
    every_ns: u64,
    bytes: u64,
    header: Header,
    dictionary: Dictionary,
    now_ns: u64,
    /// When the sums came with which the file ends.
    ends_ns: Option<u64>,
}

impl Rolling {
    pub(super) fn new(roll: Roll, header: &Header) -> Self {
        let every = |every: Duration| u64::try_from(every.as_nanos()).unwrap_or(u64::MAX);
        let mut header = header.clone();
        header.part = Part {
            number: 1,
            trace_start_ns: header.start_ns,
            ..Part::default()
        };
        Self {
            every_ns: roll.every.map_or(u64::MAX, every),
            bytes: roll.bytes.unwrap_or(u64::MAX),
            now_ns: header.start_ns,
            header,
            dictionary: Dictionary::default(),
            ends_ns: None,
        }
    }

    /// The header of the file.
    pub(super) fn header(&self) -> &Header {
        &self.header
    }

    /// Whether the file is to end with the next sums of the kernel.
    pub(super) fn is_due(&self, progress: &Progress) -> bool {
        let age_ns = self.now_ns.saturating_sub(self.header.start_ns);
        // The thread that writes may still be at the file before.
        let is_there = progress.number.load(Ordering::Acquire) == self.header.part.number;
        let written = progress.written.load(Ordering::Relaxed);
        let head = progress.head.load(Ordering::Relaxed);
        let is_stuck = progress.is_stuck.load(Ordering::Relaxed);
        self.ends_ns.is_none()
            && (age_ns >= self.every_ns
                || is_there && written >= self.bytes.max(2 * head) && age_ns >= SHORTEST_NS
                || is_stuck && age_ns >= AGAIN_NS)
    }

    /// Whether this event belongs into the next file. Sums come with names and losses, which belong to them.
    pub(super) fn ends_before(&self, event: &Event<'_>) -> bool {
        self.ends_ns.is_some()
            && matches!(
                event,
                Event::Request(_)
                    | Event::Interval(_)
                    | Event::Away(_)
                    | Event::CpuWait(_)
                    | Event::Disk(_)
                    | Event::Unrecorded(_)
                    | Event::Origin(_)
                    | Event::Sample(_)
                    | Event::Tick(_)
                    | Event::Sent(_)
                    | Event::Clock(_)
                    | Event::Process(_)
            )
    }

    /// Takes an event of this file.
    pub(super) fn take(&mut self, event: &Event<'_>, progress: &Progress) {
        let until_ns = match event {
            Event::Request(request) => request.end_ns,
            Event::Tick(now_ns) => *now_ns,
            Event::Window(window) => window.until_ns,
            _ => 0,
        };
        if let Event::Clock(step) = event {
            self.header.monotonic_to_unix_ns = step.to_unix_ns;
        }
        self.now_ns = self.now_ns.max(until_ns);
        if matches!(event, Event::Window(_)) && self.is_due(progress) {
            self.ends_ns = Some(until_ns.max(self.header.start_ns));
        }
        self.dictionary.take(event);
    }

    /// The end of this file, and the header and the head of the next one.
    pub(super) fn next(&mut self) -> (End, Box<Header>, Vec<Payload>) {
        let stop_ns = self.ends_ns.take().unwrap_or(self.now_ns);
        self.header.start_ns = stop_ns;
        self.header.part.number = self.header.part.number.saturating_add(1);
        let end = End {
            stop_ns,
            ended_by: Part::GOES_ON.to_owned(),
            late_children: LateChildren::default(),
        };
        (end, Box::new(self.header.clone()), self.dictionary.head())
    }

    /// Events that are kept for the next head.
    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.dictionary.len()
    }
}
