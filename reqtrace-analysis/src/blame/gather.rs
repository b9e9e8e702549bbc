//! Gathering: events in; blame of each request, and of all of them added up, out.

use std::hash::Hash;

use reqtrace_base::plain::Plain;
use reqtrace_common::record::StackId;
use reqtrace_recording::{
    self as recording, AwayInterval, BlockSite, CpuWait, DiskUse, Futex, Holder, Interval,
    IntervalKind, Origin, Process, Request, Unrecorded, WakerContext, WakerIs, WokenFrom,
};
use rustc_hash::FxHashMap;

use super::interrupt::{Interrupt, WokenBy};
use super::names::{Names, Naming};
use super::sums::Sums;
use super::{
    Away, By, Cause, Causes, Culprit, HeldKey, Kept, Outcome, Parts, Piece, Place, Ready, Reason,
    Sender, Source, ThreadId, Timelines, Unseen, Victim, WentOn, split,
};
use crate::report::OfText;
use crate::report::blame::Blame;
use crate::report::page::Holding;

/// What threads did: bytes of intervals and requests that are kept, and as many again of requests with a key.
const MAX_BYTES: usize = 64 << 20;
/// Stacks of a kind that are remembered.
const MAX_STACKS: usize = 1 << 12;
/// Culprits of a second that are distinguished.
const MAX_LATELY: usize = 1 << 10;
const SECOND_NS: u64 = 1_000_000_000;

/// What blame knows.
#[derive(Debug)]
pub(crate) struct Gatherer {
    timelines: Timelines,
    sums: Sums,
    /// How often stacks were given new names or numbers.
    period: u32,
    interrupts: OfStacks<StackId, Interrupt>,
    /// Stacks that make requests ready: whose they are.
    wakers: OfStacks<WokenFrom, Option<WokenBy>>,
    lately: Lately,
}

/// Who held requests up that ended in the newest second, and in the one before.
#[derive(Debug, Default)]
struct Lately {
    second: u64,
    held: [FxHashMap<HeldKey, u64>; 2],
}

impl Lately {
    fn add(&mut self, end_ns: u64, held: &FxHashMap<HeldKey, u64>) {
        let second = end_ns / SECOND_NS;
        if second > self.second {
            self.held.swap(0, 1);
            self.held[0].clear();
            if second > self.second + 1 {
                self.held[1].clear();
            }
            self.second = second;
        }
        let [now, _] = &mut self.held;
        for (key, ns) in held {
            let key = key.at_any_depth();
            if now.len() < MAX_LATELY || now.contains_key(&key) {
                *now.entry(key).or_default() += ns;
            }
        }
    }
}

impl Gatherer {
    /// For request types and wait classes of these names.
    pub(crate) fn new(names: Names, grouping: Option<OfText>, unseen: Unseen) -> Self {
        Self {
            timelines: Timelines::new(MAX_BYTES, names.keyed.clone(), unseen),
            sums: Sums::new(names, grouping),
            period: 0,
            interrupts: OfStacks::new(),
            wakers: OfStacks::new(),
            lately: Lately::default(),
        }
    }

    /// What is known now.
    pub(crate) fn report(&self, naming: &mut impl Naming) -> Blame {
        self.sums.report(&self.timelines, self.period, naming)
    }

    /// Whether there are so many chains of stacks that they are to be settled.
    pub(crate) fn is_full(&self) -> bool {
        self.sums.chains.is_full()
    }

    /// Names what has stacks, as far as that is kept.
    pub(crate) fn settle(&mut self, naming: &mut impl Naming) {
        self.sums.settle(naming);
    }

    /// What is known of threads.
    pub(crate) fn timelines(&self) -> &Timelines {
        &self.timelines
    }

    /// Takes an interval. `class` is that of a block, `named` says which interrupt a stack is of. Returns
    /// false when the interval does not follow the thread's last one, so that it was left out.
    pub(crate) fn interval(
        &mut self,
        interval: &Interval,
        class: Option<usize>,
        named: impl FnOnce(StackId) -> Interrupt,
    ) -> bool {
        let (wake_ns, by) = match interval.kind {
            IntervalKind::Preempted => (interval.out_ns, None),
            IntervalKind::Blocked { wake_ns, waker } => {
                let thread = ThreadId {
                    tgid: waker.tgid,
                    tid: waker.tid,
                };
                let task = By::Thread(thread, waker.is);
                let by = match waker.context {
                    WakerContext::Unknown => By::Nobody(Reason::NoWakeup),
                    WakerContext::Task => task,
                    WakerContext::Unclear | WakerContext::Delivers => {
                        let delivers = waker.context == WakerContext::Delivers;
                        let has_names = |is: &Interrupt| !matches!(is, Interrupt::NotKnown(_));
                        let named = || named(waker.stack);
                        match self.interrupts.get(waker.stack, named, has_names) {
                            Interrupt::Of(cause) => By::Interrupt(cause),
                            Interrupt::Sender { is_tcp: true } if delivers => {
                                By::Interrupt(Cause::Network)
                            }
                            Interrupt::Thread | Interrupt::Sender { .. } => task,
                            Interrupt::NotKnown(reason) => By::Nobody(reason),
                        }
                    }
                };
                (wake_ns, Some(by))
            }
        };
        self.timelines.interval(Kept {
            thread: ThreadId {
                tgid: interval.space.tgid,
                tid: interval.tid,
            },
            sequence: interval.sequence,
            request: interval.request,
            class: class.map(|class| class as u16),
            place: Place {
                space: interval.space,
                site: interval.site,
                period: self.period,
            },
            futex: interval.futex,
            holder: interval.holder,
            out_ns: interval.out_ns,
            wake_ns,
            in_ns: interval.in_ns,
            by,
            woken_from: interval.woken_from,
            away: None,
            went_on: None,
            after_gap: false,
        })
    }

    /// What has made a request ready from this stack. `named` says that of the stack, and nothing without names.
    pub(crate) fn woken_by(
        &mut self,
        from: WokenFrom,
        named: impl FnOnce() -> Option<WokenBy>,
    ) -> WokenBy {
        let by = self.wakers.get(from, named, Option::is_some);
        by.unwrap_or(WokenBy::Other)
    }

    /// Takes a time in which no thread ran a request. `place` is where it was, by its number in
    /// the ledger. `woken_by`: what ended it. Returns false when it does not follow the one
    /// before, so that it was left out.
    pub(crate) fn away(
        &mut self,
        away: &AwayInterval,
        kind: Away,
        place: usize,
        woken_by: WokenBy,
    ) -> bool {
        let names = &self.sums.names;
        let thread = |tid| ThreadId {
            tgid: away.space.tgid,
            tid,
        };
        let is = match (away.by_request, away.by_helper_since_ns) {
            (Some(request), _) => WakerIs::InRequest(request),
            (None, since_ns) if since_ns != 0 && away.is_ready => WakerIs::Helper(since_ns),
            (None, _) => WakerIs::BetweenRequests,
        };
        let by = match woken_by {
            WokenBy::Timer => By::Interrupt(Cause::Timer),
            WokenBy::Task | WokenBy::Driver | WokenBy::Other => By::Thread(thread(away.by_tid), is),
        };
        if let Some(ran) = away.ran {
            let by = thread(away.by_tid);
            self.timelines.left(by, ran, away.ran_until_ns);
        }
        let goes_on = kind == Away::Queued && away.goes_on;
        let resumed_by = goes_on.then(|| thread(away.by_tid));
        let (before, wake_ns, by) = match kind {
            Away::Queued => (names.blocks + names.parked, away.since_ns, None),
            Away::Parked => (names.blocks, away.until_ns, Some(by)),
        };
        self.timelines.away(Kept {
            thread: thread(away.from_tid),
            sequence: 0,
            request: Some(away.request),
            class: Some((before + place) as u16),
            place: Place {
                space: away.space,
                site: BlockSite::PREEMPTED,
                period: self.period,
            },
            futex: 0,
            holder: Holder::NoFutex,
            out_ns: away.since_ns,
            wake_ns,
            in_ns: away.until_ns,
            by,
            woken_from: away.woken_from,
            away: Some(kind),
            went_on: Some(Box::new(WentOn {
                ready: match (away.is_ready, woken_by) {
                    (false, _) => Ready::No,
                    (true, WokenBy::Task) => Ready::ByTask,
                    (true, WokenBy::Driver) => Ready::ByDriver,
                    (true, WokenBy::Timer | WokenBy::Other) => Ready::Yes,
                },
                resumed_by,
                ..WentOn::NOT_KNOWN
            })),
            after_gap: false,
        })
    }

    /// Takes what a parked request went on with. Returns false when it was not parked until then.
    pub(crate) fn origin(&mut self, origin: &Origin) -> bool {
        let thread = ThreadId {
            tgid: origin.space.tgid,
            tid: 0,
        };
        let arrived_ns = origin.arrived_ns;
        let sent_ns = match origin.sent_ns {
            0 => arrived_ns,
            sent_ns => sent_ns.min(arrived_ns),
        };
        let data = |sender| Source::Data {
            sent_ns,
            arrived_ns,
            sender,
        };
        let source = match origin.sender {
            recording::Sender::NoRead => Source::NotKnown(Reason::NoRead),
            recording::Sender::SeveralReads => Source::NotKnown(Reason::SeveralReads),
            recording::Sender::NotSeen => Source::NotKnown(Reason::SenderNotSeen),
            recording::Sender::LayeredSocket => Source::NotKnown(Reason::LayeredSocket),
            recording::Sender::Thread { tgid, tid, is } => {
                data(Sender::Thread(ThreadId { tgid, tid }, is))
            }
            recording::Sender::Peer(peer) => data(Sender::Peer(peer)),
        };
        self.timelines
            .source(thread, origin.request, origin.until_ns, source)
    }

    /// Takes a wait for a CPU. Returns false when it does not follow the one before, so that it was left out.
    pub(crate) fn cpu_wait(&mut self, wait: &CpuWait) -> bool {
        self.timelines.cpu_wait(wait)
    }

    /// Takes what a disk did.
    pub(crate) fn disk(&mut self, disk: &DiskUse) {
        self.timelines.disk(disk);
    }

    /// Takes a change of a process.
    pub(crate) fn process(&mut self, process: &Process) {
        self.timelines.process(process);
    }

    /// Takes a request that is not recorded.
    pub(crate) fn unrecorded(&mut self, request: &Unrecorded) {
        self.timelines.unrecorded(request);
    }

    /// Takes what a futex lies in.
    pub(crate) fn futex(&mut self, futex: &Futex) {
        let (space, address) = (futex.space, futex.address);
        let lies_in = Plain::of(&futex.lies_in);
        self.sums.locks.lies_in(space.tgid, address, &lies_in);
    }

    /// Takes a request, whether the report is about it or not.
    pub(crate) fn request(&mut self, request: &Request<'_>) {
        self.timelines.request(request);
    }

    /// Stacks get other names, or their ids another meaning.
    pub(crate) fn forget_stacks(&mut self) {
        self.interrupts.0.clear();
        self.wakers.0.clear();
        self.period += 1;
    }

    /// How many wait classes there are: parked and queued times have the classes behind them.
    pub(crate) fn classes(&self) -> usize {
        self.sums.names.blocks
    }

    /// Whether the stacks of a place have their names still.
    pub(crate) fn is_named(&self, place: &Place) -> bool {
        place.period == self.period
    }

    /// Splits the blocked time of a request, adds it up, and returns it by root cause. `look` is shown the
    /// parts.
    pub(crate) fn resolve<N: Naming>(
        &mut self,
        victim: &Victim<'_>,
        naming: &mut N,
        look: impl FnOnce(&Self, &Parts<'_>, &mut N),
    ) -> Causes {
        let mut parts = Parts::default();
        // Of one that was never off its CPU there is nothing to split.
        if victim.ledger.on_cpu_ns != victim.ledger.latency_ns {
            parts = split(&self.timelines, victim.thread, victim.of, victim.end_ns);
        }
        Self::add_missing(&self.timelines, &mut parts.pieces, victim);
        let mut causes = Causes::default();
        for piece in &parts.pieces {
            causes.add(piece.outcome.cause, piece.ns);
        }
        look(self, &parts, naming);
        if victim.is_complete {
            self.sums
                .add(&self.timelines, self.period, &parts, victim, naming);
            self.lately.add(victim.end_ns, &self.sums.last);
        }
        causes
    }

    /// Who held the last complete request up, with nanoseconds of each.
    pub(crate) fn last_held(&self) -> impl Iterator<Item = (&HeldKey, u64)> {
        self.sums.last.iter().map(|(key, ns)| (key, *ns))
    }

    /// Who held requests up most in the last two seconds, as far as it is known, and for how long together.
    pub(crate) fn held_lately(&self, now_ns: u64) -> Option<(Holding, u64)> {
        let is_old = now_ns / SECOND_NS > self.lately.second + 2;
        let mut sums: FxHashMap<&HeldKey, u64> = FxHashMap::default();
        for (key, ns) in self.lately.held.iter().flatten().filter(|_| !is_old) {
            if key.cause != Cause::Unknown {
                *sums.entry(key).or_default() += ns;
            }
        }
        let (key, ns) = sums.into_iter().max_by_key(|(key, ns)| (*ns, *key))?;
        Some((self.holding(key), ns))
    }

    /// The names of who held requests up.
    pub(crate) fn holding(&self, key: &HeldKey) -> Holding {
        self.sums.holding(key)
    }

    /// What the record of a request has more than its intervals.
    fn add_missing(timelines: &Timelines, pieces: &mut Vec<Piece>, victim: &Victim<'_>) {
        let all = victim.ledger.held_up_ns();
        let known: u64 = pieces.iter().map(|piece| piece.ns).sum();
        let mut missing = all.saturating_sub(known);
        if missing == 0 {
            return;
        }
        let reason = if timelines.has_forgotten(victim.thread, victim.of) {
            Reason::Forgotten
        } else {
            Reason::Lost
        };
        let mut by_class = victim.ledger.classes.clone();
        by_class.extend(&victim.ledger.parked);
        for piece in pieces.iter() {
            if let Some(ns) = piece
                .class
                .and_then(|class| by_class.get_mut(usize::from(class)))
            {
                *ns = ns.saturating_sub(piece.ns);
            }
        }
        let classes = (0..).map(Some).zip(by_class);
        for (class, most) in classes.chain([(None, u64::MAX)]) {
            let ns = most.min(missing);
            missing -= ns;
            if ns > 0 {
                let outcome = Outcome {
                    cause: Cause::Unknown,
                    reason: Some(reason),
                    culprit: Culprit::Unknown,
                    depth: 0,
                };
                pieces.push(Piece {
                    class,
                    outcome,
                    ns,
                    from_ns: 0,
                    wait: None,
                });
            }
        }
    }
}

/// What stacks were found to be, as long as they keep their names.
#[derive(Debug)]
struct OfStacks<K, V>(FxHashMap<K, V>);

impl<K: Eq + Hash, V: Copy> OfStacks<K, V> {
    fn new() -> Self {
        Self(FxHashMap::default())
    }

    /// What a stack is by its names, if it `has_names`. One without may get them, so that it is looked at again.
    fn get(&mut self, stack: K, named: impl FnOnce() -> V, has_names: impl Fn(&V) -> bool) -> V {
        if let Some(known) = self.0.get(&stack) {
            return *known;
        }
        let is = named();
        if has_names(&is) {
            if self.0.len() >= MAX_STACKS {
                self.0.clear();
            }
            self.0.insert(stack, is);
        }
        is
    }
}
