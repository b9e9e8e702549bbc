//! CPUs that were taken: waits of threads for a CPU, and who had it meanwhile, in; of each request's waits who took how
//! much, and sums of that by taker, out.

use std::cmp::Reverse;
use std::sync::Arc;

use reqtrace_recording::{CpuWait, Runner};
use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::{Cause, Parts};
use crate::bounded::take_smallest;
use crate::report::blame::{CpuTaken, TakerKind, TakerName};

/// Takers that are kept of one request type.
const MAX_TAKERS: usize = 1 << 12;

/// A wait of a thread for a CPU, as it is kept.
#[derive(Debug)]
pub(super) struct Waited {
    pub(super) from_ns: u64,
    pub(super) until_ns: u64,
    cpu: u32,
    limited_ns: u64,
    /// Of one that a limit held back.
    cgroup: Option<Arc<str>>,
    runners: Box<[Runner]>,
}

impl Waited {
    pub(super) fn of(wait: &CpuWait) -> Self {
        Self {
            from_ns: wait.from_ns,
            until_ns: wait.until_ns,
            cpu: wait.cpu,
            limited_ns: wait.limited_ns,
            cgroup: (!wait.cgroup.is_empty()).then(|| wait.cgroup.as_str().into()),
            runners: wait.runners.as_slice().into(),
        }
    }

    /// What it takes.
    pub(super) fn bytes(&self) -> usize {
        let cgroup = self.cgroup.as_ref().map_or(0, |cgroup| cgroup.len());
        size_of::<Self>() + self.runners.len() * size_of::<Runner>() + cgroup
    }

    /// Who took how much of the part of this wait that lies between two times. Of a part everybody has the same share
    /// as of the whole.
    pub(super) fn between(&self, from_ns: u64, until_ns: u64) -> impl Iterator<Item = By<'_>> {
        let (from_ns, until_ns) = (from_ns.max(self.from_ns), until_ns.min(self.until_ns));
        let all = u128::from(self.until_ns - self.from_ns).max(1);
        let part = u128::from(until_ns.saturating_sub(from_ns));
        let scaled = move |ns: u64| (u128::from(ns) * part / all) as u64;
        let runners = self.runners.iter();
        let runners = runners.map(move |runner| (Taker::Runner(runner), scaled(runner.ns)));
        let cgroup = self.cgroup.as_deref().unwrap_or_default();
        let limit = (Taker::Limit(cgroup), scaled(self.limited_ns));
        runners
            .chain([limit])
            .filter(|(_, ns)| *ns > 0)
            .map(move |(taker, ns)| By {
                taker,
                cpu: self.cpu,
                from_ns,
                ns,
            })
    }
}

/// What one had.
#[derive(Clone, Copy, Debug)]
pub(super) struct By<'a> {
    pub(super) taker: Taker<'a>,
    pub(super) cpu: u32,
    pub(super) from_ns: u64,
    pub(super) ns: u64,
}

/// Who has a CPU that another waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taker<'a> {
    /// A process, or nobody: the CPU was idle.
    Runner(&'a Runner),
    /// The limit of this cgroup: nobody has it.
    Limit(&'a str),
}

/// A part of a wait for a CPU, of the request itself or of somebody whom it waited for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken<'a> {
    /// [`Cause::RunQueue`] or [`Cause::Preempted`].
    pub(crate) cause: Cause,
    pub(crate) taker: Taker<'a>,
    pub(crate) kind: TakerKind,
    pub(crate) cpu: u32,
    pub(crate) from_ns: u64,
    pub(crate) ns: u64,
    /// 0: the request itself waited; then it is no part of its pieces.
    pub(crate) depth: u8,
}

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
