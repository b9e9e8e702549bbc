//! What a verdict needs of each request: complete requests with the pieces of their waits in; sums by latency, and the
//! slowest requests with who held them up, out. Memory is bounded: the fastest of the slow ones are given up first.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use reqtrace_base::plain::Plain;
use reqtrace_recording::{Process, ProcessChange, RequestOf, Runner};
use rustc_hash::{FxHashMap, FxHashSet};

use super::of_type::OfType;
use super::patterns::{self, COUNT, Time, Times};
use super::shares::{Share, Who};
use super::slow::Slow;
use super::stood;
use super::texts::Texts;
use crate::blame::{Culprit, Parts, Piece, Taken, Taker, ThreadId, Timelines, Victim};
use crate::fingerprint::statement;
use crate::label::Numbers;
use crate::report::TakerKind;

/// Shares of one request that are kept, the largest.
const MAX_SHARES: usize = 12;
/// Threads whose statements are kept with a request.
const MAX_CULPRITS: usize = 3;
/// Statements of a culprit around one wait.
const MAX_STATEMENTS: usize = 6;
/// Threads whose connections are remembered.
const MAX_CONNECTIONS: usize = 1 << 14;

/// Attributes of a connection that all requests of its thread have had alike.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    /// In the order of the names; empty where it has changed.
    pub(crate) attributes: Vec<Plain>,
}

/// A process that had CPUs for which others waited.
#[derive(Clone, Debug, Default)]
pub(super) struct TookCpus {
    /// As it was while it had one longest.
    pub(super) longest: Runner,
    /// Nanoseconds by CPU.
    pub(super) cpus: BTreeMap<u32, u64>,
}

/// Collects.
#[derive(Debug)]
pub(crate) struct Collector {
    pub(super) types: Vec<OfType>,
    pub(super) connections: FxHashMap<ThreadId, Connection>,
    /// Processes that had CPUs, as they were in their longest run.
    pub(super) takers: FxHashMap<u32, TookCpus>,
    /// Whether the trace says who had CPUs.
    pub(super) knows_takers: bool,
    /// When processes began in the trace, `CLOCK_MONOTONIC` ns.
    pub(super) begun: FxHashMap<u32, u64>,
    labels: Numbers,
    pub(super) texts: Texts,
}

impl Collector {
    pub(crate) fn new(types: usize) -> Self {
        Self {
            types: vec![OfType::default(); types],
            connections: FxHashMap::default(),
            takers: FxHashMap::default(),
            knows_takers: false,
            begun: FxHashMap::default(),
            labels: Numbers::default(),
            texts: Texts::default(),
        }
    }

    /// Takes a change of a process: one that is there when tracing starts has no known begin.
    pub(crate) fn process(&mut self, process: &Process) {
        let pid = process.space.tgid;
        if process.change == ProcessChange::Fork && self.begun.len() < MAX_CONNECTIONS {
            self.begun.insert(pid, process.time_ns);
        }
        // Another process may get its number.
        if process.change == ProcessChange::Start {
            self.begun.remove(&pid);
        }
    }

    /// Takes the attributes of a request of that thread.
    pub(crate) fn serves(&mut self, thread: ThreadId, attributes: &[Plain]) {
        // One that ran when the trace began has none.
        if attributes.iter().all(|value| value.is_empty()) {
            return;
        }
        if let Some(known) = self.connections.get_mut(&thread) {
            for (known, now) in known.attributes.iter_mut().zip(attributes) {
                if known != now {
                    *known = Plain::default();
                }
            }
        } else if self.connections.len() < MAX_CONNECTIONS {
            let attributes = attributes.to_vec();
            self.connections.insert(thread, Connection { attributes });
        }
    }

    /// Takes a complete request.
    pub(crate) fn add(&mut self, victim: &Victim<'_>, parts: &Parts<'_>, timelines: &Timelines) {
        let ledger = victim.ledger;
        let mut times = [0; COUNT];
        let own = [
            (Time::OnCpu, ledger.on_cpu_ns),
            (Time::RunQueue, ledger.run_queue_ns),
            (Time::Preempted, ledger.preempted_ns),
            (Time::Queued, ledger.queued_ns()),
        ];
        for (time, ns) in own {
            times[patterns::of(time)] += ns;
        }
        for piece in &parts.pieces {
            times[patterns::of_piece(&piece.outcome)] += piece.ns;
        }
        for taken in &parts.taken {
            let waits = &mut times[*patterns::WAITS_FOR_CPU];
            let ns = taken.ns.min(*waits);
            *waits -= ns;
            times[patterns::of(Time::Taken(taken.kind))] += ns;
            self.had_cpu(taken);
        }
        let Some(of_type) = self.types.get_mut(victim.of.request_type as usize) else {
            return;
        };
        let latency_ns = ledger.latency_ns;
        let is_slow = of_type.slow.takes(latency_ns);
        of_type.add(latency_ns, u64::from(victim.weight), &times);
        if is_slow {
            if self.texts.is_short() {
                self.forget_texts();
            }
            let slow = self.slow(victim, parts, timelines, times);
            let of_type = &mut self.types[victim.of.request_type as usize];
            of_type.slow.add(latency_ns, slow);
        }
    }

    fn slow(
        &mut self,
        victim: &Victim<'_>,
        parts: &Parts<'_>,
        timelines: &Timelines,
        times: Times,
    ) -> Slow {
        let shares = self.shares(parts, timelines);
        let behind = stood::of(parts, timelines);
        let by_share = shares.iter().find_map(Share::holder);
        let behind_whom = behind.iter().map(|one| Who::Thread(one.thread()));
        let mut by_culprit: Vec<(Who, Vec<u32>)> = Vec::new();
        for who in by_share.into_iter().chain(behind_whom) {
            if by_culprit.len() == MAX_CULPRITS || by_culprit.iter().any(|(known, _)| *known == who)
            {
                continue;
            }
            let thread = match who {
                Who::Thread(thread) => thread,
                Who::Request(tgid, of) => {
                    let label = timelines.label(ThreadId { tgid, tid: 0 }, of);
                    let number = (!label.is_empty()).then(|| self.number(label));
                    by_culprit.push((who, number.into_iter().collect()));
                    continue;
                }
                _ => continue,
            };
            let own = shares.iter().filter(|share| share.who == who);
            let own = own.map(|share| (share.from_ns, share.until_ns));
            let stood = behind.iter().filter(|one| one.thread() == thread);
            let times = own.chain(stood.map(|one| (one.from_ns, one.until_ns)));
            let window = times.fold((u64::MAX, 0), |all, one| {
                (all.0.min(one.0), all.1.max(one.1))
            });
            by_culprit.push((who, self.statements(timelines, thread, window.0..window.1)));
        }
        Slow {
            thread: victim.thread,
            begin_ns: victim.of.begin_ns,
            end_ns: victim.of.begin_ns.saturating_add(victim.ledger.latency_ns),
            weight: u64::from(victim.weight),
            times,
            shares,
            behind,
            statement: self.number(victim.label),
            by_culprit,
        }
    }

    /// The statements of a thread around a time, each once.
    fn statements(
        &mut self,
        timelines: &Timelines,
        thread: ThreadId,
        window: Range<u64>,
    ) -> Vec<u32> {
        let mut numbers = Vec::new();
        for label in timelines.labels_around(thread, window).take(MAX_STATEMENTS) {
            let number = self.number(label);
            if number != 0 && numbers.last() != Some(&number) {
                numbers.push(number);
            }
        }
        numbers
    }

    /// The number of a statement without its values.
    fn number(&mut self, label: &[u8]) -> u32 {
        let mut labels = std::mem::take(&mut self.labels);
        let number = labels.of(label, || self.texts.statement(&statement(label, None)));
        self.labels = labels;
        number
    }

    /// Forgets texts that no kept request has.
    fn forget_texts(&mut self) {
        let mut used = FxHashSet::default();
        for slow in self.types.iter().flat_map(|of_type| of_type.slow.all()) {
            used.insert(slow.statement);
            for (_, numbers) in &slow.by_culprit {
                used.extend(numbers);
            }
            used.extend(slow.shares.iter().filter_map(|share| match share.who {
                Who::Cgroup(number) => Some(number),
                _ => None,
            }));
        }
        self.texts.keep(&used);
        self.labels = Numbers::default();
    }

    /// Times that one has in one pattern and place are one share.
    fn shares(&mut self, parts: &Parts<'_>, timelines: &Timelines) -> Vec<Share> {
        let keyed = |piece: &Piece| match piece.outcome.culprit {
            Culprit::Request(thread, request_type, begin_ns) => {
                let of = RequestOf {
                    begin_ns,
                    request_type,
                };
                timelines.is_keyed(of).then_some((thread.tgid, of))
            }
            _ => None,
        };
        let pieces = parts.pieces.iter().map(|piece| {
            let who = match piece.outcome.culprit {
                Culprit::Request(thread, request_type, _) if keyed(piece).is_some() => {
                    Who::Requests(thread.tgid, request_type)
                }
                Culprit::Request(thread, ..) | Culprit::Thread(thread) => Who::Thread(thread),
                Culprit::Peer(peer) => Who::Peer(peer),
                Culprit::OwnInterrupt | Culprit::Itself | Culprit::Unknown => Who::Nobody,
            };
            let pattern = patterns::of_piece(&piece.outcome);
            (pattern, who, piece.class, piece.from_ns, piece.ns)
        });
        let taken = parts.taken.iter().map(|taken| {
            let who = match (taken.kind, taken.taker) {
                (_, Taker::Limit(cgroup)) => Who::Cgroup(self.texts.cgroup(cgroup)),
                (TakerKind::Process, Taker::Runner(runner)) => Who::Process(runner.tgid),
                _ => Who::Nobody,
            };
            let pattern = patterns::of(Time::Taken(taken.kind));
            (pattern, who, None, taken.from_ns, taken.ns)
        });
        let mut shares: FxHashMap<(u8, Who, Option<u16>), Share> = FxHashMap::default();
        for (pattern, who, class, from_ns, ns) in pieces.chain(taken) {
            let pattern = pattern as u8;
            let until_ns = from_ns + ns;
            let share = shares
                .entry((pattern, who, class))
                .or_insert_with(|| Share {
                    pattern,
                    who,
                    most: None,
                    class,
                    ns: 0,
                    from_ns,
                    until_ns,
                    longest: (from_ns, until_ns),
                });
            share.ns += ns;
            share.from_ns = share.from_ns.min(from_ns);
            share.until_ns = share.until_ns.max(until_ns);
            if ns > share.longest.1 - share.longest.0 {
                share.longest = (from_ns, until_ns);
            }
        }
        let mut each: BTreeMap<(u8, Who, Option<u16>, RequestOf), u64> = BTreeMap::new();
        for piece in &parts.pieces {
            if let Some((pid, of)) = keyed(piece) {
                let pattern = patterns::of_piece(&piece.outcome) as u8;
                let who = Who::Requests(pid, of.request_type);
                *each.entry((pattern, who, piece.class, of)).or_default() += piece.ns;
            }
        }
        for ((pattern, who, class, of), ns) in each {
            if let Some(share) = shares.get_mut(&(pattern, who, class))
                && share.most.is_none_or(|(_, most_ns)| most_ns < ns)
            {
                share.most = Some((of, ns));
            }
        }
        let mut shares: Vec<_> = shares.into_values().collect();
        shares.sort_by_key(|share| (Reverse(share.ns), share.pattern, share.who, share.class));
        shares.truncate(MAX_SHARES);
        shares.shrink_to_fit();
        shares
    }

    /// Notes a process that had a CPU.
    fn had_cpu(&mut self, taken: &Taken<'_>) {
        self.knows_takers = true;
        let (TakerKind::Process, Taker::Runner(runner)) = (taken.kind, taken.taker) else {
            return;
        };
        if self.takers.len() >= MAX_CONNECTIONS && !self.takers.contains_key(&runner.tgid) {
            return;
        }
        let taker = self.takers.entry(runner.tgid).or_default();
        *taker.cpus.entry(taken.cpu).or_default() += taken.ns;
        if runner.ns > taker.longest.ns {
            taker.longest = *runner;
        }
    }
}
