//! Contention: slow requests with who held them up in; where they waited for each other, whoever was first, out.
//!
//! Asked where no root cause explains them. Of many who take turns at one thing each may do something else with it, or
//! wait for a CPU: what they have in common is that thing, and maybe their statements.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::episodes::{self, Excess};
use super::facts::{Facts, Judge};
use super::named::{median_of_longest, most, text_of};
use super::numbers::{CAUSE, CAUSE_LEAST, CULPRIT, mille};
use super::of_type::Sum;
use super::periods;
use super::random::Random;
use super::shares::{Share, Who};
use super::slow::Slow;
use crate::blame::ThreadId;
use crate::report::verdict::{Class, Culprit, Evidence, Verdict};
use reqtrace_base::plain::Plain;

/// Fewer threads, or requests, do not take turns.
const FEWEST_HOLDERS: usize = 3;
/// Those who queue may do so without a break, in one episode: what is sure is found by choices of seconds.
const BLOCK_NS: u64 = 1_000_000_000;
const FEWEST_BLOCKS: usize = 5;
/// They are those who together have so much of it: who has it for a moment is none of them.
const NEARLY_ALL: f64 = 0.95;

impl Share {
    /// How long it waited for that one.
    fn held_ns(&self) -> u64 {
        self.most.map_or(self.ns, |(_, ns)| ns)
    }

    fn is_queued_in(&self, class: u16) -> bool {
        self.class == Some(class) && self.holder().is_some()
    }
}

impl Slow {
    fn queued_ns(&self, class: u16) -> u64 {
        let shares = self.shares.iter();
        let queued = shares.filter(|share| share.is_queued_in(class));
        queued.map(|share| share.ns).sum()
    }
}

impl<F: Facts> Judge<'_, F> {
    /// The verdict that they wait for each other, if it is one.
    pub(super) fn contention(
        &self,
        slow: &[&Slow],
        typical: &Sum,
        evidence: Evidence,
    ) -> Option<Verdict> {
        let shares = slow
            .iter()
            .flat_map(|slow| slow.shares.iter().map(|share| (share, slow.weight)));
        let held = shares.filter(|(share, _)| share.holder().is_some());
        let class = most(
            held.clone()
                .filter_map(|(share, weight)| Some((share.class?, share.ns * weight))),
        );
        let (class, _) = class?;
        let blocks = by_block(slow, typical, class);
        if blocks.len() < FEWEST_BLOCKS {
            return None;
        }
        let mut random = Random::of(blocks.keys().copied());
        let parts: Vec<(f64, f64)> = blocks.into_values().collect();
        let sum = parts
            .iter()
            .fold((0.0, 0.0), |sum, part| (sum.0 + part.0, sum.1 + part.1));
        let share = (sum.0 / sum.1.max(1.0)).min(1.0);
        let least = episodes::least_of(&parts, &mut random).min(1.0);
        if share < CAUSE || least < CAUSE_LEAST {
            return None;
        }
        let mut holders: BTreeMap<Who, u64> = BTreeMap::new();
        for (share, weight) in held.filter(|(share, _)| share.is_queued_in(class)) {
            *holders.entry(share.holder()?).or_default() += share.held_ns() * weight;
        }
        let all_ns: u64 = holders.values().sum();
        let mut holders: Vec<(Who, u64)> = holders.into_iter().collect();
        holders.sort_by_key(|(_, ns)| Reverse(*ns));
        let mut before_ns = 0;
        holders.retain(|(_, ns)| {
            let is_one = (before_ns as f64) < NEARLY_ALL * all_ns as f64;
            before_ns += ns;
            is_one
        });
        let (_, largest_ns) = holders.first()?;
        if holders.len() < FEWEST_HOLDERS || *largest_ns as f64 >= CULPRIT * all_ns as f64 {
            return None;
        }
        let holders = holders.into_iter().map(|(who, _)| who).collect();
        let own: Vec<&Slow> = slow
            .iter()
            .filter(|slow| slow.queued_ns(class) as f64 >= CAUSE_LEAST * slow.latency_ns() as f64)
            .copied()
            .collect();
        let episodes = episodes::largest(episodes::of(&own, typical));
        let begins: Vec<u64> = episodes.iter().map(|episode| episode.from_ns).collect();
        Some(Verdict {
            class: Class::Contended,
            request: self.of.name.to_owned(),
            also: Vec::new(),
            culprit: Some(self.those(&holders, &own)),
            did: Vec::new(),
            object: Plain::of(self.facts.class(Some(class))),
            episode_ns: median_of_longest(&episodes, &own, |slow| slow.queued_ns(class)),
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
        })
    }

    /// Several, or requests without threads of their own; with the statements that most of them ran.
    pub(super) fn those(&self, all: &BTreeSet<Who>, own: &[&Slow]) -> Culprit {
        let mut threads: BTreeSet<ThreadId> = BTreeSet::new();
        let (mut pids, mut types) = (BTreeSet::new(), BTreeSet::new());
        for one in all {
            match *one {
                Who::Thread(thread) => {
                    threads.insert(thread);
                    pids.insert(thread.tgid);
                }
                Who::Requests(pid, of_type) => {
                    types.insert(of_type);
                    pids.insert(pid);
                }
                Who::Request(pid, of) => {
                    types.insert(of.request_type);
                    pids.insert(pid);
                }
                _ => {}
            }
        }
        let types = types.into_iter();
        let types: Vec<String> = types
            .map(|of_type| self.facts.of_type(of_type as usize).name.to_owned())
            .collect();
        let names: BTreeSet<Plain> = threads.iter().map(|one| self.facts.comm(*one)).collect();
        let only = |set: BTreeSet<u32>| {
            if set.len() == 1 {
                set.first().copied()
            } else {
                None
            }
        };
        Culprit {
            pid: only(pids).unwrap_or(0),
            threads: threads.len() as u64,
            comm: match names.len() {
                1 if types.is_empty() => names.into_iter().next().unwrap_or_default(),
                _ => Plain::default(),
            },
            requests: types,
            statements: text_of(self.collector, &in_common(all, own)),
            connection: self.connection_of_all(&threads),
            ..Culprit::default()
        }
    }
}

impl<F: Facts> Judge<'_, F> {
    /// What the connections of all these threads have alike.
    fn connection_of_all(&self, threads: &BTreeSet<ThreadId>) -> Vec<(String, Plain)> {
        let mut each = threads.iter().map(|thread| self.connection(*thread));
        let mut alike = each.next().unwrap_or_default();
        each.for_each(|other| alike.retain(|one| other.contains(one)));
        alike
    }
}

/// By blocks of time, what these took more than a typical one because they queued there, and altogether.
fn by_block(slow: &[&Slow], typical: &Sum, class: u16) -> BTreeMap<u64, (f64, f64)> {
    let mut blocks: BTreeMap<u64, (f64, f64)> = BTreeMap::new();
    for slow in slow {
        let (own, all) = blocks.entry(slow.end_ns / BLOCK_NS).or_default();
        *own += slow.excess_behind(slow.queued_ns(class), typical);
        *all += Excess::of(slow, typical).all;
    }
    blocks
}

/// The statements that those ran who held most of these up, each in its usual place.
fn in_common(all: &BTreeSet<Who>, own: &[&Slow]) -> Vec<u32> {
    let is_one = |who: Who| all.iter().any(|one| one.has(who));
    let time = |slow: &Slow| slow.latency_ns() * slow.weight;
    let all_ns: u64 = own.iter().map(|slow| time(slow)).sum();
    let mut ran: BTreeMap<u32, (u64, f64)> = BTreeMap::new();
    for slow in own {
        let mut by_culprit = slow.by_culprit.iter();
        let Some((_, by_culprit)) = by_culprit.find(|(who, _)| is_one(*who)) else {
            continue;
        };
        let statements: BTreeSet<u32> = by_culprit.iter().copied().collect();
        for statement in statements {
            let place = by_culprit.iter().position(|one| *one == statement);
            let (ns, places) = ran.entry(statement).or_default();
            *ns += time(slow);
            *places += time(slow) as f64 * place.unwrap_or(0) as f64;
        }
    }
    ran.retain(|_, (ns, _)| *ns as f64 >= CULPRIT * all_ns as f64);
    let mut common: Vec<(u32, f64)> = ran
        .into_iter()
        .map(|(statement, (ns, places))| (statement, places / ns as f64))
        .collect();
    common.sort_by(|one, other| one.1.total_cmp(&other.1));
    common.into_iter().map(|(statement, _)| statement).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::patterns::Times;

    const MS: u64 = 1_000_000;

    /// A typical request takes 1 ms and queues, too: slow ones, which queue for half of their 5 ms, have no more of their
    /// excess from that.
    #[test]
    fn what_is_queued_counts_as_far_as_it_is_excess() {
        const CLASS: u16 = 3;
        let (latency_ns, queued_ns) = (5 * MS, 5 * MS / 2);
        let slow = |number: u64| {
            let begin_ns = number * BLOCK_NS / 10;
            let until_ns = begin_ns + queued_ns;
            let share = Share {
                pattern: 0,
                who: Who::Thread(ThreadId { tgid: 1, tid: 9 }),
                most: None,
                class: Some(CLASS),
                ns: queued_ns,
                from_ns: begin_ns,
                until_ns,
                longest: (begin_ns, until_ns),
            };
            Slow {
                weight: 2,
                shares: vec![share],
                ..Slow::bare(begin_ns, latency_ns)
            }
        };
        let slow: Vec<Slow> = (0..50).map(slow).collect();
        let slow: Vec<&Slow> = slow.iter().collect();
        let typical = Sum {
            weight: 100,
            latency_ns: 100 * MS,
            times: Times::default(),
        };
        let blocks = by_block(&slow, &typical, CLASS);
        assert_eq!(blocks.len(), 5);
        for (own, all) in blocks.into_values() {
            assert!((all - 10.0 * 8.0 * MS as f64).abs() < 1.0, "{all}");
            assert!((own / all - 0.5).abs() < 0.001, "{own} of {all}");
        }
    }
}
