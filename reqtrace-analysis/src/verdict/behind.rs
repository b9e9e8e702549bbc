//! Behind one: slow requests with who held them up in; the one that most of their time was spent behind, whatever that one did
//! meanwhile, out.
//!
//! Who has a lock may compute, and wait for a CPU, for a disk and for a client while it has it. By root causes that is several, or
//! nobody knows; by who had it, one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use reqtrace_base::plain::Plain;

use super::episodes::{self, Episode, Excess};
use super::facts::{Facts, Judge};
use super::measured::Measured;
use super::named::{median_of_longest, most};
use super::numbers::{CAUSE, CAUSE_LEAST, CULPRIT, NOT_KNOWN, TURNS_NS, mille};
use super::of_type::Sum;
use super::patterns::{Family, PATTERNS};
use super::periods;
use super::random::Random;
use super::shares::Who;
use super::slow::Slow;
use super::stood::{Behind, Doing, Key};
use crate::blame::ThreadId;
use crate::report::verdict::{Did, Evidence, Verdict};

/// Of the time that others stood behind it, it held them up itself for so much: of less the CPUs or the disk are the cause.
const HELD: f64 = 0.1;
/// What it did is named if it had so much of the time.
const WORTH_NAMING: u16 = 100;
/// Of those behind whom nearly as much of the time stood, it is the last one: the others waited for it, too.
const NEARLY: f64 = 0.9;
impl Slow {
    fn is_behind(&self, holder: ThreadId) -> impl Iterator<Item = &Behind> {
        let behind = self.behind.iter();
        behind.filter(move |one| one.thread() == holder)
    }

    fn behind_ns(&self, holder: ThreadId) -> u64 {
        self.is_behind(holder).map(|one| one.ns).sum()
    }

    /// Its part of what the request took more than a typical one.
    pub(super) fn excess_behind(&self, ns: u64, typical: &Sum) -> f64 {
        let excess = Excess::of(self, typical).all;
        excess * ns as f64 / self.latency_ns().max(1) as f64
    }

    /// Whether others than this thread held it up, for most of the time.
    pub(super) fn is_held_by_others(&self, holder: ThreadId) -> bool {
        let is_other = |thread: ThreadId| thread != holder && thread != self.thread;
        let by_others = self
            .shares
            .iter()
            .filter(|share| matches!(share.who, Who::Thread(thread) if is_other(thread)));
        let behind_others = self.behind.iter().filter(|one| is_other(one.thread()));
        let by_others: u64 = by_others.map(|share| share.ns).sum();
        let behind_others: u64 = behind_others.map(|one| one.ns).sum();
        by_others.max(behind_others) as f64 >= CAUSE_LEAST * self.latency_ns() as f64
    }
}

/// The threads that held others up for most of the time of all, or nearly: those next to the roots first.
pub(super) fn holders(slow: &[&Slow]) -> Vec<ThreadId> {
    let mut all: BTreeMap<ThreadId, (f64, f64)> = BTreeMap::new();
    for slow in slow {
        for one in slow.behind.iter().filter(|one| one.thread() != slow.thread) {
            let (ns, depth) = all.entry(one.thread()).or_default();
            *ns += (one.ns * slow.weight) as f64;
            *depth += one.depth as f64 * slow.weight as f64;
        }
    }
    let most = all.values().map(|(ns, _)| *ns).fold(0.0, f64::max);
    let nearly = all.into_iter().filter(|(_, (ns, _))| *ns >= NEARLY * most);
    let mut nearly: Vec<(ThreadId, f64, f64)> = nearly
        .map(|(thread, (ns, depth))| (thread, depth / ns.max(1.0), ns))
        .collect();
    nearly.sort_by(|one, other| one.1.total_cmp(&other.1).then(other.2.total_cmp(&one.2)));
    nearly.into_iter().map(|(thread, ..)| thread).collect()
}

impl<F: Facts> Judge<'_, F> {
    /// The verdict that these stood behind one thread, and its episodes.
    pub(super) fn behind(
        &self,
        slow: &[&Slow],
        typical: &Sum,
        holder: ThreadId,
        measured: &Measured,
    ) -> Option<(Verdict, Vec<Episode>)> {
        let excess_of = |slow: &Slow| slow.excess_behind(slow.behind_ns(holder), typical);
        let parts: Vec<(f64, f64)> = measured
            .episodes
            .iter()
            .map(|episode| {
                let requests = episode.requests.iter().map(|at| slow[*at]);
                (requests.map(excess_of).sum::<f64>(), episode.excess.all)
            })
            .collect();
        let (own, all) = parts
            .iter()
            .fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        let mut random = Random::of(slow.iter().map(|slow| slow.begin_ns));
        let share = (own / f64::max(all, 1.0)).min(1.0);
        let least = episodes::least_of(&parts, &mut random).min(1.0);
        let not_known = not_known(slow, typical, holder, measured);
        if share < CAUSE || least < CAUSE_LEAST || not_known > NOT_KNOWN {
            return None;
        }
        let held: Vec<&Slow> = slow
            .iter()
            .filter(|slow| slow.behind_ns(holder) as f64 >= CAUSE_LEAST * slow.latency_ns() as f64)
            .copied()
            .collect();
        let times = || {
            held.iter().flat_map(|slow| {
                let behind = slow.is_behind(holder);
                behind.map(|one| (one.key, one.ns * slow.weight))
            })
        };
        let all_ns: u64 = times().map(|(_, ns)| ns).sum();
        let of_cpus = times().filter(|(one, _)| one.family() == Some(Family::Cpu));
        let of_cpus: u64 = of_cpus.map(|(_, ns)| ns).sum();
        let held_ns = times().filter(|(one, _)| one.held);
        let held_ns: u64 = held_ns.map(|(_, ns)| ns).sum();
        if (held_ns as f64) < HELD * all_ns as f64 {
            return None;
        }
        let waits_for_cpus = of_cpus as f64 > 0.5 * all_ns as f64;
        let (class, _) = most(times().map(|(one, ns)| (one.state, ns)))?;
        let of_class = most(times().map(|(one, ns)| (one.class, ns)));
        let object = match of_class {
            Some((Some(class), ns)) if ns as f64 >= CULPRIT * all_ns as f64 => {
                Plain::of(self.facts.class(Some(class)))
            }
            _ => Plain::default(),
        };
        let episodes = episodes::largest(episodes::of(&held, typical));
        let begins: Vec<u64> = episodes.iter().map(|episode| episode.from_ns).collect();
        let verdict = Verdict {
            class,
            request: self.of.name.to_owned(),
            also: Vec::new(),
            culprit: self.culprit(Who::Thread(holder), &held),
            did: self.did(times(), all_ns),
            object,
            episode_ns: median_of_longest(&episodes, &held, |slow| slow.behind_ns(holder)),
            times: episodes.len() as u64,
            stood: None,
            meanwhile: None,
            knows_takers: self.collector.knows_takers,
            cadence: periods::of(&begins, false),
            evidence: Evidence {
                cause: mille(share),
                cause_least: mille(least),
                culprit: mille(1.0),
                not_known: mille(not_known),
                ..measured.evidence
            },
        };
        let is_turn = waits_for_cpus && verdict.episode_ns < TURNS_NS;
        (!is_turn).then_some((verdict, episodes))
    }

    /// What it did while it held them up, the most first.
    fn did(&self, times: impl Iterator<Item = (Key, u64)>, all_ns: u64) -> Vec<(Did, u16)> {
        let mut sums: BTreeMap<Did, u64> = BTreeMap::new();
        for (one, ns) in times {
            let did = match one.doing {
                Doing::Own(pattern) => Did::Itself(PATTERNS[usize::from(pattern)].class),
                Doing::Waited(class) => Did::Waited(Plain::of(self.facts.class(class))),
            };
            *sums.entry(did).or_default() += ns;
        }
        let share = |ns: u64| mille(ns as f64 / all_ns.max(1) as f64);
        let did = sums.into_iter().map(|(did, ns)| (did, share(ns)));
        let mut did: Vec<_> = did.filter(|(_, share)| *share >= WORTH_NAMING).collect();
        did.sort_by_key(|(_, share)| Reverse(*share));
        did
    }
}

/// The part of the excess of which neither the root cause is known nor that it stood behind this one, and what was lost.
fn not_known(slow: &[&Slow], typical: &Sum, holder: ThreadId, measured: &Measured) -> f64 {
    let behind = slow.iter().map(|slow| {
        let not_known = slow.is_behind(holder).filter(|one| !one.key.is_known);
        slow.excess_behind(not_known.map(|one| one.ns).sum(), typical)
    });
    let behind = behind.sum::<f64>() / measured.excess.all.max(1.0);
    (measured.excess.share(Family::NotKnown) - behind).max(0.0) + measured.lost
}
