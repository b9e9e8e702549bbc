//! What threads did: their intervals and requests in, kept for a while and in order.
//!
//! Memory is bounded: the intervals and requests that came first are forgotten first, and each thread knows
//! until when it has forgotten.

use std::collections::VecDeque;
use std::rc::Rc;

use reqtrace_recording::{Incomplete, Request, RequestOf, WakerIs};
use rustc_hash::FxHashMap;

use super::kept::{By, Kept, ThreadId};
use super::keyed::{AllKeyed, Keyed, id_of};

/// Threads without any interval or request that are remembered.
const MAX_IDLE_THREADS: usize = 1 << 16;

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
    pub(super) label: Rc<[u8]>,
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
    pub(super) intervals: VecDeque<Kept>,
    /// By time; they do not overlap.
    pub(super) spans: VecDeque<Span>,
    /// What it did before this time is forgotten.
    pub(super) forgotten_ns: u64,
    /// Begin of the first request that it was ever seen in.
    pub(super) served_from: Option<u64>,
    /// Since when its intervals are recorded although it had served no request.
    pub(super) helper_since: Option<u64>,
    /// Since when it is known to run requests with a key, between which its intervals are recorded.
    pub(super) keyed_from: Option<u64>,
    next_sequence: u32,
}

impl Timeline {
    /// Of a thread of which nothing is known.
    pub(super) fn forgotten_until(forgotten_ns: u64) -> Self {
        Self {
            forgotten_ns,
            ..Self::default()
        }
    }

    /// Notes that a request ran until then; returns whether it is a new one.
    fn ran(&mut self, of: RequestOf, until_ns: u64) -> bool {
        let served_from = self.served_from.get_or_insert(of.begin_ns);
        *served_from = of.begin_ns.min(*served_from);
        let at = self
            .spans
            .partition_point(|span| span.from_ns < of.begin_ns);
        let next_ns = |after: usize| self.spans.get(after).map(|span| span.from_ns);
        let is_known = next_ns(at) == Some(of.begin_ns);
        let most_ns = next_ns(at + usize::from(is_known)).unwrap_or(u64::MAX);
        let until_ns = until_ns.max(of.begin_ns).min(most_ns);
        if is_known {
            let span = &mut self.spans[at];
            if span.known == Known::Ran {
                span.until_ns = until_ns.max(span.until_ns);
            }
            return false;
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
            label: Rc::default(),
        };
        self.spans.insert(at, span);
        true
    }

    /// Notes that a part of a request with a key ran here; returns whether it is a new one.
    fn ran_part(&mut self, of: RequestOf, from_ns: u64, until_ns: u64) -> bool {
        let keyed_from = self.keyed_from.get_or_insert(from_ns);
        *keyed_from = from_ns.min(*keyed_from);
        let at = self.spans.partition_point(|span| span.from_ns < from_ns);
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
            label: Rc::default(),
        };
        self.spans.insert(at, span);
        true
    }
}

/// What is known of all threads.
#[derive(Debug)]
pub(crate) struct Timelines {
    threads: FxHashMap<ThreadId, Timeline>,
    /// Whose intervals, in the order in which they came.
    intervals: VecDeque<ThreadId>,
    /// Whose requests, in the order in which they came.
    spans: VecDeque<ThreadId>,
    /// How many of each are kept.
    most: usize,
    /// Requests with a key.
    keyed: AllKeyed,
    /// What is known of all others.
    others: Timeline,
    /// Some requests are not recorded, so that a thread outside recorded ones may be in another.
    pub(super) is_sampled: bool,
}

impl Timelines {
    /// Keeps so many intervals, and as many requests. `keyed`: which request types have a key.
    pub(crate) fn new(most: usize, keyed: Vec<bool>) -> Self {
        Self {
            keyed: AllKeyed::new(keyed, most),
            threads: FxHashMap::default(),
            intervals: VecDeque::new(),
            spans: VecDeque::new(),
            most,
            others: Timeline::default(),
            is_sampled: false,
        }
    }

    /// A request, where it is known.
    fn span(&self, thread: ThreadId, of: RequestOf) -> Option<&Span> {
        let spans = &self.get(thread)?.spans;
        let at = spans.partition_point(|span| span.from_ns < of.begin_ns);
        spans.get(at).filter(|span| span.of == of)
    }

    /// Whether it is a request with a key, which may run on any thread of its process.
    pub(crate) fn is_keyed(&self, of: RequestOf) -> bool {
        self.keyed.is_one(of)
    }

    fn keyed(&self, thread: ThreadId, of: RequestOf) -> Option<&Keyed> {
        self.keyed.get(id_of(thread, of))
    }

    /// The id of a request; 0 while its record has not come.
    pub(crate) fn request_id(&self, thread: ThreadId, of: RequestOf) -> u64 {
        if self.is_keyed(of) {
            return self.keyed(thread, of).map_or(0, |keyed| keyed.id);
        }
        self.span(thread, of).map_or(0, |span| span.id)
    }

    /// Whose request a thread was in at that time; `None` when it was in none that is known.
    pub(crate) fn request_at(&self, thread: ThreadId, at_ns: u64) -> Option<RequestOf> {
        let spans = &self.get(thread)?.spans;
        let at = spans.partition_point(|span| span.until_ns <= at_ns);
        let span = spans.get(at)?;
        (span.from_ns <= at_ns).then_some(span.of)
    }

    /// The last request that a thread had ended by that time.
    pub(super) fn ended_before(&self, thread: ThreadId, at_ns: u64) -> Option<&Span> {
        let spans = &self.get(thread)?.spans;
        let after = spans.partition_point(|span| span.until_ns <= at_ns);
        let last = spans.get(after.checked_sub(1)?)?;
        (last.known == Known::Ended).then_some(last)
    }

    /// The same without its record.
    pub(crate) fn request_before(&self, thread: ThreadId, at_ns: u64) -> Option<RequestOf> {
        self.ended_before(thread, at_ns).map(|span| span.of)
    }

    /// Its label; empty when it is not known.
    pub(crate) fn label(&self, thread: ThreadId, of: RequestOf) -> Rc<[u8]> {
        if self.is_keyed(of) {
            let keyed = self.keyed(thread, of);
            return keyed
                .map(|keyed| Rc::clone(&keyed.label))
                .unwrap_or_default();
        }
        let span = self.span(thread, of);
        span.map(|span| Rc::clone(&span.label)).unwrap_or_default()
    }

    /// The intervals of a request, in order. Of one with a key those of all threads that ran it, and the
    /// times in which none did.
    pub(crate) fn of_request(&self, thread: ThreadId, of: RequestOf, end_ns: u64) -> Vec<&Kept> {
        if !self.is_keyed(of) {
            return self.within(thread, of, of.begin_ns, end_ns).collect();
        }
        let Some(keyed) = self.keyed(thread, of) else {
            return Vec::new();
        };
        let runs = keyed.runs().iter();
        let ran = runs.flat_map(|run| {
            let until_ns = run.until_ns.min(end_ns);
            self.within(run.thread, of, run.from_ns, until_ns)
        });
        let mut all: Vec<&Kept> = ran.chain(&keyed.aways).collect();
        all.sort_by_key(|kept| kept.out_ns);
        all
    }

    /// The intervals of a thread in a request, between two times.
    fn within(
        &self,
        thread: ThreadId,
        of: RequestOf,
        from_ns: u64,
        end_ns: u64,
    ) -> impl Iterator<Item = &Kept> {
        let intervals = self.get(thread).map(|timeline| {
            let intervals = &timeline.intervals;
            let first = intervals.partition_point(|kept| kept.in_ns <= from_ns);
            intervals.range(first..)
        });
        let of_request = move |kept: &&Kept| kept.request == Some(of);
        intervals
            .into_iter()
            .flatten()
            .take_while(move |kept| kept.out_ns < end_ns)
            .filter(of_request)
    }

    /// Whether some of what a request did was forgotten.
    pub(super) fn has_forgotten(&self, thread: ThreadId, of: RequestOf) -> bool {
        if self.is_keyed(of) {
            let ran_on = self.keyed(thread, of).into_iter().flat_map(Keyed::runs);
            let mut ran_on = ran_on.map(|run| (run.thread, run.from_ns));
            return self.keyed.has_forgotten(id_of(thread, of))
                || ran_on.any(|(thread, from_ns)| from_ns < self.of(thread).forgotten_ns);
        }
        of.begin_ns < self.of(thread).forgotten_ns
    }

    /// What is known of a thread, be it nothing.
    pub(super) fn of(&self, thread: ThreadId) -> &Timeline {
        self.get(thread).unwrap_or(&self.others)
    }

    pub(super) fn get(&self, thread: ThreadId) -> Option<&Timeline> {
        self.threads.get(&thread)
    }

    /// Takes an interval. Returns false when it does not follow the thread's last one, so that it was left
    /// out.
    pub(crate) fn interval(&mut self, mut kept: Kept) -> bool {
        self.waker(&kept);
        let timeline = self.timeline(kept.thread);
        let last_ns = timeline.intervals.back().map_or(0, |last| last.in_ns);
        let follows = kept.in_ns > kept.out_ns.max(last_ns);
        // A thread that is born with a dead one's number counts from 0 again.
        kept.after_gap =
            !follows || (kept.sequence != timeline.next_sequence && kept.sequence != 0);
        timeline.next_sequence = kept.sequence.wrapping_add(1);
        if !follows {
            // An interval of no length is none.
            return kept.in_ns == kept.out_ns && kept.out_ns >= last_ns;
        }
        kept.out_ns = kept.out_ns.max(last_ns);
        kept.wake_ns = kept.wake_ns.clamp(kept.out_ns, kept.in_ns);
        timeline.intervals.push_back(kept);
        self.intervals.push_back(kept.thread);
        if let Some(of) = kept.request {
            self.ran(kept.thread, of, kept.out_ns, kept.in_ns);
        }
        self.forget();
        true
    }

    /// A thread was in a request at that time, and until then.
    fn ran(&mut self, thread: ThreadId, of: RequestOf, at_ns: u64, until_ns: u64) {
        let is_new = if self.is_keyed(of) {
            let Some(run) = self.keyed.ran(thread, of, at_ns, until_ns) else {
                return;
            };
            let timeline = self.timeline(thread);
            timeline.ran_part(of, run.from_ns, run.until_ns)
        } else {
            self.timeline(thread).ran(of, until_ns)
        };
        if is_new {
            self.spans.push_back(thread);
        }
    }

    /// Takes a time in which no thread ran a request. Returns false when it does not follow the one before, so
    /// that it was left out.
    pub(crate) fn away(&mut self, kept: Kept) -> bool {
        let Some(of) = kept.request.filter(|of| self.is_keyed(*of)) else {
            return false;
        };
        self.waker(&kept);
        // Who ran it before has done so until then.
        self.ran(kept.thread, of, kept.out_ns, kept.out_ns);
        let follows = self.keyed.away(of, kept);
        self.forget();
        follows
    }

    /// Notes what an interval says of its waker.
    fn waker(&mut self, kept: &Kept) {
        let Some(By::Thread(thread, is)) = kept.by else {
            return;
        };
        match is {
            WakerIs::InRequest(of) => self.ran(thread, of, kept.wake_ns, kept.wake_ns),
            WakerIs::Helper(since_ns) => self.timeline(thread).helper_since = Some(since_ns),
            WakerIs::NotRecorded => self.is_sampled = true,
            WakerIs::BetweenRequests | WakerIs::Unknown => {}
        }
    }

    /// Takes a request. One that ran at the start begins where its record says, with the trace.
    pub(crate) fn request(&mut self, request: &Request<'_>) {
        let thread = ThreadId {
            tgid: request.space.tgid,
            tid: request.tid,
        };
        self.is_sampled |= request.weight > 1;
        let of = RequestOf {
            begin_ns: request.begin_ns,
            request_type: request.request_type,
        };
        if self.is_keyed(of) {
            self.ran(thread, of, request.end_ns, request.end_ns);
            self.keyed.ended(thread, of, request.id, request.label);
            return self.forget();
        }
        let timeline = self.timeline(thread);
        let is_new = timeline.ran(of, request.end_ns);
        let at = timeline
            .spans
            .partition_point(|span| span.from_ns < of.begin_ns);
        if let Some(span) = timeline.spans.get_mut(at) {
            span.known = match request.incomplete {
                Some(Incomplete::RunningAtStart) => Known::RanAtStart,
                _ => Known::Ended,
            };
            span.of = of;
            span.id = request.id;
            span.label = request.label.into();
        }
        if is_new {
            self.spans.push_back(thread);
        }
        self.forget();
    }

    fn timeline(&mut self, thread: ThreadId) -> &mut Timeline {
        if self.threads.len() >= MAX_IDLE_THREADS + 2 * self.most
            && !self.threads.contains_key(&thread)
        {
            self.forget_threads();
        }
        let forgotten_ns = self.others.forgotten_ns;
        self.threads
            .entry(thread)
            .or_insert_with(|| Timeline::forgotten_until(forgotten_ns))
    }

    fn forget(&mut self) {
        while self.intervals.len() > self.most {
            let oldest = self.intervals.pop_front();
            if let Some(timeline) = oldest.and_then(|oldest| self.threads.get_mut(&oldest))
                && let Some(gone) = timeline.intervals.pop_front()
            {
                timeline.forgotten_ns = timeline.forgotten_ns.max(gone.in_ns);
            }
        }
        while self.spans.len() > self.most {
            let oldest = self.spans.pop_front();
            if let Some(timeline) = oldest.and_then(|oldest| self.threads.get_mut(&oldest))
                && let Some(gone) = timeline.spans.pop_front()
            {
                timeline.forgotten_ns = timeline.forgotten_ns.max(gone.until_ns);
            }
        }
    }

    /// Numbers of threads, intervals and requests that are kept.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize, usize) {
        let spans = self.threads.values().map(|timeline| timeline.spans.len());
        let intervals = self
            .threads
            .values()
            .map(|timeline| timeline.intervals.len());
        (self.threads.len(), intervals.sum(), spans.sum())
    }

    fn forget_threads(&mut self) {
        let forgotten_ns = &mut self.others.forgotten_ns;
        self.threads.retain(|_, timeline| {
            let is_wanted = !(timeline.intervals.is_empty() && timeline.spans.is_empty());
            if !is_wanted {
                *forgotten_ns = timeline.forgotten_ns.max(*forgotten_ns);
            }
            is_wanted
        });
    }
}
