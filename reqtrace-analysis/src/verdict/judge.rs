//! The judge: what was collected of a type in; a verdict, or why there is none, out.

use std::cmp::Reverse;

use reqtrace_base::plain::Plain;

use super::behind;
use super::collect::Collector;
use super::episodes::{self, Excess};
use super::facts::{Facts, Judge};
use super::measured::Measured;
use super::named::most;
use super::numbers::{
    AFTERMATH, BUSY, CAUSE, CAUSE_LEAST, COVERAGE, CULPRIT, FEWEST_EPISODES, NOT_KNOWN, REST,
    TURNS_NS, mille,
};
use super::patterns::{Family, Names, PATTERNS, Pattern, Refuted, WAITS_FOR_CPU};
use super::periods;
use super::shares::Who;
use super::slow::Slow;
use super::tail::Tail;
use super::whose::{another_process, coverage, culprit, single};
use crate::blame::ThreadId;
use crate::report::verdict::{Because, Class, Evidence, Finding, Unsure, Verdict};

/// Threads that are asked whether they held the others up.
const MOST_HOLDERS: usize = 3;
/// Sentences.
const MOST: usize = 3;
/// Causes that are named where none is the one.
const LARGEST: usize = 3;

/// What is found, the most excess first.
pub(crate) fn findings(collector: &Collector, facts: &impl Facts) -> Vec<Finding> {
    let types = collector.types.iter().enumerate();
    let judged = types.flat_map(|(index, of_type)| {
        let judge = Judge {
            collector,
            index: index as u32,
            of_type,
            facts,
            of: facts.of_type(index),
        };
        judge.all()
    });
    let mut all: Vec<Finding> = judged.collect();
    all.sort_by_key(|finding| Reverse(finding.evidence().excess_ns));
    let mut kept: Vec<Finding> = Vec::new();
    for finding in all {
        let same = kept.iter_mut().find_map(|kept| match (kept, &finding) {
            (Finding::Cause(kept), Finding::Cause(other)) if is_same(kept, other) => Some(kept),
            _ => None,
        });
        match (same, &finding) {
            (Some(kept), Finding::Cause(other)) => {
                if kept.request != other.request && !kept.also.contains(&other.request) {
                    kept.also.push(other.request.clone());
                }
            }
            _ => kept.push(finding),
        }
    }
    kept.truncate(MOST);
    kept
}

/// Whether both are one incident, of requests of different types.
pub(super) fn is_same(one: &Verdict, other: &Verdict) -> bool {
    let who = |verdict: &Verdict| {
        let culprit = verdict.culprit.as_ref();
        culprit.map(|culprit| {
            let (comm, requests) = (culprit.comm.clone(), culprit.requests.clone());
            let one = culprit.request_unix_ns;
            (culprit.pid, culprit.tid, comm, requests, one)
        })
    };
    // Where no culprit tells them apart, what they waited for does: a cgroup, a statement, a lock.
    let is_by_object = matches!(
        one.class,
        Class::CpuLimited | Class::OnCpu | Class::Contended
    );
    let has_object = !one.object.is_empty() && !other.object.is_empty();
    let is_rest = one.request == other.request && !has_object;
    let is_one_object = !is_by_object || is_rest || one.object == other.object;
    one.class == other.class && who(one) == who(other) && is_one_object
}

impl<'a, F: Facts> Judge<'a, F> {
    /// One cause, and the one that explains the rest, if there is much of it.
    fn all(&self) -> Vec<Finding> {
        let Some(mut tail) = Tail::of(self.of_type) else {
            return Vec::new();
        };
        let Some((finding, times)) = self.finding(&tail) else {
            return Vec::new();
        };
        let mut found = vec![finding];
        let excess = |slow: &[&Slow]| {
            let each = slow.iter().map(|slow| Excess::of(slow, &tail.typical).all);
            each.sum::<f64>()
        };
        let all = excess(&tail.slow);
        let rest = apart(&tail.slow, &times);
        let share = excess(&rest) / all.max(1.0);
        if matches!(found[0], Finding::Cause(_)) && share >= REST {
            // As if the first had not been.
            let latency_ns = |slow: &[&Slow]| {
                let each = slow.iter().map(|slow| slow.latency_ns() * slow.weight);
                each.sum::<u64>()
            };
            let explained_ns = latency_ns(&tail.slow) - latency_ns(&rest);
            tail.all.latency_ns = tail.all.latency_ns.saturating_sub(explained_ns);
            tail.slow = rest;
            tail.of_excess = mille(share);
            let other = self.finding(&tail).map(|(finding, _)| finding);
            found.extend(other.filter(|finding| matches!(finding, Finding::Cause(_))));
        }
        found
    }

    /// What these have, and when its episodes were. Where no root cause, or nobody, explains them, one who held them up may, whatever
    /// it did meanwhile.
    fn finding(&self, tail: &Tail<'_>) -> Option<(Finding, Vec<(u64, u64)>)> {
        let found = self.by_cause(tail, &tail.slow);
        let is_open = match &found {
            None | Some((Finding::NoSingleCause(_), _)) => true,
            Some((Finding::Cause(verdict), _)) => verdict.class == Class::WaitsForCpu,
        };
        if !is_open {
            return found;
        }
        self.behind_one(tail).or(found)
    }

    /// One who held these up: its own requests are none of them, unless others held it up.
    fn behind_one(&self, tail: &Tail<'_>) -> Option<(Finding, Vec<(u64, u64)>)> {
        let holders = behind::holders(&tail.slow).into_iter();
        holders
            .take(MOST_HOLDERS)
            .find_map(|holder| self.behind_this(tail, holder))
    }

    fn behind_this(&self, tail: &Tail<'_>, holder: ThreadId) -> Option<(Finding, Vec<(u64, u64)>)> {
        let is_others = |slow: &&&Slow| slow.thread != holder || slow.is_held_by_others(holder);
        let others = tail.slow.iter().filter(is_others);
        let others: Vec<&Slow> = others.copied().collect();
        let measured = self.measured(tail, &others)?;
        if measured.is_light(tail) {
            return None;
        }
        let all = episodes::largest(measured.episodes.clone());
        let is_load = |verdict: &Verdict| episodes::busy(&all) > BUSY && verdict.cadence.is_none();
        if others.len() < tail.slow.len()
            && let Some((Finding::Cause(verdict), times)) = self.by_cause(tail, &others)
            && verdict
                .culprit
                .as_ref()
                .is_some_and(|one| one.tid == holder.tid)
            && !is_load(&verdict)
        {
            return Some((Finding::Cause(verdict), times));
        }
        let (verdict, episodes) = self.behind(&others, &tail.typical, holder, &measured)?;
        if is_load(&verdict) || verdict.times < FEWEST_EPISODES as u64 {
            return None;
        }
        let times = episodes.iter().map(|one| (one.from_ns, one.until_ns));
        Some((Finding::Cause(Box::new(verdict)), times.collect()))
    }

    /// Where these waited, if one place has most of their time.
    fn place(&self, slow: &[&Slow]) -> Plain {
        let shares = slow.iter().flat_map(|slow| {
            slow.shares
                .iter()
                .map(|share| (share.class, share.ns * slow.weight))
        });
        let all: u64 = slow
            .iter()
            .map(|slow| slow.latency_ns() * slow.weight)
            .sum();
        match most(shares.filter(|(class, _)| class.is_some())) {
            Some((class, ns)) if ns as f64 >= CAUSE * all as f64 => {
                Plain::of(self.facts.class(class))
            }
            _ => Plain::default(),
        }
    }

    /// What has most of the excess of these, by root causes.
    fn by_cause(&self, tail: &Tail<'_>, slow: &[&Slow]) -> Option<(Finding, Vec<(u64, u64)>)> {
        let typical = &tail.typical;
        let measured = self.measured(tail, slow)?;
        let is_light = measured.is_light(tail);
        let Measured {
            evidence,
            episodes,
            excess,
            ..
        } = measured;
        let not_known = f64::from(evidence.not_known) / 1_000.0;
        let are_few = episodes.len() < FEWEST_EPISODES;
        // What no root cause explains may be contention. The tail of a healthy service needs no explanation.
        let contention = |evidence| {
            let verdict = (!is_light).then(|| self.contention(slow, typical, evidence));
            let finding = verdict.flatten();
            // Who takes turns does so all the time: there is no rest.
            finding.map(|verdict| (Finding::Cause(Box::new(verdict)), Vec::new()))
        };
        // Slow ones that come all the time are the load, or what this type of request does: no incident.
        let is_load = || {
            let largest = episodes::largest(episodes.clone());
            let begins: Vec<u64> = largest.iter().map(|one| one.from_ns).collect();
            episodes::busy(&largest) > BUSY && periods::of(&begins, true).is_none()
        };
        let unsure = |because, evidence| {
            let unsure = Unsure {
                request: self.of.name.to_owned(),
                because,
                largest: largest(&excess),
                object: self.place(slow),
                evidence,
            };
            let finding = Finding::NoSingleCause(unsure);
            (!is_light && !are_few && !is_load()).then_some((finding, Vec::new()))
        };
        if not_known > NOT_KNOWN || coverage(slow) < COVERAGE {
            return unsure(
                Because::NotKnown(mille(not_known.max(1.0 - coverage(slow)))),
                evidence,
            );
        }
        if are_few {
            return contention(evidence);
        }
        let (pattern, share) = strongest(&excess);
        let least = episodes::least_share(&episodes, pattern.family);
        let evidence = Evidence {
            cause: mille(share),
            cause_least: mille(least),
            ..evidence
        };
        if share < CAUSE {
            return contention(evidence).or_else(|| unsure(Because::SeveralCauses, evidence));
        }
        if least < CAUSE_LEAST {
            let because = Because::FewEpisodes(mille(least));
            return contention(evidence).or_else(|| unsure(because, evidence));
        }
        let (mut who, mut of_cause) = culprit(slow, pattern);
        if pattern.names == Names::Thread
            && of_cause < CULPRIT
            && let Some((pid, share)) = another_process(slow, pattern)
        {
            (who, of_cause) = (Who::Threads(pid), share);
        }
        // Nobody has enough of the CPUs to be named.
        let nobody_took = pattern.names == Names::Taker && of_cause < CULPRIT;
        let pattern = match nobody_took {
            true => &PATTERNS[*WAITS_FOR_CPU],
            false => pattern,
        };
        if is_light && pattern.refuted.contains(&Refuted::ByItsWeight) {
            return None;
        }
        if let Who::Requests(pid, of_type) = who {
            let (one, share) = single(slow, pattern, pid, of_type);
            let is_held = |slow: &&&Slow| slow.shares.iter().any(|share| share.who == who);
            let mut held = slow.iter().filter(is_held);
            let is_own = of_type == self.index && held.any(|slow| slow.thread.tgid == pid);
            if share >= CULPRIT {
                (who, of_cause) = (one, share);
            } else if is_own {
                // They wait for each other, if that is what it is.
                (who, of_cause) = (Who::Nobody, share);
            }
        }
        let evidence = Evidence {
            culprit: mille(if nobody_took { 1.0 } else { of_cause }),
            ..evidence
        };
        if pattern.names == Names::Thread && (of_cause < CULPRIT || who == Who::Nobody) {
            let because = Because::SeveralCulprits(mille(of_cause));
            return contention(evidence).or_else(|| unsure(because, evidence));
        }
        let who = if of_cause < CULPRIT { Who::Nobody } else { who };
        let (verdict, episodes) = self.verdict(slow, typical, pattern, who, evidence);
        let is_load = episodes::busy(&episodes) > BUSY && verdict.cadence.is_none();
        if is_load && pattern.refuted.contains(&Refuted::AllTheTime) {
            return contention(evidence);
        }
        let is_turn = is_light && verdict.cadence.is_none() && !self.is_real_time(who);
        if is_turn && pattern.refuted.contains(&Refuted::ByItsTurn) {
            return None;
        }
        let is_short = verdict.episode_ns < TURNS_NS;
        if is_short && pattern.refuted.contains(&Refuted::ByShortTurns) {
            return None;
        }
        // What matters of it came less often: the rest are slow requests now and then.
        if verdict.times < FEWEST_EPISODES as u64 {
            return contention(evidence);
        }
        let times = episodes.iter().map(|one| (one.from_ns, one.until_ns));
        Some((Finding::Cause(Box::new(verdict)), times.collect()))
    }
}

/// Slow requests at other times: what comes shortly after an episode is its aftermath.
fn apart<'a>(slow: &[&'a Slow], times: &[(u64, u64)]) -> Vec<&'a Slow> {
    if times.is_empty() {
        return Vec::new();
    }
    let is_apart = |slow: &&&Slow| {
        times.iter().all(|(from, until)| {
            let aftermath_ns = (until - from) / AFTERMATH;
            slow.end_ns < *from || slow.begin_ns > until + aftermath_ns
        })
    };
    slow.iter().filter(is_apart).copied().collect()
}

/// The family with the most excess, by the pattern that has most of it, and its share.
fn strongest(excess: &Excess) -> (&'static Pattern, f64) {
    let known = PATTERNS.iter().zip(excess.times);
    let known = known.filter(|(pattern, _)| pattern.family != Family::NotKnown);
    let by_share = |(one, one_ns): &(&Pattern, f64), (other, other_ns): &(&Pattern, f64)| {
        let by_family = excess
            .share(one.family)
            .total_cmp(&excess.share(other.family));
        by_family.then(one_ns.total_cmp(other_ns))
    };
    let strongest = known.max_by(by_share);
    let (pattern, _) = strongest.unwrap_or((&PATTERNS[0], 0.0));
    (pattern, excess.share(pattern.family))
}

/// The largest classes of an excess.
fn largest(excess: &Excess) -> Vec<(Class, u16)> {
    let mut classes: Vec<_> = PATTERNS
        .iter()
        .zip(excess.times)
        .map(|(pattern, ns)| (pattern.class, mille(ns / excess.all.max(1.0))))
        .filter(|(_, share)| *share > 0)
        .collect();
    classes.sort_by_key(|(class, share)| (Reverse(*share), *class));
    classes.truncate(LARGEST);
    classes
}
