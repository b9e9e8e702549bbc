//! Sums of blame: the parts of each complete request in; tables, locks, slowest requests and chains out.

use reqtrace_recording::{Holder, RequestOf};
use rustc_hash::FxHashMap;

use super::chains::{Chains, Link};
use super::locks::Locks;
use super::names::{Names, Naming};
use super::slowest::{Slowest, Tree};
use super::table::{Key, Table, Whose};
use super::texts::{NONE, Number, Texts};
use super::timeline::Few;
use super::{By, Cause, Culprit, Kept, Outcome, Parts, Piece, ThreadId, Timelines, Victim, Wait};
use crate::fingerprint::statement;
use crate::label::{Numbers, label_text};
use crate::report::OfText;
use crate::report::blame::HeldRequest;

/// A thread that blocks on the same futex again so soon, without another block in between, waits on:
/// somebody else had taken the lock before it had a CPU.
const SAME_WAIT_NS: u64 = 50_000;

/// All of them.
#[derive(Debug)]
pub(super) struct Sums {
    pub(super) names: Names,
    pub(super) table: Table,
    pub(super) locks: Locks,
    /// Per request type.
    pub(super) slowest: Vec<Slowest>,
    pub(super) chains: Chains,
    pub(super) texts: Texts,
    /// Who held the last complete request up.
    pub(super) last: FxHashMap<Key, u64>,
    /// Culprits of the last request.
    known: FxHashMap<Culprit, Whose>,
    labels: Numbers,
    grouping: Option<OfText>,
}

impl Sums {
    pub(super) fn new(names: Names, grouping: Option<OfText>) -> Self {
        let types = names.types.len();
        Self {
            names,
            table: Table::new(types),
            locks: Locks::default(),
            slowest: vec![Slowest::default(); types],
            chains: Chains::default(),
            texts: Texts::default(),
            last: FxHashMap::default(),
            known: FxHashMap::default(),
            labels: Numbers::default(),
            grouping,
        }
    }

    /// Adds a complete request. Stacks of other periods than this have no names any more.
    pub(super) fn add(
        &mut self,
        timelines: &Timelines,
        period: u32,
        parts: &Parts<'_>,
        victim: &Victim<'_>,
        naming: &mut impl Naming,
    ) {
        self.last.clear();
        let weight = u64::from(victim.weight);
        let index = victim.of.request_type;
        let Some(of_type) = self.table.types.get_mut(index as usize) else {
            return;
        };
        of_type.requests += weight;
        let ledger = victim.ledger;
        of_type.cpu_ns += (ledger.run_queue_ns + ledger.preempted_ns) * weight;
        of_type.takers.add(parts, weight);
        let queued_ns = ledger.queued.iter().sum::<u64>();
        of_type.queued_ns += queued_ns * weight;
        of_type.queue.add(parts, queued_ns, weight);
        let disks = timelines.disks();
        of_type.at_disks.add(disks, parts, victim.thread, weight);
        for Piece { outcome, ns, .. } in &parts.pieces {
            of_type.causes.add(outcome.cause, ns * weight);
            if let Some(reason) = outcome.reason {
                of_type.unknown[reason as usize] += ns * weight;
            }
        }
        if parts.pieces.is_empty() {
            return;
        }
        let mut one = One {
            timelines,
            known: std::mem::take(&mut self.known),
        };
        self.rows(&mut one, parts, victim, naming);
        self.waits_on_futexes(&mut one, parts, victim, naming);
        self.chains(&mut one, period, parts, victim, naming);
        self.known = one.known;
        self.known.clear();
        let slowest = &mut self.slowest[index as usize];
        if slowest.takes(victim.ledger.latency_ns) {
            let mut tree = Tree::new(parts, timelines, &self.names, naming);
            slowest.add(held(victim, tree.draw(), naming));
        }
    }

    fn rows(
        &mut self,
        one: &mut One<'_>,
        parts: &Parts<'_>,
        victim: &Victim<'_>,
        naming: &impl Naming,
    ) {
        let label = self.label(victim.label);
        let mut sums = std::mem::take(&mut self.last);
        for piece in &parts.pieces {
            let Outcome {
                cause,
                depth,
                culprit,
                ..
            } = piece.outcome;
            let key = Key {
                victim: victim.of.request_type,
                label,
                class: piece.class,
                whose: self.idle(one, parts, piece, naming),
                cause,
                depth,
                thread: match culprit {
                    Culprit::Thread(thread) | Culprit::Request(thread, ..) => Some(thread),
                    _ => None,
                },
            };
            *sums.entry(key).or_default() += piece.ns;
        }
        let weight = u64::from(victim.weight);
        self.table.add(&sums, weight, self.grouping.is_some());
        self.last = sums;
    }

    /// Whose time a piece was; of a thread between its requests with the label of the one before.
    fn idle(
        &mut self,
        one: &mut One<'_>,
        parts: &Parts<'_>,
        piece: &Piece,
        naming: &impl Naming,
    ) -> Whose {
        let Outcome { cause, culprit, .. } = piece.outcome;
        let whose = self.whose(one, culprit, naming);
        let (Culprit::Thread(thread), Cause::BetweenRequests) = (culprit, cause) else {
            return whose;
        };
        let wait = piece.wait.and_then(|wait| parts.waits.get(wait as usize));
        let before = wait.and_then(|wait| one.timelines.ended_before(thread, wait.kept.wake_ns));
        match (whose, before) {
            (Whose::Thread(comm, _), Some(span)) => Whose::Thread(comm, self.label(&span.label)),
            _ => whose,
        }
    }

    fn waits_on_futexes(
        &mut self,
        one: &mut One<'_>,
        parts: &Parts<'_>,
        victim: &Victim<'_>,
        naming: &impl Naming,
    ) {
        let own = parts.waits.iter().filter(|wait| wait.within.is_none());
        let mut before: Option<(&Kept, u64)> = None;
        for wait in own {
            let before_ns = before.map_or(0, |(last, ns)| {
                let goes_on = last.futex == wait.kept.futex
                    && wait.kept.out_ns.saturating_sub(last.in_ns) < SAME_WAIT_NS;
                if goes_on { ns } else { 0 }
            });
            before = Some((wait.kept, before_ns + wait.kept.off_ns()));
            if wait.kept.futex == 0 {
                continue;
            }
            let waker = self.waker(one, wait.kept, naming);
            let weight = u64::from(victim.weight);
            let index = victim.of.request_type;
            let holder = self.holder(one, wait.kept, naming);
            self.locks
                .add(index, wait.kept, waker, holder, before_ns, weight);
        }
    }

    /// Who held the lock when a wait began; `None` when it is no lock that tells.
    fn holder(&mut self, one: &mut One<'_>, kept: &Kept, naming: &impl Naming) -> Option<Whose> {
        let culprit = match kept.holder {
            Holder::NoFutex | Holder::NotTold => return None,
            Holder::Changing | Holder::Unreadable | Holder::NoThread => Culprit::Unknown,
            Holder::Thread(tid) => {
                let thread = ThreadId {
                    tgid: kept.thread.tgid,
                    tid,
                };
                match one.timelines.request_at(thread, kept.out_ns) {
                    Some(of) => Culprit::Request(thread, of.request_type, of.begin_ns),
                    None => Culprit::Thread(thread),
                }
            }
        };
        Some(self.whose(one, culprit, naming).without_label())
    }

    /// Who ended a wait, whatever that one had done before.
    fn waker(&mut self, one: &mut One<'_>, kept: &Kept, naming: &impl Naming) -> Whose {
        let culprit = match kept.by {
            Some(By::Interrupt(_)) => Culprit::OwnInterrupt,
            Some(By::Thread(thread, is)) => Culprit::of(thread, is),
            Some(By::Nobody(_)) | None => Culprit::Unknown,
        };
        self.whose(one, culprit, naming).without_label()
    }

    fn chains(
        &mut self,
        one: &mut One<'_>,
        period: u32,
        parts: &Parts<'_>,
        victim: &Victim<'_>,
        naming: &impl Naming,
    ) {
        let mut chains = std::mem::take(&mut self.chains);
        let mut before: Few<&Wait<'_>> = Few::new();
        let mut chain: Few<Link> = Few::new();
        for piece in &parts.pieces {
            before.clear();
            let mut next = piece.wait;
            while let Some(at) = next {
                let wait = &parts.waits[at as usize];
                before.push(wait);
                next = wait.within;
            }
            chain.clear();
            chain.push(Link::Victim(victim.of.request_type));
            let mut last = Culprit::OwnInterrupt;
            let mut held_up_by = |chain: &mut Few<Link>, culprit: Culprit| {
                if culprit != last && culprit != Culprit::Unknown {
                    last = culprit;
                    let whose = self.whose(one, culprit, naming).without_label();
                    chain.push(Link::HeldUpBy(whose));
                }
            };
            for wait in before.iter().rev() {
                held_up_by(&mut chain, wait.whose);
                chain.push(Link::blocked(wait.kept, period));
            }
            let Outcome {
                cause,
                reason,
                culprit,
                ..
            } = piece.outcome;
            held_up_by(&mut chain, culprit);
            if matches!(
                culprit,
                Culprit::Request(..) | Culprit::Thread(_) | Culprit::Itself
            ) && let Some(wait) = before.first()
            {
                chain.extend(Link::woken_from(wait.kept, period));
            }
            chain.push(Link::End(cause, reason));
            chains.add(&chain, piece.ns * u64::from(victim.weight));
        }
        self.chains = chains;
    }

    fn whose(&mut self, one: &mut One<'_>, culprit: Culprit, naming: &impl Naming) -> Whose {
        if let Some(known) = one.known.get(&culprit) {
            return *known;
        }
        let whose = match culprit {
            Culprit::OwnInterrupt => Whose::OwnInterrupt,
            Culprit::Itself => Whose::Itself,
            Culprit::Unknown => Whose::Unknown,
            Culprit::Peer(peer) => Whose::Peer(peer),
            Culprit::Thread(thread) => {
                Whose::Thread(self.texts.number(naming.comm(thread).as_str()), NONE)
            }
            Culprit::Request(thread, request_type, begin_ns) => {
                let of = RequestOf {
                    begin_ns,
                    request_type,
                };
                let label = one.timelines.label(thread, of);
                Whose::Request(request_type, self.label(label))
            }
        };
        one.known.insert(culprit, whose);
        whose
    }

    /// The number of a label, or of its fingerprint.
    fn label(&mut self, label: &[u8]) -> Number {
        let (texts, grouping) = (&mut self.texts, self.grouping);
        let number = || texts.label(&statement(label, grouping));
        self.labels.of(label, number)
    }
}

/// What is asked for while one request is added.
struct One<'a> {
    timelines: &'a Timelines,
    known: FxHashMap<Culprit, Whose>,
}

fn held(
    victim: &Victim<'_>,
    parts: Vec<crate::report::blame::Part>,
    naming: &impl Naming,
) -> HeldRequest {
    HeldRequest {
        id: victim.id,
        pid: victim.thread.tgid,
        tid: victim.thread.tid,
        comm: naming.comm(victim.thread),
        label: label_text(victim.label),
        start_unix_ns: victim.start_unix_ns,
        latency_ns: victim.ledger.latency_ns,
        blocked_ns: victim.ledger.blocked_ns() + victim.ledger.unattributed_ns,
        parked_ns: victim.ledger.parked_ns(),
        queued_ns: victim.ledger.queued_ns(),
        run_queue_ns: victim.ledger.run_queue_ns,
        preempted_ns: victim.ledger.preempted_ns,
        parts,
    }
}
