//! What threads did: their intervals and requests in, kept for a while and in order.
//!
//! Memory is bounded, whatever the number of threads: the intervals and requests that came first are forgotten
//! first, and each thread knows until when it has forgotten.

use reqtrace_recording::{
    CpuWait, DiskUse, Header, Incomplete, Process, Request, RequestOf, Unrecorded, WakerIs,
};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::disk::Disks;
use super::fitting::Fitting;
use super::kept::{Away, By, Kept, Sender, Source, ThreadId};
use super::keyed::{AllKeyed, Keyed, id_of};
use super::of_thread::{Known, Span, Timeline};
use super::servers::Servers;
use super::waited::{Taker, Waited};
use crate::report::TakerKind;

/// Threads without any interval or request that are remembered.
const MAX_IDLE_THREADS: usize = 1 << 15;

/// Bytes of a thread; a table has up to as much room again.
const THREAD_BYTES: usize = 2 * size_of::<(ThreadId, Timeline)>();
/// Bytes of an interval, with its place in the order.
const INTERVAL_BYTES: usize = size_of::<Kept>() + size_of::<Came>();
/// Bytes of a request without its label.
const SPAN_BYTES: usize = size_of::<Span>() + 4 * size_of::<usize>() + size_of::<Came>();

/// Whether a table that has no room for one more than so many is full of what is gone, a quarter of it at least. It would grow to
/// twice its size; made again it has room. Its buckets are a power of two, of which seven in eight are used.
fn has_gone(len: usize) -> bool {
    let buckets = (len * 8 / 7 + 1).next_power_of_two();
    len < buckets / 8 * 7 / 4 * 3
}

/// Most requests have few intervals, if any.
pub(crate) type Few<T> = SmallVec<[T; 8]>;

/// What came, and whose it is.
#[derive(Clone, Copy, Debug)]
enum Came {
    Interval(ThreadId),
    Span(ThreadId),
    CpuWait(ThreadId),
}

/// What is known of all threads.
#[derive(Debug)]
pub(crate) struct Timelines {
    threads: FxHashMap<ThreadId, Timeline>,
    /// Intervals and requests, in the order in which they came.
    order: Fitting<Came>,
    /// What all of them take.
    pub(super) bytes: usize,
    most_bytes: usize,
    /// Threads without any of them.
    idle: usize,
    /// Requests with a key.
    keyed: AllKeyed,
    /// What is known of all others.
    others: Timeline,
    /// Processes that serve requests of the trace.
    servers: Servers,
    disks: Disks,
    /// Some requests are not recorded, so that a thread outside recorded ones may be in another.
    pub(super) is_sampled: bool,
    /// Some requests are not in the trace at all.
    pub(super) is_drawn: bool,
    unseen: Unseen,
}

/// Which requests have no record.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unseen {
    /// It is known when they were.
    pub(crate) is_known: bool,
    /// What a record weighs that was chosen at the end of its request; 0: none was.
    pub(crate) one_in: u32,
}

impl Unseen {
    /// As the header has it. A weight that the guard may have drawn at a begin counts as drawn.
    pub(crate) fn of(header: &Header) -> Self {
        let one_in = header.options.one_in;
        let is_chosen = header.options.keep_slow_ns > 0 && !one_in.is_power_of_two();
        Self {
            is_known: header.holders,
            one_in: if is_chosen { one_in } else { 0 },
        }
    }
}

impl Timelines {
    /// Keeps what `most_bytes` have room for, and as much again of requests with a key. `keyed`: which request
    /// types have one.
    pub(crate) fn new(most_bytes: usize, keyed: Vec<bool>, unseen: Unseen) -> Self {
        Self {
            keyed: AllKeyed::new(keyed, most_bytes),
            threads: FxHashMap::default(),
            order: Fitting::default(),
            bytes: 0,
            most_bytes,
            idle: 0,
            others: Timeline::default(),
            servers: Servers::default(),
            disks: Disks::default(),
            is_sampled: false,
            is_drawn: false,
            unseen,
        }
    }

    /// A request, where it is known.
    fn span(&self, thread: ThreadId, of: RequestOf) -> Option<&Span> {
        let spans = &self.get(thread)?.spans;
        let at = spans.find(|span| span.from_ns < of.begin_ns);
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
        let at = spans.find(|span| span.until_ns <= at_ns);
        let span = spans.get(at)?;
        (span.from_ns <= at_ns).then_some(span.of)
    }

    /// The last request that a thread had ended by that time.
    pub(super) fn ended_before(&self, thread: ThreadId, at_ns: u64) -> Option<&Span> {
        let spans = &self.get(thread)?.spans;
        let after = spans.find(|span| span.until_ns <= at_ns);
        let last = spans.get(after.checked_sub(1)?)?;
        (last.known == Known::Ended).then_some(last)
    }

    /// The same without its record.
    pub(crate) fn request_before(&self, thread: ThreadId, at_ns: u64) -> Option<RequestOf> {
        self.ended_before(thread, at_ns).map(|span| span.of)
    }

    /// Its label; empty when it is not known.
    pub(crate) fn label(&self, thread: ThreadId, of: RequestOf) -> &[u8] {
        let label = if self.is_keyed(of) {
            self.keyed(thread, of).map(|keyed| &*keyed.label)
        } else {
            self.span(thread, of).map(|span| &*span.label)
        };
        label.unwrap_or_default()
    }

    /// The intervals of a request, in order. Of one with a key those of all threads that ran it, and the
    /// times in which none did.
    pub(crate) fn of_request(&self, thread: ThreadId, of: RequestOf, end_ns: u64) -> Few<&Kept> {
        // Of one with a key also what took no time when it began.
        let from_ns = if self.is_keyed(of) { 0 } else { of.begin_ns };
        self.between(thread, of, from_ns, end_ns)
    }

    /// Those of them that end after a time, and begin before another.
    pub(super) fn between(
        &self,
        thread: ThreadId,
        of: RequestOf,
        from_ns: u64,
        end_ns: u64,
    ) -> Few<&Kept> {
        if !self.is_keyed(of) {
            return self.within(thread, of, from_ns, end_ns).collect();
        }
        let Some(keyed) = self.keyed(thread, of) else {
            return Few::new();
        };
        let ran = keyed.runs_between(from_ns, end_ns).iter().flat_map(|run| {
            let (from_ns, until_ns) = (run.from_ns.max(from_ns), run.until_ns.min(end_ns));
            self.within(run.thread, of, from_ns, until_ns)
        });
        let first = keyed.aways.find(|away| away.in_ns <= from_ns);
        let aways = keyed.aways.range(first..);
        let aways = aways.take_while(|away| away.out_ns < end_ns);
        let mut all: Few<&Kept> = ran.chain(aways).collect();
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
            let first = intervals.find(|kept| kept.in_ns <= from_ns);
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

    /// Since when all that a request with a key did is known; `None` when nothing is.
    pub(super) fn known_since(&self, thread: ThreadId, of: RequestOf) -> Option<u64> {
        let keyed = self.keyed(thread, of)?;
        Some(keyed.forgotten_ns)
    }

    /// Notes what a parked request went on with. Returns false when no such time is known.
    pub(crate) fn source(
        &mut self,
        thread: ThreadId,
        of: RequestOf,
        until_ns: u64,
        source: Source,
    ) -> bool {
        if let Source::Data {
            sent_ns,
            sender: Sender::Thread(sender, is),
            ..
        } = source
        {
            self.did(sender, is, sent_ns);
        }
        self.keyed.source(id_of(thread, of), until_ns, source)
    }

    /// What is known of a thread, be it nothing.
    /// Whether a thread has served requests without a key.
    pub(crate) fn serves(&self, thread: ThreadId) -> bool {
        self.of(thread).served_from.is_some()
    }

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
        let was_idle = timeline.is_idle();
        let (thread, request) = (kept.thread, kept.request);
        let (out_ns, in_ns) = (kept.out_ns, kept.in_ns);
        timeline.intervals.push_back(kept);
        self.came(Came::Interval(thread), was_idle);
        if let Some(of) = request {
            self.ran(thread, of, out_ns, in_ns);
        }
        self.forget();
        true
    }

    /// Takes a wait for a CPU. Returns false when it does not follow the thread's last one, so that it was left out.
    pub(crate) fn cpu_wait(&mut self, wait: &CpuWait) -> bool {
        let thread = ThreadId {
            tgid: wait.space.tgid,
            tid: wait.tid,
        };
        let timeline = self.timeline(thread);
        let last_ns = timeline.cpu_waits.back().map_or(0, |last| last.until_ns);
        if wait.from_ns < last_ns || wait.until_ns <= wait.from_ns {
            return false;
        }
        let was_idle = timeline.is_idle();
        let waited = Waited::of(wait);
        let bytes = waited.bytes();
        timeline.cpu_waits.push_back(waited);
        self.bytes += bytes;
        self.came(Came::CpuWait(thread), was_idle);
        self.forget();
        true
    }

    /// What is known of a thread's waits for CPUs between two times, in order.
    pub(super) fn cpu_waits(
        &self,
        thread: ThreadId,
        from_ns: u64,
        until_ns: u64,
    ) -> impl Iterator<Item = &Waited> {
        let waits = self.get(thread).map(|timeline| {
            let waits = &timeline.cpu_waits;
            waits.range(waits.find(|wait| wait.until_ns <= from_ns)..)
        });
        let waits = waits.into_iter().flatten();
        waits.take_while(move |wait| wait.from_ns < until_ns)
    }

    /// Takes what a disk did.
    pub(crate) fn disk(&mut self, disk: &DiskUse) {
        self.disks.take(disk);
    }

    /// What disks did.
    pub(crate) fn disks(&self) -> &Disks {
        &self.disks
    }

    /// Processes that serve requests of the trace.
    pub(super) fn servers(&self) -> &Servers {
        &self.servers
    }

    /// Takes a change of a process.
    pub(crate) fn process(&mut self, process: &Process) {
        self.servers.change(process);
    }

    /// What has a CPU at that time.
    pub(super) fn kind_of(&self, taker: Taker<'_>, at_ns: u64) -> TakerKind {
        match taker {
            Taker::Limit(_) => TakerKind::Limit,
            Taker::Runner(runner) if runner.tgid == 0 => TakerKind::Idle,
            Taker::Runner(runner) if self.servers.has(runner.tgid, at_ns) => TakerKind::Service,
            Taker::Runner(_) => TakerKind::Process,
        }
    }

    /// A thread was in a request at that time, and until then.
    fn ran(&mut self, thread: ThreadId, of: RequestOf, at_ns: u64, until_ns: u64) {
        let (was_idle, is_new) = if self.is_keyed(of) {
            let Some(run) = self.keyed.ran(thread, of, at_ns, until_ns) else {
                return;
            };
            let timeline = self.timeline(thread);
            let was_idle = timeline.is_idle();
            (was_idle, timeline.ran_part(of, run.from_ns, run.until_ns))
        } else {
            let timeline = self.timeline(thread);
            (timeline.is_idle(), timeline.ran(of, until_ns).0)
        };
        if is_new {
            self.came(Came::Span(thread), was_idle);
        }
    }

    /// A thread ran a request with a key until then.
    pub(crate) fn left(&mut self, thread: ThreadId, of: RequestOf, until_ns: u64) {
        // One that was forgotten is not to be known by this alone.
        if self.is_keyed(of) && self.keyed(thread, of).is_some() {
            self.ran(thread, of, until_ns, until_ns);
            self.forget();
        }
    }

    /// Whether a request with a key was queued until a part of it began: the thread that ran it then says what it ran before.
    pub(super) fn was_queued(&self, thread: ThreadId, of: RequestOf, from_ns: u64) -> bool {
        self.keyed(thread, of).is_some_and(|keyed| {
            let first = keyed.aways.find(|away| away.in_ns < from_ns);
            let aways = keyed.aways.range(first..);
            let mut aways = aways.take_while(|away| away.in_ns == from_ns);
            aways.any(|away| away.away == Some(Away::Queued))
        })
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
        if let Some(thread) = kept.went_on().resumed_by {
            self.timeline(thread).runs_units = true;
        }
        let follows = self.keyed.away(of, kept);
        self.forget();
        follows
    }

    /// Notes what an interval says of its waker.
    fn waker(&mut self, kept: &Kept) {
        let Some(By::Thread(thread, is)) = kept.by else {
            return;
        };
        self.did(thread, is, kept.wake_ns);
    }

    /// Notes what a thread did at that time.
    fn did(&mut self, thread: ThreadId, is: WakerIs, at_ns: u64) {
        match is {
            WakerIs::InRequest(of) => self.ran(thread, of, at_ns, at_ns),
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
        // What was chosen at its end was followed as all others were.
        let is_drawn = request.weight > 1 && request.weight != self.unseen.one_in;
        self.is_sampled |= is_drawn && !self.unseen.is_known;
        self.is_drawn |= is_drawn;
        self.servers.serves(thread.tgid, request.begin_ns);
        let of = RequestOf {
            begin_ns: request.begin_ns,
            request_type: request.request_type,
        };
        if self.is_keyed(of) {
            self.ran(thread, of, request.end_ns, request.end_ns);
            self.keyed.ended(thread, of, request.id, request.label);
            return self.forget();
        }
        let known = match request.incomplete {
            Some(Incomplete::RunningAtStart) => Known::RanAtStart,
            _ => Known::Ended,
        };
        self.ended(thread, of, request.end_ns, |span| {
            span.known = known;
            span.id = request.id;
            span.label = request.label.into();
        });
    }

    /// Takes a request that is not recorded: when it was.
    pub(crate) fn unrecorded(&mut self, request: &Unrecorded) {
        let thread = ThreadId {
            tgid: request.tgid,
            tid: request.tid,
        };
        let of = RequestOf {
            begin_ns: request.begin_ns,
            request_type: request.request_type,
        };
        self.servers.serves(thread.tgid, request.begin_ns);
        if self.is_keyed(of) {
            self.ran(thread, of, request.end_ns, request.end_ns);
            self.keyed.ended(thread, of, 0, &[]);
            return self.forget();
        }
        self.ended(thread, of, request.end_ns, |span| span.known = Known::Ended);
    }

    /// Notes that a request of a thread ended, and what is known of it.
    fn ended(
        &mut self,
        thread: ThreadId,
        of: RequestOf,
        end_ns: u64,
        knows: impl FnOnce(&mut Span),
    ) {
        let timeline = self.timeline(thread);
        let was_idle = timeline.is_idle();
        let (is_new, at) = timeline.ran(of, end_ns);
        let mut label_bytes = (0, 0);
        if let Some(span) = timeline.spans.get_mut(at) {
            span.of = of;
            label_bytes.1 = span.label.len();
            knows(span);
            label_bytes.0 = span.label.len();
        }
        self.bytes = self.bytes + label_bytes.0 - label_bytes.1;
        if is_new {
            self.came(Came::Span(thread), was_idle);
        }
        self.forget();
    }

    fn timeline(&mut self, thread: ThreadId) -> &mut Timeline {
        if self.idle >= MAX_IDLE_THREADS && !self.threads.contains_key(&thread) {
            self.forget_threads();
        }
        let (len, room) = (self.threads.len(), self.threads.capacity());
        if len == room && has_gone(len) && !self.threads.contains_key(&thread) {
            self.threads.shrink_to_fit();
        }
        let forgotten_ns = self.others.forgotten_ns;
        self.threads.entry(thread).or_insert_with(|| {
            self.bytes += THREAD_BYTES;
            self.idle += 1;
            Timeline::forgotten_until(forgotten_ns)
        })
    }

    /// Something has come, of a thread that may have had nothing before.
    fn came(&mut self, came: Came, was_idle: bool) {
        self.idle -= usize::from(was_idle);
        self.bytes += match came {
            Came::Interval(_) => INTERVAL_BYTES,
            Came::Span(_) => SPAN_BYTES,
            // Counted by who takes it.
            Came::CpuWait(_) => size_of::<Came>(),
        };
        self.order.push_back(came);
    }

    fn forget(&mut self) {
        while self.bytes > self.most_bytes
            && let Some(oldest) = self.order.pop_front()
        {
            let (Came::Interval(thread) | Came::Span(thread) | Came::CpuWait(thread)) = oldest;
            let Some(timeline) = self.threads.get_mut(&thread) else {
                continue;
            };
            let (bytes, until_ns) = match oldest {
                Came::Interval(_) => {
                    let gone = timeline.intervals.pop_front();
                    (INTERVAL_BYTES, gone.map(|gone| gone.in_ns))
                }
                // The interval that it lies in comes later.
                Came::CpuWait(_) => {
                    let gone = timeline.cpu_waits.pop_front();
                    (
                        size_of::<Came>() + gone.map_or(0, |gone| gone.bytes()),
                        None,
                    )
                }
                Came::Span(_) => {
                    let gone = timeline.spans.pop_front();
                    let label = gone.as_ref().map_or(0, |gone| gone.label.len());
                    (SPAN_BYTES + label, gone.map(|gone| gone.until_ns))
                }
            };
            self.bytes -= bytes;
            timeline.forgotten_ns = timeline.forgotten_ns.max(until_ns.unwrap_or(0));
            self.idle += usize::from(timeline.is_idle());
        }
    }

    /// Forgets what came first.
    #[cfg(test)]
    pub(super) fn forget_oldest(&mut self) {
        let most_bytes = std::mem::replace(&mut self.most_bytes, self.bytes - 1);
        self.forget();
        self.most_bytes = most_bytes;
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
            let is_wanted = !timeline.is_idle();
            if !is_wanted {
                *forgotten_ns = timeline.forgotten_ns.max(*forgotten_ns);
            }
            is_wanted
        });
        self.bytes -= self.idle * THREAD_BYTES;
        self.idle = 0;
    }
}
