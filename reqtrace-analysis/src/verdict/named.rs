//! A verdict with its names: a cause and whose it is in; culprit, object, and how often it comes, out.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use reqtrace_base::plain::Plain;

use super::collect::{Collector, TookCpus};
use super::episodes::{self, Episode, Excess};
use super::facts::{Facts, Judge};
use super::numbers::{CAUSE_LEAST, CULPRIT};
use super::of_type::Sum;
use super::patterns::{Family, PATTERNS, Pattern};
use super::periods;
use super::shares::{Share, Who};
use super::slow::Slow;
use crate::blame::{ThreadId, stalls};
use crate::report::verdict::{Culprit, Evidence, Verdict};
use crate::report::{TakerKind, TakerName};

/// What identifies a connection, as profiles name it.
const CONNECTION: [&str; 5] = ["user", "host", "client", "database", "application"];

impl<F: Facts> Judge<'_, F> {
    /// The verdict, and its episodes.
    pub(super) fn verdict(
        &self,
        slow: &[&Slow],
        typical: &Sum,
        pattern: &Pattern,
        who: Who,
        evidence: Evidence,
    ) -> (Verdict, Vec<Episode>) {
        let family = pattern.family;
        let is_its = |share: &&Share| {
            PATTERNS[usize::from(share.pattern)].family == family && share.ns_of(who) > 0
        };
        let own: Vec<&Slow> = slow
            .iter()
            .filter(|slow| {
                let is_by = who == Who::Nobody || slow.shares.iter().any(|share| is_its(&share));
                is_by && Excess::of(slow, typical).share(family) >= CAUSE_LEAST
            })
            .copied()
            .collect();
        let episodes = episodes::largest(episodes::of(&own, typical));
        let begins: Vec<u64> = episodes.iter().map(|episode| episode.from_ns).collect();
        let shares = || {
            let shares = own
                .iter()
                .flat_map(|slow| slow.shares.iter().map(|share| (share, slow.weight)));
            shares.filter(|(share, _)| is_its(share))
        };
        let class = most(shares().map(|(share, weight)| {
            (
                PATTERNS[usize::from(share.pattern)].class,
                share.ns_of(who) * weight,
            )
        }));
        let waited_in =
            most(shares().map(|(share, weight)| (share.class, share.ns_of(who) * weight)));
        let object = match (family, waited_in, who) {
            (_, _, Who::Cgroup(number)) => self.text(number),
            (Family::OnCpu, ..) => self.statement(&own),
            (_, Some((Some(class), _)), _) => Plain::of(self.facts.class(Some(class))),
            // A CPU is no place.
            (Family::Cpu, ..) | (_, None, _) => Plain::default(),
            (_, Some((None, _)), _) => Plain::of(self.facts.class(None)),
        };
        let verdict = Verdict {
            class: match class {
                // Of a cause without a taker who is named the largest class may have one.
                Some((class, _)) if family != Family::Cpu => class,
                _ => pattern.class,
            },
            request: self.of.name.to_owned(),
            also: Vec::new(),
            culprit: self.culprit(who, &own),
            did: Vec::new(),
            object,
            episode_ns: median(&episodes, &own, family, (who, &is_its)),
            times: episodes.len() as u64,
            stood: match family {
                Family::Disk => stood(&own),
                _ => None,
            },
            meanwhile: match family {
                Family::Disk => {
                    let times = episodes.iter().map(|one| (one.from_ns, one.until_ns));
                    self.facts.meanwhile(&times.collect::<Vec<_>>())
                }
                _ => None,
            },
            knows_takers: self.collector.knows_takers,
            cadence: periods::of(&begins, who == Who::Nobody),
            evidence,
        };
        (verdict, episodes)
    }

    /// The statement that has most of the time of requests, if one has.
    fn statement(&self, own: &[&Slow]) -> Plain {
        let time = |slow: &&&Slow| slow.latency_ns() * slow.weight;
        let all: u64 = own.iter().map(|slow| time(&slow)).sum();
        let one = most(own.iter().map(|slow| (slow.statement, time(&slow))));
        match one {
            Some((number, ns)) if ns as f64 >= CULPRIT * all as f64 => self.text(number),
            _ => Plain::default(),
        }
    }

    pub(super) fn culprit(&self, who: Who, own: &[&Slow]) -> Option<Culprit> {
        match who {
            Who::Nobody | Who::Cgroup(_) => None,
            Who::Process(pid) => self.taker(pid),
            Who::Threads(_) => {
                let is_one = |one: &Who| who.has(*one);
                let holders = own.iter().flat_map(|slow| slow.shares.iter());
                let threads = holders.filter_map(Share::holder).filter(is_one).collect();
                Some(self.those(&threads, own))
            }
            Who::Requests(..) => Some(self.those(&BTreeSet::from([who]), own)),
            Who::Request(_, of) => Some(Culprit {
                request_unix_ns: Some(self.facts.unix_ns(of.begin_ns)),
                ..self.those(&BTreeSet::from([who]), own)
            }),
            Who::Peer(peer) => Some(Culprit {
                comm: Plain::of(&peer.to_string()),
                ..Culprit::default()
            }),
            Who::Thread(thread) => {
                let statements = own.iter().filter_map(|slow| {
                    let mut known = slow.by_culprit.iter();
                    let (_, numbers) = known.find(|(of, _)| *of == who)?;
                    Some((numbers.as_slice(), slow.latency_ns() * slow.weight))
                });
                let statements = most(statements);
                let numbers = statements.map_or(&[][..], |(numbers, _)| numbers);
                let begun = self.collector.begun.get(&thread.tgid);
                Some(Culprit {
                    pid: thread.tgid,
                    tid: thread.tid,
                    start_unix_ns: begun.map(|at_ns| self.facts.unix_ns(*at_ns)),
                    comm: self.facts.comm(thread),
                    connection: self.connection(thread),
                    statements: text_of(self.collector, numbers),
                    ..Culprit::default()
                })
            }
        }
    }

    /// A process that took CPUs.
    fn taker(&self, pid: u32) -> Option<Culprit> {
        let TookCpus { longest, cpus } = self.collector.takers.get(&pid)?;
        let name = TakerName::of(TakerKind::Process, longest);
        let most = most(cpus.iter().map(|(cpu, ns)| (*cpu, *ns)));
        let begun = self.collector.begun.get(&pid);
        Some(Culprit {
            pid,
            tid: longest.tid,
            start_unix_ns: begun.map(|at_ns| self.facts.unix_ns(*at_ns)),
            comm: name.comm.clone(),
            took: most.map(|(cpu, _)| (cpu, name)),
            ..Culprit::default()
        })
    }

    /// Whether it goes before all threads without real time.
    pub(super) fn is_real_time(&self, who: Who) -> bool {
        let Who::Process(pid) = who else { return false };
        let taker = self.collector.takers.get(&pid);
        taker.is_some_and(|taker| TakerName::of(TakerKind::Process, &taker.longest).is_real_time())
    }

    pub(super) fn connection(&self, thread: ThreadId) -> Vec<(String, Plain)> {
        let Some(known) = self.collector.connections.get(&thread) else {
            return Vec::new();
        };
        let named = self.facts.attributes().iter().zip(&known.attributes);
        let named =
            named.filter(|(name, value)| CONNECTION.contains(&name.as_str()) && !value.is_empty());
        named
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }

    fn text(&self, number: u32) -> Plain {
        let text = self.collector.texts.get(number);
        text.cloned().unwrap_or_default()
    }
}

/// Texts by number.
pub(super) fn text_of(collector: &Collector, numbers: &[u32]) -> Vec<Plain> {
    let texts = numbers
        .iter()
        .filter_map(|number| collector.texts.get(*number));
    texts.cloned().collect()
}

/// Nanoseconds of an episode: the median of what its longest request has of the cause.
fn median(
    episodes: &[Episode],
    own: &[&Slow],
    family: Family,
    (who, is_its): (Who, &impl Fn(&&Share) -> bool),
) -> u64 {
    let of_request = |slow: &Slow| {
        let shares = slow.shares.iter().filter(is_its);
        let by_share: u64 = shares.map(|share| share.ns_of(who)).sum();
        let patterns = PATTERNS.iter().zip(slow.times);
        let all = patterns.filter(|(pattern, _)| pattern.family == family);
        // Own times have no shares.
        if by_share > 0 {
            by_share
        } else {
            all.map(|(_, ns)| ns).sum()
        }
    };
    median_of_longest(episodes, own, of_request)
}

/// The median of what the longest request of each episode has.
pub(super) fn median_of_longest(
    episodes: &[Episode],
    own: &[&Slow],
    ns_of: impl Fn(&Slow) -> u64,
) -> u64 {
    let longest = episodes.iter().map(|episode| {
        let requests = episode.requests.iter();
        requests.map(|at| ns_of(own[*at])).max().unwrap_or(0)
    });
    let mut longest: Vec<u64> = longest.collect();
    longest.sort_unstable();
    longest.get(longest.len() / 2).copied().unwrap_or(0)
}

/// Of the longest stall of a disk how many requests stood, and for how long.
fn stood(own: &[&Slow]) -> Option<(u64, u64)> {
    let at_disk = |share: &&Share| PATTERNS[usize::from(share.pattern)].family == Family::Disk;
    let longest = |slow: &&Slow| {
        let at_disk = slow.shares.iter().filter(at_disk);
        let times = at_disk.map(|share| share.longest);
        times.max_by_key(|(from_ns, until_ns)| until_ns - from_ns)
    };
    let stands: Vec<_> = own.iter().filter_map(longest).collect();
    stalls(&stands).1
}

/// What has the most, by what it is.
pub(super) fn most<T: Ord + Copy>(all: impl Iterator<Item = (T, u64)>) -> Option<(T, u64)> {
    let mut sums: BTreeMap<T, u64> = BTreeMap::new();
    for (what, ns) in all {
        *sums.entry(what).or_default() += ns;
    }
    sums.into_iter()
        .max_by_key(|(what, ns)| (*ns, Reverse(*what)))
}
