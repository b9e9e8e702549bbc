//! Gathering: events in; blame of each request, and of all of them added up, out.

use reqtrace_base::plain::Plain;
use reqtrace_common::record::StackId;
use reqtrace_recording::{Interval, IntervalKind, Request, RequestOf, WakerContext};
use rustc_hash::FxHashMap;

use super::interrupt::Interrupt;
use super::table::{Key, Table, Whose};
use super::texts::{Number, Texts};
use super::{By, Cause, Causes, Culprit, Kept, Outcome, Piece, Reason, ThreadId, Timelines, split};
use crate::fingerprint::fingerprint;
use crate::label::label_text;
use crate::report::{Grouping, Ledger};

/// Intervals that are kept, and as many requests: some 40 MB.
const MAX_KEPT: usize = 1 << 18;
/// Labels whose number is remembered.
const MAX_LABELS: usize = 1 << 13;
/// Stacks of interrupts that are remembered.
const MAX_INTERRUPTS: usize = 1 << 12;

/// A request whose blocked time is to be split.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim<'a> {
    pub(crate) thread: ThreadId,
    pub(crate) of: RequestOf,
    pub(crate) end_ns: u64,
    pub(crate) label: &'a [u8],
    pub(crate) ledger: &'a Ledger,
    pub(crate) weight: u32,
    /// Only complete requests are added up, as in the rest of the report.
    pub(crate) is_complete: bool,
}

/// What blame knows.
#[derive(Debug)]
pub(crate) struct Gatherer {
    timelines: Timelines,
    pub(super) table: Table,
    pub(super) texts: Texts,
    labels: FxHashMap<Box<[u8]>, Number>,
    interrupts: FxHashMap<StackId, Interrupt>,
    grouping: Option<Grouping>,
}

impl Gatherer {
    /// For so many request types.
    pub(crate) fn new(types: usize, grouping: Option<Grouping>) -> Self {
        Self {
            timelines: Timelines::new(MAX_KEPT),
            table: Table::new(types),
            texts: Texts::default(),
            labels: FxHashMap::default(),
            interrupts: FxHashMap::default(),
            grouping,
        }
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
                    WakerContext::Unclear => match self.interrupt(waker.stack, named) {
                        Interrupt::Of(cause) => By::Interrupt(cause),
                        Interrupt::Thread => task,
                        Interrupt::NotKnown(reason) => By::Nobody(reason),
                    },
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
            out_ns: interval.out_ns,
            wake_ns,
            in_ns: interval.in_ns,
            by,
            after_gap: false,
        })
    }

    /// Takes a request, whether the report is about it or not.
    pub(crate) fn request(&mut self, request: &Request<'_>) {
        self.timelines.request(request);
    }

    /// Stacks get other names, or their ids another meaning.
    pub(crate) fn forget_stacks(&mut self) {
        self.interrupts.clear();
    }

    /// Splits the blocked time of a request, adds it up, and returns it by root cause. `comm` is the name
    /// of a thread.
    pub(crate) fn resolve(
        &mut self,
        victim: &Victim<'_>,
        comm: impl Fn(ThreadId) -> Plain,
    ) -> Causes {
        let mut pieces = split(&self.timelines, victim.thread, victim.of, victim.end_ns);
        self.add_missing(&mut pieces, victim);
        let mut causes = Causes::default();
        for piece in &pieces {
            causes.add(piece.outcome.cause, piece.ns);
        }
        if victim.is_complete {
            self.add_up(&pieces, victim, comm);
        }
        causes
    }

    /// What the record of a request has more than its intervals.
    fn add_missing(&self, pieces: &mut Vec<Piece>, victim: &Victim<'_>) {
        let all = victim.ledger.blocked_ns() + victim.ledger.unattributed_ns;
        let known: u64 = pieces.iter().map(|piece| piece.ns).sum();
        let mut missing = all.saturating_sub(known);
        if missing == 0 {
            return;
        }
        let reason = if self
            .timelines
            .has_forgotten(victim.thread, victim.of.begin_ns)
        {
            Reason::Forgotten
        } else {
            Reason::Lost
        };
        let mut by_class = victim.ledger.classes.clone();
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
                pieces.push(Piece { class, outcome, ns });
            }
        }
    }

    fn add_up(&mut self, pieces: &[Piece], victim: &Victim<'_>, comm: impl Fn(ThreadId) -> Plain) {
        let weight = u64::from(victim.weight);
        let index = victim.of.request_type;
        let Some(of_type) = self.table.types.get_mut(index as usize) else {
            return;
        };
        of_type.requests += weight;
        for Piece { outcome, ns, .. } in pieces {
            of_type.causes.add(outcome.cause, ns * weight);
            if let Some(reason) = outcome.reason {
                of_type.unknown[reason as usize] += ns * weight;
            }
        }
        if pieces.is_empty() {
            return;
        }
        let label = self.label(victim.label);
        let mut names: FxHashMap<Culprit, Whose> = FxHashMap::default();
        let mut parts: FxHashMap<Key, u64> = FxHashMap::default();
        for piece in pieces {
            let Outcome {
                cause,
                culprit,
                depth,
                ..
            } = piece.outcome;
            let whose = *names
                .entry(culprit)
                .or_insert_with(|| self.whose(culprit, &comm));
            let key = Key {
                victim: index,
                label,
                class: piece.class,
                whose,
                cause,
                depth,
            };
            *parts.entry(key).or_default() += piece.ns;
        }
        self.table.add(&parts, weight, self.grouping.is_some());
    }

    fn whose(&mut self, culprit: Culprit, comm: impl Fn(ThreadId) -> Plain) -> Whose {
        match culprit {
            Culprit::OwnInterrupt => Whose::OwnInterrupt,
            Culprit::Itself => Whose::Itself,
            Culprit::Unknown => Whose::Unknown,
            Culprit::Thread(thread) => Whose::Thread(self.texts.number(comm(thread).as_str())),
            Culprit::Request(thread, request_type, begin_ns) => {
                let label = self.timelines.label(thread, begin_ns);
                Whose::Request(request_type, self.label(&label))
            }
        }
    }

    /// The number of a label, or of its fingerprint.
    fn label(&mut self, label: &[u8]) -> Number {
        if let Some(number) = self.labels.get(label) {
            return *number;
        }
        let text = label_text(label);
        let number = match self.grouping {
            Some(Grouping::Label) => self.texts.number(text.as_str()),
            Some(Grouping::Fingerprint) | None => self.texts.number(&fingerprint(&text)),
        };
        if self.labels.len() >= MAX_LABELS {
            self.labels.clear();
        }
        self.labels.insert(label.into(), number);
        number
    }

    fn interrupt(&mut self, stack: StackId, named: impl FnOnce(StackId) -> Interrupt) -> Interrupt {
        if let Some(known) = self.interrupts.get(&stack) {
            return *known;
        }
        let interrupt = named(stack);
        // One without names may get them.
        if !matches!(interrupt, Interrupt::NotKnown(_)) {
            if self.interrupts.len() >= MAX_INTERRUPTS {
                self.interrupts.clear();
            }
            self.interrupts.insert(stack, interrupt);
        }
        interrupt
    }
}
