//! CPUs that were taken: who took how much of each request's waits for a CPU in; sums of that by taker out.

use std::cmp::Reverse;
use std::sync::Arc;

use reqtrace_recording::Runner;
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::waited::Taker;
use super::{Cause, Parts};
use crate::bounded::take_smallest;
use crate::report::blame::{CpuTaken, TakerKind, TakerName};

/// Takers that are kept of one request type.
const MAX_TAKERS: usize = 1 << 12;

/// Whom sums are about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Process(Cause, TakerKind, u32),
    Limit(Cause, Arc<str>),
    Others(Cause),
}

#[derive(Clone, Debug, Default)]
struct Sum {
    ns: u64,
    requests: u64,
    longest_ns: u64,
    /// As it was in the longest.
    runner: Runner,
    cpus: FxHashMap<u32, u64>,
}

/// Own waits for CPUs of the requests of one type.
#[derive(Clone, Debug, Default)]
pub(super) struct Takers(FxHashMap<Key, Sum>);

impl Takers {
    /// Adds what one request, which stands for so many, waited itself.
    pub(super) fn add(&mut self, parts: &Parts<'_>, weight: u64) {
        let mut known: SmallVec<[Key; 4]> = SmallVec::new();
        for taken in parts.taken.iter().filter(|taken| taken.depth == 0) {
            let (key, runner) = match taken.taker {
                Taker::Runner(runner) => {
                    (Key::Process(taken.cause, taken.kind, runner.tgid), *runner)
                }
                Taker::Limit(cgroup) => (Key::Limit(taken.cause, cgroup.into()), Runner::default()),
            };
            let sum = self.0.entry(key.clone()).or_default();
            sum.ns += taken.ns * weight;
            *sum.cpus.entry(taken.cpu).or_default() += taken.ns * weight;
            if taken.ns > sum.longest_ns {
                sum.longest_ns = taken.ns;
                sum.runner = runner;
            }
            if !known.contains(&key) {
                sum.requests += weight;
                known.push(key);
            }
        }
        if self.0.len() >= 2 * MAX_TAKERS {
            self.merge();
        }
    }

    /// Adds the smaller half up.
    fn merge(&mut self) {
        for (key, sum) in take_smallest(&mut self.0, MAX_TAKERS, |sum| sum.ns) {
            let (Key::Process(cause, ..) | Key::Limit(cause, _) | Key::Others(cause)) = key;
            let others = self.0.entry(Key::Others(cause)).or_default();
            others.ns += sum.ns;
            others.requests += sum.requests;
            others.longest_ns = others.longest_ns.max(sum.longest_ns);
        }
    }

    /// The most time first.
    pub(super) fn report(&self) -> Vec<CpuTaken> {
        let mut all: Vec<CpuTaken> = self.0.iter().map(|(key, sum)| taken(key, sum)).collect();
        all.sort_by(|one, other| {
            let order = |taken: &CpuTaken| (Reverse(taken.ns), taken.cause);
            let by_time = order(one).cmp(&order(other));
            by_time.then_with(|| one.by.cmp(&other.by))
        });
        all
    }
}

fn taken(key: &Key, sum: &Sum) -> CpuTaken {
    let (cause, by) = match key {
        Key::Process(cause, kind, _) => (*cause, TakerName::of(*kind, &sum.runner)),
        Key::Limit(cause, cgroup) => (*cause, TakerName::limit(cgroup)),
        Key::Others(cause) => (
            *cause,
            TakerName {
                kind: TakerKind::Others,
                ..TakerName::default()
            },
        ),
    };
    let most = sum
        .cpus
        .iter()
        .max_by_key(|(cpu, ns)| (**ns, Reverse(**cpu)));
    CpuTaken {
        cause,
        by,
        cpu: most.map(|(cpu, _)| *cpu),
        ns: sum.ns,
        requests: sum.requests,
        longest_ns: sum.longest_ns,
    }
}
