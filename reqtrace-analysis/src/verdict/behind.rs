//! Behind one: slow requests with who held them up in; the one that most of their time was spent behind, whatever that one did
//! meanwhile, out.
//!
//! Who has a lock may compute, wait for a CPU and for a disk while it has it. By root causes that is several; by who had it, one.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::collect::{Share, Slow, Sum, Who};
use super::episodes::{self, Episode, Excess};
use super::judge::{CAUSE, CAUSE_LEAST, CULPRIT, Facts, Judge, TURNS_NS, mille};
use super::named::{median_of_longest, most};
use super::patterns::{Family, PATTERNS};
use super::periods;
use super::random::Random;
use crate::blame::ThreadId;
use crate::report::verdict::{Class, Evidence, Verdict};
use reqtrace_base::plain::Plain;

/// Of the time that others stood behind it, it ran for so much, or slept: of less the CPUs are the cause.
const HELD: f64 = 0.1;
/// What it did is named if it had so much of the time.
const WORTH_NAMING: u16 = 100;

impl Slow {
    fn behind_ns(&self, holder: ThreadId) -> u64 {
        let own = self.shares.iter().filter(|share| share.is_behind(holder));
        own.map(|share| share.ns).sum()
    }

    /// Its part of what the request took more than a typical one.
    fn excess_behind(&self, holder: ThreadId, typical: &Sum) -> f64 {
        let excess = Excess::of(self, typical).all;
        excess * self.behind_ns(holder) as f64 / self.latency_ns().max(1) as f64
    }

    /// Whether others than this thread held it up, for most of the time.
    pub(super) fn is_held_by_others(&self, holder: ThreadId) -> bool {
        let by_others = self.shares.iter().filter(|share| {
            matches!(share.who, Who::Thread(thread) if thread != holder && thread != self.thread)
        });
        let ns: u64 = by_others.map(|share| share.ns).sum();
        ns as f64 >= CAUSE_LEAST * self.latency_ns() as f64
    }
}

impl Share {
    /// What nobody knows is nobody's doing.
    fn is_behind(&self, holder: ThreadId) -> bool {
        self.who == Who::Thread(holder) && self.pattern().1 != Family::NotKnown
    }

    fn pattern(&self) -> (Class, Family) {
        let pattern = &PATTERNS[usize::from(self.pattern)];
        (pattern.class, pattern.family)
    }
}

/// The thread that held others up for most of the time of all.
pub(super) fn holder(slow: &[&Slow]) -> Option<ThreadId> {
    let shares = slow.iter().flat_map(|slow| {
        let others = slow
            .shares
            .iter()
            .filter(|share| !share.is_behind(slow.thread));
        others.map(|share| (share, slow.weight))
    });
    let behind = shares.filter_map(|(share, weight)| match share.who {
        Who::Thread(thread) => Some((thread, share.ns * weight)),
        _ => None,
    });
    most(behind).map(|(thread, _)| thread)
}

impl<F: Facts> Judge<'_, F> {
    /// The verdict that these stood behind one thread, and its episodes.
    pub(super) fn behind(
        &self,
        slow: &[&Slow],
        typical: &Sum,
        holder: ThreadId,
        evidence: Evidence,
    ) -> Option<(Verdict, Vec<Episode>)> {
        let parts: Vec<(f64, f64)> = episodes::of(slow, typical)
            .iter()
            .map(|episode| {
                let requests = episode.requests.iter().map(|at| slow[*at]);
                let own = requests.map(|slow| slow.excess_behind(holder, typical));
                (own.sum::<f64>(), episode.excess.all)
            })
            .collect();
        let (own, all) = parts
            .iter()
            .fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        let mut random = Random::of(slow.iter().map(|slow| slow.begin_ns));
        let share = (own / f64::max(all, 1.0)).min(1.0);
        let least = episodes::least_of(&parts, &mut random).min(1.0);
        if share < CAUSE || least < CAUSE_LEAST {
            return None;
        }
        let held: Vec<&Slow> = slow
            .iter()
            .filter(|slow| slow.behind_ns(holder) as f64 >= CAUSE_LEAST * slow.latency_ns() as f64)
            .copied()
            .collect();
        let shares = || {
            let shares = held
                .iter()
                .flat_map(|slow| slow.shares.iter().map(|share| (share, slow.weight)));
            shares.filter(|(share, _)| share.is_behind(holder))
        };
        let held_by = shares().filter(|(share, _)| share.pattern().1 == Family::Held);
        let class = most(held_by.map(|(share, weight)| (share.pattern().0, share.ns * weight)));
        let (class, _) = class?;
        let all_ns: u64 = shares().map(|(share, weight)| share.ns * weight).sum();
        let sum_of = |family| -> f64 {
            let of_family = shares().filter(|(share, _)| share.pattern().1 == family);
            of_family
                .map(|(share, weight)| share.ns * weight)
                .sum::<u64>() as f64
        };
        if sum_of(Family::Held) < HELD * all_ns as f64 {
            return None;
        }
        let waits_for_cpus = sum_of(Family::Cpu) > 0.5 * all_ns as f64;
        let of_class = most(shares().map(|(share, weight)| (share.class, share.ns * weight)));
        let object = match of_class {
            Some((Some(class), ns)) if ns as f64 >= CULPRIT * all_ns as f64 => {
                Plain::of(self.facts.class(Some(class)))
            }
            _ => Plain::default(),
        };
        let mut did: BTreeMap<Class, u64> = BTreeMap::new();
        for (share, weight) in shares() {
            *did.entry(share.pattern().0).or_default() += share.ns * weight;
        }
        let of_all = |ns: u64| mille(ns as f64 / all_ns.max(1) as f64);
        let mut did: Vec<(Class, u16)> = did
            .into_iter()
            .map(|(class, ns)| (class, of_all(ns)))
            .collect();
        did.retain(|(_, share)| *share >= WORTH_NAMING);
        did.sort_by_key(|(class, share)| (Reverse(*share), *class));
        let episodes = episodes::largest(episodes::of(&held, typical));
        let begins: Vec<u64> = episodes.iter().map(|episode| episode.from_ns).collect();
        let verdict = Verdict {
            class,
            request: self.of.name.to_owned(),
            also: Vec::new(),
            culprit: self.culprit(Who::Thread(holder), &held),
            did,
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
                ..evidence
            },
        };
        let is_turn = waits_for_cpus && verdict.episode_ns < TURNS_NS;
        (!is_turn).then_some((verdict, episodes))
    }
}
