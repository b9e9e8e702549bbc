//! What one thread did: its intervals and requests in, in order, as long as they are kept.

use reqtrace_recording::RequestOf;

use super::fitting::Fitting;
use super::kept::Kept;
use super::recent;
use super::waited::Waited;

/// A request, as far as it is known.
#[derive(Debug)]
pub(super) struct Span {
    pub(super) of: RequestOf,
    /// When it began on this thread: the begin of the request, unless it has a key.
    pub(super) from_ns: u64,
    /// Its id; 0 until its record has come.
    pub(super) id: u64,
    /// It ran until then at least.
    pub(super) until_ns: u64,
    pub(super) known: Known,
    /// As the program had it.
    pub(super) label: Box<[u8]>,
}

/// What is known of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// That it ran; its record has not come.
    Ran,
    /// All.
    Ended,
    /// Only when it ended: its intervals are not in the trace.
    RanAtStart,
    /// That this part of it ran here; the request has a key.
    Part,
}

/// What is known of a thread.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    /// By time; they do not overlap.
    pub(super) intervals: Fitting<Kept>,
    /// By time; they do not overlap.
    pub(super) spans: Fitting<Span>,
    /// Its waits for CPUs that were not short, by time; they do not overlap.
    pub(super) cpu_waits: Fitting<Waited>,
    /// What it did before this time is forgotten.
    pub(super) forgotten_ns: u64,
    /// Begin of the first request that it was ever seen in.
    pub(super) served_from: Option<u64>,
    /// Since when its intervals are recorded although it had served no request.
    pub(super) helper_since: Option<u64>,
    /// Since when it is known to run requests with a key, between which its intervals are recorded.
    pub(super) keyed_from: Option<u64>,
    /// Whether it has gone on with a queued request: it runs units of a runtime, of which some may be no requests.
    pub(super) runs_units: bool,
    pub(super) next_sequence: u32,
}

impl Timeline {
    /// Of a thread of which nothing is known.
    pub(super) fn forgotten_until(forgotten_ns: u64) -> Self {
        Self {
            forgotten_ns,
            ..Self::default()
        }
    }

    /// Whether nothing is kept of it but what it is.
    pub(super) fn is_idle(&self) -> bool {
        self.intervals.is_empty() && self.spans.is_empty() && self.cpu_waits.is_empty()
    }

    /// The block that it was in at this time.
    pub(super) fn blocked_at(&self, at_ns: u64) -> Option<&Kept> {
        let at = self.intervals.find(|kept| kept.wake_ns <= at_ns);
        let kept = self.intervals.get(at)?;
        (kept.out_ns <= at_ns && kept.by.is_some() && kept.away.is_none()).then_some(kept)
    }

    /// Notes that a request ran until then; returns whether it is a new one, and where it is among the spans.
    pub(super) fn ran(&mut self, of: RequestOf, until_ns: u64) -> (bool, usize) {
        let served_from = self.served_from.get_or_insert(of.begin_ns);
        *served_from = of.begin_ns.min(*served_from);
        let at = recent::partition_point(&self.spans, |span| span.from_ns < of.begin_ns);
        let next_ns = |after: usize| self.spans.get(after).map(|span| span.from_ns);
        let is_known = next_ns(at) == Some(of.begin_ns);
        let most_ns = next_ns(at + usize::from(is_known)).unwrap_or(u64::MAX);
        let until_ns = until_ns.max(of.begin_ns).min(most_ns);
        if is_known {
            let span = &mut self.spans[at];
            if span.known == Known::Ran {
                span.until_ns = until_ns.max(span.until_ns);
            }
            return (false, at);
        }
        // A thread is in one request at a time.
        if let Some(before) = at.checked_sub(1).and_then(|at| self.spans.get_mut(at)) {
            before.until_ns = before.until_ns.min(of.begin_ns);
        }
        let span = Span {
            of,
            from_ns: of.begin_ns,
            id: 0,
            until_ns,
            known: Known::Ran,
            label: Box::default(),
        };
        self.spans.insert(at, span);
        (true, at)
    }

    /// Notes that a part of a request with a key ran here; returns whether it is a new one.
    pub(super) fn ran_part(&mut self, of: RequestOf, from_ns: u64, until_ns: u64) -> bool {
        let keyed_from = self.keyed_from.get_or_insert(from_ns);
        *keyed_from = from_ns.min(*keyed_from);
        let at = recent::partition_point(&self.spans, |span| span.from_ns < from_ns);
        let is_known = self
            .spans
            .get(at)
            .is_some_and(|span| span.from_ns == from_ns);
        let next = self.spans.get(at + usize::from(is_known));
        let until_ns = until_ns.min(next.map_or(u64::MAX, |next| next.from_ns));
        if is_known {
            let span = &mut self.spans[at];
            if span.of == of {
                span.until_ns = span.until_ns.max(until_ns);
            }
            return false;
        }
        // A thread is in one request at a time.
        if let Some(before) = at.checked_sub(1).and_then(|at| self.spans.get_mut(at)) {
            before.until_ns = before.until_ns.min(from_ns);
        }
        let span = Span {
            of,
            from_ns,
            id: 0,
            until_ns,
            known: Known::Part,
            label: Box::default(),
        };
        self.spans.insert(at, span);
        true
    }
}
